"""`check` says exact when it is, and not when it is not."""

import importlib

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import dendrax
from dendrax import BP, ZIL

PARAMS = {"w": np.linspace(-1, 1, 6).reshape(3, 2), "b": np.ones(2)}
X = np.linspace(0, 1, 12).reshape(4, 3)


def loss(params, x):
    return jnp.mean(jnp.tanh(x @ params["w"] + params["b"]) ** 2)


@pytest.mark.parametrize("rule", [BP(), ZIL()])
def test_exact(rule):
    certificate = dendrax.check(loss, PARAMS, X, rule=rule)
    assert certificate.exact
    assert certificate.divergence == 0.0
    table = str(certificate)
    assert "params['w']" in table
    assert "float64[3,2]" in table
    assert "exact: equal to jax.grad, bit for bit" in table


def test_not_exact():
    certificate = dendrax.check(loss, PARAMS, X, rule=ZIL(gamma=0.5))
    assert not certificate.exact
    assert certificate.divergence > 0.01
    assert "NOT exact" in repr(certificate)
    assert all(not row.exact and row.distance > 0 for row in certificate.rows)


def test_one_bit_is_noticed(monkeypatch):
    """A gradient that is off by one unit in the last place is not exact."""
    module = importlib.import_module("dendrax.certify.check")

    def off_by_one_bit(fun, argnums, **settings):
        def both(*args):
            value, gradient = jax.value_and_grad(fun, argnums)(*args)
            return value, jax.tree.map(lambda g: jnp.nextafter(g, jnp.inf), gradient)

        return both

    monkeypatch.setattr(module, "value_and_grad", off_by_one_bit)
    certificate = dendrax.check(loss, PARAMS, X)
    assert not certificate.exact
    assert 0 < certificate.divergence < 1e-15


def test_argnums_and_static_arguments():
    def fun(x, mode, w):
        return jnp.sum(x * w) if mode == "sum" else jnp.mean(x * w)

    certificate = dendrax.check(fun, np.ones(3), "mean", np.arange(3.0), argnums=(0, 2))
    assert certificate.exact
    assert [row.name for row in certificate.rows] == ["x", "w"]
    swapped = dendrax.check(fun, np.ones(3), "mean", np.arange(3.0), argnums=(2, 0))
    assert [row.name for row in swapped.rows] == ["w", "x"]


def test_errors_name_check():
    with pytest.raises(TypeError, match=r"dendrax\.check: .*scalar-output"):
        dendrax.check(lambda x: x, np.ones(3))
    with pytest.raises(TypeError, match=r"dendrax\.check: .*real- or complex-valued"):
        dendrax.check(lambda x: x, 3)
