"""What a bug would look like: each is put in on purpose, and the tests' own checks must notice."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import dendrax
from dendrax import ZIL, _dynamics, _equations, _level, _local, _open, _wavefront
from dendrax.rules import zil
from tests.compare import distance, same


def loss(w, x):
    """Skips, shared weights and multi-term pullbacks: every mechanism has something to do."""
    h = jnp.tanh(x @ w)
    for _ in range(2):
        h = h + jnp.tanh(h @ w) * h
    return jnp.mean(jax.nn.log_softmax(h @ w) ** 2)


W = np.random.default_rng(0).normal(size=(4, 4))
X = np.random.default_rng(1).normal(size=(5, 4))


def dynamics_distance():
    graph = dendrax.trace(loss, W, X)
    with jax.disable_jit():
        found = dendrax.run(graph, ZIL(), record="energy").gradient
        return distance(found, jax.grad(loss)(W, X))


def wave_is_exact():
    _open._kept_body_graph.cache_clear()
    return same(jax.jit(dendrax.grad(loss))(W, X), jax.jit(jax.grad(loss))(W, X))


@pytest.fixture(autouse=True)
def without_mutation_all_is_exact():
    assert dynamics_distance() == 0.0
    assert wave_is_exact()


def test_a_dropped_delay(monkeypatch):
    def dropped(self, levelled):
        longest = max(levelled.delays, key=lambda edge: levelled.delays[edge])
        return {**levelled.delays, longest: levelled.delays[longest] - 1}

    monkeypatch.setattr(ZIL, "delays", dropped)
    assert dynamics_distance() > 1e-6


@pytest.mark.parametrize("shift", [-1, 1])
def test_a_shifted_learning_time(monkeypatch, shift):
    schedule = ZIL.schedule

    def shifted(self, levelled):
        right = schedule(self, levelled)
        learn_at = {edge: t + shift for edge, t in right.learn_at.items()}
        return dataclasses.replace(right, num_steps=right.num_steps + 1, learn_at=learn_at)

    monkeypatch.setattr(zil.ZIL, "schedule", shifted)
    assert dynamics_distance() > 1e-6


def test_levels_by_minimum_distance(monkeypatch):
    monkeypatch.setattr(_level, "max", min, raising=False)
    graph = dendrax.trace(loss, W, X)
    with pytest.raises(dendrax._check_graph.GraphError):
        dendrax.run(graph, ZIL(), record="energy")


def test_one_broken_pullback(monkeypatch):
    linearise = _local.linearise

    def broken(function, *settings):
        outputs, pullback = linearise(function, *settings)
        if getattr(function, "primitive", "") != "tanh":
            return outputs, pullback
        return outputs, jax.tree_util.Partial(
            lambda pull, given: tuple(m * (1 + 1e-12) for m in pull(given)), pullback
        )

    monkeypatch.setattr(_wavefront, "linearise", broken)
    assert not wave_is_exact()


def test_another_order_of_additions(monkeypatch):
    """Adding messages in program order instead of reverse program order shows in the last bit."""
    original = _equations.add_messages
    monkeypatch.setattr(_dynamics, "add_messages", lambda messages: original(list(messages)[::-1]))
    assert 0 < dynamics_distance() < 1e-12


def test_sums_that_do_not_pass_through_the_pullback(monkeypatch):
    """Adding a finished message to the sum, instead of its terms one by one, shows as well."""
    linearise = _local.linearise

    def apart(function, inputs, emitted, received, summed, leaders):
        outputs, pullback = linearise(function, inputs, emitted, received, ())

        def pull(pullback, given):
            waiting, errors = given
            sums = dict(zip(summed, waiting, strict=True))
            messages = pullback(((), errors))
            return tuple(
                sums[k] + m if k in sums else m for k, m in zip(received, messages, strict=True)
            )

        return outputs, jax.tree_util.Partial(pull, pullback)

    monkeypatch.setattr(_wavefront, "linearise", apart)

    def several_terms(x):
        return jnp.sum(jnp.sin(jnp.tanh(x)) * x)

    x = np.random.default_rng(5).normal(size=100)
    found = jax.jit(dendrax.grad(several_terms))(x)
    assert not same(found, jax.jit(jax.grad(several_terms))(x))
    assert distance(found, jax.jit(jax.grad(several_terms))(x)) < 1e-12


def test_errors_rounded_on_the_way(monkeypatch):
    """Erratum 3: an error that is added to ``mu`` and taken out again loses its last bits."""

    def rounded(carried, mu, before):
        return (carried + mu) - before

    monkeypatch.setattr(_dynamics, "updated_error", rounded)
    assert 0 < dynamics_distance() < 1e-12


def test_errors_that_forget_the_move(monkeypatch):
    """Without ``-dx`` the error does not follow the value node, and nothing arrives."""
    monkeypatch.setattr(_dynamics, "carried_error", lambda error, dx: error)
    assert dynamics_distance() > 1e-6
