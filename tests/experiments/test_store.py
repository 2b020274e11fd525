"""Measurements are kept, found again, and never confused."""

import json

import pytest
from rich.console import Console

from dendrax._atomic import write_atomically
from dendrax.experiments._run import finished, run_cells
from dendrax.experiments._store import Cell, Store, finite

QUIET = Console(quiet=True)


def counting(name="a", result=None, **settings):
    """A cell that counts how often it is measured."""
    calls = []

    def measure(work):
        calls.append(work)
        return {"value": len(calls)} if result is None else result

    return Cell("test", name, settings, measure), calls


def test_what_is_finished_is_not_measured_again(tmp_path):
    cell, calls = counting(width=3)
    first = run_cells([cell], Store(tmp_path), QUIET)
    again = run_cells([cell], Store(tmp_path), QUIET)
    assert len(calls) == 1 and first == again and first[0].result == {"value": 1}


@pytest.mark.parametrize("change", [{"width": 4}, {"width": 3, "depth": 1}, {"width": "3"}])
def test_another_setting_is_another_measurement(tmp_path, change):
    (one, _), (other, _) = counting(width=3), counting(**change)
    assert one.key != other.key
    Store(tmp_path).keep(one, {"value": 1}, 0.0)
    assert Store(tmp_path).find(other) is None


def test_another_version_is_another_measurement(tmp_path, monkeypatch):
    cell, _ = counting()
    Store(tmp_path).keep(cell, {"value": 1}, 0.0)
    assert Store(tmp_path).find(cell) is not None
    monkeypatch.setattr("jax.__version__", "0.0.0")
    assert Store(tmp_path).find(cell) is None


@pytest.mark.parametrize("content", ["", "{", "[]", "{}", '{"identity": 1}', "\0\0"])
def test_a_damaged_file_is_measured_anew(tmp_path, content):
    cell, calls = counting()
    store = Store(tmp_path)
    run_cells([cell], store, QUIET)
    (tmp_path / f"{cell.key}.json").write_text(content)
    assert run_cells([cell], store, QUIET)[0].result == {"value": 2} and len(calls) == 2
    assert store.find(cell).result == {"value": 2}


def test_a_file_of_other_settings_under_this_name_is_not_believed(tmp_path):
    cell, _ = counting(width=3)
    store = Store(tmp_path)
    store.keep(cell, {"value": 1}, 0.0)
    path = tmp_path / f"{cell.key}.json"
    content = json.loads(path.read_text())
    content["identity"]["settings"]["width"] = 5
    path.write_text(json.dumps(content))
    assert store.find(cell) is None


def test_an_interruption_keeps_what_is_finished(tmp_path):
    done, calls = counting("done")
    broken = Cell("test", "broken", {}, lambda work: (_ for _ in ()).throw(KeyboardInterrupt))
    store = Store(tmp_path)
    with pytest.raises(KeyboardInterrupt):
        run_cells([done, broken], store, QUIET)
    assert [found.name for found in finished([done, broken], store)] == ["done"]
    mended = Cell("test", "broken", {}, lambda work: {"value": 7})
    assert [f.result["value"] for f in run_cells([done, mended], store, QUIET)] == [1, 7]
    assert len(calls) == 1


def test_checkpoints_go_when_the_measurement_is_finished(tmp_path):
    def measure(work):
        write_atomically(work.folder / "run.npz", b"half")
        return {}

    cell = Cell("test", "a", {}, measure)
    store = Store(tmp_path)
    run_cells([cell], store, QUIET)
    assert not store.scratch(cell).exists()


def test_numbers_that_json_lacks():
    assert finite({"a": [1.0, float("inf")], "b": float("nan")}) == {"a": [1.0, None], "b": None}


def test_a_failed_write_leaves_the_old_file(tmp_path, monkeypatch):
    path = tmp_path / "file"
    write_atomically(path, b"old")

    def fail(*args):
        raise OSError("disk full")

    monkeypatch.setattr("os.replace", fail)
    with pytest.raises(OSError, match="disk full"):
        write_atomically(path, b"new")
    assert path.read_bytes() == b"old" and list(tmp_path.iterdir()) == [path]
