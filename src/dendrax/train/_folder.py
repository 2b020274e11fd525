"""The folder of a run: what it is, what it wrote down, and its checkpoints.

- ``run.json``: what the run is, to be compared when it goes on.
- ``metrics.jsonl``: a line for every point of the curve.
- ``last/``, ``best/``: checkpoints, by the number of updates.
- ``last-damaged/``: checkpoints that could not be read, set aside.
"""

from __future__ import annotations

import contextlib
import json
import pathlib
from collections.abc import Iterator, Mapping
from typing import Any

from dendrax._atomic import write_atomically
from dendrax._errors import complain, is_ours
from dendrax.train._checkpoint import FORMAT, Checkpoints

RECORD = "run.json"
# What may change between the parts of one run.
FREE = ("epochs", "steps", "keep", "patience", "log_every", "checkpoint_every", "sharding")


class Folder:
    """One run on disk."""

    def __init__(self, path: pathlib.Path, keep: int):
        self.path = path
        self.last = Checkpoints(path / "last", keep)
        self.best = Checkpoints(path / "best", 1)

    @property
    def metrics(self) -> pathlib.Path:
        """The journal."""
        return self.path / "metrics.jsonl"

    def check(self, about: Mapping[str, Any], *, resume: bool) -> None:
        """Make sure that the folder is free, or this run's: nothing of another's is touched."""
        with _naming(self.path):
            known = read_about(self.path)
            if known is None and self.path.exists() and any(self.path.iterdir()):
                raise complain(
                    FileExistsError,
                    f"{self.path} is not empty, and holds no run of dendrax.",
                    remedy="Choose another folder.",
                )
            if known is not None and not resume:
                raise complain(
                    FileExistsError,
                    f"{self.path} holds a run already.",
                    remedy="Go on with it (resume), or choose another folder.",
                )
            if known is not None:
                self._check_same(known, about)

    def record(self, about: Mapping[str, Any]) -> None:
        """Write down what the run is."""
        with _naming(self.path):
            self.path.mkdir(parents=True, exist_ok=True)
            content = {"format": FORMAT, "about": about}
            write_atomically(self.path / RECORD, json.dumps(content, indent=1).encode())

    def _check_same(self, known: Mapping[str, Any], about: Mapping[str, Any]) -> None:
        as_read = json.loads(json.dumps(about))
        for name in sorted({*known, *as_read} - {*FREE}):
            if known.get(name) != as_read.get(name):
                raise complain(
                    ValueError,
                    f"{self.path} holds a run with {name} = {known.get(name)!r}, and this one has "
                    f"{as_read.get(name)!r}.",
                    remedy="Resume with the settings of that run, or choose another folder.",
                )

    def close(self) -> None:
        """Let go of the checkpoints."""
        self.last.close()
        self.best.close()


@contextlib.contextmanager
def _naming(path: pathlib.Path) -> Iterator[None]:
    try:
        yield
    except (FileExistsError, NotADirectoryError, PermissionError) as problem:
        if is_ours(problem):
            raise
        raise complain(
            type(problem), f"cannot write to {path}: {problem}.", remedy="Choose another folder."
        ) from problem


def read_about(folder: pathlib.Path) -> dict[str, Any] | None:
    """What the run in a folder is; ``None`` if there is none."""
    record = folder / RECORD
    if not record.exists():
        return None
    try:
        found = json.loads(record.read_text())
        known = found["format"] == FORMAT and isinstance(found["about"], dict)
    except (ValueError, KeyError, TypeError):
        known, found = False, {}
    if not known:
        raise complain(
            ValueError,
            f"{record} was not written by this version of dendrax.",
            remedy="Choose another folder.",
        )
    return found["about"]
