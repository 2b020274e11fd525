"""A user's arguments -> the leaves of a placed graph, and micro-batches of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from dendrax import _compat
from dendrax.graph import Graph, Port
from dendrax.inference import Values
from dendrax.support import complain
from dendrax.tracing import Call


def piece_of(
    args: Sequence[Any], batched: Sequence[int], micro_batches: int, *, alike: bool
) -> tuple[Any, ...]:
    """The arguments of the first micro-batch.

    ``alike`` says that all must have as many samples: nobody has said which arguments are batches,
    and one that is shorter is none.
    """

    def first(leaf: Any) -> Any:
        return leaf[: len(leaf) // micro_batches] if _is_array(leaf) else leaf

    _check_divides({i: args[i] for i in batched}, micro_batches, alike)
    return tuple(jax.tree.map(first, arg) if i in batched else arg for i, arg in enumerate(args))


def _check_divides(args: Mapping[int, Any], micro_batches: int, alike: bool) -> None:
    arrays = [(i, np.shape(a)) for i in args for a in filter(_is_array, jax.tree.leaves(args[i]))]
    for place, shape in arrays:
        differs = alike and shape[:1] != arrays[0][1][:1]
        if differs or not shape or not shape[0] or shape[0] % micro_batches:
            others = f" together with {arrays[0][1]}" if differs else ""
            raise complain(
                ValueError,
                f"argument {place} has an array of shape {shape}, which cannot be split{others} "
                f"into {micro_batches} micro-batches.",
                remedy="The first axis counts the samples. batch_argnums says which arguments are "
                "split.",
            )


def _is_array(leaf: Any) -> bool:
    return isinstance(leaf, (jax.Array, np.ndarray))


class Inputs:
    """Which leaf of the graph comes from which argument, and of what type it is."""

    def __init__(self, graph: Graph, call: Call, batched: Sequence[int], micro_batches: int):
        arguments = call.arguments
        self.call = replace(call, arguments=replace(arguments, leaves=_as_avals(arguments)))
        self.batched, self.micro_batches = frozenset(batched), micro_batches
        self.trees = arguments.tree.children()[0].children()
        traced = iter(graph.leaves[len(call.constants) :])
        self._ports = [Port(next(traced)) if flag else None for flag in arguments.traced]
        self._constants = dict(zip(map(Port, graph.leaves), call.constants, strict=False))
        self._kinds = {Port(leaf): graph[leaf].kind for leaf in graph.leaves}

    @property
    def argnums(self) -> tuple[int, ...]:
        """The arguments that are differentiated."""
        argnums = self.call.argnums
        return (argnums,) if isinstance(argnums, int) else argnums

    @property
    def others(self) -> tuple[int, ...]:
        """The arguments that are not."""
        return tuple(i for i in range(len(self.trees)) if i not in self.argnums)

    def parameters(self, args: Mapping[int, Any]) -> Values:
        """The parameters among the leaves of some arguments."""
        return {p: x for p, x in self._taken(args).items() if self._kinds[p] == "parameter"}

    def data(self, args: Mapping[int, Any]) -> list[Values]:
        """The data among the leaves of some arguments, for each micro-batch."""
        taken = self._taken(args)
        places = dict(zip(self._ports, self.call.arguments.positions, strict=True))
        found = []
        for m in range(self.micro_batches):
            values = dict(self._constants)
            for port, value in taken.items():
                is_split = places[port] in self.batched
                if self._kinds[port] == "data":
                    values[port] = self._piece(value, m) if is_split else value
            found.append(values)
        return found

    def _piece(self, value: Any, m: int) -> Any:
        size = len(value) // self.micro_batches
        return value[m * size : (m + 1) * size]

    def _taken(self, args: Mapping[int, Any]) -> Values:
        """The leaves of some arguments (by position), checked, by port."""
        arguments, found = self.call.arguments, {}
        for position, arg in args.items():
            leaves, tree = jax.tree.flatten(arg)
            if tree != self.trees[position]:
                raise complain(
                    TypeError,
                    f"argument {position} was {self.trees[position]} when the function was placed, "
                    f"and now is {tree}.",
                )
            places = [n for n, place in enumerate(arguments.positions) if place == position]
            for n, leaf in zip(places, leaves, strict=True):
                self._check(arguments.names[n], leaf, arguments.leaves[n], position)
                if (port := self._ports[n]) is not None:
                    found[port] = leaf
        return found

    def _check(self, name: str, leaf: Any, expected: Any, position: int) -> None:
        if not _compat.is_aval(expected):
            if leaf is expected or bool(np.all(leaf == expected)):
                return
            raise complain(
                ValueError,
                f"{name} was {expected!r} when the function was placed, and now is {leaf!r}.",
                remedy="Place the function again.",
            )
        shape = expected.shape
        if position in self.batched:
            shape = (self.micro_batches * shape[0], *shape[1:])
        found = _compat.aval_of(leaf if _is_array(leaf) else jnp.asarray(leaf))
        if (found.shape, found.dtype) != (shape, expected.dtype):
            raise complain(
                ValueError,
                f"{name} was {expected.dtype}{list(shape)} when the function was placed, and now "
                f"is {found.dtype}{list(found.shape)}.",
                remedy="Place the function again.",
            )


def _as_avals(arguments: Any) -> list[Any]:
    """Types in place of traced arrays, which need not be kept."""
    pairs = zip(arguments.leaves, arguments.traced, strict=True)
    return [_compat.aval_of(jnp.asarray(leaf)) if flag else leaf for leaf, flag in pairs]
