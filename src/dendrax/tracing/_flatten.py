"""A graph with regions -> the same graph written out: every vertex elementary, scans unrolled.

The dynamics, the levels and the drawings need every value node, so a scan becomes its time steps.
A weight that the steps share stays one leaf.

JAX adds the errors inside an inner ``jit`` (or scan, or remat) up first and then adds the result to
what waits outside. Where that decides the last bit, the region's input is kept as an identity
vertex, a *port*.
"""

from __future__ import annotations

import functools
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from dendrax.graph import (
    Flow,
    Graph,
    Port,
    Region,
    Scan,
    Vertex,
    identity,
    is_marked,
    with_unique_names,
)
from dendrax.local import Constant, Equation, cannot_differentiate, count_terms

Opens = Callable[[Vertex], bool]
# Where a vertex stands in a graph with regions: its place there, and before it those of the regions
# around it; of a loop that was written out also which turn it is.
Place = tuple[int | tuple[int, int], ...]


class Flat(NamedTuple):
    """A graph written out, and the place of each of its vertices (``None``: it was made new)."""

    graph: Graph
    places: list[Place | None]


def flatten(graph: Graph, opens: Opens = lambda v: True) -> Graph:
    """Write out the regions of a graph; a root that something else uses gets its own vertex.

    ``opens(v)`` says whether a region is written out; if not, it stays the vertex that it is.
    """
    return flattened(graph, opens).graph


def flattened(graph: Graph, opens: Opens, steps: Callable[[int], Sequence[int]] = range) -> Flat:
    """The same, with the place of each vertex.

    ``steps(length)`` are those of a loop that are written out: others, if one only looks at them.
    """
    writer, here = _Writer(opens, steps), Scope()
    leaves = [writer.copy(graph[leaf], (), here) for leaf in graph.leaves]
    outputs = writer.walk(graph, graph.flow, [Port(leaf) for leaf in leaves], here)
    outputs = _separate_roots(writer, outputs, graph.roots)
    flat = writer.graph(leaves, outputs, graph.roots)
    flat = replace(flat, call=graph.call, traced=graph)
    _refuse_loops(flat)
    return Flat(flat, writer.places)


def flattened_body(v: Vertex, emitted: Sequence[int], opens: Opens) -> Flat:
    """The same for the body of a scan, whose results ``emitted`` have an error."""
    region, writer = v.function, _Writer(opens)
    assert isinstance(region, Scan)
    leaves = [writer.copy(region.body[leaf], (), Scope()) for leaf in region.body.leaves]
    ports = [Port(leaf) for leaf in leaves]
    outputs = writer.walk(region.body, region.flow(emitted), ports, Scope(f"{v.name}/"))
    return Flat(writer.graph(leaves, outputs, region.seeds(emitted)), writer.places)


class Scope(NamedTuple):
    """The region that is being written out: what names begin with, and its place."""

    name: str = ""
    place: Place = ()

    def inside(self, v: Vertex, step: int | None = None, turn: int = 0) -> Scope:
        """That of the body of a region, or of one step of it, which has its turn."""
        if step is None:
            return Scope(f"{self.name}{v.name}/", (*self.place, v.index))
        return Scope(f"{self.name}{v.name}[{step}]/", (*self.place, (v.index, turn)))


def _refuse_loops(graph: Graph) -> None:
    """There is no way back through a loop of unknown length. One that no error comes to is fine."""
    for v in graph.active:
        if isinstance(v.function, Equation) and v.function.primitive == "while":
            raise cannot_differentiate("while", ValueError(), v.source)


class _Writer:
    """The vertices written so far."""

    def __init__(self, opens: Opens, steps: Callable[[int], Sequence[int]] = range) -> None:
        self.opens, self.steps = opens, steps
        self.vertices: list[Vertex] = []
        self.places: list[Place | None] = []

    def graph(self, leaves: Sequence[int], outputs: Sequence[Port], roots: Sequence[bool]) -> Graph:
        """What was written."""
        vertices = tuple(with_unique_names(self.vertices))
        return Graph(vertices, tuple(leaves), tuple(outputs), tuple(roots))

    def add(self, vertex: Vertex, place: Place | None = None) -> int:
        index = len(self.vertices)
        if vertex.function is not None:
            depends = tuple(self._reachable(vertex, mask) for mask in vertex.depends)
            carries = tuple(mask != 0 for mask in depends)
            vertex = replace(vertex, depends=depends, carries=carries)
        self.vertices.append(replace(vertex, index=index))
        self.places.append(place)
        return index

    def _reachable(self, vertex: Vertex, mask: int) -> int:
        """The inputs in ``mask`` that carry; in the first step of a scan, a carry may not."""
        flags = (1 << k for k, port in enumerate(vertex.inputs) if self.carries(port))
        return mask & functools.reduce(int.__or__, flags, 0)

    def carries(self, port: Port) -> bool:
        return self.vertices[port.vertex].carries[port.output]

    def aval(self, port: Port) -> Any:
        return self.vertices[port.vertex].outputs[port.output]

    def copy(self, vertex: Vertex, inputs: Sequence[Port], scope: Scope) -> int:
        copied = replace(vertex, inputs=tuple(inputs), name=scope.name + vertex.name)
        return self.add(copied, (*scope.place, vertex.index))

    def make(
        self, name: str, function: Callable[..., Any], inputs: Sequence[Port], source: str
    ) -> Port:
        """Add a single-output vertex of a given function, all of whose inputs get a message."""
        output = jax.eval_shape(lambda *values: function(*values)[0], *map(self.aval, inputs))
        mask = (1 << len(inputs)) - 1
        vertex = Vertex(
            0, "internal", name, (output,), tuple(inputs), function, (mask,), (True,), (), source
        )
        return Port(self.add(vertex))

    def constant(self, value: Any) -> Port:
        aval = jax.typeof(value)
        vertex = Vertex(0, "internal", "constant", (aval,), (), Constant(value), (0,), (False,))
        return Port(self.add(vertex))

    def walk(self, graph: Graph, flow: Flow, leaves: Sequence[Port], scope: Scope) -> list[Port]:
        """Write the vertices of ``graph``, its leaves being ports already written."""
        at = {Port(leaf): port for leaf, port in zip(graph.leaves, leaves, strict=True)}
        for v in graph.vertices:
            if v.function is None:
                continue
            inputs = [at[port] for port in v.inputs]
            if isinstance(v.function, Region) and not is_marked(v) and self.opens(v):
                outputs = self.region(v, v.function, inputs, flow, scope)
            else:
                for k, port in enumerate(inputs):  # a region may hand an input on as its output
                    if port in inputs[:k]:
                        inputs[k] = self.make(scope.name + "port", identity, [port], v.source)
                index = self.copy(v, inputs, scope)
                outputs = [Port(index, o) for o in range(len(v.outputs))]
            at.update((Port(v.index, o), port) for o, port in enumerate(outputs))
        return [at[port] for port in graph.outputs]

    def region(
        self, v: Vertex, region: Region, inputs: list[Port], flow: Flow, scope: Scope
    ) -> list[Port]:
        emitted, received = flow.emitted[v.index], flow.received[v.index]
        inner = region.flow(emitted)
        repeated = {port for port, count in Counter(inputs).items() if count > 1}
        leaves = region.input_leaves
        # Last input first: errors arrive in reverse program order, so the first input's is added
        # first, as JAX does.
        for k in reversed(received):
            waiting = k in flow.summed[v.index] or inputs[k] in repeated
            if waiting and self.carries(inputs[k]) and _adds_up(region, inner, leaves[k]):
                inputs[k] = self.make(scope.name + "port", identity, [inputs[k]], v.source)
        constants = [self.constant(value) for value in region.constants]
        if isinstance(region, Scan):
            return self.scan(v, region, constants, inputs, inner, scope)
        return self.walk(region.body, inner, [*constants, *inputs], scope.inside(v))

    def scan(
        self,
        v: Vertex,
        region: Scan,
        constants: list[Port],
        inputs: list[Port],
        inner: Flow,
        scope: Scope,
    ) -> list[Port]:
        """Unroll: slice the xs, write the body at each time step, stack the ys."""
        consts, carry, xs = region.split(inputs)
        ys: list[list[Port]] = [[] for _ in region.body.outputs[region.num_carry :]]
        order, last = self.steps(region.length), region.length - 1
        for turn, t in enumerate(reversed(order) if region.reverse else order):
            step, part = scope.inside(v, t, turn), functools.partial(_slice, min(t, last))
            x = [self.make(step.name + "x", part, [port], v.source) for port in xs]
            outputs = self.walk(region.body, inner, [*constants, *consts, *carry, *x], step)
            carry, slices = outputs[: region.num_carry], outputs[region.num_carry :]
            shared = set(carry) & set(slices)
            for k, port in enumerate(carry):
                if port in shared and self.carries(port):
                    carry[k] = self.make(step.name + "port", identity, [port], v.source)
            for column, port in zip(ys, slices, strict=True):
                column.append(port)
        stacked = [
            self.stack(scope, v, o, column[::-1] if region.reverse else column)
            for o, column in enumerate(ys, region.num_carry)
        ]
        return [*carry, *stacked]

    def stack(self, scope: Scope, v: Vertex, output: int, column: list[Port]) -> Port:
        if not column:
            aval = v.outputs[output]
            return self.constant(jnp.zeros(aval.shape, aval.dtype))
        return self.make(f"{scope.inside(v).name}stack", _stack, column, v.source)


def _slice(t: int, xs: Any) -> list[Any]:
    return [jax.lax.index_in_dim(xs, t, keepdims=False)]


def _stack(*slices: Any) -> list[Any]:
    return [jnp.stack(slices)]


def is_stack(v: Vertex) -> bool:
    """Whether a vertex stacks the results of the steps of a loop that was written out."""
    return v.function is _stack


def _adds_up(region: Region, flow: Flow, leaf: int) -> bool:
    """Whether more than one term is added up at a leaf of the body."""
    uses = [
        (v, k)
        for v in region.body.vertices
        for k in flow.received[v.index]
        if v.inputs[k] == Port(leaf)
    ]
    if len(uses) != 1 or isinstance(region, Scan):
        return True
    ((v, k),) = uses
    if isinstance(v.function, Region):
        emitted = flow.emitted[v.index]
        inner = v.function.input_leaves[k]
        return _adds_up(v.function, v.function.flow(emitted), inner)
    avals = [region.body[port.vertex].outputs[port.output] for port in v.inputs]
    assert v.function is not None
    return count_terms(v.function, avals, flow.emitted[v.index], k) != 1


def _separate_roots(writer: _Writer, outputs: list[Port], roots: Sequence[bool]) -> list[Port]:
    """A root must be used by nobody else; where it is, an identity vertex takes its place."""
    used = {port.vertex for v in writer.vertices for port in v.inputs}
    counts = Counter(port.vertex for port, root in zip(outputs, roots, strict=True) if root)
    separate = list(outputs)
    # The last output first: JAX adds the errors at the outputs first to last.
    for o in reversed(range(len(outputs))):
        port = outputs[o]
        vertex = writer.vertices[port.vertex]
        busy = vertex.function is None or port.vertex in used or counts[port.vertex] > 1
        if roots[o] and writer.carries(port) and busy:
            separate[o] = writer.make("output", identity, [port], vertex.source)
    return separate
