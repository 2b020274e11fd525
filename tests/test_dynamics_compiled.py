"""The full dynamics, compiled as one loop: to rounding, or exactly where that is claimed."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import dendrax
from dendrax import ZIL
from dendrax.models import problem
from tests.cases.graphs import TIMED_GRAPHS
from tests.compare import close, same
from tests.sampling import every

CANCEL = {"mlp": 512, "nested_scan": 128, "integer_branch": 128}


@pytest.mark.parametrize("case", every(5, TIMED_GRAPHS))
def test_gradients_compiled(case):
    """Compiled as one loop, XLA fuses, and so rounds, differently: a few units in the last place.

    In three cases a cancellation in the *forward* pass makes more of those units.
    """
    args = case.make_args()
    graph = dendrax.trace(case.fun, *args, argnums=case.argnums)

    @jax.jit
    def gradient(*args):
        return dendrax.run(graph, ZIL(), *args, record="energy").gradient

    assert close(
        gradient(*args), jax.jit(jax.grad(case.fun, case.argnums))(*args), CANCEL.get(case.name, 16)
    )


@pytest.mark.parametrize("name", ["mlp", pytest.param("mlp100", marks=pytest.mark.slow)])
def test_mlps_compiled(name):
    """Compiled, the dynamics are exact on MLPs."""
    p = problem(name, dtype="float64", small=True)
    graph = dendrax.trace(p.predict, p.model, p.inputs)

    @functools.partial(jax.jit, static_argnums=0)
    def gradient(record, model, inputs, target):
        return dendrax.run(graph, ZIL(), model, inputs, target=target, record=record).gradient

    arguments = p.model, p.inputs, p.target
    assert same(gradient(("energy",), *arguments), gradient((), *arguments))


def test_unstable_dynamics_stay_exact_ahead_of_the_wave():
    """Compiled, a fused multiply-add must not leave a residue that the dynamics then amplify."""

    def fun(r):
        c = r
        for i in range(5):
            c = jnp.tanh(c * r[i] + r.sum())
        return c.sum()

    r = jnp.asarray([0.8, -0.4, 0.7, 0.2, 1.2, -0.9], jnp.float32) * 2
    graph = dendrax.trace(fun, r)
    result = dendrax.run(graph, ZIL(), record="epsilon")
    levelled, epsilon = dendrax.level(graph), result.epsilon[:]
    for v in graph.active:
        early = np.asarray(epsilon[v])[: levelled.level_of[v]]
        assert v.index == graph.outputs[0].vertex or (early == 0).all()
    np.testing.assert_allclose(result.gradient, jax.grad(fun)(r), rtol=1e-5)
