"""Measurements are kept, found again, and never confused."""

import json

import pytest
from rich.console import Console

from dendrax.paper import PARTS, Library, Paper
from dendrax.paper._run import finished, run_cells
from dendrax.paper._store import Cell, Store, _digest, finite, is_store
from dendrax.support._atomic import write_atomically

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


def changed(**parts):
    """The same file, with other parts: JSON that is whole."""
    return lambda content: json.dumps(json.loads(content) | parts).encode()


def without(name):
    def remove(content):
        return json.dumps({k: v for k, v in json.loads(content).items() if k != name}).encode()

    return remove


DAMAGES = {
    "empty": lambda content: b"",
    "another kind of JSON": lambda content: b"[]",
    "nothing in it": lambda content: b"{}",
    "another identity": lambda content: b'{"identity": 1}',
    "zeros": lambda content: b"\0\0",
    "no text": lambda content: b"\xff\xfe",
    "deeper than Python can read": lambda content: b"[" * 100_000,
    "cut in the middle": lambda content: content[: len(content) // 2],
    "the last character lost": lambda content: content.rstrip()[:-1],
    "another number": changed(result={"value": 5}),
    "no number": changed(result={"value": float("nan")}),
    "another time": changed(seconds=1e9),
    "another machine": changed(machine="abacus"),
    "another digest": changed(digest="0" * 64),
    "no digest": without("digest"),
    "no seconds": without("seconds"),
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_damaged_file_is_measured_anew(tmp_path, damage):
    cell, calls = counting()
    store = Store(tmp_path)
    run_cells([cell], store, QUIET)
    path = tmp_path / f"{cell.key}.json"
    path.write_bytes(DAMAGES[damage](path.read_bytes()))
    assert store.find(cell) is None
    assert run_cells([cell], store, QUIET)[0].result == {"value": 2} and len(calls) == 2
    assert store.find(cell).result == {"value": 2}


def test_every_changed_digit_is_noticed(tmp_path):
    cell, _ = counting(width=3)
    store = Store(tmp_path)
    store.keep(cell, {"value": 1234.5}, 6.7)
    path = tmp_path / f"{cell.key}.json"
    content = path.read_bytes()
    for i, letter in enumerate(content):
        if chr(letter).isdigit():
            path.write_bytes(content[:i] + str(9 - int(chr(letter))).encode() + content[i + 1 :])
            assert store.find(cell) is None
    path.write_bytes(content)
    assert store.find(cell).result == {"value": 1234.5}


def test_another_form_of_the_same_file_is_not_damaged(tmp_path):
    """Such as a file that an editor has indented: the digest is of what it says."""
    cell, _ = counting(sizes=(2, 3), rates={"b": 0.1, "a": 1e-30})
    store = Store(tmp_path)
    kept = store.keep(cell, {"value": [0.1, None]}, 0.5)
    path = tmp_path / f"{cell.key}.json"
    path.write_text(json.dumps(dict(reversed(json.loads(path.read_text()).items())), indent=4))
    assert store.find(cell) == kept


def test_every_measurement_of_the_paper_is_found_again(tmp_path):
    """Whatever is in its settings."""
    paper = Paper(tmp_path, Library(full=False), quick=True)
    cells = [cell for part in PARTS for cell in paper.cells(part)]
    for cell in cells:
        paper.store.keep(cell, {"value": 0.1}, 0.0)
    assert len(finished(cells, paper.store)) == len(cells) > 100


def test_what_tells_a_store_from_other_folders(tmp_path):
    store = Store(tmp_path / "store")
    assert is_store(store.folder)
    (store.folder / "notes.txt").write_text("mine")
    assert not is_store(store.folder) and not is_store(tmp_path / "nowhere")
    assert not is_store(store.folder / "notes.txt")
    store.keep(counting()[0], {}, 0.0)
    assert is_store(store.folder)


def test_a_file_of_other_settings_under_this_name_is_not_believed(tmp_path):
    cell, _ = counting(width=3)
    store = Store(tmp_path)
    store.keep(cell, {"value": 1}, 0.0)
    path = tmp_path / f"{cell.key}.json"
    content = json.loads(path.read_text())
    content["identity"]["settings"]["width"] = 5
    content["digest"] = _digest(content)
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
