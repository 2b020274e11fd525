"""Targets against a loop, errors only where an action was taken, and rules that agree."""

import json
from dataclasses import asdict

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import dendrax
from dendrax.models import RNN, squared_error_loss
from dendrax.paper.agent import Batch, Learner, QSettings, epsilon_at
from dendrax.paper.agent._q_learning import best_action, clamp, scaled
from tests.compare import same

SMALL = QSettings("Breakout", hidden_size=16, out_size=20, batch_size=8, target_rate=0.25)
EXACT = {"zil": dendrax.ZIL(), "bp": dendrax.BP(), "jax": None}
OTHERS = {
    "il": dendrax.IL(num_steps=5, gamma=0.1, batch="mean"),
    "fixed": dendrax.FixedPrediction(num_steps=8),
    "error": dendrax.ErrorPC(num_steps=5, gamma=0.1, batch="mean"),
}


_clamp = jax.jit(clamp, static_argnums=(0, 1))


def _batch(seed, settings=SMALL, num_actions=4):
    draw = np.random.default_rng(seed)
    shape = (settings.batch_size, settings.window, 128)
    return Batch(
        draw.integers(256, size=shape, dtype=np.uint8),
        draw.integers(num_actions, size=shape[0], dtype=np.int32),
        draw.normal(size=shape[0]).astype(np.float32),
        draw.random(shape[0]) < 0.3,
        draw.integers(256, size=shape, dtype=np.uint8),
    )


def _models():
    return [RNN(128, 16, 20, key=jax.random.key(i)) for i in range(2)]


@jax.jit
def _values(model, windows):
    return model(scaled(windows, "float32"))


def _slow_target(settings, model, target_model, batch, num_actions):
    output = np.array(_values(model, batch.windows))
    choosing = np.asarray(_values(model, batch.next_windows))
    valuing = np.asarray(_values(target_model, batch.next_windows))
    for row, action in enumerate(batch.actions):
        wanted = batch.rewards[row]
        if not batch.over[row]:
            chooser = choosing if settings.double else valuing
            weight = settings.discount**settings.horizon
            wanted += weight * valuing[row, chooser[row, :num_actions].argmax()]
        error = np.clip(wanted - output[row, action], -settings.max_error, settings.max_error)
        output[row, action] += error
    return output


@pytest.mark.parametrize("double", [False, True])
@pytest.mark.parametrize("max_error", [0.3, 1e6])
def test_targets(double, max_error):
    settings = QSettings("Breakout", double=double, max_error=max_error, batch_size=64)
    model, target_model = _models()
    batch = _batch(0, settings)
    inputs, target = _clamp(settings, 4, model, target_model, batch)
    assert inputs.dtype == target.dtype == jnp.float32
    expected = _slow_target(settings, model, target_model, batch, 4)
    np.testing.assert_allclose(target, expected, rtol=1e-5, atol=1e-6)


def test_only_the_taken_action_has_an_error():
    model, target_model = _models()
    batch = _batch(0)
    inputs, target = clamp(SMALL, 4, model, target_model, batch)
    error = np.asarray(target - model(inputs))
    taken = np.arange(20) == batch.actions[:, None]
    assert (error[~taken] == 0).all() and (error[taken] != 0).all()


@pytest.mark.parametrize("rule", EXACT.values(), ids=EXACT)
def test_unused_outputs_never_learn(rule):
    """Inside the compiled update too: their weights keep every bit.

    (Not under IL: when a hidden value node moves, so does what it predicts for every output.)
    """
    learner = Learner(SMALL, 4, rule)
    start = state = learner.init(jax.random.key(0))
    for seed in range(10):
        state, _ = learner.update(state, _batch(seed))
    assert same(start.model.head.weight[:, 4:], state.model.head.weight[:, 4:])
    assert same(start.model.head.bias[4:], state.model.head.bias[4:])
    assert not (start.model.head.weight[:, :4] == state.model.head.weight[:, :4]).any()


@pytest.mark.slow
@pytest.mark.parametrize("rule", OTHERS.values(), ids=OTHERS)
def test_other_rules_reduce_the_error(rule):
    learner = Learner(QSettings(**{**SMALL.__dict__, "target_rate": 0.0}), 4, rule)
    state, first = learner.update(learner.init(jax.random.key(0)), _batch(0))
    for _ in range(60):
        state, last = learner.update(state, _batch(0))
    assert last < first / 2


def test_the_first_update_is_adams():
    """From jax.grad and Adam's formula, written out."""
    learner = Learner(SMALL, 4, dendrax.ZIL())
    start = learner.init(jax.random.key(0))
    state, loss = learner.update(start, _batch(0))
    ends = _clamp(SMALL, 4, start.model, start.target, _batch(0))
    value, gradient = jax.jit(jax.value_and_grad(squared_error_loss))(start.model, *ends)
    step = jax.tree.map(lambda g: 0.001 * g / (jnp.abs(g) + SMALL.adam_epsilon), gradient)
    expected = jax.tree.map(jnp.subtract, start.model, step)
    np.testing.assert_allclose(loss, value, rtol=1e-5)
    for found, wanted in zip(jax.tree.leaves(state.model), jax.tree.leaves(expected), strict=True):
        np.testing.assert_allclose(found, wanted, rtol=1e-4, atol=1e-6)


def test_the_target_network_follows_the_model():
    learner = Learner(SMALL, 4, None)
    state = learner.init(jax.random.key(0))
    for update in range(1, 4):
        before = state
        state, _ = learner.update(state, _batch(update))
        expected = jax.tree.map(lambda a, b: 0.75 * a + 0.25 * b, before.target, state.model)
        pairs = zip(jax.tree.leaves(state.target), jax.tree.leaves(expected), strict=True)
        for found, wanted in pairs:
            np.testing.assert_allclose(found, wanted, rtol=1e-5, atol=1e-7)


def test_the_best_action_is_one_of_the_game():
    model = _models()[0]
    for window in _batch(0).windows:
        values = _values(model, window[None])[0]
        assert best_action(model, window, 20) == jnp.argmax(values)
        assert best_action(model, window, 4) == jnp.argmax(values[:4])


def test_it_learns_which_action_pays():
    """Eight situations, in each of which one action of four is rewarded, and ends the episode."""
    learner, draw = Learner(SMALL, 4, dendrax.ZIL()), np.random.default_rng(0)
    situations = draw.integers(256, size=(8, SMALL.window, 128), dtype=np.uint8)
    state = learner.init(jax.random.key(0))
    for _ in range(400):
        actions = draw.integers(4, size=8, dtype=np.int32)
        rewards = (actions == np.arange(8) % 4).astype(np.float32)
        batch = Batch(situations, actions, rewards, np.ones(8, bool), situations)
        state, _ = learner.update(state, batch)
    best = [int(best_action(state.model, window, 4)) for window in situations]
    assert best == [0, 1, 2, 3] * 2


@pytest.mark.parametrize("dtype", ["float64", pytest.param("bfloat16", marks=pytest.mark.slow)])
def test_other_precisions(dtype):
    settings = QSettings("Breakout", hidden_size=16, out_size=20, batch_size=8, dtype=dtype)
    learner = Learner(settings, 4, dendrax.ZIL())
    state, loss = learner.update(learner.init(jax.random.key(0)), _batch(0))
    assert loss.dtype == state.model.head.weight.dtype == jnp.dtype(dtype)


def test_incremental_pc_is_refused():
    with pytest.raises(ValueError, match="IncrementalPC moves the weights itself"):
        Learner(SMALL, 4, dendrax.IncrementalPC(batch="sum"))


def test_numbers_of_numpy_and_types_are_accepted():
    """They become Python's: equal settings have equal hashes, and can be written as JSON."""
    given = QSettings(
        window=np.int32(4),
        learning_rate=np.float64(0.001),
        discount=np.float32(0.5),
        max_error=np.inf,
        sticky=0,
        double=np.bool_(True),
        dtype=jnp.bfloat16,
    )
    plain = QSettings(discount=0.5, max_error=float("inf"), sticky=0.0, dtype="bfloat16")
    assert given == plain and hash(given) == hash(plain)
    assert json.dumps(asdict(given)) == json.dumps(asdict(plain))


@pytest.mark.parametrize("dtype", ["float32", jnp.float32, np.float32, np.dtype("float32"), "f4"])
def test_types_by_any_name(dtype):
    assert QSettings(dtype=dtype).dtype == "float32"


def test_epsilon_falls_linearly_and_stays():
    settings = QSettings("Pong", epsilon_start=1.0, epsilon_end=0.2, epsilon_steps=100)
    assert epsilon_at(settings, 0) == 1.0
    assert epsilon_at(settings, 50) == pytest.approx(0.6)
    assert epsilon_at(settings, 100) == epsilon_at(settings, 10**6) == pytest.approx(0.2)


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"game": "Pung"}, r"(?s)QSettings: unknown game 'Pung'.*mean Pong"),
        ({"game": None}, r"(?s)QSettings: unknown game None.*The games are: Breakout"),
        ({"window": 0}, "window=0 must be an integer, at least 1"),
        ({"window": True}, "window=True must be an integer"),
        ({"steps": "no"}, "steps='no' must be an integer"),
        ({"batch_size": 1.5}, "batch_size=1.5 must be an integer"),
        ({"learning_rate": 0.0}, "learning_rate=0.0 must be a finite number above 0"),
        ({"learning_rate": float("nan")}, "learning_rate=nan must be a finite number"),
        ({"learning_rate": float("inf")}, "learning_rate=inf must be a finite number"),
        ({"learning_rate": True}, "learning_rate=True must be"),
        ({"adam_epsilon": "no"}, "adam_epsilon='no' must be"),
        ({"max_error": -1}, "max_error=-1 must be a number above 0"),
        ({"discount": 1.1}, "discount=1.1 must be a number from 0 to 1"),
        ({"target_rate": float("nan")}, "target_rate=nan must be a number from 0 to 1"),
        ({"epsilon_start": True}, "epsilon_start=True must be a number"),
        ({"evaluate_epsilon": None}, "evaluate_epsilon=None must be a number"),
        ({"sticky": 1.0}, "sticky=1.0 must be a number at least 0 and below 1"),
        ({"double": "no"}, r"(?s)double='no' is not known.*True, False"),
        ({"epsilon_end": -0.1}, "epsilon_end=-0.1"),
        ({"capacity": 6}, "capacity=6 holds no window=4 of observations and horizon=3 steps"),
        ({"warmup": 3}, "warmup=3 is too short"),
        ({"out_size": 17}, "out_size=17 is less than the 18 actions"),
        ({"dtype": "int8"}, "dtype='int8' is not known"),
        ({"dtype": None}, "dtype=None is not known"),
        ({"dtype": "real"}, "dtype='real' is not known"),
    ],
)
def test_wrong_settings(wrong, message):
    with pytest.raises(ValueError, match=message):
        QSettings(**wrong)
