"""A real launcher, for the tests: mpiexec of the test extra, beside this Python or on PATH."""

import importlib.util
import os
import pathlib
import shutil
import sys

import pytest

MPIEXEC = shutil.which(
    "mpiexec", path=os.pathsep.join([str(pathlib.Path(sys.executable).parent), os.environ["PATH"]])
)

with_mpiexec = pytest.mark.skipif(
    MPIEXEC is None or importlib.util.find_spec("mpi4py") is None,
    reason="mpiexec and mpi4py are not installed",
)


def in_two(command: list[str]) -> list[str]:
    """A command, run by two processes."""
    return [MPIEXEC or "mpiexec", "-n", "2", *command]
