"""The invariants of graphs and levelled graphs, written down so that they can be checked.

Switched on by the environment variable ``DENDRAX_ENABLE_CHECKS=1``; the tests do so, and then every
graph is checked after tracing and after levelling.
"""

from __future__ import annotations

import os
from typing import TypeVar

from dendrax.graph._graph import Graph, Port, Vertex
from dendrax.graph._level import LevelledGraph
from dendrax.graph._region import Region

ENABLED = os.environ.get("DENDRAX_ENABLE_CHECKS") == "1"

_G = TypeVar("_G", Graph, LevelledGraph)


class GraphError(AssertionError):
    """A graph that is not well formed: a bug in dendrax."""


def checked(graph: _G) -> _G:
    """``graph``, checked if checks are switched on."""
    if ENABLED:
        check_graph(graph) if isinstance(graph, Graph) else check_levelled(graph)
    return graph


def check_graph(graph: Graph) -> None:
    """Raise `GraphError` unless the graph is well formed."""
    for index, v in enumerate(graph.vertices):
        _require(v.index == index, v, f"stands at place {index}")
        _check_vertex(graph, v)
    for leaf in graph.leaves:
        _require(graph[leaf].function is None, graph[leaf], "is a leaf with a function")
    _require_graph(len(graph.outputs) == len(graph.roots), "outputs and roots differ in number")
    for port in graph.outputs:
        _require_graph(_exists(graph, port), f"output {port} does not exist")
    _check_flow(graph)


def check_levelled(levelled: LevelledGraph) -> None:
    """Raise `GraphError` unless levels are longest paths and delays make up for the rest."""
    graph, level_of = levelled.graph, levelled.level_of
    check_graph(graph)
    below = dict.fromkeys(level_of, 0)
    for edge in graph.edges:
        source, user = edge.source.vertex, edge.user
        gap = level_of[source] - level_of[user] - 1
        _require_graph(gap >= 0, f"{edge} goes upwards")
        _require_graph(levelled.delays[edge] == gap, f"{edge} has delay {levelled.delays[edge]}")
        below[source] = max(below[source], level_of[user] + 1)
    _require_graph(dict(level_of) == below, "levels are not longest paths to the output")
    _require_graph(set(levelled.delays) == set(graph.edges), "a delay on an edge that is not there")


def check_expanded(graph: Graph) -> None:
    """Raise `GraphError` unless every edge spans one level: all paths are equally long."""
    check_graph(graph)
    depth: dict[int, int] = {}
    for edge in reversed(graph.edges):
        here = depth.setdefault(edge.user, 0) + 1
        found = depth.setdefault(edge.source.vertex, here)
        _require_graph(found == here, f"paths of length {found} and {here} end at {edge.source}")


def _check_vertex(graph: Graph, v: Vertex) -> None:
    _require(len(v.carries) == len(v.outputs), v, "does not say which outputs carry errors")
    if v.function is None:
        _require(v.kind in ("parameter", "free", "data"), v, "has no function but is not a leaf")
        _require(v.carries == (v.kind != "data",), v, "carries an error if and only if no data")
        return
    _require(v.kind in ("internal", "delay"), v, "is a leaf with a function")
    _require(len(v.depends) == len(v.outputs), v, "does not say which inputs its errors reach")
    for port in v.inputs:
        _require(_exists(graph, port) and port.vertex < v.index, v, f"reads {port} too early")
    if not isinstance(v.function, Region):
        _require(len(set(v.inputs)) == len(v.inputs), v, "reads the same port twice")
    for mask, carries in zip(v.depends, v.carries, strict=True):
        _require(carries == (mask != 0), v, "carries an error that goes nowhere")
        _require(mask < 1 << len(v.inputs), v, "sends messages to inputs it does not have")


def _check_flow(graph: Graph) -> None:
    """Every error comes from a root or a user, and every message goes to something that carries."""
    flow = graph.flow
    roots = {p for p, root in zip(graph.outputs, graph.roots, strict=True) if root}
    told = roots | {*graph.starts} | {edge.source for edge in graph.edges}
    for v in graph.vertices:
        for o in flow.emitted[v.index]:
            _require(Port(v.index, o) in told, v, f"has an error at output {o} from nowhere")
        for k in flow.received[v.index]:
            source = v.inputs[k]
            _require(graph[source.vertex].carries[source.output], v, f"tells silent input {k}")
    _require_graph(
        len(set(graph.edges)) == len(graph.edges) or _has_regions(graph), "an edge stands twice"
    )


def _has_regions(graph: Graph) -> bool:
    return any(isinstance(v.function, Region) for v in graph.vertices)


def _exists(graph: Graph, port: Port) -> bool:
    vertex, output = port
    return 0 <= vertex < len(graph) and 0 <= output < len(graph[vertex].outputs)


def _require(condition: bool, v: Vertex, problem: str) -> None:
    if not condition:
        raise GraphError(f"vertex {v.index} ({v.name}) {problem}")


def _require_graph(condition: bool, problem: str) -> None:
    if not condition:
        raise GraphError(problem)
