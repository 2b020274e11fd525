"""A graph made ready for drawing: which vertices are seen, in which row, and what connects them."""

from __future__ import annotations

from dataclasses import dataclass

from dendrax._graph import Edge, Graph, Vertex
from dendrax._level import LevelledGraph, contract_graph, level_graph
from dendrax.draw._structure import labels_of, rows_of, shape_text, shortened


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


def plan(graph: Graph | LevelledGraph, *, silent: bool, as_vertices: bool = False) -> Plan:
    """The vertices and connections of a picture.

    Delays are those of a levelled graph, or those that `expand` has written out. ``silent`` shows
    what carries no error; without it, data connect to what they reach through such vertices.
    ``as_vertices`` makes every delay a vertex of the picture.
    """
    if as_vertices:
        graph = graph.expand() if isinstance(graph, LevelledGraph) else graph
        levelled, delays = level_graph(graph), {}
    else:
        levelled, delays = _with_delays(graph)
    base = levelled.graph
    rows, labels = rows_of(levelled), labels_of(base)
    seen = {
        v.index: Seen(v, rows[v.index], shortened(labels[v.index], 26), _is_silent(levelled, v))
        for v in base
        if rows[v.index] >= 0 and (silent or not (_is_silent(levelled, v) or v.kind == "data"))
    }
    connections = [
        Connection(
            port.vertex,
            v.index,
            shape_text(base[port.vertex].outputs[port.output]),
            delays.get(Edge(port, v.index), 0),
            Edge(port, v.index) not in levelled.delays,
        )
        for v in base
        for port in v.inputs
        if v.index in seen and port.vertex in seen
    ]
    if not silent:
        connections += _data_connections(base, seen, labels)
    count = max((s.row for s in seen.values()), default=-1) + 1
    return Plan(seen, tuple(connections), count)


def _with_delays(graph: Graph | LevelledGraph) -> tuple[LevelledGraph, dict[Edge, int]]:
    if isinstance(graph, LevelledGraph):
        return graph, dict(graph.delays)
    contracted, delays = contract_graph(graph)
    return level_graph(contracted), delays


def _is_silent(levelled: LevelledGraph, v: Vertex) -> bool:
    return v.kind == "internal" and v.index not in levelled.level_of


def _data_connections(graph: Graph, seen: dict[int, Seen], labels: list[str]) -> list[Connection]:
    """Data join the picture below the vertices that they reach, directly or through hidden ones."""
    found: list[Connection] = []
    for v in graph.data:
        reached = _reached(graph, v, seen)
        if not reached:
            continue
        found += [Connection(v.index, user, shape_text(v.outputs[0]), 0, True) for user in reached]
        row = max(seen[user].row for user in reached) + 1
        seen[v.index] = Seen(v, row, shortened(labels[v.index], 26), False)
    return found


def _reached(graph: Graph, start: Vertex, seen: dict[int, Seen]) -> list[int]:
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
