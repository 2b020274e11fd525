"""A graph made ready for drawing: which vertices are seen, in which row, and what connects them."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from dataclasses import dataclass

from dendrax.draw._structure import labels_of, rows_of, shape_text, shortened
from dendrax.graph import Edge, Graph, LevelledGraph, Vertex, contract_graph, level_graph

MOST_DELAYS = 1000


@dataclass(frozen=True)
class Seen:
    """A vertex in the picture."""

    vertex: Vertex
    row: int
    text: str
    silent: bool

    @property
    def style(self) -> str:
        """The name of its style."""
        return "silent" if self.silent else self.vertex.kind


@dataclass(frozen=True)
class Connection:
    """From a vertex to one that uses it, by index; ``delay`` identity vertices lie on the way."""

    source: int
    user: int
    shape: str
    delay: int
    silent: bool


@dataclass(frozen=True)
class Plan:
    """What is drawn; ``rows`` is their number."""

    seen: dict[int, Seen]
    connections: tuple[Connection, ...]
    rows: int

    @functools.cached_property
    def num_delays(self) -> int:
        """How many identity vertices there are."""
        return sum(c.delay for c in self.connections)

    @property
    def collapsed(self) -> bool:
        """Whether the delays of a connection are drawn as one: single ones would be too many."""
        return self.num_delays > MOST_DELAYS

    @property
    def extent(self) -> int:
        """How many places there are to find: of vertices, and of lines in the rows they pass."""
        passed = (self.seen[c.source].row - self.seen[c.user].row - 1 for c in self.connections)
        return len(self.seen) + sum(max(rows, 0) for rows in passed)


def plan(graph: Graph | LevelledGraph, *, silent: bool, as_vertices: bool = False) -> Plan:
    """The vertices and connections of a picture.

    Delays are those of a levelled graph, or those that `expand` has written out. ``silent`` shows
    what carries no error; without it, data connect to what they reach through such vertices.
    ``as_vertices`` makes every delay a vertex of the picture.
    """
    levelled, delays = _levels_and_delays(graph, as_vertices)
    seen = _seen(levelled, silent)
    connections = _connections(levelled, delays, seen)
    if not silent:
        data, more = _data_below(levelled.graph, seen)
        seen, connections = seen | data, connections + more
    count = max((s.row for s in seen.values()), default=-1) + 1
    return Plan(seen, tuple(connections), count)


def _levels_and_delays(
    graph: Graph | LevelledGraph, as_vertices: bool
) -> tuple[LevelledGraph, Mapping[Edge, int]]:
    if as_vertices:
        return level_graph(graph.expand() if isinstance(graph, LevelledGraph) else graph), {}
    if isinstance(graph, LevelledGraph):
        return graph, graph.delays
    contracted, delays = contract_graph(graph)
    return level_graph(contracted), delays


def _seen(levelled: LevelledGraph, silent: bool) -> dict[int, Seen]:
    rows, labels = rows_of(levelled), labels_of(levelled.graph)

    def is_silent(v: Vertex) -> bool:
        return v.kind == "internal" and v.index not in levelled.level_of

    return {
        v.index: Seen(v, rows[v.index], shortened(labels[v.index], 26), is_silent(v))
        for v in levelled.graph
        if rows[v.index] >= 0 and (silent or not (is_silent(v) or v.kind == "data"))
    }


def _connections(
    levelled: LevelledGraph, delays: Mapping[Edge, int], seen: Mapping[int, Seen]
) -> list[Connection]:
    graph = levelled.graph
    edges = [Edge(port, v.index) for v in graph if v.index in seen for port in v.inputs]
    return [
        Connection(
            source.vertex,
            user,
            shape_text(graph[source.vertex].outputs[source.output]),
            delays.get(Edge(source, user), 0),
            Edge(source, user) not in levelled.delays,
        )
        for source, user in edges
        if source.vertex in seen
    ]


def _data_below(graph: Graph, seen: Mapping[int, Seen]) -> tuple[dict[int, Seen], list[Connection]]:
    """Data join the picture below the vertices that they reach, directly or through hidden ones."""
    labels = labels_of(graph)
    data: dict[int, Seen] = {}
    found: list[Connection] = []
    for v in graph.data:
        if reached := _reached(graph, v, seen):
            row = 1 + max(seen[user].row for user in reached)
            data[v.index] = Seen(v, row, shortened(labels[v.index], 26), False)
            shape = shape_text(v.outputs[0])
            found += [Connection(v.index, user, shape, 0, True) for user in reached]
    return data, found


def _reached(graph: Graph, start: Vertex, seen: Mapping[int, Seen]) -> list[int]:
    found: dict[int, None] = {}
    passed, waiting = {start.index}, [start]
    while waiting:
        for user in graph.users(waiting.pop()):
            if user.index in seen:
                found[user.index] = None
            elif user.index not in passed:
                passed.add(user.index)
                waiting.append(user)
    return list(found)
