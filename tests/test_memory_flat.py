"""What a function leaves behind when it is gone: nothing of its own.

Each closure here has a constant array, an inner ``jit`` and a ``scan``, and is called eagerly. JAX
itself is asked the same, so that what it keeps is not put down to us.
"""

import gc
import weakref
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import pytest

import dendrax
from dendrax import IL, ZIL
from dendrax.local import _linear
from dendrax.tracing import _open
from dendrax.walk import _body

W, X = jnp.ones(2), jnp.ones(2)


def _closure(k: int) -> Callable[..., Any]:
    constant = jnp.full((50, 250), float(k))  # 100 kB

    @jax.jit
    def inner(w, x):
        return jnp.tanh(x * w + constant[0, :2])

    def loss(w, x):
        def step(h, _):
            return jnp.tanh(h * w + constant[1, :2]), None

        hidden, _ = jax.lax.scan(step, inner(w, x), None, length=2)
        return jnp.sum(hidden * hidden)

    return loss


def _use(transform: Callable[..., Any], numbers: Sequence[int]) -> list[weakref.ref[Any]]:
    """Call fresh closures; what is left to see of them."""
    left = []
    for k in numbers:
        loss = _closure(k)
        transform(loss)(W, X)
        left.append(weakref.ref(loss))
    return left


def _kept() -> dict[str, int]:
    gc.collect()
    return {
        "arrays": len(jax.live_arrays()),
        "bytes": sum(array.nbytes for array in jax.live_arrays()),
        "programs of bodies": len(_body._made),
        "graphs of bodies": len(_open._body_graphs),
        "operations": len(_linear._operations),
    }


def _by(rule: Any) -> Callable[..., Any]:
    return lambda loss: dendrax.value_and_grad(loss, rule=rule)


def _grown(transform: Callable[..., Any], first: int, more: int) -> dict[str, int]:
    """What is kept after ``more`` closures beyond what was after the first; and how many live."""
    early = _use(transform, range(first))
    before = _kept()
    late = _use(transform, range(first, first + more))
    after = _kept()
    alive = sum(ref() is not None for ref in (*early, *late))
    return {"closures": alive, **{name: max(0, after[name] - before[name]) for name in before}}


@pytest.mark.parametrize("rule", [ZIL(), IL(2, batch="sum")], ids=["ZIL", "IL"])
def test_a_few_closures_leave_nothing(rule):
    assert not any(_grown(_by(rule), 2, 3).values())


def test_a_table_that_keeps_bodies_is_seen(monkeypatch):
    monkeypatch.setattr(_body, "_made", {})
    assert _grown(_by(ZIL()), 1, 2)["programs of bodies"] > 0


@pytest.mark.slow
@pytest.mark.parametrize(
    ("rule", "count"), [(ZIL(), 2000), (IL(2, batch="sum"), 100)], ids=["ZIL", "IL"]
)
def test_closures_leave_no_more_than_with_jax(rule, count):
    usual = _grown(jax.value_and_grad, 20, 20)
    assert not any(usual.values())
    assert _grown(_by(rule), 20, count - 20) == usual
