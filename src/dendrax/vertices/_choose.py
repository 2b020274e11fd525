"""Which functions count as elementary: a graph of operations -> a graph of the chosen vertices.

A choice is a set of *value nodes*: the ports of the operations' graph that have a value of their
own which inference moves. What lies between them is the vertices' functions (`group_graph`).

- ``"primitive"``: every operation that has an error is a value node: the graph as it is.
- ``"layer"``: the textbook network ``μ_k = W_k f(x_{k-1}) + b_k``: a vertex ends where an operation
  uses a parameter, and what follows the last one (the loss) belongs to the output.
- ``"marked"``: the results of the functions that `dendrax.vertex` marked.

The output is never a value node: the loss or the target clamps it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from dendrax.graph import Detail, Graph, Port, Vertex, is_marked, with_unique_names
from dendrax.support import Vertices, complain
from dendrax.vertices._layers import Layers, active_ports


def with_vertices(graph: Graph, vertices: Vertices) -> Graph:
    """A flat graph of operations with the chosen vertices."""
    if vertices == "primitive":
        return graph
    return group_graph(graph, choose_nodes(graph, vertices))


def choose_nodes(graph: Graph, vertices: Vertices) -> tuple[Port, ...]:
    """The value nodes of a flat graph of operations, in program order."""
    roots = {port for port, root in zip(graph.outputs, graph.roots, strict=True) if root}
    chosen = CHOICES[vertices](graph)
    return tuple(port for port in active_ports(graph) if port in chosen and port not in roots)


def _marks(graph: Graph) -> set[Port]:
    return {port for port in active_ports(graph) if is_marked(graph[port.vertex])}


def _only_marks(graph: Graph) -> set[Port]:
    marks = _marks(graph)
    if not marks - set(graph.outputs):
        raise complain(
            ValueError,
            "vertices='marked', but no marked function lies between a parameter and the output, so "
            "there is no value node.",
            remedy="Mark the functions whose results should be value nodes with dendrax.vertex, or "
            "use vertices='layer'.",
        )
    return marks


def _layer_ends(graph: Graph) -> set[Port]:
    return Layers(graph).ends() | _marks(graph)


CHOICES: dict[Vertices, Callable[[Graph], set[Port]]] = {
    "layer": _layer_ends,
    "marked": _only_marks,
}


# ---- grouping ------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class Group:
    """The local function of a grouped vertex: the operations between its inputs and its outputs."""

    vertices: tuple[Vertex, ...]
    inputs: tuple[Port, ...]
    outputs: tuple[Port, ...]

    def __call__(self, *inputs: Any) -> list[Any]:
        env = dict(zip(self.inputs, inputs, strict=True))
        for v in self.vertices:
            assert v.function is not None
            results = v.function(*(env[port] for port in v.inputs))
            env.update(
                (Port(v.index, o), value)
                for o, value in enumerate(results)
                if Port(v.index, o) not in env
            )
        return [env[port] for port in self.outputs]


def group_graph(graph: Graph, nodes: Sequence[Port]) -> Graph:
    """The graph whose vertices are the value nodes, the outputs, and what is computed only once."""
    return _Grouping(graph, nodes).build()


class _Grouping:
    def __init__(self, graph: Graph, nodes: Sequence[Port]):
        self.graph, self.nodes = graph, set(nodes)
        self.outside = _outside(graph, nodes)
        self.vertices: list[Vertex] = []
        self.at: dict[Port, Port] = {}
        self.copies: dict[int, int] = {}

    def build(self) -> Graph:
        graph = self.graph
        ends = self._ends()
        for v in graph.vertices:
            if v.index in self.outside:
                self._copy(v)
            elif v.index in ends:
                self._add(v, ends[v.index])
        leaves = tuple(self.at[Port(leaf)].vertex for leaf in graph.leaves)
        outputs = tuple(self.at[port] for port in graph.outputs)
        vertices = tuple(with_unique_names(self.vertices))
        nodes = {port: self.at[port] for port in sorted(self.nodes)}
        detail = Detail(graph, nodes, self.copies)
        return Graph(vertices, leaves, outputs, graph.roots, graph.call, detail)

    def _ends(self) -> dict[int, list[int]]:
        """The vertices with which a group ends, each with the outputs that leave the group."""
        ports = self.nodes | {p for p in self.graph.outputs if self.graph[p.vertex].function}
        ends: dict[int, list[int]] = {}
        for port in sorted(ports):
            ends.setdefault(port.vertex, []).append(port.output)
        return ends

    def _copy(self, v: Vertex) -> None:
        index = self.copies[v.index] = len(self.vertices)
        inputs = tuple(self.at[port] for port in v.inputs)
        self.vertices.append(replace(v, index=index, inputs=inputs))
        self.at.update((Port(v.index, o), Port(index, o)) for o in range(len(v.outputs)))

    def _add(self, v: Vertex, outputs: list[int]) -> None:
        """Add the group that ends with ``v``."""
        members, inputs = self._cone(v)
        ports = tuple(Port(v.index, o) for o in outputs)
        index = len(self.vertices)
        masks = self._depends(members, inputs, ports)
        vertex = Vertex(
            index,
            "internal",
            self._name(v, inputs),
            tuple(v.outputs[o] for o in outputs),
            tuple(self.at[port] for port in inputs),
            Group(tuple(members), tuple(inputs), ports),
            masks,
            tuple(mask != 0 for mask in masks),
            source=v.source,
        )
        self.vertices.append(vertex)
        self.at.update((port, Port(index, o)) for o, port in enumerate(ports))

    def _cone(self, end: Vertex) -> tuple[list[Vertex], list[Port]]:
        """The operations of the group that ends with a vertex, and the ports that it reads."""
        members, inputs, todo = {end.index}, set(), [end]
        while todo:
            for port in todo.pop().inputs:
                source = self.graph[port.vertex]
                if port in self.nodes or source.index in self.outside:
                    inputs.add(port)
                elif source.index not in members:
                    members.add(source.index)
                    todo.append(source)
        return [self.graph[i] for i in sorted(members)], sorted(inputs)

    def _depends(
        self, members: list[Vertex], inputs: list[Port], outputs: tuple[Port, ...]
    ) -> tuple[int, ...]:
        """For each output a bit mask of the inputs that an error there sends a message to."""
        masks = {port: 1 << k if self.graph.carries(port) else 0 for k, port in enumerate(inputs)}
        for v in members:
            for o, depends in enumerate(v.depends):
                ports = [port for k, port in enumerate(v.inputs) if depends >> k & 1]
                mask = 0
                for port in ports:
                    mask |= masks.get(port, 0)
                masks.setdefault(Port(v.index, o), mask)
        return tuple(masks[port] for port in outputs)

    def _name(self, v: Vertex, inputs: Iterable[Port]) -> str:
        """After the parameters that the group uses, as the user would call the layer."""
        if is_marked(v):
            return v.name
        pairs = zip(self.graph.outputs, self.graph.roots, strict=True)
        if any(root and port.vertex == v.index for port, root in pairs):
            return "output"
        scope, slash, _ = v.name.rpartition("/")
        names = [self.graph[port.vertex].name for port in inputs if self._is_parameter(port)]
        if not names:
            return v.name
        return scope + slash + _owner(names, [leaf.name for leaf in self.graph.parameters])

    def _is_parameter(self, port: Port) -> bool:
        return self.graph[port.vertex].kind == "parameter"


def _owner(names: Sequence[str], all_names: Sequence[str]) -> str:
    """``layer(layers[0])`` for its weight and bias, if these are all it has; else the weight."""
    names = [name.removesuffix(".value") for name in names]  # of a variable in Flax NNX
    all_names = [name.removesuffix(".value") for name in all_names]
    owners = {re.sub(r"(\.\w+|\[[^\[\]]*\])$", "", name) for name in names}
    owner = min(owners)
    belonging = [name for name in all_names if name.startswith((f"{owner}.", f"{owner}["))]
    if len(owners) == 1 and set(belonging) == set(names):
        return f"layer({owner})"
    return f"layer({names[0]})"


def _outside(graph: Graph, nodes: Iterable[Port]) -> set[int]:
    """The leaves, and the vertices that are made of these alone and have no error."""
    moving = moving_vertices(graph, nodes)
    outside: set[int] = set()
    for v in graph.vertices:
        still = v.index not in moving and not any(v.carries)
        if v.function is None or (still and all(p.vertex in outside for p in v.inputs)):
            outside.add(v.index)
    return outside


def moving_vertices(graph: Graph, nodes: Iterable[Port]) -> set[int]:
    """The vertices whose inputs change when the value nodes do."""
    moving = {*nodes}
    vertices: set[int] = set()
    for v in graph.vertices:
        if v.function is not None and not moving.isdisjoint(v.inputs):
            vertices.add(v.index)
            moving.update(Port(v.index, o) for o in range(len(v.outputs)))
    return vertices
