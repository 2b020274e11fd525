"""The product that has its weight transposed in advance is JAX's own, whatever its axes."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

import dendrax
from dendrax import _compat
from dendrax.local import Applied, is_contraction
from dendrax.walk._regions import run_fast

# shapes of the operands, and their contracted axes
CASES = {
    "x @ w": ((5, 3), (3, 4), (1,), (0,)),
    "x @ w.T": ((5, 3), (4, 3), (1,), (1,)),
    "w @ x": ((4, 3), (3, 5), (1,), (0,)),
    "vector": ((3,), (3, 4), (0,), (0,)),
    "sequence": ((2, 5, 3), (3, 4), (2,), (0,)),
    "first axis": ((3, 2, 5), (4, 3), (0,), (1,)),
    "two axes": ((2, 3, 5), (5, 4, 3), (1, 2), (2, 0)),
    "two axes, crossed": ((2, 3, 5), (5, 4, 3), (2, 1), (0, 2)),
    "outer": ((2, 3), (4,), (), ()),
    "inner": ((3,), (3,), (0,), (0,)),
}


@pytest.mark.parametrize("free", [0, 1])
@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_the_message_is_jaxs(case, free):
    *shapes, left, right = case
    rng = np.random.default_rng(0)
    operands = [jnp.asarray(rng.normal(size=shape)) for shape in shapes]

    def product(a, b):
        return lax.dot_general(a, b, ((left, right), ((), ())))

    graph = dendrax.trace(product, *operands, argnums=(0, 1))
    (operation,) = filter(is_contraction, operations(graph))
    active = [k == free for k in (0, 1)]
    ours = run_fast(operation, operands, active).sender
    pair = lambda x: product(x, operands[1]) if free == 0 else product(operands[0], x)
    value, pullback = jax.vjp(pair, operands[free])
    error = jnp.cos(value)
    message = _compat.new_sum(jax.typeof(operands[free]))
    ours.send([error], [message])
    np.testing.assert_allclose(_compat.summed(message), pullback(error)[0], rtol=1e-12)
    assert ours.reach([True]) == [True] and ours.reach([False]) == [False]


def operations(graph):
    """The operations of a graph."""
    equations = [v.function.jaxpr.eqns[0] for v in graph if v.function is not None]
    return [Applied(eqn.primitive, eqn.params) for eqn in equations]


def test_both_operands_get_their_message():
    def square(a):
        return lax.dot_general(a, a, (((1,), (0,)), ((), ())))

    rng = np.random.default_rng(0)
    a, error = (jnp.asarray(rng.normal(size=(3, 3))) for _ in range(2))
    (operation,) = operations(dendrax.trace(square, a))
    message = _compat.new_sum(jax.typeof(a))
    run_fast(operation, [a, a], [True, True]).sender.send([error], [message, message])
    expected = jax.vjp(square, a)[1](error)[0]
    np.testing.assert_allclose(_compat.summed(message), expected, rtol=1e-12)


def test_batched_products_are_left_to_jax():
    def batched(a, b):
        return lax.dot_general(a, b, (((2,), (1,)), ((0,), (0,))))

    graph = dendrax.trace(batched, jnp.ones((2, 3, 4)), jnp.ones((2, 4, 5)))
    assert not any(map(is_contraction, operations(graph)))
