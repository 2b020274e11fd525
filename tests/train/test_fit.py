"""Training: the bits of a loop written by hand, and all that a run does beside it."""

import contextlib
import dataclasses
import functools
import io

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
import rich.console

import dendrax
from dendrax import BP, ZIL, train
from dendrax.train._devices import all_devices
from dendrax.train._samples import chosen
from dendrax.train._task import Task, take_apart
from dendrax.train._update import start_state
from tests.sampling import every
from tests.train.cases import OPTIMIZER, RULES, SETTINGS, bits, loss, measure, network, samples

DATA = samples()


def fit(**changes):
    arguments = {
        "model": network(),
        "loss": loss,
        "data": DATA,
        "optimizer": OPTIMIZER,
        "settings": SETTINGS,
        **changes,
    }
    first = [arguments.pop(name) for name in ("model", "loss", "data")]
    return train.fit(*first, **arguments)


def settings(**changes):
    return dataclasses.replace(SETTINGS, **changes)


def by_hand(value_and_grad, steps):
    params = network()
    state = OPTIMIZER.init(params)
    mesh = jax.sharding.Mesh(np.array(jax.devices()), ("data",))
    split = jax.sharding.NamedSharding(mesh, jax.sharding.PartitionSpec("data"))
    params, state = jax.device_put(
        (params, state), jax.sharding.NamedSharding(mesh, jax.sharding.PartitionSpec())
    )

    @jax.jit
    def update(params, state, x, y):
        value, gradient = value_and_grad(loss)(params, x, y)
        change, state = OPTIMIZER.update(gradient, state, params)
        return optax.apply_updates(params, change), state, value

    values = []
    for step in range(steps):
        picked = chosen(train.Arrays(*DATA), 16, 7, step)
        x, y = jax.device_put((DATA[0][picked], DATA[1][picked]), split)
        params, state, value = update(params, state, x, y)
        values.append(float(value))
    return params, values


@pytest.mark.parametrize("name", RULES)
def test_the_same_bits_as_a_loop_by_hand(name):
    rule = RULES[name]
    found = fit(rule=rule, settings=settings(log_every=1))
    params, values = by_hand(functools.partial(dendrax.value_and_grad, rule=rule), 24)
    assert bits(found.model) == bits(params)
    assert [line["loss"] for line in found.history] == values
    assert found.reason == "finished" and found.step == 24


def test_zil_and_jax_make_the_same_weights():
    assert bits(fit(rule=ZIL()).model) == bits(by_hand(jax.value_and_grad, 24)[0])
    assert bits(fit(rule=BP()).model) == bits(by_hand(jax.value_and_grad, 24)[0])


def test_every_sample_once_in_an_epoch_and_in_another_order_in_the_next():
    data = train.Arrays(*DATA)
    epochs = [[chosen(data, 16, 3, 6 * epoch + step) for step in range(6)] for epoch in range(2)]
    for epoch in epochs:
        assert sorted(np.concatenate(epoch)) == list(range(96))
    assert not np.array_equal(np.concatenate(epochs[0]), np.concatenate(epochs[1]))


def test_evaluation_is_the_mean_over_all_samples():
    test = samples(37, seed=1)
    found = fit(test=test, measure=measure, settings=settings(epochs=1))
    expected = measure(found.model, *map(jnp.asarray, test))
    assert found.history[-1]["test_loss"] == pytest.approx(float(expected["loss"]), rel=1e-6)
    assert found.history[-1]["test_accuracy"] == pytest.approx(float(expected["accuracy"]))


def test_without_a_measure_the_test_loss_is_measured():
    found = fit(test=samples(20, seed=1), settings=settings(epochs=1))
    assert "test_loss" in found.history[-1]


def test_rules_that_relax_report_their_energy():
    line = fit(rule=RULES["IL"], settings=settings(epochs=1)).history[-1]
    assert 0 < line["energy"] < line["loss"]  # inference lowers what was the loss at its start
    assert "energy" not in fit(settings=settings(epochs=1)).history[-1]


def test_leaves_that_are_no_arrays_stay():
    model = eqx.nn.MLP(6, 3, 8, 1, key=jax.random.key(0), dtype=jnp.float32)

    def own_loss(model, x, y):
        scores = jax.nn.log_softmax(jax.vmap(model)(x))
        return -jnp.mean(jnp.take_along_axis(scores, y[:, None], axis=1))

    found = fit(model=model, loss=own_loss, settings=settings(steps=3))
    assert found.model.activation is model.activation
    assert bits(eqx.filter(found.model, eqx.is_array)) != bits(eqx.filter(model, eqx.is_array))


def test_integer_arrays_do_not_learn():
    model = {"w": jnp.ones((6, 3), jnp.float32), "order": jnp.arange(6)[::-1]}

    def own_loss(model, x, y):
        return jnp.mean((x[:, model["order"]] @ model["w"]) ** 2)

    found = fit(model=model, loss=own_loss, settings=settings(steps=2))
    assert found.model["order"].tolist() == [5, 4, 3, 2, 1, 0]


def test_a_state_is_carried_from_batch_to_batch():
    def own_loss(params, seen, x, y):
        return loss(params, x, y), {"count": seen["count"] + 1, "sum": seen["sum"] + jnp.sum(x)}

    begin = {"count": jnp.int32(0), "sum": jnp.float32(0)}
    found = fit(loss=own_loss, state=begin, settings=settings(epochs=1))
    assert int(found.state["count"]) == 6
    assert float(found.state["sum"]) == pytest.approx(DATA[0].sum(), rel=1e-4)
    assert bits(found.model) == bits(fit(settings=settings(epochs=1)).model)


def test_a_loss_that_asks_for_a_key_gets_a_new_one_for_each_update():
    def noisy(params, x, y, key):
        return loss(params, x, y) + 0 * params[0]["b"][0] + jax.random.uniform(key, (), x.dtype)

    found = fit(loss=noisy, settings=settings(epochs=1, log_every=1))
    plain = fit(settings=settings(epochs=1, log_every=1))
    noise = [a["loss"] - b["loss"] for a, b in zip(found.history, plain.history, strict=True)]
    expected = [
        float(jax.random.uniform(jax.random.fold_in(jax.random.key(7), step), (), jnp.float32))
        for step in range(6)
    ]
    assert noise == pytest.approx(expected, abs=1e-5)


class Slow:
    """Samples of the user's own class."""

    def __len__(self):
        return len(DATA[0])

    def __getitem__(self, indices):
        return DATA[0][indices], DATA[1][indices]


def test_samples_may_be_any_object():
    assert bits(fit(data=Slow()).model) == bits(fit().model)


def test_an_error_in_the_samples_comes_through():
    class Bad(Slow):
        def __getitem__(self, indices):
            raise RuntimeError("the disk is gone")

    with pytest.raises(RuntimeError, match="the disk is gone"):
        fit(data=Bad())


def test_it_stops_when_it_does_not_get_better():
    found = fit(
        optimizer=optax.sgd(0.0),
        test=samples(20, seed=1),
        settings=settings(epochs=50, patience=2),
    )
    assert found.reason == "patience"
    assert found.step == 18 and found.best_step == 6


def test_a_run_that_stopped_does_not_go_on_when_it_is_resumed(tmp_path):
    changes = {
        "optimizer": optax.sgd(0.0),
        "test": samples(20, seed=1),
        "settings": settings(epochs=50, patience=2),
        "folder": tmp_path / "run",
    }
    assert fit(**changes).step == fit(**changes, resume=True).step == 18
    more = fit(**{**changes, "settings": settings(epochs=50, patience=3)}, resume=True)
    assert (more.reason, more.step) == ("patience", 24)


def test_the_best_may_be_the_largest(tmp_path):
    found = fit(
        test=samples(20, seed=1),
        measure=measure,
        settings=settings(monitor="test_accuracy", mode="max"),
        folder=tmp_path / "run",
    )
    best = max(found.history, key=lambda line: line.get("test_accuracy", -1))
    assert found.best_step == best["step"]
    assert [p.name for p in (tmp_path / "run" / "best").iterdir()] == [str(best["step"])]


def test_chunks_are_the_mean_of_their_gradients():
    whole, chunked = fit().model, fit(settings=settings(chunks=8)).model
    for a, b in zip(jax.tree.leaves(whole), jax.tree.leaves(chunked), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-3, atol=1e-5)


@pytest.mark.parametrize("name", ["ZIL", pytest.param("IL", marks=pytest.mark.slow)])
def test_spread_parameters_learn_the_same(name):
    model = network(sizes=(6, 128, 3))
    found = fit(model=model, rule=RULES[name], settings=settings(sharding="fsdp", steps=5))
    plain = fit(model=model, rule=RULES[name], settings=settings(steps=5))
    for a, b in zip(jax.tree.leaves(found.model), jax.tree.leaves(plain.model), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-6)


ALL = {
    **RULES,
    "FixedPrediction": dendrax.FixedPrediction(),
    "IncrementalPC": dendrax.IncrementalPC(num_steps=4, learning_rate=0.05, batch="mean"),
    "ErrorPC": dendrax.ErrorPC(num_steps=4, batch="mean"),
}


@pytest.mark.parametrize("name", every(2, list(ALL)))
def test_two_devices_learn_as_one_does_by_every_rule(name, monkeypatch):
    """IncrementalPC moves the weights at every step of inference, on both devices alike."""
    changes = {"rule": ALL[name], "optimizer": optax.sgd(0.05), "settings": settings(steps=4)}
    both = fit(**changes)
    monkeypatch.setattr(jax, "devices", lambda: jax.local_devices()[:1])
    one = fit(**changes)
    assert both.model[0]["w"].sharding.num_devices == 2
    assert one.model[0]["w"].sharding.num_devices == 1
    for a, b in zip(jax.tree.leaves(both.model), jax.tree.leaves(one.model), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-6)
    assert bits(one.model) != bits(network())


def test_a_test_set_that_cannot_be_cut_into_chunks_is_measured_alike(monkeypatch):
    changes = {
        "test": samples(20, seed=1),
        "measure": measure,
        "settings": settings(epochs=1, chunks=8),
    }
    both = fit(**changes)
    monkeypatch.setattr(jax, "devices", lambda: jax.local_devices()[:1])
    one = fit(**changes)
    assert bits(both.model) == bits(one.model)
    assert both.history[-1]["test_loss"] == one.history[-1]["test_loss"]


def test_a_state_of_statistics_is_that_of_the_whole_batch():
    """As BatchNorm's: of all devices together; in chunks, the mean over them."""

    def own_loss(params, seen, x, y):
        return loss(params, x, y), {"mean": jnp.mean(x, axis=0), "key": seen["key"]}

    begin = {"mean": jnp.zeros(6, jnp.float32), "key": jax.random.key(1)}
    picked = chosen(train.Arrays(*DATA), 16, 7, 0)
    for chunks in (None, 8):
        found = fit(loss=own_loss, state=begin, settings=settings(steps=1, chunks=chunks))
        np.testing.assert_allclose(found.state["mean"], DATA[0][picked].mean(0), atol=1e-6)


def test_spread_parameters_lie_on_several_devices():
    model = network(sizes=(6, 512, 3))
    task = Task(take_apart(model)[1], loss, ZIL(), None, OPTIMIZER, None, False)
    begun = start_state(task, model, None, all_devices("fsdp"))
    for wide in (begun.learned[0]["w"], begun.optimizer[0].mu[0]["w"]):
        assert {shard.data.shape for shard in wide.addressable_shards} == {(6, 256)}
    found = fit(model=model, settings=settings(sharding="fsdp", steps=1))
    wide = found.model[0]["w"]
    assert wide.shape == (6, 512)
    assert {shard.data.shape for shard in wide.addressable_shards} == {(6, 256)}


@pytest.mark.parametrize("entered", [False, True])
def test_a_bar_shows_how_far_the_run_is(entered):
    text = io.StringIO()
    console = rich.console.Console(file=text, force_terminal=True, width=200)
    bar = train.bar(console)
    with bar if entered else contextlib.nullcontext():
        fit(test=samples(20, seed=1), measure=measure, watch=bar, settings=settings(steps=6))
    last = text.getvalue().split("\r")[-1]
    assert "epoch 1.0" in last and "6/6" in last and "loss" in last and "accuracy" in last
    assert text.getvalue().endswith("\x1b[?25h")  # the cursor is back


def test_a_bar_leaves_with_a_run_that_fails():
    text = io.StringIO()
    console = rich.console.Console(file=text, force_terminal=True, width=200)
    with pytest.raises(FloatingPointError):
        fit(data=with_nan_at(1), watch=train.bar(console), settings=settings(steps=6))
    assert text.getvalue().endswith("\x1b[?25h")


# ---- numbers that are lost -----------------------------------------------------------------------


def with_nan_at(place):
    x, y = (part.copy() for part in DATA)
    picked = chosen(train.Arrays(x, y), 16, 7, place)
    x[picked[0], 0] = np.nan
    return x, y


def test_a_loss_that_is_not_finite_stops_the_run_and_the_vertex_is_named(tmp_path):
    def own_loss(params, x, y):
        inner = jnp.sum(params[0]["w"] ** 2) - 1e9 * (jnp.max(x) > 1e6)
        return loss(params, x, y) + 0.0 * jnp.log(inner)

    x, y = (part.copy() for part in DATA)
    x[chosen(train.Arrays(x, y), 16, 7, 5)[0], 0] = 2e6
    with pytest.raises(FloatingPointError, match="update 6 of 24") as caught:
        fit(loss=own_loss, data=(x, y), folder=tmp_path / "run")
    text = str(caught.value)
    assert "first vertex that is not finite is log" in text and "test_fit.py" in text
    assert str(tmp_path / "run" / "last" / "5") in text


def test_input_that_is_not_finite_is_named():
    with pytest.raises(FloatingPointError, match=r"input batch\[0\] is not finite"):
        fit(data=with_nan_at(3))


def test_a_gradient_that_is_not_finite_is_named():
    def own_loss(params, x, y):
        return loss(params, x, y) + jnp.sqrt(jnp.sum((params[0]["b"] * 0) ** 2))

    with pytest.raises(
        FloatingPointError,
        match=r"The gradient is not finite at update 1 of 24(?s:.*)"
        r"sends to .*: of that message 1 of 1 numbers are not.\n  There is no checkpoint",
    ):
        fit(loss=own_loss)


def test_inference_that_diverges_is_named():
    rule = dendrax.IL(num_steps=200, gamma=30.0, batch="mean")
    with pytest.raises(FloatingPointError, match=r"Inference diverged.*gamma"):
        fit(rule=rule)


def test_an_update_that_is_not_finite_can_be_skipped():
    found = fit(data=with_nan_at(3), settings=settings(nonfinite="skip", steps=6))
    assert found.skipped == 1
    assert all(np.isfinite(leaf).all() for leaf in jax.tree.leaves(found.model))


@pytest.mark.parametrize("nonfinite", ["stop", "skip"])
def test_weights_that_are_lost_are_not_saved(tmp_path, nonfinite):
    """Loss and gradient are finite; only the step is too large."""
    with pytest.raises(FloatingPointError, match=r"weights are not finite after update 1 of 24"):
        fit(
            optimizer=optax.sgd(float("inf")),
            settings=settings(nonfinite=nonfinite, checkpoint_every=1),
            folder=tmp_path / "run",
        )
    assert not list((tmp_path / "run").glob("last/*"))


def test_the_optimizer_may_deal_with_it():
    careful = optax.apply_if_finite(OPTIMIZER, 3)
    allowed = fit(
        data=with_nan_at(3), optimizer=careful, settings=settings(nonfinite="allow", steps=6)
    )
    skipped = fit(data=with_nan_at(3), settings=settings(nonfinite="skip", steps=6))
    assert (allowed.skipped, skipped.skipped) == (0, 1)
    assert [np.isfinite(line["loss"]) for line in allowed.history] == [True, False]
    assert [np.isfinite(line["loss"]) for line in skipped.history] == [True, True]
    for a, b in zip(*map(jax.tree.leaves, (allowed.model, skipped.model)), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-6)


# ---- mistakes ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("changes", "match"),
    [
        ({"rule": ZIL}, r"rule must be a rule"),
        ({"optimizer": 0.1}, r"optimizer is float, which has no init"),
        ({"settings": {"epochs": 3}}, r"settings is dict"),
        ({"resume": True}, r"resume=True needs the folder"),
        ({"data": DATA[0]}, r"data is ndarray, not samples"),
        ({"data": (DATA[0], DATA[1][:5])}, r"do not have a first axis of one length"),
        ({"model": {"n": 3}}, r"no array of floating-point numbers"),
        ({"vertices": "layers"}, r"vertices='layers' is not known"),
        ({"settings": SETTINGS.__class__(batch_size=15)}, r"batch_size=15 cannot be split over"),
        ({"settings": SETTINGS.__class__(batch_size=1000)}, r"more than the 96 samples"),
        ({"settings": SETTINGS.__class__(batch_size=16, chunks=3)}, r"chunks=3 cannot be shared"),
        ({"settings": SETTINGS.__class__(batch_size=16, monitor=3)}, r"monitor=3 is not measured"),
        ({"state": 1.0}, r"fit: the loss returned .*, not a pair"),
        (
            {"state": 1.0, "loss": lambda params, state, x, y: (loss(params, x, y), {"a": state})},
            r"fit: the loss got a state float32\[\] and returned another one, \{'a': 'float32",
        ),
        (
            {"test": DATA, "measure": lambda params, x, y: loss(params, x, y)},
            r"measure returned \(\) \(shapes\), not a dictionary of scalars",
        ),
        (
            {"test": DATA, "measure": lambda params, x, y: {"x": x}},
            r"measure returned \{'x': \(16, 6\)\} \(shapes\), not a dictionary",
        ),
    ],
)
def test_mistakes_are_named(changes, match):
    if "state" in changes and "loss" not in changes:
        changes = {**changes, "loss": lambda params, state, x, y: loss(params, x, y)}
    with pytest.raises((TypeError, ValueError), match=match):
        fit(**changes)


@pytest.mark.parametrize(
    ("changes", "names"),
    [
        ({}, "loss"),
        ({"test": DATA}, "loss, test_loss"),
        (
            {"test": DATA, "measure": measure, "rule": RULES["IL"]},
            "loss, test_accuracy, test_loss, energy",
        ),
    ],
)
def test_what_is_not_measured_is_named_before_anything_is_written(tmp_path, changes, names):
    guess = r" Did you mean 'test_accuracy'\?" * ("test_accuracy" in names)
    match = rf"monitor='accuracy' is not measured\.{guess}\n  Measures: {names}\."
    with pytest.raises(ValueError, match=match):
        fit(settings=settings(monitor="accuracy"), folder=tmp_path / "run", **changes)
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    ("changes", "match"),
    [
        ({"epochs": 0}, r"epochs=0 must be an integer, at least 1"),
        ({"batch_size": 2.5}, r"batch_size=2.5 must be an integer"),
        ({"seed": -1}, r"seed=-1"),
        ({"mode": "max"}, r"mode='max' without a monitor would keep"),
        ({"mode": "best"}, r"mode='best' is not known"),
        ({"nonfinite": "ignore"}, r"nonfinite='ignore' is not known"),
        ({"sharding": "zero"}, r"sharding='zero' is not known"),
    ],
)
def test_settings_are_checked(changes, match):
    with pytest.raises(ValueError, match=match):
        train.Settings(**changes)
