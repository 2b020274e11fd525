"""Runs whose model is on several devices, by levels."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from dendrax import FixedPrediction, train
from tests.train.cases import RULES, bits, logits, loss, measure, samples
from tests.train.test_fit import fit, settings, with_nan_at

LEVELS = settings(sharding="levels")


@pytest.mark.parametrize("name", ["ZIL", "IL", pytest.param("BP", marks=pytest.mark.slow)])
def test_it_learns_as_one_device_does(name):
    """To rounding: a batch that is split over devices is added up in another order."""
    several, whole = fit(rule=RULES[name], settings=LEVELS), fit(rule=RULES[name])
    pairs = zip(several.history, whole.history, strict=True)
    assert all(abs(a["loss"] - b["loss"]) < 1e-5 for a, b in pairs)
    assert np.isfinite(jax.jit(loss)(several.model, *samples(8)))  # it is on one device again


def test_micro_batches_learn_the_same():
    pieces = fit(settings=settings(sharding="levels", micro_batches=4, steps=5)).model
    whole = fit(settings=settings(sharding="levels", steps=5)).model
    pairs = zip(jax.tree.leaves(pieces), jax.tree.leaves(whole), strict=True)
    assert all(np.allclose(a, b, atol=1e-5) for a, b in pairs)
    assert bits(pieces) != bits(whole)


@pytest.mark.parametrize("name", ["ZIL", pytest.param("IL", marks=pytest.mark.slow)])
def test_a_run_goes_on_with_the_same_bits(tmp_path, name):
    more = {"rule": RULES[name], "test": samples(32, seed=1), "measure": measure}
    whole = fit(settings=LEVELS, **more)
    fit(settings=settings(sharding="levels", steps=7), folder=tmp_path / "run", **more)
    rest = fit(settings=LEVELS, folder=tmp_path / "run", resume=True, **more)
    assert bits(rest.model) == bits(whole.model)
    assert [line["loss"] for line in rest.history][-1] == whole.history[-1]["loss"]
    assert rest.history[-1]["test_accuracy"] == whole.history[-1]["test_accuracy"]
    assert ("energy" in rest.history[-1]) == (name == "IL")


def test_a_state_and_a_key():
    def own_loss(params, state, x, y, *, key):
        x = x + 0.1 * jax.random.normal(key, x.shape)
        scores = jax.nn.log_softmax(logits(params, x))
        value = -jnp.mean(jnp.take_along_axis(scores, y[:, None], axis=1))
        return value, {
            "mean": 0.9 * state["mean"] + 0.1 * jnp.mean(x, 0),
            "count": state["count"] + 1,
        }

    begin = {"mean": jnp.zeros(6), "count": jnp.asarray(0)}
    several = fit(loss=own_loss, state=begin, settings=settings(sharding="levels", steps=4))
    whole = fit(loss=own_loss, state=begin, settings=settings(steps=4))
    assert int(several.state["count"]) == int(whole.state["count"]) == 4
    assert np.allclose(several.state["mean"], whole.state["mean"], atol=1e-6)
    assert abs(several.history[-1]["loss"] - whole.history[-1]["loss"]) < 1e-5


def test_a_loss_that_is_not_finite_stops_the_run(tmp_path):
    with pytest.raises(FloatingPointError, match=r"(?s)not finite at update 6.*batch\[0\].*last.5"):
        fit(data=with_nan_at(5), settings=LEVELS, folder=tmp_path / "run")


def test_an_update_that_is_not_finite_can_be_skipped():
    chosen = settings(sharding="levels", nonfinite="skip", steps=6)
    found = fit(data=with_nan_at(3), settings=chosen)
    assert found.skipped == 1
    assert all(np.isfinite(leaf).all() for leaf in jax.tree.leaves(found.model))


@pytest.mark.parametrize("nonfinite", ["stop", "skip"])
def test_a_gradient_that_is_not_finite(nonfinite):
    """The optimizer may hide it: lion takes signs only."""

    def own_loss(params, x, y):
        return loss(params, x, y) + jnp.sqrt(jnp.sum((params[0]["b"] * 0) ** 2))

    chosen = settings(sharding="levels", nonfinite=nonfinite, steps=3)
    if nonfinite == "skip":
        found = fit(loss=own_loss, optimizer=optax.lion(0.1), settings=chosen)
        assert found.skipped == 3
        return
    with pytest.raises(FloatingPointError, match="The gradient is not finite at update 1"):
        fit(loss=own_loss, optimizer=optax.lion(0.1), settings=chosen)


def test_a_step_that_is_too_large(tmp_path):
    with pytest.raises(FloatingPointError, match=r"weights are not finite after update"):
        fit(
            optimizer=optax.sgd(float("inf")),
            settings=settings(sharding="levels", checkpoint_every=1),
            folder=tmp_path / "run",
        )


def test_micro_batches_have_keys_of_their_own():
    def own_loss(params, x, y, *, key):
        return loss(params, x, y) + jax.random.normal(key, ())

    def noise(pieces):
        chosen = settings(sharding="levels", micro_batches=pieces, steps=1, log_every=1)
        return fit(loss=own_loss, settings=chosen).history[0]["loss"]

    first = fit(settings=settings(sharding="levels", steps=1, log_every=1)).history[0]["loss"]
    key = jax.random.fold_in(jax.random.key(7), 0)
    assert abs(noise(1) - first - float(jax.random.normal(key, ()))) < 1e-5
    both = jnp.mean(jnp.stack([jax.random.normal(k, ()) for k in jax.random.split(key)]))
    assert abs(noise(2) - first - float(both)) < 1e-5


def test_the_optimizer_may_deal_with_it():
    optimizer = optax.apply_if_finite(optax.adam(0.01), 100)
    found = fit(
        data=with_nan_at(3),
        optimizer=optimizer,
        settings=settings(sharding="levels", nonfinite="allow", steps=6),
    )
    assert all(np.isfinite(leaf).all() for leaf in jax.tree.leaves(found.model))


@pytest.mark.parametrize(
    ("changes", "match"),
    [
        (
            {"rule": FixedPrediction()},
            r"train.fit: sharding='levels' is for .* not for FixedPrediction.*\n.*replicated",
        ),
        (
            {"settings": settings(sharding="levels", chunks=4)},
            r"chunks are for .*\n.*micro_batches",
        ),
        (
            {"settings": settings(sharding="levels", micro_batches=3)},
            r"batch_size=16 cannot be split into 3 micro_batches",
        ),
    ],
)
def test_mistakes_are_named(changes, match):
    with pytest.raises((ValueError, NotImplementedError), match=match):
        fit(**{"settings": LEVELS, **changes})


def test_micro_batches_need_levels():
    with pytest.raises(ValueError, match=r"micro_batches=4 are for sharding='levels'.\n.*chunks"):
        train.Settings(micro_batches=4)


def test_other_devices_than_those_of_the_checkpoint(tmp_path):
    fit(settings=settings(sharding="levels", steps=5), folder=tmp_path / "run")
    with pytest.raises(ValueError, match=r"a run with devices by level = 2, and this one has None"):
        fit(settings=settings(steps=8), folder=tmp_path / "run", resume=True)
