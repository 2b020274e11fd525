"""Models out of the checkpoints of a run."""

import json
import shutil

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from dendrax import train
from tests.train.cases import bits, loss, network, samples

DATA = samples()


def own_loss(params, seen, x, y):
    return loss(params["net"], x, y), {"count": seen["count"] + 1, "key": seen["key"]}


def model(seed=0, **changes):
    return {"net": network(seed, **changes), "name": "mine", "order": np.arange(3)}


def state():
    return {"count": jnp.int32(0), "key": jax.random.key(5)}


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """It gets worse after its first evaluation."""
    folder = tmp_path_factory.mktemp("load") / "run"
    with jax.enable_x64(False), jax.numpy_dtype_promotion("standard"):
        return folder, train.fit(
            model(),
            own_loss,
            DATA,
            state=state(),
            optimizer=optax.adam(lambda count: jnp.where(count < 6, 0.01, -0.01)),
            settings=train.Settings(steps=12, batch_size=16, evaluate_every=6, checkpoint_every=6),
            folder=folder,
        )


def test_the_last_and_the_best(run):
    folder, found = run
    last, seen = train.load(folder, model(1), state=state(), which="last")
    assert bits(last["net"]) == bits(found.model["net"])
    assert last["name"] == "mine" and last["order"].tolist() == [0, 1, 2]
    assert int(seen["count"]) == 12
    assert (jax.random.key_data(seen["key"]) == jax.random.key_data(jax.random.key(5))).all()
    best, seen = train.load(folder, model(1), state=state())
    assert int(seen["count"]) == found.best_step == 6
    assert bits(best["net"]) != bits(last["net"])
    assert bits(train.load(folder, model(1))["net"]) == bits(best["net"])


def test_a_damaged_one_is_named_and_the_one_before_it_taken(run, tmp_path):
    folder = tmp_path / "run"
    shutil.copytree(run[0], folder)
    record = folder / "last" / "12" / "record" / "metadata"
    record.write_text(json.dumps({**json.loads(record.read_text()), "step": 13}))
    with pytest.warns(UserWarning, match=r"last/12 is damaged: .* Took .*last/6 instead"):
        train.load(folder, model(), which="last")
    shutil.rmtree(folder / "last" / "6")
    with pytest.raises(ValueError, match=r"(?s)no checkpoint can be read.*last/12 is damaged"):
        train.load(folder, model(), which="last")


def test_mistakes_are_named(run, tmp_path):
    with pytest.raises(FileNotFoundError, match=r"there is no checkpoint in .*best"):
        train.load(tmp_path / "nothing", model())
    assert not (tmp_path / "nothing").exists()
    with pytest.raises(ValueError, match=r"which='first' is not known"):
        train.load(run[0], model(), which="first")
    with pytest.raises(ValueError, match=r"of another model or optimizer.*float32\[9\]"):
        train.load(run[0], model(sizes=(6, 9, 3)))


def test_the_record_of_the_run_is_not_needed(run, tmp_path):
    folder = tmp_path / "run"
    shutil.copytree(run[0], folder)
    (folder / "run.json").write_text("{")
    with pytest.warns(UserWarning, match=r"run.json was not written (.|\n)*are read without it"):
        found = train.load(folder, model(1), which="last")
    assert bits(found["net"]) == bits(run[1].model["net"])
