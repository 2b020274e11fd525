"""How long each vertex of a graph takes: its prediction and its message, compiled, by itself."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from dendrax.graph import Graph, Vertex
from dendrax.inference import evaluate
from dendrax.local import Equation
from dendrax.walk import exact, record, send_back

MOST = 40  # different functions that are timed; those with the largest arrays
REPEATS = 7


class Timing(NamedTuple):
    """A vertex and its median time in seconds."""

    vertex: Vertex
    seconds: float


def timings(graph: Graph) -> Iterator[tuple[int, int, Timing]]:
    """Vertices with an error and their times, with how many are done and how many there are.

    Vertices with the same function and the same shapes are timed once.
    """
    values = evaluate(graph, graph.call.leaves())
    groups: dict[Any, list[Vertex]] = {}
    for v in graph.active:
        groups.setdefault(_signature(graph, v), []).append(v)
    chosen = sorted(groups.values(), key=lambda same: -_numbers(graph, same[0]))[:MOST]
    for done, same in enumerate(chosen):
        v = same[0]
        seconds = _median_time(_work(graph, v), [values[port] for port in v.inputs])
        for vertex in same:
            yield done + 1, len(chosen), Timing(vertex, seconds)


def _work(graph: Graph, v: Vertex) -> Callable[..., Any]:
    """Predict, then send a message for an error of ones."""
    emitted, received = graph.flow.emitted[v.index], graph.flow.received[v.index]
    function = v.function
    assert function is not None

    def work(*inputs: Any) -> Any:
        outputs, tape = record(function, inputs, [k in received for k in range(len(inputs))], exact)
        errors = [jnp.ones_like(mu) if o in emitted else None for o, mu in enumerate(outputs)]
        return outputs, send_back(tape, errors)

    return jax.jit(work)


def _median_time(work: Callable[..., Any], inputs: list[Any]) -> float:
    jax.block_until_ready(work(*inputs))
    times = []
    for _ in range(REPEATS):
        start = time.perf_counter()
        jax.block_until_ready(work(*inputs))
        times.append(time.perf_counter() - start)
    return statistics.median(times)


def _signature(graph: Graph, v: Vertex) -> Any:
    types = tuple(str(graph[port.vertex].outputs[port.output]) for port in v.inputs)
    flow = graph.flow.emitted[v.index], graph.flow.received[v.index]
    if isinstance(v.function, Equation):
        return str(v.function.jaxpr), types, flow
    return v.index


def _numbers(graph: Graph, v: Vertex) -> int:
    """How many numbers go in and out."""
    inputs = [graph[port.vertex].outputs[port.output] for port in v.inputs]
    return sum(aval.size for aval in (*inputs, *v.outputs))
