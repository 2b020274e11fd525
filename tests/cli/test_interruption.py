"""One Ctrl-C stops a command, quietly, and the same command goes on."""

import dataclasses
import signal
import sys
import types

import pytest

from dendrax.paper import Paper


@pytest.fixture
def greedy(small, monkeypatch):
    """The first measurement meets a Ctrl-C, and code that swallows what is raised."""
    cells, calls = Paper.cells, []

    def interrupted(work):
        calls.append("table1")
        if len(calls) == 1:
            with pytest.raises(KeyboardInterrupt):
                signal.raise_signal(signal.SIGINT)
        return {"distance": 0.0, "norm": 1.0}

    def changed(self, part):
        if part != "table1":
            return cells(self, part)
        return [dataclasses.replace(c, measure=interrupted) for c in cells(self, part)]

    monkeypatch.setattr("dendrax.paper.Paper.cells", changed)
    before = signal.signal(signal.SIGINT, signal.default_int_handler)  # it may be ignored
    yield calls
    signal.signal(signal.SIGINT, before)


def test_a_swallowed_interrupt_stops_the_run_and_the_same_command_goes_on(
    greedy, dendrax, tmp_path
):
    stopped = dendrax("paper", "all", "--out", tmp_path)
    assert stopped.code == 130 and stopped.stdout.strip() == ""
    assert stopped.stderr == (
        f"\nStopped. What is measured is kept in {tmp_path}; the same command goes on from there.\n"
    )
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    assert [path.name[:18] for path in (tmp_path / "work").glob("*.json")] == ["divergence-table1-"]
    assert not (tmp_path / "report.html").exists()

    again = dendrax("paper", "all", "--out", tmp_path)
    assert again.code == 1 and again.stderr == ""  # the other distances are not 0
    assert len(list((tmp_path / "work").glob("*.json"))) == 5 and greedy == ["table1"]


def test_an_interruption_of_the_report(small, dendrax, tmp_path, monkeypatch):
    def stop(self):
        raise KeyboardInterrupt

    monkeypatch.setattr("dendrax.paper.Paper.report", stop)
    stopped = dendrax("paper", "table1", "--out", tmp_path)
    assert stopped.code == 130 and "the same command goes on" in stopped.stderr
    assert len(list((tmp_path / "work").glob("*.json"))) == 1


def test_an_interruption_of_anything_else_is_no_traceback(dendrax, monkeypatch):
    """Such as a second Ctrl-C, while the first is being told of."""

    def stop(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr("dendrax.cli._paper.run", stop)
    stopped = dendrax("paper", "table1", "--quick")
    assert stopped.code == 130 and stopped.stdout == "" and "Traceback" not in stopped.stderr


def test_an_interruption_of_the_imports_is_no_traceback(dendrax, monkeypatch):
    """They take seconds: an impatient user has time for it."""

    class Interrupted(types.ModuleType):
        def __getattr__(self, name):
            raise KeyboardInterrupt

    monkeypatch.setitem(sys.modules, "dendrax.cli._main", Interrupted("dendrax.cli._main"))
    assert dendrax("--version") == (130, "", "")
