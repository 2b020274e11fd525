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
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, NamedTuple

from dendrax._errors import complain
from dendrax._graph import Detail, Graph, Port, Vertex, with_unique_names
from dendrax._local import Equation
from dendrax._open import is_marked

CONTRACTIONS = ("dot_general", "conv_general_dilated")
SUMS = ("add", "sub", "add_any")
PRODUCTS = ("mul", "div")
ELEMENTWISE = (*SUMS, *PRODUCTS, "max", "min", "pow", "atan2", "select_n")
STRUCTURAL = (
    "reshape",
    "transpose",
    "squeeze",
    "expand_dims",
    "broadcast_in_dim",
    "convert_element_type",
    "reduce_precision",
    "copy",
    "neg",
    "sharding_constraint",
)


def with_vertices(graph: Graph, vertices: str) -> Graph:
    """A flat graph of operations with the chosen vertices."""
    if vertices == "primitive":
        return graph
    return group_graph(graph, choose_nodes(graph, vertices))


def choose_nodes(graph: Graph, vertices: str) -> tuple[Port, ...]:
    """The value nodes of a flat graph of operations, in program order."""
    roots = {port for port, root in zip(graph.outputs, graph.roots, strict=True) if root}
    chosen = CHOICES[vertices](graph)
    return tuple(port for port in _active_ports(graph) if port in chosen and port not in roots)


def _active_ports(graph: Graph) -> list[Port]:
    return [Port(v.index, o) for v in graph.active for o in graph.flow.emitted[v.index]]


def _marks(graph: Graph) -> set[Port]:
    return {port for port in _active_ports(graph) if is_marked(graph[port.vertex])}


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


# ---- layers --------------------------------------------------------------------------------------

# What a value is made of. A "number" is a scalar, or one spread over an array; a "parameter" may
# have been reshaped, cast or normalised; a "product" is made of parameters by a layer; and whatever
# data have gone into is a "signal".
Origin = Literal["number", "constant", "parameter", "product", "signal"]


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


class _Layers:
    """Walks through a graph of operations and finds where its layers end."""

    def __init__(self, graph: Graph):
        self.graph = graph
        self.origin: dict[Port, Origin] = {}
        self.open: dict[Port, _Layer] = {}  # by the port where its result is
        self.made_of: dict[Port, frozenset[Port]] = {}  # the layers and data behind a signal
        self.uses = Counter(port for v in graph.active for port in v.inputs)
        self.all_scalar = all(v.shape == () for v in graph.active)
        for v in graph.vertices:
            self._visit(v)

    def ends(self) -> set[Port]:
        """The ports at which a layer ends, without the output's own."""
        scalars = _scalar_tail(self.graph)
        ends = {layer.end for layer in self.open.values() if layer.end.vertex not in scalars}
        ends &= set(_active_ports(self.graph))
        before = _before(self.graph, ends)
        return {port for port in ends if port.vertex in before}

    def _visit(self, v: Vertex) -> None:
        origin = self._origin(v)
        ports = [Port(v.index, o) for o in range(len(v.outputs))]
        self.origin.update(dict.fromkeys(ports, origin))
        self.made_of.update(dict.fromkeys(ports, self._made_of(v)))
        if v.function is None or origin in ("number", "constant") or is_marked(v):
            return
        given: list[Origin] = [self.origin[port] for port in v.inputs]
        layers = [self.open[port] for port in v.inputs if port in self.open]
        parameters = given.count("parameter")
        name = _operation(v)
        if name in CONTRACTIONS and self._uses_weight(given):
            self._begin(ports)
        elif layers and all(self.uses[layer.result] == 1 for layer in layers):
            self._continue(v, ports[0], layers, given)
        elif "signal" in given and parameters:
            self._begin(ports, scales=name in PRODUCTS)

    def _continue(
        self, v: Vertex, port: Port, layers: list[_Layer], given: Sequence[Origin]
    ) -> None:
        """An operation on the result of a layer: joins it, only reshapes it, or leaves it."""
        name = _operation(v)
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
        return _operation(v) in PRODUCTS and not layers[0].made_of.isdisjoint(self.made_of[signal])

    def _only_reshapes(self, name: str, others: Sequence[Origin]) -> bool:
        scales = name in (*SUMS, *PRODUCTS) and all(origin == "number" for origin in others)
        return scales or (name in STRUCTURAL and not others)

    def _uses_weight(self, given: Sequence[Origin]) -> bool:
        """Whether a contraction is a layer's: with a parameter, or with a weight made of some."""
        return "parameter" in given or ("product" in given and "signal" in given)

    def _begin(self, ports: Sequence[Port], *, scales: bool = False) -> None:
        for port in ports:
            self.open[port] = _Layer(port, port, scales, self.made_of[port])
            self.made_of[port] = frozenset({port})

    def _made_of(self, v: Vertex) -> frozenset[Port]:
        if v.function is None:
            return frozenset({Port(v.index)}) if v.kind == "data" else frozenset()
        return frozenset().union(*(self.made_of[port] for port in v.inputs))

    def _origin(self, v: Vertex) -> Origin:
        if v.function is None:
            if v.kind == "parameter":
                return "parameter"
            return "signal" if v.shape or self.all_scalar else "number"
        given: list[Origin] = [self.origin[port] for port in v.inputs]
        if "signal" in given or is_marked(v):
            return "signal"
        contracts = _operation(v) in CONTRACTIONS and self._uses_weight(given)
        if contracts and ("constant" in given or "number" in given):
            return "signal"
        if contracts or "product" in given:
            return "product"
        if "parameter" in given:
            return "parameter"
        spreads = _operation(v) in (*ELEMENTWISE, *STRUCTURAL)
        scalar = all(not aval.shape for aval in v.outputs)
        return "number" if scalar or (spreads and "constant" not in given) else "constant"


def _operation(v: Vertex) -> str:
    return v.function.primitive if isinstance(v.function, Equation) else v.name


def _scalar_tail(graph: Graph) -> set[int]:
    """The vertices from which only scalars lead to the output: sums of losses and penalties."""
    inner = {v.index for v in graph.active}
    if all(v.shape == () for v in graph.active):
        return set()
    tail: set[int] = set()
    for v in reversed(graph.active):
        users = [user.index for user in graph.users(v) if user.index in inner]
        if all(aval.shape == () for aval in v.outputs) and tail.issuperset(users):
            tail.add(v.index)
    return tail


def _before(graph: Graph, ends: set[Port]) -> set[int]:
    """The vertices after which a layer still ends."""
    ending = {port.vertex for port in ends}
    before: set[int] = set()
    for edge in reversed(graph.edges):
        if edge.user in ending or edge.user in before:
            before.add(edge.source.vertex)
    return before


def _layer_ends(graph: Graph) -> set[Port]:
    return _Layers(graph).ends() | _marks(graph)


CHOICES: dict[str, Callable[[Graph], set[Port]]] = {
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
    """``layers[0]`` for its weight and bias, if these are all it has; else ``layer(weight)``."""
    names = [name.removesuffix(".value") for name in names]  # of a variable in Flax NNX
    all_names = [name.removesuffix(".value") for name in all_names]
    owners = {re.sub(r"(\.\w+|\[[^\[\]]*\])$", "", name) for name in names}
    owner = min(owners)
    belonging = [name for name in all_names if name.startswith((f"{owner}.", f"{owner}["))]
    if len(owners) == 1 and set(belonging) == set(names):
        return owner
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


def moving_vertices(graph: Graph, nodes: Iterable[Port], leaves: Iterable[int] = ()) -> set[int]:
    """The vertices whose inputs change when the value nodes (and the given leaves) do."""
    moving = {*nodes, *map(Port, leaves)}
    vertices: set[int] = set()
    for v in graph.vertices:
        if v.function is not None and not moving.isdisjoint(v.inputs):
            vertices.add(v.index)
            moving.update(Port(v.index, o) for o in range(len(v.outputs)))
    return vertices
