"""Operations and their value nodes -> the graph of the value nodes: a quotient.

Its vertices are the value nodes, the outputs, and what is computed only once. What a vertex reads
is found by going from it to the value nodes before it, through all operations in between; these are
its function, a `Cone`. An operation that several vertices need is in the cone of each.

A value node inside a `scan` is stacked over time: one vertex for all steps. It reads what its cone
reads at one step, and what the loop starts from. That it may read itself, or a vertex after it, at
the step before is no edge: levels and drawings are those of a step.
"""

from __future__ import annotations

import functools
import math
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

from dendrax.graph._graph import Graph, Port, Vertex, with_unique_names
from dendrax.graph._live import EVERYWHERE, Liveness
from dendrax.graph._naming import layer_name
from dendrax.graph._region import Scan, is_marked, is_stacked
from dendrax.support import counted

Path = tuple[int, ...]  # a vertex, or one inside the body of a vertex
Loop = tuple[str, int]  # the name of a scan, and its length
Masks = dict[Port, int]
_UNNAMED = re.compile(r"(^|/)function(_\d+)?$")  # a mark of a lambda


@dataclass(frozen=True, eq=False)
class Cone:
    """The function of a vertex of a quotient: the operations between its inputs and its outputs.

    One that goes through a scan with value nodes inside cannot be called by itself.
    """

    graph: Graph
    inputs: tuple[Port, ...]
    outputs: tuple[Port, ...]

    @functools.cached_property
    def members(self) -> tuple[Vertex, ...]:
        """The operations, in program order."""
        todo = [port.vertex for port in self.outputs]
        found = set(todo)
        while todo:
            for port in self.graph[todo.pop()].inputs:
                if port not in self.inputs and port.vertex not in found:
                    found.add(port.vertex)
                    todo.append(port.vertex)
        vertices = (self.graph[index] for index in sorted(found))
        return tuple(v for v in vertices if v.function is not None)

    def __call__(self, *inputs: Any) -> list[Any]:
        env = dict(zip(self.inputs, inputs, strict=True))
        for v in self.members:
            assert v.function is not None
            results = enumerate(v.function(*(env[port] for port in v.inputs)))
            for o, value in results:
                env.setdefault(Port(v.index, o), value)
        return [env[port] for port in self.outputs]


@dataclass(frozen=True, eq=False, kw_only=True, repr=False)
class Quotient(Graph):
    """The graph of the value nodes.

    - ``operations``: the graph of the operations.
    - ``at``: the ports of operations that have a vertex here, each with its port: the value nodes,
      and what is computed once.
    - ``nodes_at``: of these the value nodes.
    - ``loops``: of a vertex that is stacked over time the loops around it, from the outermost: the
      name of each, and its length.
    - ``liveness``: at which of their steps it is a value node, by port of the operations.
    """

    operations: Graph
    at: Mapping[Port, Port]
    nodes_at: Mapping[Port, Port]
    loops: Mapping[int, tuple[Loop, ...]]
    liveness: Liveness = EVERYWHERE

    @functools.cached_property
    def starts(self) -> tuple[Port, ...]:  # pyright: ignore[reportIncompatibleMethodOverride]
        """Value nodes in loops whose error comes from the step after alone, which is no edge."""
        read = {port for v in self.vertices for port in v.inputs}
        return tuple(p for p in self.nodes_at.values() if p.vertex in self.loops and p not in read)

    def step_of(self, name: str) -> tuple[Vertex, tuple[int | slice, ...]] | None:
        """The vertex that is stacked over time and the steps that a name like ``scan[3]/cell``
        asks for; ``None`` if it is no such name."""
        for index, loops in self.loops.items():
            place = asked_step(name, self.vertices[index].name, loops)
            if place is not None:
                return self.vertices[index], place
        return None

    def one_step(self, v: Vertex) -> tuple[Graph, Vertex]:
        """Of a vertex that is stacked over time the operation of one step, and its graph."""
        port = next(port for port, shown in self.at.items() if shown.vertex == v.index)
        _, body, operation = _inside(self.operations, port)
        return body, operation

    def _summary(self) -> str:
        return (
            f"\n  grouped from {counted(len(self.operations), 'operation')}: "
            f"{counted(len(self.nodes), 'value node')}, and the output, which is clamped"
        )

    def _rows(self) -> list[tuple[Vertex, str, str]]:
        """Only value nodes and outputs."""
        nodes = {v.index for v in self.nodes}
        kinds = {v.index: "value node" if v.index in nodes else "output" for v in self.active}
        free = [(v, v.kind, "") for v in self.free]
        return [*free, *((v, kinds[v.index], self._read_by(v)) for v in self.active)]

    def _read_by(self, v: Vertex) -> str:
        """What a vertex reads, in a few words."""
        inputs = self.inputs(v)
        counts = Counter(source.kind for source in inputs)
        names = [source.name for source in inputs if source.kind in ("internal", "free")][:3]
        more = ["..."] if counts["internal"] + counts["free"] > 3 else []
        leaves = [counted(counts["parameter"], "parameter")] if counts["parameter"] else []
        leaves += ["data"] if counts["data"] else []
        return f"reads {', '.join([*names, *more, *leaves])}  "


def asked_step(asked: str, name: str, loops: Sequence[Loop]) -> tuple[int | slice, ...] | None:
    """Which steps a name like ``scan[3]/cell`` asks for, of the vertex ``scan/cell`` in loops;
    ``None`` if it is no such name."""
    rest, form = name, ""
    for loop, _ in reversed(loops):
        form, rest = r"(?:\[(\d+)\])?" + re.escape(rest.removeprefix(loop)) + form, loop
    found = re.fullmatch(re.escape(rest) + form, asked)
    if found is None or not any(found.groups()):
        return None
    place = []
    for (loop, length), step in zip(loops, found.groups(), strict=True):
        if step is not None and int(step) >= length:
            raise KeyError(f"{loop} has {length} steps, there is no {asked!r}")
        place.append(slice(None) if step is None else int(step))
    return tuple(place)


def operations_of(graph: Graph) -> Graph:
    """The graph of the operations behind a graph."""
    return graph.operations if isinstance(graph, Quotient) else graph


def quotient(graph: Graph, nodes: Sequence[Port], where: Liveness = EVERYWHERE) -> Quotient:
    """The graph of the value nodes, which are ``nodes`` of a graph of operations.

    A node inside a `scan` is named by the port at which the scan hands it out, stacked; ``where``
    says at which steps it is one.
    """
    return replace(_Grouping(graph, nodes).build(), liveness=where)


class _Grouping:
    def __init__(self, graph: Graph, nodes: Sequence[Port]):
        self.graph, self.nodes, self.outside = graph, set(nodes), _outside(graph, nodes)
        copies = {Port(i, o) for i in self.outside for o in range(len(graph[i].outputs))}
        self.atoms = sorted(self.nodes | copies)
        self.reads = self._made_of(told=False)
        self.tells = self._made_of(told=True)
        self.vertices: list[Vertex] = []
        self.at: dict[Port, Port] = {}
        self.loops: dict[int, tuple[Loop, ...]] = {}

    def _made_of(self, *, told: bool) -> Masks:
        """A bit mask of the atoms that each port reads (``told``: that its error is sent to)."""
        counts = self.graph.carries if told else bool
        bits = {port: 1 << k if counts(port) else 0 for k, port in enumerate(self.atoms)}
        leaves = [bits[Port(leaf)] for leaf in self.graph.leaves]
        return _sweep(self.graph, leaves, bits, told=told).made

    def build(self) -> Quotient:
        graph, ends = self.graph, self._ends()
        for path in sorted({*ends, *((i,) for i in self.outside)}, key=lambda p: (*p, math.inf)):
            if path[0] in self.outside:
                self._copy(graph[path[0]])
            else:
                self._add(path, ends[path])
        return Quotient(
            tuple(with_unique_names(self.vertices)),
            tuple(self.at[Port(leaf)].vertex for leaf in graph.leaves),
            tuple(self.at[port] for port in graph.outputs),
            graph.roots,
            graph.call,
            traced=graph.traced,
            operations=graph,
            at=self.at,
            nodes_at={port: self.at[port] for port in sorted(self.nodes)},
            loops=self.loops,
        )

    def _ends(self) -> dict[Path, list[Port]]:
        """The vertices with which a cone ends, each with the ports that leave it."""
        results = {p for p in self.graph.outputs if p.vertex not in self.outside}
        ends: dict[Path, list[Port]] = {}
        for port in sorted(self.nodes | results):
            path, *_ = _inside(self.graph, port)
            ends.setdefault(path, []).append(port)
        return ends

    def _copy(self, v: Vertex) -> None:
        index = len(self.vertices)
        inputs = tuple(self.at[port] for port in v.inputs)
        self.vertices.append(replace(v, index=index, inputs=inputs))
        self.at.update((Port(v.index, o), Port(index, o)) for o in range(len(v.outputs)))

    def _add(self, path: Path, ports: list[Port]) -> None:
        """Add the vertex whose cone ends with the operation at ``path``."""
        index = len(self.vertices)
        reads = functools.reduce(int.__or__, (self.reads[port] for port in ports))
        inputs = [self.atoms[k] for k in _places(reads)]
        place = {port: k for k, port in enumerate(inputs)}
        told = [[self.atoms[k] for k in _places(self.tells[port])] for port in ports]
        masks = tuple(sum(1 << place[port] for port in atoms) for atoms in told)
        *_, v = _inside(self.graph, ports[0])
        vertex = Vertex(
            index,
            "internal",
            self._name(path, v, inputs),
            tuple(self.graph[port.vertex].outputs[port.output] for port in ports),
            tuple(self.at[port] for port in inputs),
            Cone(self.graph, tuple(inputs), tuple(ports)),
            masks,
            tuple(mask != 0 for mask in masks),
            source=v.source,
        )
        self.vertices.append(vertex)
        self.at.update((port, Port(index, o)) for o, port in enumerate(ports))
        if len(path) > 1:
            self.loops[index] = tuple(_loops(self.graph, path))

    def _name(self, path: Path, v: Vertex, inputs: Iterable[Port]) -> str:
        """After the parameters that the cone uses, as the user would call the layer."""
        if is_marked(v) and not _UNNAMED.search(v.name):
            return v.name
        pairs = zip(self.graph.outputs, self.graph.roots, strict=True)
        if len(path) == 1 and any(root and port.vertex == v.index for port, root in pairs):
            return "output"
        scope, slash, _ = v.name.rpartition("/")
        leaves = [self.graph[port.vertex] for port in inputs]
        own = [leaf for leaf in leaves if leaf.kind == "parameter"]
        if not own:
            return v.name
        return scope + slash + layer_name(own, [leaf.name for leaf in self.graph.parameters])


# ---- what is made of what ------------------------------------------------------------------------


class _Swept(NamedTuple):
    """Bit masks by port: as its users see it, and as its vertex makes it."""

    seen: Masks
    made: Masks


def _sweep(graph: Graph, leaves: Sequence[int], bits: Masks, *, told: bool) -> _Swept:
    """Which atoms each port is made of. Atoms have a bit of their own, and nothing behind them."""
    swept = _Swept(dict(zip(map(Port, graph.leaves), leaves, strict=True)), {})
    for v in graph.vertices:
        if v.function is None:
            continue
        inputs = [swept.seen[port] for port in v.inputs]
        for o, mask in enumerate(_through(v, inputs, bits, told=told)):
            port = Port(v.index, o)
            swept.made[port] = mask
            swept.seen[port] = bits.get(port, mask)
    return swept


def _through(v: Vertex, inputs: Sequence[int], bits: Masks, *, told: bool) -> list[int]:
    """The masks of the outputs of a vertex, from those of its inputs."""
    if is_stacked(v):
        return _through_scan(v, inputs, bits, told=told)
    if not told:
        return [functools.reduce(int.__or__, inputs, 0)] * len(v.outputs)
    chosen = ((mask for k, mask in enumerate(inputs) if d >> k & 1) for d in v.depends)
    return [functools.reduce(int.__or__, masks, 0) for masks in chosen]


def _through_scan(v: Vertex, inputs: Sequence[int], bits: Masks, *, told: bool) -> list[int]:
    """The same for a scan with value nodes inside: these see one step, its results see all."""
    region = v.function
    assert isinstance(region, Scan)
    stacks = zip(region.cuts, region.stacks(v), strict=True)
    own = {cut: bits[stack] for cut, stack in stacks if stack in bits}
    masks = [0] * len(region.constants) + list(inputs)
    one_step = swept = _sweep(region.body, masks, own, told=told)
    first = len(region.constants) + region.num_consts
    while True:
        grown = list(masks)
        for k in range(region.num_carry):
            grown[first + k] |= swept.seen[region.body.outputs[k]]
        if grown == masks:
            break
        masks = grown
        swept = _sweep(region.body, masks, own, told=told)
    results = region.body.outputs[: region.num_results]
    inside = functools.reduce(int.__or__, own.values(), 0)
    # What a later step reads of the loop itself, at the step before, is no edge.
    made = [one_step.made[cut] | (swept.made[cut] & ~inside) for cut in region.cuts]
    return [*(swept.seen[port] for port in results), *made]


def _places(mask: int) -> Iterator[int]:
    """The places of the bits that are set."""
    while mask:
        yield (mask & -mask).bit_length() - 1
        mask &= mask - 1


def _inside(graph: Graph, port: Port) -> tuple[Path, Graph, Vertex]:
    """Where a value is made, in the body of a scan if that hands it out: the path to it, the graph
    in which it is, and the operation."""
    v = graph[port.vertex]
    region = v.function
    if not isinstance(region, Scan) or port.output < region.num_results:
        return (v.index,), graph, v
    path, body, inner = _inside(region.body, region.cuts[port.output - region.num_results])
    return (v.index, *path), body, inner


def _loops(graph: Graph, path: Path) -> Iterator[Loop]:
    for index in path[:-1]:
        v = graph[index]
        assert isinstance(v.function, Scan)
        yield v.name, v.function.length
        graph = v.function.body


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
    """The vertices whose inputs change when the value nodes do, or that have some inside."""
    moving = {*nodes}
    vertices: set[int] = set()
    for v in graph.vertices:
        if v.function is not None and (is_stacked(v) or not moving.isdisjoint(v.inputs)):
            vertices.add(v.index)
            moving.update(Port(v.index, o) for o in range(len(v.outputs)))
    return vertices
