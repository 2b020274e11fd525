"""The command line: one function for each command of ``dendrax``, and their help."""

import contextlib
import io
import os
import sys

from dendrax.support import is_ours, printable, require_extra

LEAST_ADDRESS_SPACE = 2_000_000_000  # bytes; with less, XLA's threads end the process by an abort


def main() -> None:
    """The entry point of the ``dendrax`` command."""
    _escape_unprintable()
    if not {"--help", "--version"} & {*sys.argv}:
        _check_address_space()
    try:
        with require_extra("the command line", "train"):
            import rich as _rich  # noqa: F401  # pyright: ignore[reportUnusedImport]
            import typer as _typer  # noqa: F401  # pyright: ignore[reportUnusedImport]
        from dendrax.cli._main import app

        app()
    except KeyboardInterrupt:
        sys.exit(130)
    except MemoryError as problem:
        sys.exit(f"dendrax: there is not enough memory{f' ({problem})' * bool(str(problem))}.")
    except OSError as problem:  # nobody has said more: a path, a terminal, a limit of the user's
        sys.exit(printable(_words_of(problem)))
    except ImportError as problem:
        if not is_ours(problem):
            raise
        sys.exit(str(problem))
    except RuntimeError as problem:  # XLA's way to say it
        if "RESOURCE_EXHAUSTED" in str(problem):
            sys.exit(f"dendrax: there is not enough memory ({str(problem).splitlines()[0]}).")
        if "Unable to initialize backend" in str(problem):  # JAX says itself what to do
            sys.exit(printable(f"dendrax: JAX does not start. {problem}"))
        raise


def _words_of(problem: OSError) -> str:
    try:
        os.getcwd()
    except OSError:
        return "dendrax: the current folder does not exist any more.\n  Change to one that does: cd"
    what = f"{problem.filename}: " if problem.filename else ""
    return f"dendrax: {what}{problem.strerror or problem}.\n  Choose another path."


def _check_address_space() -> None:
    with contextlib.suppress(ImportError):  # not on Windows
        import resource

        most, _ = resource.getrlimit(resource.RLIMIT_AS)
        if most != resource.RLIM_INFINITY and most < LEAST_ADDRESS_SPACE:
            sys.exit(
                f"dendrax: ulimit -v gives this process {most / 1e9:.1f} GB of address space, and "
                f"{LEAST_ADDRESS_SPACE / 1e9:.0f} GB are needed.\n  Raise it: ulimit -v unlimited"
            )


def _escape_unprintable() -> None:
    """A terminal, or a file, may not have every letter: what it lacks is written as its number."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")
