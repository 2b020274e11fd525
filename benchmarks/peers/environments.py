"""The peers' virtual environments: built from pinned requirements, and kept for the next run."""

import subprocess
import sys
from pathlib import Path

FOLDER = Path(__file__).parent


class BuildError(Exception):
    """An environment that could not be built; the message is pip's own."""


def python_of(name: str, environments: Path) -> Path:
    """The interpreter that runs a worker: ours for ``main``, else one of its own environment.

    The environment lies in ``environments / name``; it is built if it is not there, or if its
    requirements have changed since.
    """
    if name == "main":
        return Path(sys.executable)
    folder = (environments / name).absolute()
    python = folder / "bin" / "python"
    requirements = FOLDER / f"requirements-{name}.txt"
    stamp = folder / "installed.txt"
    if not (stamp.exists() and stamp.read_text() == requirements.read_text()):
        _run(sys.executable, "-m", "venv", str(folder))
        _run(str(python), "-m", "pip", "install", "--quiet", "--requirement", str(requirements))
        stamp.write_text(requirements.read_text())
    return python


def _run(*command: str) -> None:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        lines = [line for line in done.stderr.splitlines() if line.startswith("ERROR")]
        raise BuildError(" ".join(lines) or done.stderr.strip() or f"{command[0]} failed")
