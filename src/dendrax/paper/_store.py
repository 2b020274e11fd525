"""Results on disk: one JSON file per finished measurement, so that a run goes on where it stopped.

A measurement is known by everything it depends on: change a setting, or the version of dendrax or
JAX, and it is another one, which is measured anew.
"""

from __future__ import annotations

import hashlib
import json
import math
import pathlib
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from importlib import metadata
from typing import Any

import jax

import dendrax
from dendrax.paper._machine import machine, now
from dendrax.support import write_atomically

OnProgress = Callable[[float, str], None]  # how far it is, from 0 to 1, and what it says of itself


@dataclass(frozen=True)
class Work:
    """What a measurement may use while it runs: a folder for checkpoints, and a progress bar."""

    folder: pathlib.Path
    on_progress: OnProgress = lambda part, text: None


@dataclass(frozen=True)
class Cell:
    """One measurement.

    - ``kind``: the experiment, such as ``"speed"``.
    - ``name``: for people, such as ``"MLP-2: original Z-IL"``.
    - ``settings``: all that the result depends on (what JSON can say).
    - ``measure``: makes the result, a mapping that JSON can say.
    """

    kind: str
    name: str
    settings: Mapping[str, Any]
    measure: Callable[[Work], Mapping[str, Any]]

    @property
    def identity(self) -> dict[str, Any]:
        versions = {"dendrax": dendrax.__version__, "jax": jax.__version__}
        versions["jaxlib"] = metadata.version("jaxlib")
        return {"kind": self.kind, "settings": dict(self.settings), "versions": versions}

    @property
    def key(self) -> str:
        """A file name: readable, and different for different settings."""
        digest = hashlib.sha256(_as_json(self.identity).encode()).hexdigest()[:10]
        slug = re.sub(r"[^a-z0-9.]+", "-", self.name.lower()).strip("-")
        return f"{self.kind}-{slug}-{digest}"


@dataclass(frozen=True)
class Finding:
    """A finished measurement: its cell's settings, its result, how long it took, when and where.

    (The seconds are those since the last interruption.)
    """

    kind: str
    name: str
    settings: Mapping[str, Any]
    result: Mapping[str, Any]
    seconds: float
    date: str = ""
    machine: str = ""


class Store:
    """A folder of finished measurements."""

    def __init__(self, folder: pathlib.Path):
        self.folder = folder
        folder.mkdir(parents=True, exist_ok=True)

    def find(self, cell: Cell) -> Finding | None:
        """The finished measurement, or None if there is none (or its file is damaged)."""
        try:
            found = json.loads(self._path(cell).read_text())
            same = found["identity"] == json.loads(_as_json(cell.identity))
            whole = found["digest"] == _digest(found)
            return _finding(cell, found) if same and whole else None
        except (OSError, ValueError, KeyError, TypeError, RecursionError):
            return None

    def keep(self, cell: Cell, result: Mapping[str, Any], seconds: float) -> Finding:
        """Write a finished measurement, all of it or nothing."""
        found = {"identity": cell.identity, "result": finite(result), "seconds": seconds}
        found |= {"date": now(), "machine": machine()}
        found["digest"] = _digest(found)
        write_atomically(self._path(cell), _as_json(found, indent=1).encode())
        return _finding(cell, found)

    def scratch(self, cell: Cell) -> pathlib.Path:
        """The folder for the checkpoints of a measurement that is not finished."""
        return self.folder / "unfinished" / cell.key

    def _path(self, cell: Cell) -> pathlib.Path:
        return self.folder / f"{cell.key}.json"


def is_store(folder: pathlib.Path) -> bool:
    """Whether a folder is new or holds measurements: others too call a folder ``work``."""
    if not folder.is_dir():
        return False
    made = re.compile(r"unfinished|.+-[0-9a-f]{10}\.json.*")
    names = [path.name for path in folder.iterdir()]
    return not names or any(map(made.fullmatch, names))


def _digest(found: Mapping[str, Any]) -> str:
    """Of everything else in the file: a change by hand, or by a bad disk, is noticed."""
    others = {name: part for name, part in found.items() if name != "digest"}
    return hashlib.sha256(_as_json(others).encode()).hexdigest()


def _finding(cell: Cell, found: Mapping[str, Any]) -> Finding:
    measured = (float(found["seconds"]), found["date"], found["machine"])
    return Finding(cell.kind, cell.name, cell.settings, found["result"], *measured)


def finite(value: Any) -> Any:
    """The value with numbers that JSON lacks, infinity and NaN, as None: they overflowed."""
    if isinstance(value, Mapping):
        return {str(name): finite(part) for name, part in value.items()}
    if isinstance(value, list | tuple):
        return [finite(part) for part in value]
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value


def _as_json(value: Any, **options: Any) -> str:
    return json.dumps(value, sort_keys=True, allow_nan=False, **options)
