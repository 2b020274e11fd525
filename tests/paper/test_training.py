"""BP and Z-IL train the same weights; an interrupted run ends as an uninterrupted one."""

import functools
import pathlib

import jax
import numpy as np
import pytest

from dendrax import BP, IL, ZIL, IncrementalPC
from dendrax.models import MLP, digest
from dendrax.paper._courses import Course
from dendrax.paper._library import Samples
from dendrax.paper._store import Work
from dendrax.paper._training import _read_points, training_cells

RULES = {
    "BP": None,
    "BP, dendrax": BP(),
    "Z-IL": ZIL(),
    "IL": IL(num_steps=5, gamma=0.1, batch="mean"),
    "IncrementalPC": IncrementalPC(num_steps=3, gamma=0.1, learning_rate=0.1, batch="mean"),
}


@pytest.fixture
def course():
    with jax.numpy_dtype_promotion("standard"):  # optax's schedules need it
        yield make_course()


def make_course():
    generator = np.random.default_rng(0)
    centres = generator.normal(size=(3, 6)).astype(np.float32) * 3
    labels = generator.integers(3, size=90)
    inputs = centres[labels] + generator.normal(size=(90, 6)).astype(np.float32)
    samples = Samples("blobs", inputs[:60], labels[:60], inputs[60:], labels[60:])
    make = functools.partial(MLP, 6, (8,), 3)
    return Course("blobs", samples, make, 3, 7, 40, 0.01, RULES, num_points=4, shorter={"IL": 2})


def cell(course, rule):
    return next(c for c in training_cells([course], seed=0) if c.settings["rule"] == rule)


def points(course, rule, folder="/nonexistent/never-written"):
    return cell(course, rule).measure(Work(pathlib.Path(folder)))["points"]


def hashes(found):
    return [point["weights"] for point in found]


def test_bp_and_zil_have_the_same_weights_at_every_point(course, tmp_path):
    found = {rule: points(course, rule, tmp_path / rule) for rule in RULES}
    assert hashes(found["Z-IL"]) == hashes(found["BP"]) == hashes(found["BP, dendrax"])
    assert len(set(hashes(found["BP"]))) == 4  # it moves
    assert hashes(found["IL"])[1] != hashes(found["BP"])[0]  # both after 10 updates
    assert found["BP"][-1]["accuracy"] > 0.8
    assert [p["update"] for p in found["BP"]] == [10, 20, 30, 40]
    assert [p["update"] for p in found["IL"]] == [5, 10, 15, 20]  # shorter
    assert found["IL"][-1]["energy"] > 0 and found["BP"][-1]["energy"] is None


@pytest.mark.parametrize("rule", ["BP", pytest.param("IL", marks=pytest.mark.slow)])
def test_an_interrupted_run_ends_as_an_uninterrupted_one(course, tmp_path, rule):
    whole = points(course, rule, tmp_path / "whole")

    def stop(part, text):
        if part >= 0.5:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        cell(course, rule).measure(Work(tmp_path / "parts", stop))
    assert (tmp_path / "parts" / "checkpoints" / "20").is_dir()
    rest = points(course, rule, tmp_path / "parts")
    assert hashes(rest) == hashes(whole)
    assert [p["loss"] for p in rest] == [p["loss"] for p in whole]


@pytest.mark.parametrize("name", ["state", "record"])
def test_a_damaged_checkpoint_means_a_new_start(course, tmp_path, name):
    whole = points(course, "BP", tmp_path)
    for file in (tmp_path / "checkpoints" / "40" / name).rglob("*"):
        if file.is_file():
            file.write_bytes(file.read_bytes()[:20])
    assert hashes(points(course, "BP", tmp_path)) == hashes(whole)


def test_notes_that_are_no_curve():
    for notes in (None, [{"colour": "red"}], [3]):
        with pytest.raises(ValueError, match="no points of a curve"):
            _read_points(notes)


def test_every_pass_shows_every_sample_once(course):
    per_pass = 60 // 7
    for turn in range(2):
        seen = [course.order(0, turn * per_pass + k) for k in range(per_pass)]
        assert len(set(np.concatenate(seen).tolist())) == 7 * per_pass
    assert not np.array_equal(course.order(0, 0), course.order(0, per_pass))
    assert not np.array_equal(course.order(0, 0), course.order(1, 0))


def test_a_digest_sees_every_bit():
    one = {"w": jax.numpy.array([1.0, 0.0], jax.numpy.float32)}
    assert digest(one) == digest({"w": one["w"] + 0})
    assert digest(one) != digest({"w": one["w"].at[1].set(-0.0)})
    assert digest(one) != digest({"w": one["w"].reshape(2, 1)})
    assert digest(one) != digest({"w": one["w"].astype(jax.numpy.float16)})
