"""Checkpoints: whole or not at all; damaged, foreign and missing ones are told apart."""

import asyncio
import gc
import json
import os
import pathlib
import shutil
import subprocess
import sys
import warnings

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from dendrax import train
from dendrax.train import _checkpoint
from dendrax.train._checkpoint import Checkpoints, Damaged, checksum_of_record, checksums
from dendrax.train._orbax import quiet
from dendrax.train._progress import read_progress
from tests.train.cases import bits, contents, fit, network


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


@pytest.mark.slow
@pytest.mark.parametrize("damage", [damage_bits, truncate, replace, pathlib.Path.unlink])
def test_every_file_of_a_checkpoint_damaged_alone(run, finished, damage):
    """Noticed, or of no consequence: what comes out has the same bits in any case."""
    names = [p.relative_to(run / "last" / "24") for p in (run / "last" / "24").rglob("*")]
    files = [name for name in names if (run / "last" / "24" / name).is_file()]
    noticed = 0
    for name in files:
        copy = pathlib.Path(shutil.copytree(run, run.with_name("copy")))
        damage(copy / "last" / "24" / name)
        with warnings.catch_warnings(record=True) as found:
            warnings.simplefilter("always")
            assert bits(fit(copy, resume=True).model) == finished[1], name
        noticed += any("last/24 is damaged" in str(one.message) for one in found)
        shutil.rmtree(copy)
    assert len(files) >= 10 and noticed >= 3


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
    checkpoints.save(5, {"a": jnp.ones(3)}, {})
    with pytest.raises(ValueError, match=r"a checkpoint after 5 updates, so that none after 4"):
        checkpoints.save(4, {"a": jnp.ones(3)}, {})
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


def test_a_foreign_folder_is_not_deleted_as_an_old_checkpoint(run):
    (run / "last" / "1").mkdir()
    (run / "last" / "1" / "letter.txt").write_text("dear")
    with pytest.raises(ValueError, match=r"last/1 is no checkpoint, and would be deleted"):
        fit(run, resume=True, epochs=5)
    assert (run / "last" / "1" / "letter.txt").read_text() == "dear"


def test_if_all_are_damaged_nothing_is_touched(run):
    for name in ("15", "20", "24"):
        for file in numbers(run / "last" / name):
            truncate(file)
    before = contents(run)
    with pytest.raises(ValueError, match=r"(?s)no checkpoint can be read.*24.*20.*15"):
        fit(run, resume=True)
    assert contents(run) == before


def test_a_file_where_damaged_ones_would_go(run):
    for file in numbers(run / "last" / "24"):
        truncate(file)
    (run / "last-damaged").write_text("mine")
    before = contents(run)
    with pytest.raises(ValueError, match=r"last-damaged is not a folder(.|\n)*Move it elsewhere"):
        fit(run, resume=True)
    assert contents(run) == before


def test_what_a_killed_run_left_half_written(run, finished):
    """Removed by a run that goes on, and only by one that may."""
    half = run / "last" / "25.orbax-checkpoint-tmp"
    shutil.copytree(run / "last" / "24", half)
    before = contents(run)
    with pytest.raises(ValueError, match=r"of another model or optimizer"):
        fit(run, resume=True, model=network(sizes=(6, 9, 3)))
    train.load(run, network(), which="last")
    assert contents(run) == before
    assert fit(run, resume=True, epochs=5).step == 30
    assert not half.exists()


def test_the_checkpoint_of_another_model_is_refused(run):
    before = contents(run / "last")
    with pytest.raises(ValueError, match=r"of another model or optimizer.*float32\[9\]"):
        fit(run, resume=True, model=network(sizes=(6, 9, 3)))
    with pytest.raises(ValueError, match=r"of another model or optimizer"):
        fit(run, resume=True, optimizer=optax.sgd(0.1, momentum=0.9))
    assert contents(run / "last") == before


def test_a_record_with_another_number_is_damaged(run, finished):
    record = run / "last" / "24" / "record" / "metadata"
    content = json.loads(record.read_text())
    content["notes"]["best"] *= 2
    record.write_text(json.dumps(content))
    with pytest.warns(UserWarning, match=r"last/24 is damaged: the checksum of its record differs"):
        assert bits(fit(run, resume=True).model) == finished[1]


def rewrite_record(run, step, change):
    """Edit the record of a checkpoint as somebody would who can write checksums, too."""
    file = run / "last" / str(step) / "record" / "metadata"
    content = json.loads(file.read_text())
    change(content)
    content["checksum"] = checksum_of_record(content)
    file.write_text(json.dumps(content))


@pytest.mark.parametrize(
    "change",
    [
        lambda record: record.pop("step"),
        lambda record: record.pop("run"),
        lambda record: record.pop("arrays"),
        lambda record: record.pop("checksums"),
        lambda record: record.pop("notes"),
        lambda record: record.update(step="24"),
        lambda record: record.update(run=[]),
        lambda record: record.update(arrays=[["a"]]),
        lambda record: record.update(arrays={"a": "b"}),
        lambda record: record["notes"].pop("since"),
        lambda record: record["notes"].update(other=1),
        lambda record: record["notes"].update(losses="abc"),
        lambda record: record["notes"].update(best="abc"),
        lambda record: record["notes"].update(best_step=None),
        lambda record: record["notes"].update(since=-1),
        lambda record: record["notes"].update(losses=[10**400]),
        lambda record: record["notes"].update(skipped=0.5),
    ],
)
def test_an_edited_record_is_damaged(run, change):
    rewrite_record(run, 24, change)
    checkpoints = Checkpoints(run / "last", 3, read_notes=read_progress)
    with pytest.raises(Damaged, match=r"its (record|progress) "):
        checkpoints._record(24)
    checkpoints.close()


def test_the_checkpoint_before_an_edited_one_is_used(run, finished):
    rewrite_record(run, 24, lambda record: record.pop("step"))
    with pytest.warns(UserWarning, match=r"last/24 is damaged: its record is incomplete"):
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


@pytest.mark.parametrize("place", ["24", "24/record", "24/state/_METADATA"])
def test_a_link_in_a_checkpoint_is_not_followed(run, tmp_path, place):
    (run / "last" / place).rename(tmp_path / "elsewhere")
    (run / "last" / place).symlink_to(tmp_path / "elsewhere")
    with pytest.raises(ValueError, match=r"last/24.* is a link, not a file or folder of its own"):
        fit(run, resume=True)


@pytest.mark.parametrize("place", ["record/metadata", "state/manifest.ocdbt"])
def test_a_record_that_is_too_large_to_be_read(run, monkeypatch, place):
    os.truncate(run / "last" / "24" / place, _checkpoint.MAX_RECORD_BYTES + 1)
    with pytest.raises(ValueError, match=r"last/24/.* has 20,000,001 bytes, and may have 20,000,0"):
        fit(run, resume=True)


@pytest.mark.parametrize("name", ["007", "٢٤", "24.orbax", "1e3"])
def test_names_that_are_no_numbers_of_updates_are_left_alone(run, finished, name):
    shutil.copytree(run / "last" / "24", run / "last" / name)
    assert bits(fit(run, resume=True).model) == finished[1]
    assert (run / "last" / name).is_dir()


def test_a_checkpoint_that_could_not_be_written_leaves_the_last_one(run, monkeypatch):
    class Full:
        def save(self, *args, **kwargs):
            raise OSError(28, "No space left on device")

        def restore(self, *args, **kwargs):
            return real.restore(*args, **kwargs)

        def close(self):
            real.close()

    real = Checkpoints(run / "last", 3)._open()
    monkeypatch.setattr(Checkpoints, "_open", lambda self, **settings: Full())
    with pytest.raises(OSError, match=r"(?s)No space left.*last/24 is whole"):
        fit(run, resume=True, epochs=5)
    assert (run / "last" / "24").exists()


FULL = """
import resource, sys
from tests.train.cases import fit, network
resource.setrlimit(resource.RLIMIT_FSIZE, (40_000, 40_000))
fit(sys.argv[1], model=network(sizes=(6, 4000, 3)))
"""


def test_tasks_that_failed_say_nothing_later(caplog):
    """Such as those in which orbax reads arrays: asyncio speaks of each when it is collected."""

    async def fail():
        raise ValueError("damaged")

    async def read_all():
        tasks = [asyncio.create_task(fail()) for _ in range(3)]
        await asyncio.sleep(0.01)
        await tasks[0]

    def read():
        with quiet():
            asyncio.run(read_all())

    with pytest.raises(ValueError, match="damaged") as found:
        read()
    del found
    gc.collect()
    assert "never retrieved" not in caplog.text


def test_errors_that_python_cannot_raise_are_the_users_again_afterwards():
    """What Python does with them is changed while orbax works, and not for good."""
    usual = sys.unraisablehook
    with quiet():
        assert sys.unraisablehook is not usual
    assert sys.unraisablehook is usual
    with pytest.raises(ValueError, match="damaged"), quiet():
        raise ValueError("damaged")
    assert sys.unraisablehook is usual
    with pytest.MonkeyPatch.context() as patch:
        with quiet():
            patch.setattr(sys, "unraisablehook", print)
        assert sys.unraisablehook is print


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
    checksum = checksums({"a": array})
    assert checksum == checksums({"a": array.copy()})
    assert checksum != checksums({"a": array[::-1]})
    changed = np.asarray(array).copy()
    changed.view(np.uint8)[1, 2] ^= 1
    assert checksum != checksums({"a": jnp.asarray(changed)})


def test_notes_are_read_and_a_state_made_of_them(tmp_path):
    """As the agent does it, whose arrays have the sizes that its notes tell."""
    checkpoints = Checkpoints(tmp_path, 1, read_notes=lambda notes: notes["size"])
    checkpoints.save(1, {"a": jnp.ones(3)}, {"size": 3})
    found, problems = checkpoints.load(lambda size: {"a": jnp.zeros(size)})
    assert not problems and found.notes == 3 and (found.state["a"] == 1).all()
    checkpoints.close()


def test_random_keys_are_kept(tmp_path):
    checkpoints = Checkpoints(tmp_path, 1)
    state = {"key": jax.random.key(3), "n": jnp.arange(3)}
    checkpoints.save(1, state, {})
    found, problems = checkpoints.load(state)
    assert not problems
    assert (jax.random.key_data(found.state["key"]) == jax.random.key_data(state["key"])).all()


def test_without_orbax_there_is_advice(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "orbax.checkpoint", None)
    with pytest.raises(
        ImportError, match=r"checkpoints, needs what is not(.|\n)*pip install .*'orbax-checkpoint>="
    ):
        fit(tmp_path / "run")
