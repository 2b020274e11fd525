"""`vertex`: mark a function as one elementary function of the graph.

A mark is an inner ``jax.jit`` with a telling name. It survives ``vmap``, ``scan``, ``remat`` and
the like, means nothing to JAX itself, and costs nothing once compiled.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import jax
import numpy as np

from dendrax._errors import complain, nobody_speaking, public

_F = TypeVar("_F", bound=Callable[..., Any])
_PREFIX = "dendrax_vertex_"


@public("dendrax.vertex")
def vertex(fn: _F) -> _F:
    r"""Mark a function as one vertex: one value node for its result, none inside.

    Under `vertices="marked"` the marks alone decide which value nodes there are, and everything
    between two marks lies inside the next vertex's function. Under `"layer"` and `"primitive"` a
    marked function counts as a single operation. Everywhere else the mark does nothing.

    A layer marked with its activation, $\mu = f(W x + b)$, gives the convention in which value
    nodes are post-activations. Inside `jax.lax.scan` there is one value node per time step.

    **Arguments:** `fn`: any JAX function of trees of arrays. Whatever else is in its arguments
    (numbers, strings, functions) is fixed.

    **Returns:** the marked function. Can be used as a decorator.

    !!! example

        ```python
        import dendrax, jax.numpy as jnp

        layer = dendrax.vertex(lambda w, x: jnp.tanh(x @ w))


        def loss(ws, x, y):
            for w in ws[:-1]:
                x = layer(w, x)
            return jnp.sum((x @ ws[-1] - y) ** 2)


        step = dendrax.value_and_grad(loss, rule=dendrax.IL(), vertices="marked")
        ```
    """
    if not callable(fn):
        raise complain(
            TypeError,
            f"expected a function, got {type(fn).__name__}.",
            remedy="Mark the function itself: layer = dendrax.vertex(layer).",
        )

    def call(fixed: _Fixed, *arrays: Any) -> Any:
        args, kwargs = fixed.merge(arrays)
        with nobody_speaking():
            return fn(*args, **kwargs)

    call.__name__ = call.__qualname__ = _PREFIX + _identifier(fn)
    compiled = jax.jit(call, static_argnums=0)

    @functools.wraps(fn)
    def marked(*args: Any, **kwargs: Any) -> Any:
        leaves, tree = jax.tree.flatten((args, kwargs))
        arrays = [leaf for leaf in leaves if _is_array(leaf)]
        others = tuple(_ARRAY if _is_array(leaf) else leaf for leaf in leaves)
        return compiled(_Fixed(tree, others), *arrays)

    return marked  # pyright: ignore[reportReturnType]


def marked_name(name: Any) -> str | None:
    """The name of the marked function behind an inner ``jit`` of this name, if there is one."""
    is_mark = isinstance(name, str) and name.startswith(_PREFIX)
    return name.removeprefix(_PREFIX) if is_mark else None


_ARRAY = object()  # stands where an array was


@dataclass(frozen=True)
class _Fixed:
    """The arguments of a call without their arrays."""

    tree: Any
    leaves: tuple[Any, ...]

    def merge(self, arrays: Sequence[Any]) -> Any:
        """The arguments, with the arrays put back."""
        values = iter(arrays)
        leaves = [next(values) if leaf is _ARRAY else leaf for leaf in self.leaves]
        return jax.tree.unflatten(self.tree, leaves)

    def __hash__(self) -> int:  # by identity where a leaf cannot be hashed: traced again, not wrong
        try:
            return hash((self.tree, self.leaves))
        except TypeError:
            return id(self)


def _is_array(leaf: Any) -> bool:
    return isinstance(leaf, (jax.Array, np.ndarray, np.generic))


def _identifier(fn: Callable[..., Any]) -> str:
    name = getattr(fn, "__name__", type(fn).__name__)
    return name if name.isidentifier() else "function"
