"""Inference that goes wrong is noticed by whoever runs it; where it does not, all is quiet."""

import dataclasses
import warnings

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import dendrax
from dendrax import IL, ErrorPC, IncrementalPC
from tests.compare import same

RNG = np.random.default_rng(0)
SIZES = (((3, 8), 0.5), ((8, 8), 0.75), ((8, 2), 0.3))
W = [RNG.normal(size=shape) * scale for shape, scale in SIZES]
X, Y = RNG.normal(size=(4, 3)), RNG.normal(size=(4, 2))
GOOD, BAD = IL(50, gamma=0.05, batch="sum"), IL(50, gamma=0.9, batch="sum")


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


@pytest.mark.parametrize(
    "rule", [GOOD, ErrorPC(20, batch="sum"), IncrementalPC(10, gamma=0.05, batch="sum")]
)
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
    rule = IL(10, gamma=0.2, batch="sum")
    with pytest.warns(UserWarning, match="Inference diverged"):
        found = dendrax.grad(loss, rule=rule)(W, X)
    (_, result), again = jax.jit(dendrax.value_and_grad(loss, rule=rule, has_result=True))(W, X)
    assert result.diverged and result.energy > loss(W, X)
    assert all(np.all(np.isfinite(g)) for g in jax.tree.leaves((found, again)))


def test_warnings_from_compiled_programs():
    fun = jax.jit(dendrax.grad(straight, rule=dataclasses.replace(BAD, on_divergence="warn")))
    with pytest.warns(UserWarning, match="dendrax.grad: Inference diverged: it began with"):
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
    """And what has come out is handed out, however large."""
    found = dendrax.grad(straight, rule=dataclasses.replace(BAD, on_divergence="ignore"))(W, X)
    assert all(np.all(np.isfinite(g)) and np.max(np.abs(g)) > 1e50 for g in found)


def test_a_gradient_of_a_gradient(silence):
    outer = lambda x: sum(jnp.sum(g**2) for g in dendrax.grad(loss, rule=IL(5, batch="sum"))(W, x))
    ignored = IL(5, on_divergence="ignore", batch="sum")
    expected = lambda x: sum(jnp.sum(g**2) for g in dendrax.grad(loss, rule=ignored)(W, x))
    np.testing.assert_allclose(jax.grad(outer)(X), jax.grad(expected)(X), rtol=1e-12)


# ---- run and infer -------------------------------------------------------------------------------


def test_the_energy_falls_and_then_rises():
    """What counts is the energy's own course, not only where it began."""
    graph = dendrax.trace(loss, W, X, vertices="layer")
    start = dendrax.run(graph, IL(1, batch="sum")).descent.start
    result = dendrax.run(graph, IL(8, gamma=0.2, batch="sum"), record="energy")
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
    found = dendrax.infer(loss, W, X, rule=IL(3, gamma=0.01, tol=1e-9, batch="sum"))
    assert not found.converged and "did not converge in 3 steps" in found.advice
    assert found.advice in repr(found)


def test_nan_from_the_start():
    bad = [W[0] * np.nan, *W[1:]]
    with pytest.warns(UserWarning, match="energy is nan from the start: that of .*output is not"):
        found = dendrax.infer(loss, bad, X, rule=GOOD)
    assert found.diverged_at == 0
    gradient = jax.jit(dendrax.grad(loss, rule=GOOD))(bad, X)
    assert all(np.all(np.isnan(g)) for g in jax.tree.leaves(gradient))


@pytest.mark.parametrize("gamma", [1e-4, 1e-3])
def test_low_precision_is_not_divergence(silence, gamma):
    """What bfloat16 rounds to is larger than what one step gains."""
    low = jax.tree.map(lambda a: jnp.asarray(a / 3, jnp.bfloat16), (W, X, Y))

    def fun(w, x):
        return jnp.sum((predict(w, x) - low[2]) ** 2)

    dendrax.grad(fun, rule=IL(2, gamma=gamma, batch="sum"))(*low[:2])
    graph = dendrax.trace(fun, *low[:2], vertices="layer")
    assert dendrax.run(graph, IL(2, gamma=gamma, batch="sum")).diverged_at is None


def test_a_perfect_fit_is_not_divergence(silence):
    target = predict(W, X)
    fit = lambda w: jnp.sum((predict(w, X) - target) ** 2)
    for rule in (IL(10, batch="sum"), ErrorPC(10, batch="sum")):
        dendrax.grad(fit, rule=rule)(W)


@pytest.mark.parametrize("rate", [0.01, 0.1])
def test_a_loss_of_almost_nothing_is_no_reason_to_stop(rate):
    """An optimizer's first steps have the size of its rate, however small the errors are."""
    x = jnp.ones((5, 3), jnp.float32)
    w = [jnp.full((3, 4), 0.2, jnp.float32), jnp.full((4, 2), 0.2, jnp.float32)]
    y = jnp.tanh(x @ w[0]) @ w[1] + jnp.float32(1e-3)
    fit = lambda w: jnp.sum((jnp.tanh(x @ w[0]) @ w[1] - y) ** 2) / 2
    with jax.numpy_dtype_promotion("standard"):
        update = jax.jit(dendrax.grad(fit, rule=IL(20, optimizer=optax.adam(rate), batch="sum")))
        assert all(np.all(np.isfinite(g)) for g in update(w))
