"""One line at the end of a run: which groups of tests were skipped, and what would enable them."""

import collections
from collections.abc import Iterable

# By the file of the test or the words of its reason: which tests these are, what enables them.
GROUPS = {
    "tests/draw/test_browser": (
        "in a browser",
        "apt install chromium, or name it in DENDRAX_CHROMIUM",
    ),
    "graphviz": ("of graphviz' layout", "apt install graphviz"),
    "tests/integrations/test_public_models.py": (
        "of published models",
        'pip install -e ".[test,zoo]" in an environment of its own',
    ),
    "tests/data/test_full_sets.py": ("of full data sets", "dendrax data get brings them"),
    "pyright is not installed": ("of types", 'pip install "pyright[nodejs]", or make lint'),
    "mpiexec and mpi4py": ("of several processes", "pip install mpich mpi4py"),
    "could not import 'ale_py'": ("of Atari games", "pip install ale-py"),
}


def skipped_line(skipped: Iterable[tuple[str, str]], slow_left_out: bool) -> str | None:
    """From pairs of a test's file and the reason to skip it."""
    counts = collections.Counter(_group(file, reason) for file, reason in skipped)
    parts = [f"{count} {name} ({remedy})" for (name, remedy), count in counts.items()]
    if slow_left_out:
        parts.append("the slow ones (make test-all)")
    return "not run: " + "; ".join(parts) if parts else None


def _group(file: str, reason: str) -> tuple[str, str]:
    for mark, group in GROUPS.items():
        if mark in file or mark in reason:
            return group
    return f"of {file}", reason.removeprefix("Skipped: ")
