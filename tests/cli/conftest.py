"""The command line as a user meets it, with measurements that take no time."""

import sys
from typing import NamedTuple

import pytest

from dendrax.cli import main
from dendrax.paper._store import Cell


class Shown(NamedTuple):
    """What a command leaves behind."""

    code: int
    stdout: str
    stderr: str


@pytest.fixture(autouse=True)
def terminal(monkeypatch):
    """The same terminal everywhere: some services force colours."""
    monkeypatch.setenv("COLUMNS", "100")
    monkeypatch.setenv("NO_COLOR", "1")
    for name in ("FORCE_COLOR", "GITHUB_ACTIONS", "PY_COLORS"):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
def dendrax(capsys, monkeypatch):
    """The entry point, with the words of a command line."""

    def run(*words):
        monkeypatch.setattr(sys, "argv", ["dendrax", *map(str, words)])
        with pytest.raises(SystemExit) as end:
            main()
        return Shown(end.value.code or 0, *capsys.readouterr())

    return run


@pytest.fixture
def small(monkeypatch):
    """The paper command with one small measurement in each part, and nothing left out."""

    def cells(self, part):
        result = {"distance": 0.0 if part == "table1" else 1.0, "norm": 1.0}
        settings = {"row": "MLP", "dtype": "float64", "column": "wavefront", "part": part}
        settings |= {"name": "tiny", "model": "MLP()", "data": "images", "batch_size": 2}
        return [Cell("divergence", part, settings, lambda work: result)]

    monkeypatch.setattr("dendrax.paper.Paper.cells", cells)
    monkeypatch.setattr("dendrax.paper.Paper.missing", lambda self: [])
