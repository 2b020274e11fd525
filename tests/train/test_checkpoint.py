"""Checkpoints: whole or not at all; damaged, foreign and missing ones are told apart."""

import dataclasses
import errno
import json
import os
import pathlib
import shutil
import subprocess
import sys

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from dendrax import train
from dendrax.train import _checkpoint, _fit
from dendrax.train._checkpoint import Checkpoints
from dendrax.train._disk import writing
from dendrax.train._folder import Folder
from dendrax.train._progress import Progress
from tests.train.cases import OPTIMIZER, SETTINGS, bits, loss, network, samples

DATA = samples()


def fit(folder, *, resume=False, model=None, optimizer=OPTIMIZER, **changes):
    return train.fit(
        network() if model is None else model,
        loss,
        DATA,
        optimizer=optimizer,
        settings=dataclasses.replace(SETTINGS, **changes),
        folder=folder,
        resume=resume,
    )


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    """A run of 24 updates, and what it left."""
    folder = tmp_path_factory.mktemp("finished") / "run"
    with jax.enable_x64(False), jax.numpy_dtype_promotion("standard"):
        return folder, bits(fit(folder).model)


@pytest.fixture
def run(finished, tmp_path):
    """A copy of it, to be damaged."""
    return pathlib.Path(shutil.copytree(finished[0], tmp_path / "run"))


def contents(folder):
    return {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def numbers(folder):
    """The files of a checkpoint that hold the arrays."""
    return [file for file in (folder / "state").rglob("d/*") if file.is_file()]


def test_the_last_ones_are_kept_and_the_best(finished):
    folder, _ = finished
    assert sorted(p.name for p in (folder / "last").iterdir()) == ["15", "20", "24"]
    assert len(list((folder / "best").iterdir())) == 1


def test_a_finished_run_can_go_on(run, finished):
    assert bits(fit(run, resume=True).model) == finished[1]  # there is nothing left to do
    longer = fit(run, resume=True, epochs=5)
    assert longer.step == 30
    assert [line["step"] for line in longer.history] == sorted(
        {line["step"] for line in longer.history}
    )


def test_an_earlier_checkpoint_leads_to_the_same_bits_and_the_same_curve(run, finished):
    curve = [
        line["loss"] for line in map(json.loads, (run / "metrics.jsonl").read_text().splitlines())
    ]
    for name in ("20", "24"):
        shutil.rmtree(run / "last" / name)
    again = fit(run, resume=True)
    assert bits(again.model) == finished[1]
    assert [line["loss"] for line in again.history] == curve


def damage_bits(file):
    content = bytearray(file.read_bytes())
    content[len(content) // 2] ^= 0x10
    file.write_bytes(content)


def truncate(file):
    file.write_bytes(file.read_bytes()[: file.stat().st_size // 2])


def replace(file):
    file.write_bytes(b"what is this?")


@pytest.mark.parametrize("damage", [damage_bits, truncate, replace, pathlib.Path.unlink])
def test_a_damaged_checkpoint_is_set_aside_and_the_one_before_it_used(run, finished, damage):
    for file in numbers(run / "last" / "24"):
        damage(file)
    before = contents(run / "last" / "24")
    with pytest.warns(UserWarning, match=r"last/24 is damaged.*going on from .*last/20"):
        again = fit(run, resume=True)
    assert bits(again.model) == finished[1]
    aside = run / "last-damaged" / "24"
    assert [c for _, c in sorted(contents(aside).items())] == [c for _, c in sorted(before.items())]


def test_the_best_of_what_is_repeated_is_set_aside(run, finished):
    """Orbax would not write an earlier one beside it."""
    (best,) = (run / "best").iterdir()
    before = contents(best)
    for name in ("20", "24"):
        shutil.rmtree(run / "last" / name)
    assert int(best.name) > 15
    assert bits(fit(run, resume=True).model) == finished[1]
    assert [p.name for p in (run / "best").iterdir()] == [best.name]
    assert sorted(contents(run / "best-later" / best.name).values()) == sorted(before.values())


def test_a_checkpoint_older_than_the_newest_is_not_passed_over(tmp_path):
    checkpoints = Checkpoints(tmp_path / "last", 3)
    checkpoints.save(5, {"a": jnp.ones(3)}, Progress())
    with pytest.raises(ValueError, match=r"a checkpoint after 5 updates, so that none after 4"):
        checkpoints.save(4, {"a": jnp.ones(3)}, Progress())
    assert checkpoints.steps() == [5]


def test_a_checkpoint_with_numbers_of_another_is_damaged(run):
    """Every file of it can be read; only the checksums tell."""
    shutil.rmtree(run / "last" / "24" / "state")
    shutil.copytree(run / "last" / "20" / "state", run / "last" / "24" / "state")
    with pytest.warns(UserWarning, match=r"last/24 is damaged: the checksum of"):
        fit(run, resume=True)


def test_a_checkpoint_under_another_number_is_damaged(run):
    shutil.copytree(run / "last" / "24", run / "last" / "30")
    with pytest.warns(UserWarning, match=r"written after 24 updates, not 30"):
        fit(run, resume=True)


def test_a_foreign_folder_among_the_checkpoints_is_left_alone(run, finished):
    (run / "last" / "99").mkdir()
    (run / "last" / "99" / "letter.txt").write_text("dear")
    with pytest.warns(UserWarning, match=r"last/99 is damaged: its record cannot be read"):
        assert bits(fit(run, resume=True).model) == finished[1]
    assert (run / "last-damaged" / "99" / "letter.txt").read_text() == "dear"


def test_if_all_are_damaged_nothing_is_touched(run):
    for name in ("15", "20", "24"):
        for file in numbers(run / "last" / name):
            truncate(file)
    before = contents(run)
    with pytest.raises(ValueError, match=r"(?s)no checkpoint can be read.*24.*20.*15"):
        fit(run, resume=True)
    assert contents(run) == before


def test_the_checkpoint_of_another_model_is_refused(run):
    before = contents(run / "last")
    with pytest.raises(ValueError, match=r"of another model or optimizer.*float32\[9\]"):
        fit(run, resume=True, model=network(sizes=(6, 9, 3)))
    with pytest.raises(ValueError, match=r"of another model or optimizer"):
        fit(run, resume=True, optimizer=optax.sgd(0.1, momentum=0.9))
    assert contents(run / "last") == before


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
    added += '{"step": 2, "[/bold]": 1.0}\n{"step": 2, "loss": 1' + 400 * "0" + "}\n"
    (run / "metrics.jsonl").write_text(added + lines)
    fit(run, resume=True)
    assert (run / "metrics.jsonl").read_text() == lines


def test_a_record_with_another_number_is_damaged(run, finished):
    record = run / "last" / "24" / "record" / "metadata"
    content = json.loads(record.read_text())
    content["progress"]["best"] *= 2
    record.write_text(json.dumps(content))
    with pytest.warns(UserWarning, match=r"last/24 is damaged: the checksum of its record differs"):
        assert bits(fit(run, resume=True).model) == finished[1]


@pytest.mark.parametrize("name", [".lock", "metrics.jsonl", "last", "best"])
def test_nothing_in_the_folder_leads_elsewhere(run, tmp_path, name):
    (run / name).rename(tmp_path / "elsewhere")
    (run / name).symlink_to(tmp_path / "elsewhere")
    before = contents(tmp_path)
    with pytest.raises(ValueError, match=rf"{name} is not a (file|folder) of its own"):
        fit(run, resume=True)
    assert contents(tmp_path) == before


def rewrite_record(run, step, change):
    """Edit the record of a checkpoint as somebody would who can write checksums, too."""
    file = run / "last" / str(step) / "record" / "metadata"
    content = json.loads(file.read_text())
    change(content)
    content["checksum"] = _checkpoint._of_record(content)
    file.write_text(json.dumps(content))


@pytest.mark.parametrize(
    "change",
    [
        lambda record: record.pop("step"),
        lambda record: record.pop("arrays"),
        lambda record: record.pop("checksums"),
        lambda record: record.pop("progress"),
        lambda record: record.update(step="24"),
        lambda record: record.update(run=[]),
        lambda record: record.update(arrays=[["a"]]),
        lambda record: record.update(arrays={"a": "b"}),
        lambda record: record["progress"].pop("since"),
        lambda record: record["progress"].update(other=1),
        lambda record: record["progress"].update(losses="abc"),
        lambda record: record["progress"].update(best="abc"),
        lambda record: record["progress"].update(best_step=None),
        lambda record: record["progress"].update(since=-1),
        lambda record: record["progress"].update(losses=[10**400]),
        lambda record: record["progress"].update(skipped=0.5),
    ],
)
def test_an_edited_record_is_damaged(run, finished, change):
    rewrite_record(run, 24, change)
    with pytest.warns(UserWarning, match=r"last/24 is damaged: its (record|progress) "):
        assert bits(fit(run, resume=True).model) == finished[1]


def test_the_checkpoint_of_another_run_is_refused(run, tmp_path):
    """One of another seed has the same arrays, of the same types."""
    fit(tmp_path / "other", seed=1)
    shutil.rmtree(run / "last" / "24")
    shutil.copytree(tmp_path / "other" / "last" / "24", run / "last" / "24")
    before = contents(run)
    with pytest.raises(ValueError, match=r"last/24 is the checkpoint of another run: it has seed"):
        fit(run, resume=True)
    assert contents(run) == before
    with pytest.raises(ValueError, match=r"last/24 is the checkpoint of another run"):
        train.load(run, network(), which="last")


def test_a_checkpoint_that_does_not_say_of_which_run_it_is_is_read(run, finished):
    """They did not, once."""
    for step in (12, 18, 24):
        if (run / "last" / str(step)).exists():
            rewrite_record(run, step, lambda record: record.pop("run"))
    assert bits(fit(run, resume=True).model) == finished[1]


def test_the_best_checkpoint_of_another_run_is_refused(run, tmp_path):
    fit(tmp_path / "other", seed=1)
    shutil.rmtree(run / "best")
    shutil.copytree(tmp_path / "other" / "best", run / "best")
    with pytest.raises(ValueError, match=r"best/\d+ is the checkpoint of another run"):
        fit(run, resume=True)


@pytest.mark.parametrize("place", ["record/metadata", "state/_METADATA", "_CHECKPOINT_METADATA"])
def test_a_pipe_in_a_checkpoint_is_not_waited_for(run, place):
    (run / "last" / "24" / place).unlink()
    os.mkfifo(run / "last" / "24" / place)
    with pytest.raises(ValueError, match=r"last/24/.* is a pipe or a device, not a file"):
        fit(run, resume=True)


@pytest.mark.parametrize("name", ["007", "٢٤", "24.orbax", "1e3"])
def test_names_that_are_no_numbers_of_updates_are_left_alone(run, finished, name):
    shutil.copytree(run / "last" / "24", run / "last" / name)
    assert bits(fit(run, resume=True).model) == finished[1]
    assert (run / "last" / name).is_dir()


def test_one_run_at_a_time_in_a_folder(run):
    first = Folder(run, 3, json.loads((run / "run.json").read_text())["about"])
    first.claim(resume=True)
    before = contents(run)
    with pytest.raises(FileExistsError, match=r"another run is at work in .*run"):
        fit(run, resume=True, epochs=5)
    assert contents(run) == before
    first.close()
    assert fit(run, resume=True, epochs=5).step == 30


def test_what_a_run_is_about_is_in_json(tmp_path):
    with pytest.raises(TypeError, match=r"about cannot be written as JSON: .*ndarray"):
        train.fit(
            network(),
            loss,
            DATA,
            optimizer=OPTIMIZER,
            settings=SETTINGS,
            folder=tmp_path / "run",
            about={"array": np.ones(3)},
        )


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
        train.fit(
            network(),
            loss,
            DATA,
            optimizer=OPTIMIZER,
            settings=SETTINGS,
            folder=tmp_path / "run",
            watch=remove,
        )


def test_resuming_nothing_begins(tmp_path, finished):
    assert bits(fit(tmp_path / "new", resume=True).model) == finished[1]


def test_a_checkpoint_that_could_not_be_written_leaves_the_last_one(run, monkeypatch):
    class Full:
        def save(self, *args, **kwargs):
            raise OSError(28, "No space left on device")

        def restore(self, *args, **kwargs):
            return real.restore(*args, **kwargs)

        def close(self):
            real.close()

    real = Checkpoints(run / "last", 3).manager
    monkeypatch.setattr(Checkpoints, "manager", property(lambda self: Full()))
    with pytest.raises(OSError, match=r"(?s)No space left.*last/24 is whole"):
        fit(run, resume=True, epochs=5)
    assert (run / "last" / "24").exists()


FULL = """
import resource, sys
from tests.train.cases import *
resource.setrlimit(resource.RLIMIT_FSIZE, (40_000, 40_000))
model = network(sizes=(6, 4000, 3))
train.fit(model, loss, samples(), optimizer=OPTIMIZER, settings=SETTINGS, folder=sys.argv[1])
"""


def test_a_disk_that_takes_no_more(tmp_path):
    """For real: the operating system refuses to write more than 40 kB into a file."""
    found = subprocess.run(
        [sys.executable, "-c", FULL, str(tmp_path / "run")], capture_output=True, text=True
    )
    assert found.returncode == 1
    assert "the checkpoint after 5 updates could not be written" in found.stderr
    assert "File too large.\n" in found.stderr and "Event loop is closed" not in found.stderr
    assert not list((tmp_path / "run" / "last").glob("[0-9]*[0-9]"))


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "int8", "bool", "complex64", "uint16"])
def test_checksums_see_every_bit(dtype):
    array = jnp.arange(24).reshape(4, 6).astype(dtype)
    checksum = _checkpoint._checksums({"a": array})
    assert checksum == _checkpoint._checksums({"a": array.copy()})
    assert checksum != _checkpoint._checksums({"a": array[::-1]})
    changed = np.asarray(array).copy()
    changed.view(np.uint8)[1, 2] ^= 1
    assert checksum != _checkpoint._checksums({"a": jnp.asarray(changed)})


def test_random_keys_are_kept(tmp_path):
    checkpoints = Checkpoints(tmp_path, 1)
    state = {"key": jax.random.key(3), "n": jnp.arange(3)}
    checkpoints.save(1, state, Progress())
    found, problems = checkpoints.load(state)
    assert not problems
    assert (jax.random.key_data(found.state["key"]) == jax.random.key_data(state["key"])).all()


def test_without_orbax_there_is_advice(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "orbax.checkpoint", None)
    with pytest.raises(
        ImportError, match=r"checkpoints, needs what is not(.|\n)*pip install .*'orbax-checkpoint>="
    ):
        fit(tmp_path / "run")
