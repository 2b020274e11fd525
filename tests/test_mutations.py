"""What a bug would look like: each is put in on purpose, and the tests' own checks must notice."""

import dataclasses
import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import dendrax
from dendrax import ZIL, _compat
from dendrax.graph import _level
from dendrax.inference import _dynamics, _equations
from dendrax.local import _linear as _local
from dendrax.rules import zil
from dendrax.walk import _body
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


def forget():
    """What was made under a mutation must not be used without it."""
    _body._made.clear()
    _local._operations.clear()


def wave_is_exact():
    forget()
    return same(jax.jit(dendrax.grad(loss))(W, X), jax.jit(jax.grad(loss))(W, X))


@pytest.fixture(autouse=True)
def without_mutation_all_is_exact():
    assert dynamics_distance() == 0.0
    assert wave_is_exact()
    yield
    forget()


def test_a_dropped_delay(monkeypatch):
    schedule = ZIL.schedule

    def dropped(self, levelled):
        longest = max(levelled.delays, key=lambda edge: levelled.delays[edge])
        delays = {**levelled.delays, longest: levelled.delays[longest] - 1}
        return dataclasses.replace(schedule(self, levelled), delays=delays)

    monkeypatch.setattr(ZIL, "schedule", dropped)
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
    with pytest.raises(dendrax.graph._check.GraphError):
        dendrax.run(graph, ZIL(), record="energy")


def test_one_broken_pullback(monkeypatch):
    """Wrong by less than one unit in the last place of most numbers."""
    send = _local.Pullback.send

    def broken(self, errors, sums):
        if any(eqn.primitive.name == "mul" for eqn in self.linear.jaxpr.eqns):
            errors = [error * (1 + 1e-12) for error in errors]
        send(self, errors, sums)

    monkeypatch.setattr(_local.Pullback, "send", broken)
    assert not wave_is_exact()


def test_another_order_of_additions(monkeypatch):
    """Adding messages in program order instead of reverse program order shows in the last bit."""
    original = _equations.add_messages
    monkeypatch.setattr(_dynamics, "add_messages", lambda messages: original(list(messages)[::-1]))
    assert 0 < dynamics_distance() < 1e-12


def test_terms_that_are_added_up_first(monkeypatch):
    """Adding a finished message to the sum, instead of its terms one by one, shows as well."""
    send = _local.Pullback.send

    def apart(self, errors, sums):
        own = [_compat.new_sum(var.aval) for var in self.linear.jaxpr.invars]
        send(self, errors, own)
        for total, message in zip(sums, map(_compat.summed, own), strict=True):
            if message is not None:
                total.accum(message)

    monkeypatch.setattr(_local.Pullback, "send", apart)

    def several_terms(x):
        return jnp.sum(jnp.sin(jnp.tanh(x)) * x)

    x = np.random.default_rng(5).normal(size=100)
    found = jax.jit(dendrax.grad(several_terms))(x)
    assert not same(found, jax.jit(jax.grad(several_terms))(x))
    assert distance(found, jax.jit(jax.grad(several_terms))(x)) < 1e-12


def test_messages_added_in_program_order(monkeypatch):
    """The wave adds the messages of a vertex's users in reverse program order, as JAX does."""

    def in_program_order(self, message):
        if hasattr(message, "dtype"):
            self.messages = [message, *getattr(self, "messages", [])]
            self.val = functools.reduce(jnp.add, self.messages)

    monkeypatch.setattr(_compat.Sum, "accum", in_program_order)
    found = jax.jit(dendrax.grad(loss))(W, X)
    monkeypatch.undo()
    expected = jax.jit(jax.grad(loss))(W, X)
    assert not same(found, expected)
    assert distance(found, expected) < 1e-12


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
