"""A graph and where value nodes cut it, without numbers."""

from __future__ import annotations

import functools
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from dendrax.graph import (
    EVERYWHERE,
    Graph,
    Liveness,
    Port,
    Quotient,
    Vertex,
    asked_step,
    level_graph,
    operations_of,
)
from dendrax.local import is_inexact


@dataclass(frozen=True, eq=False)
class View:
    """A graph and its cuts. Ports are those of the graph of operations.

    - ``shown``: the graph that the user sees.
    - ``nodes``: the value nodes, each with its port in that graph.
    - ``roots``: the outputs that are clamped, likewise.
    - ``free``: those of the nodes that are free arguments.
    - ``ties``: of these, which output predicts it, if one does.
    """

    graph: Graph
    shown: Graph
    nodes: Mapping[Port, Port]
    roots: Mapping[Port, Port]
    free: tuple[Port, ...] = ()
    ties: Mapping[Port, int] = field(default_factory=dict)

    @functools.cached_property
    def cuts(self) -> tuple[Port, ...]:
        """The value nodes inside the graph, which have a vertex that predicts them."""
        return tuple(port for port in self.nodes if port not in self.free)

    @functools.cached_property
    def names(self) -> dict[str, Port]:
        """The value nodes by name; of a vertex with several ``cell[0]``, ``cell[1]``."""
        counts = Counter(shown.vertex for shown in self.nodes.values())
        found = {}
        for port, (vertex, output) in self.nodes.items():
            name = self.shown[vertex].name
            found[name if counts[vertex] == 1 else f"{name}[{output}]"] = port
        return found

    def step(self, asked: str) -> tuple[Port, tuple[int | slice, ...]] | None:
        """The value node in a loop, and which steps of it a name like ``scan[3]/cell`` means."""
        loops = self.shown.loops if isinstance(self.shown, Quotient) else {}
        for name, port in self.names.items():
            around = loops.get(self.nodes[port].vertex)
            place = asked_step(asked, name, around) if around else None
            if place is not None:
                return port, place
        return None

    def vertex(self, node: Port) -> Vertex:
        """The vertex of a value node as the user sees it."""
        return self.shown[self.nodes[node].vertex]

    def aval(self, port: Port) -> Any:
        """The type of a value."""
        return self.graph[port.vertex].outputs[port.output]

    @functools.cached_property
    def parameters(self) -> tuple[Port, ...]:
        """The leaves that learn."""
        return tuple(Port(leaf.index) for leaf in self.graph.parameters)

    def loops(self, node: Port) -> tuple[int, ...]:
        """The lengths of the loops over which a value node is stacked: its first axes."""
        around = self.shown.loops if isinstance(self.shown, Quotient) else {}
        return tuple(length for _, length in around.get(self.nodes[node].vertex, ()))

    @property
    def liveness(self) -> Liveness:
        """At which steps of a loop the value nodes in it are some."""
        return self.shown.liveness if isinstance(self.shown, Quotient) else EVERYWHERE

    @functools.cached_property
    def level_of(self) -> Mapping[int, int]:
        """The level of each vertex that the user sees."""
        return level_graph(self.shown).level_of


def view_of(graph: Graph, *, clamped: bool = True) -> View:
    """The value nodes of a graph. An output that nothing clamps is a value node too."""
    operations = operations_of(graph)
    seen = zip(operations.outputs, graph.outputs, graph.roots, strict=True)
    roots = {port: shown for port, shown, root in seen if root and _is_float(operations, port)}
    if isinstance(graph, Quotient):
        nodes = dict(graph.nodes_at)
    else:
        emitted = graph.flow.emitted
        ports = [Port(v.index, o) for v in graph.nodes for o in emitted[v.index]]
        nodes = dict(zip(ports, ports, strict=True))
    leaves = zip(operations.leaves, graph.leaves, strict=True)
    free = {Port(leaf): Port(shown) for leaf, shown in leaves if graph[shown].kind == "free"}
    ties = {Port(operations.leaves[k]): o for k, o in graph.ties.items()}
    tied = {operations.outputs[o] for o in ties.values()}
    roots = {port: shown for port, shown in roots.items() if port not in tied}
    if not clamped:
        nodes, roots = {**nodes, **roots}, {}
    nodes = dict(sorted({**nodes, **free}.items()))
    return View(operations, graph, nodes, roots, tuple(free), ties)


def _is_float(graph: Graph, port: Port) -> bool:
    return is_inexact(graph[port.vertex].outputs[port.output])
