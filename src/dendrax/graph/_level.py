"""`Graph` -> `LevelledGraph`: the paper's Algorithm 2, corrected. Plain integers, no JAX.

The error of the output takes one time step per edge to travel down. Levels are *longest* paths:

    level(output) = 0        level(v) = 1 + max(level(u) for u in users(v))

An edge from ``v`` to a user ``u`` then gets a delay of ``level(v) - level(u) - 1`` identity
vertices, after which every path between two vertices has the same length and all of a vertex's
errors arrive together. (The paper defines levels by minimum distances; the result would not be
levelled.)

Only what carries an error has a level. Data are clamped and never wait.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Any

from dendrax.graph._graph import Edge, Graph, Pictured, Port, Vertex, identity
from dendrax.support import counted


@dataclass(frozen=True, eq=False)
class LevelledGraph(Pictured):
    """A graph with the level of each vertex and the delay of each edge.

    - ``level_of[v]``: the level of a vertex that has an error, by vertex or by its index.
    - ``levels[k]``: the vertices of level ``k``; ``levels[0]`` holds the output.
    - ``delays[edge]``: the number of identity vertices on an edge.
    """

    graph: Graph
    level_of: Mapping[int, int]
    delays: Mapping[Edge, int]

    @property
    def levels(self) -> tuple[tuple[Vertex, ...], ...]:
        """The vertices with an error, by level."""
        count = max(self.level_of.values(), default=-1) + 1
        levels: list[list[Vertex]] = [[] for _ in range(count)]
        for index in sorted(self.level_of):
            levels[self.level_of[index]].append(self.graph[index])
        return tuple(map(tuple, levels))

    @property
    def num_delays(self) -> int:
        """The number of identity vertices that `expand` writes."""
        return sum(self.delays.values())

    def expand(self) -> Graph:
        """The same graph with each delay written out as identity vertices."""
        return expand_graph(self)

    def __repr__(self) -> str:
        delayed = sum(delay > 0 for delay in self.delays.values())
        lines = [
            f"LevelledGraph: {counted(len(self.graph), 'vertex', 'vertices')}, "
            f"{len(self.level_of)} of them with an error, in {counted(len(self.levels), 'level')}",
            f"  {counted(len(self.graph.parameters), 'parameter')}, "
            f"{counted(len(self.graph.edges), 'edge')}, {counted(self.num_delays, 'delay')} "
            f"(identity vertices) on {counted(delayed, 'edge')}",
        ]
        for k, level in enumerate(self.levels[:12]):
            names = ", ".join(v.name for v in level[:6])
            more = f", ... ({len(level)})" if len(level) > 6 else ""
            lines.append(f"  S_{k:<3} {names}{more}")
        if len(self.levels) > 12:
            lines.append(f"  ... down to S_{len(self.levels) - 1}")
        return "\n".join(lines)


def level_graph(graph: Graph) -> LevelledGraph:
    """The levels and delays of a graph, in time linear in its vertices and edges."""
    flow = graph.flow
    level_of: dict[int, int] = {}
    for port, root in zip(graph.outputs, graph.roots, strict=True):
        if root and graph[port.vertex].carries[port.output]:
            level_of[port.vertex] = 0
    level_of.update(dict.fromkeys((port.vertex for port in graph.starts), 0))
    for v in reversed(graph.vertices):
        if not flow.received[v.index]:
            continue
        below = level_of[v.index] + 1
        for k in flow.received[v.index]:
            source = v.inputs[k].vertex
            level_of[source] = max(level_of.get(source, 0), below)
    delays = {edge: level_of[edge.source.vertex] - level_of[edge.user] - 1 for edge in graph.edges}
    return LevelledGraph(graph, MappingProxyType(_ByVertex(level_of)), MappingProxyType(delays))


class _ByVertex(dict[int, int]):
    """A dictionary by index that can also be asked by vertex."""

    def __missing__(self, key: Any) -> int:
        if isinstance(key, Vertex):
            return self[key.index]
        if isinstance(key, str):
            raise KeyError(f"levels are asked for by vertex, as in level_of[graph[{key!r}]]")
        raise KeyError(f"vertex {key} has no error, and so no level")


def expand_graph(levelled: LevelledGraph) -> Graph:
    """Write the delays out. Each chain stands just before the vertex that waits for it."""
    graph, vertices = levelled.graph, []
    at: dict[int, int] = {}

    def moved(port: Port) -> Port:
        return Port(at[port.vertex], port.output)

    for v in graph.vertices:
        inputs = []
        for port in v.inputs:
            place = moved(port)
            for step in range(levelled.delays.get(Edge(port, v.index), 0)):
                source = graph[port.vertex]
                name = f"{source.name}->{v.name}.delay_{step}"
                aval = (source.outputs[port.output],)
                delay = Vertex(
                    len(vertices),
                    "delay",
                    name,
                    aval,
                    (place,),
                    identity,
                    (1,),
                    (True,),
                    (),
                    v.source,
                )
                vertices.append(delay)
                place = Port(delay.index)
            inputs.append(place)
        at[v.index] = len(vertices)
        vertices.append(replace(v, index=len(vertices), inputs=tuple(inputs)))
    leaves = tuple(at[leaf] for leaf in graph.leaves)
    outputs = tuple(map(moved, graph.outputs))
    chosen = graph.chosen or "primitive"  # the delays are vertices, whatever the rule
    return Graph(tuple(vertices), leaves, outputs, graph.roots, graph.call, chosen=chosen)


def contract_graph(graph: Graph) -> tuple[Graph, dict[Edge, int]]:
    """The opposite of `expand_graph`: the graph without delay vertices, and each edge's delay."""
    at: dict[int, int] = {}
    waits: dict[Port, tuple[Port, int]] = {}
    vertices: list[Vertex] = []
    delays: dict[Edge, int] = {}
    for v in graph.vertices:
        if v.kind == "delay":
            source, count = waits.get(v.inputs[0], (v.inputs[0], 0))
            waits[Port(v.index)] = (source, count + 1)
            continue
        at[v.index] = len(vertices)
        inputs = []
        for port in v.inputs:
            source, count = waits.get(port, (port, 0))
            inputs.append(Port(at[source.vertex], source.output))
            delays[Edge(inputs[-1], at[v.index])] = count
        vertices.append(replace(v, index=at[v.index], inputs=tuple(inputs)))
    leaves = tuple(at[leaf] for leaf in graph.leaves)
    outputs = tuple(Port(at[port.vertex], port.output) for port in graph.outputs)
    contracted = Graph(
        tuple(vertices), leaves, outputs, graph.roots, graph.call, chosen=graph.chosen
    )
    return contracted, {edge: delays[edge] for edge in contracted.edges}
