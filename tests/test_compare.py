"""Comparing compiled functions: the shortcut for equal programs sees every difference."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tests.compare import same_jitted, same_program

X = np.linspace(-1.0, 1.0, 7)
TABLE = np.arange(4000.0)


def program(fun, *args):
    return jax.jit(fun).lower(*args)


def test_equal_programs_are_equal():
    assert same_program(
        program(lambda x: jnp.sin(x) * 2.0, X), program(lambda x: jnp.sin(x) * 2.0, X)
    )
    assert same_jitted(lambda x: jnp.sin(x) * 2.0, lambda x: jnp.sin(x) * 2.0, X)


def test_other_programs_are_compared_by_what_they_compute():
    a, b = lambda x: x * 2.0, lambda x: x + x
    assert not same_program(program(a, X), program(b, X))
    assert same_jitted(a, b, X)


@pytest.mark.parametrize(
    ("a", "b"),
    [
        pytest.param(lambda x: x * 2.0, lambda x: x * 2.5, id="a number"),
        pytest.param(
            lambda x: jnp.sum(x) + TABLE, lambda x: jnp.sum(x) + TABLE[::-1], id="a table"
        ),
        pytest.param(lambda x: jnp.sum(x), lambda x: jnp.sum(x).astype("float32"), id="a type"),
        pytest.param(lambda x: (x, x), lambda x: [x, x], id="a structure"),
        pytest.param(lambda x: {"a": x}, lambda x: {"b": x}, id="a name"),
    ],
)
def test_differences_are_seen(a, b):
    assert not same_program(program(a, X), program(b, X))
    assert not same_jitted(a, b, X)


def test_which_argument_is_used_counts():
    """The text of a program does not say which arguments were left out."""
    first, second = (lambda x, y: jnp.sin(x)), (lambda x, y: jnp.sin(y))
    assert program(first, X, X).as_text() == program(second, X, X).as_text()
    assert not same_program(program(first, X, X), program(second, X, X))
    assert not same_jitted(first, second, X, 2 * X)


def test_callbacks_are_run():
    """The text of a program does not say what Python does."""

    def calling(scale):
        shape = jax.ShapeDtypeStruct(X.shape, X.dtype)
        return lambda x: jax.pure_callback(lambda x: scale * np.asarray(x), shape, x)

    assert same_jitted(calling(2.0), calling(2.0), X)
    assert not same_jitted(calling(2.0), calling(3.0), X)
