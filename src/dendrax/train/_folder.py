"""The folder of a run: what it is, what it wrote down, and its checkpoints.

- ``run.json``: what the run is, to be compared when it goes on.
- ``metrics.jsonl``: a line for every point of the curve.
- ``curves.svg``: these points, if the run was one of ``dendrax train``.
- ``last/``, ``best/``: checkpoints, by the number of updates.
- ``last-damaged/``: checkpoints that could not be read, set aside.
- ``best-later/``: those from after the point from which a killed run went on, set aside.
- ``.lock``: an empty file, locked while a run is at work.
"""

from __future__ import annotations

import json
import os
import pathlib
from collections.abc import Mapping
from typing import IO, Any

from dendrax.support import complain, shortened, warn, write_atomically
from dendrax.train._checkpoint import FORMAT, Checkpoints
from dendrax.train._disk import writing
from dendrax.train._progress import read_progress

RECORD = "run.json"
JOURNAL = "metrics.jsonl"
LOCK = ".lock"
CURVES = "curves.svg"
MAX_RECORD_BYTES = 1_000_000  # bytes of a record
KINDS = {
    LOCK: pathlib.Path.is_file,
    JOURNAL: pathlib.Path.is_file,
    "last": pathlib.Path.is_dir,
    "best": pathlib.Path.is_dir,
    "last-damaged": pathlib.Path.is_dir,
    "best-later": pathlib.Path.is_dir,
    CURVES: pathlib.Path.is_file,
}
CODE = "sha256 of code"  # of the user's files: of the model, of the data, ...
# What may change between the parts of one run.
FREE = (CODE, "epochs", "steps", "keep", "patience", "log_every", "checkpoint_every", "sharding")


class Folder:
    """One run on disk. ``about`` is what it is; what is in the folder must be the same run."""

    def __init__(self, path: pathlib.Path, keep: int, about: Mapping[str, Any]):
        self.path = path
        self._about: dict[str, Any] = json.loads(_in_json(about))  # as it will be read
        fixed = fixed_settings(self._about)
        self.last = Checkpoints(path / "last", keep, fixed, read_progress)
        self.best = Checkpoints(path / "best", 1, fixed, read_progress)
        self._lock: IO[str] | None = None

    @property
    def metrics(self) -> pathlib.Path:
        """The journal."""
        return self.path / JOURNAL

    def check(self, *, resume: bool) -> dict[str, Any] | None:
        """Make sure that the folder is free, or this run's: nothing of another's is touched.

        Returns what is known of the run in it.
        """
        self._check_name()
        with writing(self.path):
            known = read_about(self.path)
            if known is None and self.path.exists() and self._others():
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
                self._check_rule(known)
                self._check_same(as_of_now(known))
            self._check_kinds()
        return known

    def _others(self) -> bool:
        """Whether there is more than a run leaves that was killed before it was written down."""
        return any(not _is_leftover(path) for path in self.path.iterdir())

    def _check_kinds(self) -> None:
        """A folder may come from anybody: nothing in it leads elsewhere, or is waited for."""
        for name, is_kind in KINDS.items():
            path = self.path / name
            if path.is_symlink() or (path.exists() and not is_kind(path)):
                kind = "a file" if is_kind is pathlib.Path.is_file else "a folder"
                raise complain(
                    ValueError,
                    f"{path} is not {kind} of its own.",
                    remedy="Nothing was changed. Move it elsewhere, and go on with resume.",
                )
            if path.is_dir():
                os.listdir(path)  # one that may not be read looks as if it were empty

    def _check_name(self) -> None:
        """The library that stores arrays takes a path as UTF-8."""
        try:
            str(self.path.absolute()).encode()
        except UnicodeEncodeError:
            raise complain(
                ValueError,
                f"{self.path} has letters that checkpoints cannot have in their path.",
                remedy="Choose another folder; or set PYTHONUTF8=1 if the name is written in "
                "UTF-8, and the locale is not.",
            ) from None

    def claim(self, *, resume: bool) -> None:
        """Keep every other run out of the folder, until this one closes it or dies."""
        self.check(resume=resume)
        with writing(self.path):
            self.path.mkdir(parents=True, exist_ok=True)
            self._lock = (self.path / LOCK).open("a")
        if not _locked(self._lock):
            raise complain(
                FileExistsError,
                f"another run is at work in {self.path}.",
                remedy="Wait for it, stop it, or choose another folder.",
            )
        known = self.check(resume=resume)  # it may have been here, and gone, in between
        if known is None:  # first of all: killed from here on, it can be resumed
            self.record()
        else:
            self._warn_of_changes(known)

    def record(self) -> None:
        """Write down what the run is."""
        with writing(self.path):
            self.path.mkdir(parents=True, exist_ok=True)
            content = _in_json({"format": FORMAT, "about": self._about})
            write_atomically(self.path / RECORD, content.encode())

    def _check_rule(self, known: Mapping[str, Any]) -> None:
        """A run that was begun under another default of ``batch`` goes on under its own."""
        if is_of_old_batch(known) and as_of_now(known)["rule"] != self._about.get("rule"):
            raise complain(
                ValueError,
                f"{self.path} holds a run that was begun when batch=None was the default, which "
                "takes the loss for a sum over samples, and this one has the rule "
                f"{self._about.get('rule')}.",
                remedy="Resume with the settings of that run and batch='sum', or choose another "
                "folder.",
            )

    def _check_same(self, known: Mapping[str, Any]) -> None:
        for name in sorted(fixed_settings({**known, **self._about})):
            before, now = known.get(name), self._about.get(name)
            if before != now:
                raise complain(
                    ValueError,
                    f"{self.path} holds a run with {name} = {shortened(repr(before))}, and this "
                    f"one has {shortened(repr(now))}.",
                    remedy="Resume with the settings of that run, or choose another folder.",
                )

    def _warn_of_changes(self, known: Mapping[str, Any]) -> None:
        """Code of the user's may have been edited: they know whether that matters."""
        if is_of_old_batch(known):
            warn(
                f"the run in {self.path} was begun when batch=None was the default, which takes "
                "the loss for a sum over samples: it goes on so, with batch='sum'."
            )
        before, now = known.get(CODE), self._about.get(CODE, {})
        if not isinstance(before, dict):
            return
        changed = [name for name in now if before.get(name, now[name]) != now[name]]
        if changed:
            warn(
                f"the code of the {' and the '.join(changed)} has changed since the run in "
                f"{self.path} began: it goes on with the new code."
            )

    def close(self) -> None:
        """Let go of the checkpoints."""
        self.last.close()
        self.best.close()
        if self._lock is not None:
            self._lock.close()


def _is_leftover(path: pathlib.Path) -> bool:
    name = path.name
    if name == JOURNAL:  # a run that has learned nothing yet
        return path.is_file() and not path.stat().st_size
    return name == LOCK or name.startswith((f".{RECORD}.", f".{JOURNAL}."))


def _locked(file: IO[str]) -> bool:
    """Whether the lock is ours now. The operating system takes it back when we die."""
    try:
        import fcntl
    except ImportError:  # not on this system
        return True
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError:  # some file systems have no locks
        return True
    return True


def _in_json(about: Mapping[str, Any]) -> str:
    try:
        return json.dumps(about, indent=1)
    except (TypeError, ValueError, RecursionError) as problem:  # also circles, and deep nesting
        raise complain(
            TypeError,
            f"about cannot be written as JSON: {problem}.",
            remedy="Describe the run in strings and numbers.",
        ) from problem


def is_of_old_batch(about: Mapping[str, Any]) -> bool:
    """Whether a run was begun when a rule without a ``batch`` took its loss for a sum."""
    return "batch=None" in str(about.get("rule", ""))


def as_of_now(about: Mapping[str, Any]) -> dict[str, Any]:
    """What a run is, in the words of today."""
    if not is_of_old_batch(about):
        return dict(about)
    return {**about, "rule": about["rule"].replace("batch=None", "batch='sum'")}


def fixed_settings(about: Mapping[str, Any]) -> dict[str, Any]:
    """What stays the same as long as a run goes on."""
    return {name: value for name, value in about.items() if name not in FREE}


def read_about(folder: pathlib.Path) -> dict[str, Any] | None:
    """What the run in a folder is; ``None`` if there is none."""
    record = folder / RECORD
    try:
        if not record.exists():
            return None
        if (
            not record.is_file() or record.stat().st_size > MAX_RECORD_BYTES
        ):  # a pipe would be waited for
            raise ValueError
        found = json.loads(record.read_text("utf-8"))
        known = found["format"] == FORMAT and isinstance(found["about"], dict)
    except (ValueError, KeyError, TypeError, RecursionError):
        known, found = False, {}
    except OSError as problem:
        raise complain(
            ValueError,
            f"{record} cannot be read: {problem.strerror}.",
            remedy="Nothing was changed. Choose another folder.",
        ) from problem
    if not known:
        raise complain(
            ValueError,
            f"{record} was not written by this version of dendrax.",
            remedy="Choose another folder; a run is finished by the version that began it.",
        )
    return found["about"]
