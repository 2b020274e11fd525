"""The command line: one function for each command of ``dendrax``, and their help."""

import io
import sys

from dendrax._errors import is_ours
from dendrax._extras import needing


def main() -> None:
    """The entry point of the ``dendrax`` command."""
    _write_what_the_terminal_can()
    try:
        with needing("the command line", "train"):
            import typer as _typer  # noqa: F401  # pyright: ignore[reportUnusedImport]
        from dendrax.cli._main import app

        app()
    except KeyboardInterrupt:
        sys.exit(130)
    except MemoryError as problem:
        sys.exit(f"dendrax: there is not enough memory{f' ({problem})' * bool(str(problem))}.")
    except ImportError as problem:
        if not is_ours(problem):
            raise
        sys.exit(str(problem))


def _write_what_the_terminal_can() -> None:
    """A terminal, or a file, may not have every letter: what it lacks is written as its number."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")
