"""Value nodes inside scans: the scan stays a loop, and hands them out stacked over time.

A flat graph enters, in which some scans were not written out. The same graph leaves, in which the
results of the marked functions in their bodies are outputs of the scans, too. Scans nest.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from dendrax._compat import stacked_aval
from dendrax.graph import Graph, Port, Region, Scan, Vertex, is_marked, is_stacked
from dendrax.tracing import Opens, flatten_body
from dendrax.vertices._layers import STRUCTURAL, active_ports, operation


def marked_scans(graph: Graph, *, throughout: bool) -> set[Region]:
    """The scans of a traced graph that have marks inside.

    ``throughout`` asks for those of which no parameter is used but by a marked function: else a
    step has other layers, too.
    """
    parameters = {Port(leaf.index) for leaf in graph.parameters}
    return set(_marked_scans(graph, parameters, throughout))


def _marked_scans(graph: Graph, parameters: set[Port], throughout: bool) -> Iterator[Region]:
    for region, inner in _regions(graph, parameters):
        is_kept = isinstance(region, Scan) and region.length and _has_marks(region.body)
        if is_kept and not (throughout and _is_mixed(region.body, inner)):
            yield region
        yield from _marked_scans(region.body, inner, throughout)


def _regions(graph: Graph, parameters: set[Port]) -> Iterator[tuple[Region, set[Port]]]:
    """The regions of a graph that are no marks, and which of their body's leaves are parameters."""
    known = set(parameters)
    for v in graph.vertices:
        if isinstance(v.function, Region) and not is_marked(v):
            leaves = zip(v.function.input_leaves, v.inputs, strict=True)
            yield v.function, {Port(leaf) for leaf, port in leaves if port in known}
        elif operation(v) in STRUCTURAL and known.issuperset(v.inputs):
            known.update(Port(v.index, o) for o in range(len(v.outputs)))


def _has_marks(graph: Graph) -> bool:
    """Whether a graph has marks, also in its regions."""
    inner = (v.function.body for v in graph.vertices if isinstance(v.function, Region))
    return any(map(is_marked, graph.vertices)) or any(map(_has_marks, inner))


def _is_mixed(graph: Graph, parameters: set[Port]) -> bool:
    """Whether anything but a marked function uses a parameter."""
    known = set(parameters)
    for v in graph.vertices:
        if isinstance(v.function, Region) or known.isdisjoint(v.inputs):
            continue
        if operation(v) not in STRUCTURAL:
            return True
        known.update(Port(v.index, o) for o in range(len(v.outputs)))
    return any(_is_mixed(region.body, inner) for region, inner in _regions(graph, parameters))


def stack_marks(graph: Graph, opens: Opens) -> Graph:
    """Let the scans that are left in a flat graph hand out what is marked inside."""
    pairs = zip(graph.vertices, graph.flow.emitted, strict=True)
    return replace(graph, vertices=tuple(_stacked(v, emitted, opens) for v, emitted in pairs))


def _stacked(v: Vertex, emitted: tuple[int, ...], opens: Opens) -> Vertex:
    if not isinstance(v.function, Scan) or not emitted:
        return v
    body = stack_marks(flatten_body(v, emitted, opens), opens)
    marks = {port for port in active_ports(body) if is_marked(body[port.vertex])}
    cuts = tuple(sorted(marks | stacked_ports(body)))
    roots = (*body.roots, *[True] * len(cuts))
    body = replace(body, outputs=(*body.outputs, *cuts), roots=roots)
    region = replace(v.function, body=body, cuts=cuts)
    stacks = [stacked_aval(body[c.vertex].outputs[c.output], region.length) for c in cuts]
    depends = region.reaches()
    carries = tuple(mask != 0 for mask in depends)
    outputs = (*v.outputs, *stacks)
    return replace(v, function=region, outputs=outputs, depends=depends, carries=carries, alias=())


def stacked_ports(graph: Graph) -> set[Port]:
    """The ports at which scans hand out what is a value node inside."""
    found = [(v, v.function) for v in graph.vertices if is_stacked(v)]
    return {port for v, region in found if isinstance(region, Scan) for port in region.stacks(v)}
