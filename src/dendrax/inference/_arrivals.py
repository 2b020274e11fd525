"""The errors of a wave as it arrives, without the dynamics: one pullback per vertex.

Ahead of the wave every error is exactly zero, and at a vertex's level the error is the sum of the
messages of its users (the paper's lemmas, which the tests of the dynamics check). What happens
behind the wave is not computed, and nobody learns from it. Compiling the dynamics of thousands of
vertices takes minutes, this takes seconds.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from dendrax.graph import Edge, Graph, Port
from dendrax.inference._equations import prediction_error, root_mean_square
from dendrax.inference._network import Clamp, constant_error, evaluate
from dendrax.local import linearise


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
    values = evaluate(graph, graph.call.leaves() if leaves is None else leaves)
    waiting = _output_errors(graph, clamp, values)
    found = Arrivals({}, {}, {})
    for v in reversed(graph.active):
        emitted, received = graph.flow.emitted[v.index], graph.flow.received[v.index]
        errors = tuple(waiting.pop(Port(v.index, o)) for o in emitted)
        for o, error in zip(emitted, errors, strict=True):
            found.errors[Port(v.index, o)] = measure(error)
            found.values[Port(v.index, o)] = measure(values[Port(v.index, o)])
        assert v.function is not None
        inputs = [values[port] for port in v.inputs]
        _, pullback = linearise(v.function, inputs, emitted, received, ())
        for k, message in zip(received, pullback(((), errors)), strict=True):
            port = v.inputs[k]
            found.messages[Edge(port, v.index)] = measure(message)
            waiting[port] = waiting[port] + message if port in waiting else message
    return found


def _output_errors(graph: Graph, clamp: Clamp, values: Any) -> dict[Port, Any]:
    given = clamp.errors if clamp.targets is None else clamp.targets
    assert given is not None
    make = constant_error if clamp.targets is None else prediction_error
    ends = zip(graph.outputs, graph.roots, given, strict=True)
    return {
        port: make(values[port], value)
        for port, root, value in ends
        if root and graph.carries(port)
    }
