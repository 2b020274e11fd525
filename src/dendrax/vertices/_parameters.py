"""Where parameters are used: a value node for each, whatever it does.

A layer ends where an operation uses a parameter. A bias or scale that follows directly joins it,
and so does a sum with another layer. What follows the last layer (the loss) belongs to the output.

A flat graph of operations enters; the ports at which its layers end leave.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import NamedTuple

from dendrax.graph import Graph, Port, Vertex
from dendrax.vertices._origins import (
    CONTRACTIONS,
    ELEMENTWISE,
    PRODUCTS,
    STRUCTURAL,
    SUMS,
    Origin,
    active_ports,
    has_nodes,
    operation,
    origins,
    scalar_tail,
    uses_weight,
)


class _Layer(NamedTuple):
    """A layer under construction: where it would end now, and where its result is by now.

    In between are operations that only reshape or scale; a bias may follow these. A layer that only
    ``scales`` (a normalisation's) may be a factor that what it is ``made_of`` is yet to be
    multiplied with.
    """

    end: Port
    result: Port
    scales: bool = False
    made_of: frozenset[Port] = frozenset()


class Parameters:
    """Walks through a graph of operations and finds where its layers end."""

    def __init__(self, graph: Graph):
        self.graph = graph
        self.origin = origins(graph)
        self.open: dict[Port, _Layer] = {}  # by the port where its result is
        self.made_of: dict[Port, frozenset[Port]] = {}  # the layers and data behind a signal
        self.uses = Counter(port for v in graph.active for port in v.inputs)
        for v in graph.vertices:
            self._visit(v)

    def ends(self) -> set[Port]:
        """The ports at which a layer ends, without the output's own."""
        scalars = scalar_tail(self.graph)
        ends = {layer.end for layer in self.open.values() if layer.end.vertex not in scalars}
        ends &= set(active_ports(self.graph))
        before = _before(self.graph, ends)
        return {port for port in ends if port.vertex in before}

    def _visit(self, v: Vertex) -> None:
        ports = [Port(v.index, o) for o in range(len(v.outputs))]
        origin = self.origin[ports[0]]
        self.made_of.update(dict.fromkeys(ports, self._made_of(v)))
        if v.function is None or origin in ("number", "constant") or has_nodes(v):
            return
        given: list[Origin] = [self.origin[port] for port in v.inputs]
        layers = [self.open[port] for port in v.inputs if port in self.open]
        parameters = given.count("parameter")
        name = operation(v)
        if name in CONTRACTIONS and uses_weight(given):
            self._begin(ports)
        elif layers and all(self.uses[layer.result] == 1 for layer in layers):
            self._continue(v, ports[0], layers, given)
        elif "signal" in given and parameters:
            self._begin(ports, scales=name in PRODUCTS)

    def _continue(
        self, v: Vertex, port: Port, layers: list[_Layer], given: Sequence[Origin]
    ) -> None:
        """An operation on the result of a layer: joins it, only reshapes it, or leaves it."""
        name = operation(v)
        pairs = zip(v.inputs, given, strict=True)
        others: list[Origin] = [origin for port, origin in pairs if port not in self.open]
        if self._joins(name, layers, others) or self._is_applied(v, layers, others):
            for layer in layers:
                del self.open[layer.result]
            scales = name in PRODUCTS and all(layer.scales for layer in layers)
            self._begin([port], scales=scales)
        elif len(layers) == 1 and self._only_reshapes(name, others):
            del self.open[layers[0].result]
            self.open[port] = layers[0]._replace(result=port)
        elif "parameter" in others:
            self._begin([port], scales=name in PRODUCTS)

    def _joins(self, name: str, layers: list[_Layer], others: Sequence[Origin]) -> bool:
        """A bias or scale, or a sum of layers."""
        if len(layers) == 1 and name in ELEMENTWISE and "parameter" in others:
            return "signal" not in others
        return len(layers) == 2 and not others and name in SUMS

    def _is_applied(self, v: Vertex, layers: list[_Layer], others: Sequence[Origin]) -> bool:
        """Whether a factor is multiplied with the signal that it was made for."""
        if len(layers) != 1 or not layers[0].scales or others != ["signal"]:
            return False
        (signal,) = [port for port in v.inputs if port not in self.open]
        return operation(v) in PRODUCTS and not layers[0].made_of.isdisjoint(self.made_of[signal])

    def _only_reshapes(self, name: str, others: Sequence[Origin]) -> bool:
        scales = name in (*SUMS, *PRODUCTS) and all(origin == "number" for origin in others)
        return scales or (name in STRUCTURAL and not others)

    def _begin(self, ports: Sequence[Port], *, scales: bool = False) -> None:
        for port in ports:
            self.open[port] = _Layer(port, port, scales, self.made_of[port])
            self.made_of[port] = frozenset({port})

    def _made_of(self, v: Vertex) -> frozenset[Port]:
        if v.function is None:
            return frozenset({Port(v.index)}) if v.kind == "data" else frozenset()
        return frozenset().union(*(self.made_of[port] for port in v.inputs))


def _before(graph: Graph, ends: set[Port]) -> set[int]:
    """The vertices after which a layer still ends."""
    ending = {port.vertex for port in ends}
    before: set[int] = set()
    for edge in reversed(graph.edges):
        if edge.user in ending or edge.user in before:
            before.add(edge.source.vertex)
    return before
