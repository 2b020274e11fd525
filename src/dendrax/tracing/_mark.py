"""`vertex`: mark a function as one elementary function of the graph; and the names of results.

A mark is an inner ``jax.jit`` with a telling name. It survives ``vmap``, ``scan``, ``remat`` and
the like, means nothing to JAX itself, and costs nothing once compiled. What a module returns
(`dendrax.tracing._modules`) passes through an identity operation with such a name instead.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Iterator
from typing import Any, TypeVar

import jax
import numpy as np

from dendrax import _compat
from dendrax.graph import Vertex
from dendrax.local import Equation
from dendrax.support import complain, nobody_speaking, public

_F = TypeVar("_F", bound=Callable[..., Any])
_PREFIX = "dendrax_vertex_"


@public("dendrax.vertex")
def vertex(fn: _F) -> _F:
    r"""Mark a function as one vertex: one value node for its result, none inside.

    Under `vertices="marked"` the marks alone decide which value nodes there are, and everything
    between two marks lies inside the next vertex's function. Under `"layer"` and `"primitive"` a
    marked function counts as a single operation. Everywhere else the mark does nothing.

    A mark inside `jax.lax.cond` or a custom rule is no value node (you are warned), and one under
    `jax.disable_jit` is not seen. A marked last layer is a value node of its own between the
    network and its loss: leave it unmarked for the textbook's clamped output.

    A layer marked with its activation, $\mu = f(W x + b)$, gives the convention in which value
    nodes are post-activations. Inside `jax.lax.scan` there is one value node for all time steps,
    with time as its first axis; where a record is asked for ``"scan[3]/layer"``, it shows one step.

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


        ws, x, y = [jnp.ones((2, 2))] * 3, jnp.ones((4, 2)), jnp.ones((4, 2))
        step = dendrax.value_and_grad(loss, rule=dendrax.IL(batch="sum"), vertices="marked")
        value, gradient = step(ws, x, y)
        print(dendrax.trace(loss, ws, x, y, vertices="marked"))
        # -> ... 2 value nodes, and the output, which is clamped ...
        ```
    """
    if not callable(fn):
        raise complain(
            TypeError,
            f"expected a function, got {type(fn).__name__}.",
            remedy="Mark the function itself: layer = dendrax.vertex(layer).",
        )

    name = _PREFIX + _identifier(fn)

    @functools.wraps(fn)
    def marked(*args: Any, **kwargs: Any) -> Any:
        if not _compat.is_tracing():  # nobody is looking
            return fn(*args, **kwargs)
        leaves, tree = jax.tree.flatten((args, kwargs))

        def call(*arrays: Any) -> Any:
            values = iter(arrays)
            merged = [next(values) if _is_array(leaf) else leaf for leaf in leaves]
            args, kwargs = jax.tree.unflatten(tree, merged)
            with nobody_speaking():
                return fn(*args, **kwargs)

        call.__name__ = call.__qualname__ = name
        # Compiled afresh for each call: nothing that the function sees can be out of date.
        return jax.jit(call)(*filter(_is_array, leaves))

    return marked  # pyright: ignore[reportReturnType]


def marked_name(name: Any) -> str | None:
    """The name of the marked function, or of the module, behind an operation of this name."""
    is_mark = isinstance(name, str) and name.startswith(_PREFIX)
    return name.removeprefix(_PREFIX).partition("@")[0] if is_mark else None


def name_of_result(kind: str, positions: Iterable[int]) -> str:
    """The name of the result of a module: its class, and which of those asked for mean it."""
    return f"{_PREFIX}{kind}@{','.join(map(str, positions))}"


class Named(Equation):
    """The result of a module, handed on. Who runs it is not told the name: a function that takes
    gradients by modules of its own may be traced for others."""

    def __call__(self, *inputs: Any) -> list[Any]:
        return list(inputs)


def as_named(equation: Equation) -> Equation:
    """The same, as a `Named` one if `naming` named it."""
    if equation.primitive != "name" or not marked_name(equation.jaxpr.eqns[0].params["name"]):
        return equation
    return Named(equation.jaxpr, equation.source)


def is_named(v: Vertex) -> bool:
    """Whether a vertex is the result of a module that `naming` named."""
    return isinstance(v.function, Named)


def asked_inside(jaxpr: _compat.Jaxpr) -> Iterator[list[int]]:
    """Of each named result in a program, and in whatever it calls: which of those asked for."""
    for eqn in jaxpr.eqns:
        if eqn.primitive.name == "name" and marked_name(eqn.params["name"]) is not None:
            yield [int(i) for i in eqn.params["name"].partition("@")[2].split(",")]
        for inner in _compat.inner_programs(eqn.params):
            yield from asked_inside(inner)


def marks_inside(jaxpr: _compat.Jaxpr, *, modules: bool = False) -> Iterator[str]:
    """The names of the marked functions (or of the modules, if these were asked for) that a program
    calls, in whatever it calls, too."""
    for eqn in jaxpr.eqns:
        name = marked_name(eqn.params.get("name"))
        if name is not None and (eqn.primitive.name == "name") == modules:
            yield name
            continue
        for inner in _compat.inner_programs(eqn.params):
            yield from marks_inside(inner, modules=modules)


def _is_array(leaf: Any) -> bool:
    return isinstance(leaf, (jax.Array, np.ndarray, np.generic))


def _identifier(fn: Callable[..., Any]) -> str:
    """What a user would call it: a method ``__call__`` is its class."""
    while isinstance(fn, functools.partial):
        fn = fn.func
    name = getattr(fn, "__name__", type(fn).__name__)
    if name == "__call__":
        owner = getattr(fn, "__self__", None)
        path = getattr(fn, "__qualname__", "").split(".")
        name = path[-2] if owner is None and len(path) > 1 else type(owner).__name__
    return name if name.isidentifier() else "function"
