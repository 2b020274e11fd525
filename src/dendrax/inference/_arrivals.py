"""The errors of a wave as it arrives, without the dynamics: one pullback per vertex.

Ahead of the wave every error is exactly zero, and at a vertex's level the error is the sum of the
messages of its users (the paper's lemmas, which the tests of the dynamics check). What happens
behind the wave is not computed, and nobody learns from it. Compiling the dynamics of thousands of
vertices takes minutes, this takes seconds.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from dendrax.graph import Edge, Graph, Port
from dendrax.inference._clamp import Clamp
from dendrax.inference._equations import root_mean_square
from dendrax.walk import exact, plain, record, send_back, watched


class Arrivals(NamedTuple):
    """A measure of each error and value by port, and of each message by edge."""

    errors: dict[Port, Any]
    values: dict[Port, Any]
    messages: dict[Edge, Any]


def size(array: Any) -> float:
    """The root mean square."""
    return float(root_mean_square(array))


def arrivals(
    graph: Graph,
    clamp: Clamp,
    leaves: Sequence[Any] | None = None,
    measure: Callable[[Any], Any] = size,
) -> Arrivals:
    """A measure of everything at the time when the wave arrives."""
    found = Arrivals({}, {}, {})
    given = graph.call.leaves() if leaves is None else leaves

    def note(measures: dict[Any, Any], key: Any, array: Any) -> None:
        measures[key] = measure(array)

    def forward(*leaves: Any) -> list[Any]:
        env = {Port(leaf): value for leaf, value in zip(graph.leaves, leaves, strict=True)}
        for v in graph.vertices:
            if v.function is None:
                continue
            edges = [(env[p], Edge(p, v.index)) for p in v.inputs]
            inputs = [watched(x, functools.partial(note, found.messages, e)) for x, e in edges]
            for o, value in enumerate(v.function(*inputs)):
                at = Port(v.index, o)
                env[at] = watched(value, functools.partial(note, found.errors, at))
                if o in graph.flow.emitted[v.index]:
                    note(found.values, at, plain(value))
        return [env[port] for port in graph.outputs]

    outputs, tape = record(forward, given, [graph.carries(Port(i)) for i in graph.leaves], exact)
    pairs = enumerate(zip(outputs, graph.roots, strict=True))
    send_back(tape, [clamp.error(o, mu) if root else None for o, (mu, root) in pairs])
    return found
