"""A call traced again with data of other sizes: what changes then belongs to the samples.

What enters: a `Call`, and which axes of its data are to be longer by one. What leaves: the graph of
the same function for that. Nothing is computed: data are types, but for a function that looks at
their numbers (a Python branch), which is given its last sample twice.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from dendrax import _compat
from dendrax.graph import Graph
from dendrax.tracing._arguments import looked_into
from dendrax.tracing._call import NOT_KNOWN, Call, trace_call


class Resizable:
    """The data of a call: ``arrays`` are those with an axis, by their place among the leaves."""

    def __init__(self, call: Call):
        self.call, self.arguments = call, looked_into(call.arguments)
        rows = zip(self.arguments.leaves, self.arguments.parameter, strict=True)
        self.arrays: dict[int, Any] = {
            k: leaf
            for k, (leaf, parameter) in enumerate(rows)
            if not parameter and _is_array(leaf) and np.ndim(leaf)
        }

    @property
    def shapes(self) -> dict[int, tuple[int, ...]]:
        """The shapes of the data."""
        return {k: np.shape(leaf) for k, leaf in self.arrays.items()}

    @property
    def types(self) -> tuple[Any, ...]:
        """What the arguments are, so far as it can be compared."""
        leaves = [
            (tuple(np.shape(x)), str(jax.typeof(x).dtype)) if _is_array(x) else None
            for x in self.arguments.leaves
        ]
        return self.arguments.tree, tuple(leaves), tuple(self.arguments.parameter)

    @property
    def closed_over(self) -> list[Any]:
        """The arrays that the function has from elsewhere than its arguments."""
        own = {id(leaf) for leaf in self.arguments.leaves}
        types = {_type(leaf) for leaf in self.arrays.values()}
        found = [c for c in self.call.constants if id(c) not in own and np.ndim(c)]
        return [constant for constant in found if _type(constant) not in types]

    def traced(self, axes: Mapping[int, int], vertices: Any) -> tuple[Graph, list[int]] | None:
        """The graph for data with one sample more along these ``axes``, and which of its leaves,
        counted, these data are; ``None`` if the function does not work so."""
        for concrete in (False, True):
            try:
                return self._traced(axes, vertices, concrete=concrete)
            except NOT_KNOWN:
                if any(_compat.is_tracer(self.arrays[k]) for k in axes):
                    return None
            except Exception:  # whatever a user's function raises at sizes that it is not for
                return None
        return None

    def _traced(
        self, axes: Mapping[int, int], vertices: Any, *, concrete: bool
    ) -> tuple[Graph, list[int]]:
        old = self.arguments
        leaves = list(old.leaves)
        for k, axis in axes.items():
            leaves[k] = _one_more(leaves[k], axis) if concrete else _longer(leaves[k], axis)
        traced = [flag or k in axes for k, flag in enumerate(old.traced)]
        arguments = replace(old, leaves=leaves, traced=traced)
        if concrete:  # as the user gave them, where they can be looked at
            arguments = replace(arguments, traced=old.traced)
        call = self.call
        assert call.fun is not None
        graph, again = trace_call(
            call.fun, arguments, call.argnums, has_aux=call.has_aux, vertices=vertices
        )
        order = [k for k, flag in enumerate(arguments.traced) if flag]
        sizes = {_type(leaves[k]) for k in axes if k not in order}
        resized = [i for i, value in enumerate(again.constants) if _type(value) in sizes]
        resized += [len(again.constants) + i for i, k in enumerate(order) if k in axes]
        return replace(graph, call=again), resized


def _is_array(leaf: Any) -> bool:
    return isinstance(leaf, (jax.Array, np.ndarray))


def _type(value: Any) -> tuple[Any, ...]:
    return tuple(np.shape(value)), str(jax.typeof(value).dtype)


def _longer(leaf: Any, axis: int) -> Any:
    aval = _compat.aval_of(leaf)
    shape = tuple(n + (k == axis) for k, n in enumerate(aval.shape))
    return aval.update(shape=shape)


def _one_more(leaf: Any, axis: int) -> Any:
    with jax.ensure_compile_time_eval():
        last = jax.lax.slice_in_dim(leaf, leaf.shape[axis] - 1, leaf.shape[axis], axis=axis)
        longer = jnp.concatenate([jnp.asarray(leaf), last], axis)
        return np.asarray(longer) if isinstance(leaf, np.ndarray) else longer
