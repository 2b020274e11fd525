"""Inference that goes wrong is noticed by whoever runs it; where it does not, all is quiet."""

import dataclasses
import warnings

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import dendrax
from dendrax import IL, ErrorPC, IncrementalPC
from tests.compare import same

RNG = np.random.default_rng(0)
SIZES = (((3, 8), 0.5), ((8, 8), 0.75), ((8, 2), 0.3))
W = [RNG.normal(size=shape) * scale for shape, scale in SIZES]
X, Y = RNG.normal(size=(4, 3)), RNG.normal(size=(4, 2))
GOOD, BAD = IL(50, gamma=0.05), IL(50, gamma=0.9)


def predict(w, x):
    h = jnp.tanh(x @ w[0])
    return jnp.tanh(h @ w[1]) @ w[2]


def loss(w, x):
    return jnp.sum((predict(w, x) - Y) ** 2) / 2


def straight(w, x):
    """Nothing bounds what grows."""
    return jnp.sum(((x @ w[0]) @ w[1] @ w[2] - Y) ** 2) / 2


@pytest.fixture
def silence():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        yield


# ---- value_and_grad ------------------------------------------------------------------------------


@pytest.mark.parametrize("rule", [GOOD, ErrorPC(20), IncrementalPC(10, gamma=0.05)])
@pytest.mark.parametrize("how", ["nan", "warn", "raise"])
def test_a_healthy_update_is_silent_and_has_the_same_bits(rule, how, silence):
    rules = [dataclasses.replace(rule, on_divergence=h) for h in (how, "ignore")]
    found, expected = (dendrax.value_and_grad(loss, rule=r)(W, X) for r in rules)
    assert same(found, expected)
    found, expected = (jax.jit(dendrax.value_and_grad(loss, rule=r))(W, X) for r in rules)
    assert same(found, expected)
    jax.effects_barrier()


def test_nan_by_default():
    fun = dendrax.value_and_grad(straight, rule=BAD)
    value, gradient = jax.jit(fun)(W, X)
    assert np.isfinite(value)
    assert all(np.all(np.isnan(g)) for g in jax.tree.leaves(gradient))
    with pytest.warns(
        UserWarning, match=r"value_and_grad: Inference diverged.*smaller gamma than 0.9"
    ):
        _, outside = fun(W, X)
    assert all(np.all(np.isnan(g)) for g in jax.tree.leaves(outside))


def test_a_small_rise_is_told_and_leaves_the_gradient():
    """Nets still learn after it: a gradient of NaN would end that."""
    rule = IL(10, gamma=0.2)
    with pytest.warns(UserWarning, match="Inference diverged"):
        found = dendrax.grad(loss, rule=rule)(W, X)
    (_, result), again = jax.jit(dendrax.value_and_grad(loss, rule=rule, has_result=True))(W, X)
    assert result.diverged and result.energy > loss(W, X)
    assert all(np.all(np.isfinite(g)) for g in jax.tree.leaves((found, again)))


def test_warnings_from_compiled_programs():
    fun = jax.jit(dendrax.grad(straight, rule=dataclasses.replace(BAD, on_divergence="warn")))
    with pytest.warns(UserWarning, match="dendrax.grad: Inference diverged.*at the end it is"):
        jax.block_until_ready(fun(W, X))
        jax.effects_barrier()
    each = jax.vmap(fun, in_axes=(None, 0))
    with pytest.warns(UserWarning, match="Inference diverged"):
        jax.block_until_ready(each(W, jnp.stack([X, X * 2])))
        jax.effects_barrier()


def test_errors_from_compiled_programs():
    rule = dataclasses.replace(BAD, on_divergence="raise")
    with pytest.raises(FloatingPointError, match="Inference diverged"):
        dendrax.grad(straight, rule=rule)(W, X)
    with pytest.raises(Exception, match="Inference diverged"):
        jax.block_until_ready(jax.jit(dendrax.grad(straight, rule=rule))(W, X))
        jax.effects_barrier()


def test_nothing_is_said_if_nobody_wants_to_hear(silence):
    rule = dataclasses.replace(BAD, on_divergence="ignore")
    assert np.isfinite(dendrax.value_and_grad(straight, rule=rule)(W, X)[0])


def test_a_gradient_of_a_gradient(silence):
    outer = lambda x: sum(jnp.sum(g**2) for g in dendrax.grad(loss, rule=IL(5))(W, x))
    ignored = IL(5, on_divergence="ignore")
    expected = lambda x: sum(jnp.sum(g**2) for g in dendrax.grad(loss, rule=ignored)(W, x))
    np.testing.assert_allclose(jax.grad(outer)(X), jax.grad(expected)(X), rtol=1e-12)


# ---- run and infer -------------------------------------------------------------------------------


def test_the_energy_falls_and_then_rises():
    """What counts is the energy's own course, not only where it began."""
    graph = dendrax.trace(loss, W, X, vertices="layer")
    start = dendrax.run(graph, IL(1)).descent.start
    result = dendrax.run(graph, IL(8, gamma=0.2), record="energy")
    energy = np.asarray(result.energy)
    assert energy.min() < energy[-1] < float(start)  # lower than at the start, and yet
    assert result.diverged_at == int(energy.argmin()) + 1
    assert "the energy fell from" in result.advice and "it rose" in result.advice


@pytest.mark.parametrize("fun", [loss, straight])
def test_infer_tells(fun):
    with pytest.warns(UserWarning, match="dendrax.infer: Inference diverged"):
        found = dendrax.infer(fun, W, X, rule=BAD)
    assert found.diverged_at is not None and found.advice in repr(found)


def test_infer_is_silent_where_all_is_well(silence):
    found = dendrax.infer(loss, W, X, rule=GOOD)
    assert found.diverged_at is None and found.advice == ""
    jax.jit(lambda: dendrax.infer(straight, W, X, rule=BAD))()  # inside, `.diverged_at` says it


def test_what_never_settles_says_so(silence):
    found = dendrax.infer(loss, W, X, rule=IL(3, gamma=0.01, tol=1e-9))
    assert not found.converged and "did not converge in 3 steps" in found.advice
    assert found.advice in repr(found)


def test_nan_from_the_start():
    bad = [W[0] * np.nan, *W[1:]]
    with pytest.warns(UserWarning, match="energy is nan from the start: that of .*output is not"):
        found = dendrax.infer(loss, bad, X, rule=GOOD)
    assert found.diverged_at == 0
    gradient = jax.jit(dendrax.grad(loss, rule=GOOD))(bad, X)
    assert all(np.all(np.isnan(g)) for g in jax.tree.leaves(gradient))


def test_low_precision_is_not_divergence(silence):
    """What bfloat16 rounds to is larger than what one step gains."""
    low = jax.tree.map(lambda a: jnp.asarray(a / 3, jnp.bfloat16), (W, X, Y))

    def fun(w, x):
        return jnp.sum((predict(w, x) - low[2]) ** 2)

    dendrax.grad(fun, rule=IL(2, gamma=1e-4))(*low[:2])


def test_a_perfect_fit_is_not_divergence(silence):
    target = predict(W, X)
    fit = lambda w: jnp.sum((predict(w, X) - target) ** 2)
    for rule in (IL(10), ErrorPC(10)):
        dendrax.grad(fit, rule=rule)(W)
