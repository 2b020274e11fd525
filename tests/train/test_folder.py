"""The folder of a run: written by one, never over what is there, and read as what anybody wrote."""

import errno
import json
import os
import pathlib
import shutil

import numpy as np
import pytest

from dendrax.train import _fit, _journal
from dendrax.train._disk import writing
from dendrax.train._folder import Folder
from tests.train.cases import bits, contents, fit


def test_other_settings_are_refused(run):
    with pytest.raises(ValueError, match=r"a run with batch_size = 16, and this one has 8"):
        fit(run, resume=True, batch_size=8)


def test_a_run_is_not_overwritten(run):
    before = contents(run)
    with pytest.raises(FileExistsError, match=r"holds a run already"):
        fit(run)
    assert contents(run) == before


def test_a_folder_of_others_is_not_written_to(tmp_path):
    (tmp_path / "thesis.tex").write_text("words")
    for resume in (False, True):
        with pytest.raises(FileExistsError, match=r"not empty, and holds no run"):
            fit(tmp_path, resume=resume)
    assert [p.name for p in tmp_path.iterdir()] == ["thesis.tex"]


@pytest.mark.parametrize("names", [[], ["metrics.jsonl"], [".run.json.77", ".metrics.jsonl.77"]])
def test_a_run_that_was_killed_before_it_was_written_down(tmp_path, finished, names):
    for name in (".lock", *names):
        (tmp_path / name).touch()
    assert bits(fit(tmp_path, resume=True).model) == finished[1]


def test_a_journal_without_a_run_is_not_overwritten(tmp_path):
    (tmp_path / "metrics.jsonl").write_text('{"step": 1}\n')
    with pytest.raises(FileExistsError, match=r"not empty, and holds no run"):
        fit(tmp_path, resume=True)


def test_a_run_is_written_down_before_anything_else(tmp_path, finished, monkeypatch):
    """Wherever it is killed then, it can be resumed."""

    def killed(*args):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(_fit, "_go_on", killed)
        fit(tmp_path / "run")
    assert sorted(p.name for p in (tmp_path / "run").iterdir()) == [".lock", "run.json"]
    assert bits(fit(tmp_path / "run", resume=True).model) == finished[1]


def test_a_file_is_no_folder(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(OSError, match=r"cannot write to"):
        fit(tmp_path / "file")


@pytest.mark.parametrize(
    "text", ["", "{", '{"format": "other"}', "[1]", "[" * 100_000, " " * 2_000_000, "\xff\xfe"]
)
def test_a_record_that_is_not_ours(run, text):
    (run / "run.json").write_bytes(text.encode("latin1"))
    before = contents(run)
    with pytest.raises(ValueError, match=r"run.json was not written by this version"):
        fit(run, resume=True)
    assert contents(run) == before


@pytest.mark.parametrize("make", [os.mkfifo, os.mkdir])
@pytest.mark.parametrize(
    ("name", "match"),
    [
        ("run.json", r"run.json was not written by this version"),
        ("metrics.jsonl", r"metrics.jsonl is not a file"),
        (".lock", r"\.lock is not a file"),
    ],
)
def test_what_should_be_a_file_and_is_none(run, make, name, match):
    (run / name).unlink()
    make(run / name)
    with pytest.raises(ValueError, match=match):
        fit(run, resume=True)


def test_the_folder_of_a_new_run_leads_nowhere_either(tmp_path):
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / ".lock").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(ValueError, match=r"\.lock is not a file of its own"):
        fit(tmp_path / "run")
    assert not (tmp_path / "elsewhere").exists()


@pytest.mark.parametrize("name", ["run.json", "metrics.jsonl"])
def test_a_file_that_may_not_be_read(run, monkeypatch, name):
    """Root may read all, so the system's refusal is played."""
    usual = pathlib.Path.read_text

    def read_text(path, *args, **settings):
        if path.name == name:
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))
        return usual(path, *args, **settings)

    before = contents(run)
    monkeypatch.setattr(pathlib.Path, "read_text", read_text)
    with pytest.raises(ValueError, match=rf"{name} cannot be read: Permission denied"):
        fit(run, resume=True)
    assert contents(run) == before


def test_a_setting_that_is_a_book(run):
    about = json.loads((run / "run.json").read_text())
    about["about"]["data"] = "x" * 100_000
    (run / "run.json").write_text(json.dumps(about))
    with pytest.raises(ValueError, match=r"with data = 'x+\.\.\. \(100,002 characters\)") as found:
        fit(run, resume=True)
    assert len(str(found.value)) < 500


def test_lines_that_were_cut_off_are_left_out(run, finished):
    with (run / "metrics.jsonl").open("a") as stream:
        stream.write('{"step": 25, "lo')
    shutil.rmtree(run / "last" / "24")
    assert bits(fit(run, resume=True).model) == finished[1]
    for line in (run / "metrics.jsonl").read_text().splitlines():
        json.loads(line)


def test_lines_that_are_not_ours_are_left_out(run):
    lines = (run / "metrics.jsonl").read_text()
    added = '{"step": 3, "loss": "abc"}\n{"step": null}\n[1]\n{"loss": 1.0}\n'
    added += (
        '{"step": 1e308, "loss": 1.0}\n{"step": 2, "[/bold]": 1.0}\n{"step": 2, "loss": 1'
        + 400 * "0"
        + "}\n"
    )
    (run / "metrics.jsonl").write_text(added + lines)
    fit(run, resume=True)
    assert (run / "metrics.jsonl").read_text() == lines


def test_a_journal_that_is_too_long_to_be_read(run, monkeypatch):
    size = (run / "metrics.jsonl").stat().st_size
    monkeypatch.setattr(_journal, "MAX_BYTES", size)
    fit(run, resume=True)
    monkeypatch.setattr(_journal, "MAX_BYTES", size - 1)
    before = contents(run)
    with pytest.raises(ValueError, match=rf"metrics.jsonl has {size:,} bytes; a journal has at"):
        fit(run, resume=True)
    assert contents(run) == before


@pytest.mark.parametrize("name", [".lock", "metrics.jsonl", "last", "best", "last-damaged"])
def test_nothing_in_the_folder_leads_elsewhere(run, tmp_path, name):
    (run / "last-damaged").mkdir()
    (run / name).rename(tmp_path / "elsewhere")
    (run / name).symlink_to(tmp_path / "elsewhere")
    before = contents(tmp_path)
    with pytest.raises(ValueError, match=rf"{name} is not a (file|folder) of its own"):
        fit(run, resume=True)
    assert contents(tmp_path) == before


def test_one_run_at_a_time_in_a_folder(run):
    first = Folder(run, 3, json.loads((run / "run.json").read_text())["about"])
    first.claim(resume=True)
    before = contents(run)
    with pytest.raises(FileExistsError, match=r"another run is at work in .*run"):
        fit(run, resume=True, epochs=5)
    assert contents(run) == before
    first.close()
    assert fit(run, resume=True, epochs=5).step == 30


def test_what_a_run_is_about_is_not_nested_without_end(tmp_path):
    circle = []
    circle.append(circle)
    deep = []
    for _ in range(100_000):
        deep = [deep]
    for nested in (circle, deep):
        with pytest.raises(TypeError, match=r"about cannot be written as JSON: (.|\n)*in strings"):
            Folder(tmp_path, 1, {"nested": nested})


def test_what_a_run_is_about_is_in_json(tmp_path):
    with pytest.raises(TypeError, match=r"about cannot be written as JSON: .*ndarray"):
        fit(tmp_path / "run", about={"array": np.ones(3)})


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EROFS])
def test_lines_that_cannot_be_written(tmp_path, number):
    remedy = "Make room, and go on with resume" if number == errno.ENOSPC else "Choose another"
    match = rf"(?s)cannot write to .*run: .*{remedy}"
    with pytest.raises(OSError, match=match), writing(tmp_path / "run"):
        raise OSError(number, os.strerror(number))


def test_a_folder_that_vanishes(tmp_path):
    def remove(moment):
        if moment.step == 2:
            shutil.rmtree(tmp_path / "run")

    with pytest.raises(FileNotFoundError, match=r"cannot write to .*metrics.jsonl"):
        fit(tmp_path / "run", watch=remove)


def test_resuming_nothing_begins(tmp_path, finished):
    assert bits(fit(tmp_path / "new", resume=True).model) == finished[1]


def test_a_users_folder_between_the_checkpoints_is_found_before_anything_is_written(run):
    (run / "last" / "1").mkdir()
    (run / "last" / "1" / "precious.txt").write_text("mine")
    before = contents(run)
    with pytest.raises(ValueError, match=r"last/1 is no checkpoint.*\n  Nothing was changed"):
        fit(run, resume=True, epochs=9)
    assert contents(run) == before


@pytest.mark.parametrize("name", ["last", "best"])
def test_checkpoints_with_a_pipe_or_a_link_inside(run, name):
    for step in (run / "last").iterdir():  # there is no other to go on from
        if step.name != "24":
            shutil.rmtree(step)
    (record,) = (run / name).glob("*/record/metadata")
    for make in (os.mkfifo, lambda path: path.symlink_to("/dev/zero")):
        record.unlink()
        make(record)
        with pytest.raises(ValueError, match=r"is a (pipe or a device|link), not a file"):
            fit(run, resume=True, epochs=9)


def test_checkpoints_that_may_not_be_listed(run, monkeypatch):
    """They looked like none, and the run began anew. By a fake: tests may run as root."""
    usual = os.listdir

    def listdir(path="."):
        if str(path).endswith("last"):
            raise PermissionError(errno.EACCES, "Permission denied", str(path))
        return usual(path)

    monkeypatch.setattr(os, "listdir", listdir)
    with pytest.raises(PermissionError, match=r"cannot write to .*: Permission denied"):
        fit(run, resume=True, epochs=9)


def test_a_path_that_checkpoints_cannot_have(tmp_path):
    with pytest.raises(ValueError, match=r"(?s)has letters that .* PYTHONUTF8=1"):
        fit(tmp_path / os.fsdecode(b"a\xff"))
    assert not list(tmp_path.iterdir())
