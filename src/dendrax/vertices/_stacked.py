"""Value nodes inside scans: the scan stays a loop, and hands them out stacked over time.

What is a value node is asked of the loop written out, of which five steps tell all: what is chosen
at the one in the middle is one at all steps, but for the last if it is not chosen there. A traced
graph enters, and what to choose of a graph without loops. The graph leaves with its loops, which
hand out what was chosen, and where it is a value node.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np

from dendrax._compat import stacked_aval
from dendrax.graph import Graph, Liveness, Port, Region, Scan, Vertex, checked, liveness
from dendrax.tracing import Flat, Place, flattened, flattened_body
from dendrax.vertices._origins import active_ports

Choice = Callable[[Graph], set[Port]]
Steps = tuple[int, ...]
WRITTEN = range(5)
MIDDLE, LAST = WRITTEN[2], WRITTEN[-1]


class Chosen(NamedTuple):
    """What was chosen: where, in one body after the other, its output, and at which steps."""

    path: tuple[Place, ...]
    output: int
    steps: Steps


class Stack(NamedTuple):
    """A value node in loops: their lengths, which step is the last, and where it was chosen."""

    lengths: tuple[int, ...]
    lasts: tuple[int, ...]
    chosen: frozenset[Steps]

    def live(self) -> np.ndarray:
        """The steps at which it is a value node."""
        live = np.zeros(self.lengths, bool)
        for steps in self.chosen:
            if {*steps} <= {MIDDLE, LAST}:
                live[self._like(steps)] = True
        return live

    def _like(self, steps: Steps) -> tuple[np.ndarray, ...]:
        """The steps that are the last of their loops where the given ones are."""
        loops = zip(self.lengths, self.lasts, steps, strict=True)
        return np.ix_(
            *([t for t in range(length) if (t == last) == (s == LAST)] for length, last, s in loops)
        )


class Looped(NamedTuple):
    """A flat graph with its loops, its value nodes, and at which steps they are some."""

    graph: Graph
    nodes: set[Port]
    where: Liveness


def has_loops(graph: Graph) -> bool:
    """Whether an error passes through a loop."""
    loops = (v for v in graph.vertices if isinstance(v.function, Region) and any(v.carries))
    return any(isinstance(v.function, Scan) or has_loops(v.function.body) for v in loops)  # pyright: ignore


def with_loops(graph: Graph, choose: Choice) -> Looped:
    """The value nodes of a traced graph whose loops stay loops."""
    short = flattened(graph, lambda v: True, lambda length: WRITTEN)
    ports = choose(short.graph)
    chosen = [_chosen(short.places[port.vertex], port.output) for port in ports]
    flat = flattened(graph, lambda v: not isinstance(v.function, Scan))
    stacked, stacks = _stacked(flat, chosen)
    where = liveness(checked(stacked))
    live = {port: where.live.get(port, True) & stack.live() for port, stack in stacks.items()}
    nodes = _at(flat, chosen) | {port for port, mask in live.items() if mask.any()}
    partly = {port: mask for port, mask in live.items() if not mask.all()}
    return Looped(stacked, nodes, where._replace(live=partly))


def _chosen(place: Place | None, output: int) -> Chosen:
    assert place is not None, "what is made new in writing a loop out is no layer"
    path: list[Place] = []
    steps, part = [], []
    for entry in place:
        if isinstance(entry, tuple):
            path.append((*part, entry[0]))
            steps.append(entry[1])
            part = []
        else:
            part.append(entry)
    return Chosen((*path, tuple(part)), output, tuple(steps))


def _at(flat: Flat, chosen: Sequence[Chosen]) -> set[Port]:
    """The ports of a graph that were chosen."""
    index = {place: i for i, place in enumerate(flat.places)}
    return {Port(index[one.path[0]], one.output) for one in chosen if len(one.path) == 1}


def _stacked(flat: Flat, chosen: Sequence[Chosen]) -> tuple[Graph, dict[Port, Stack]]:
    """Let the loops of a flat graph hand out what was chosen in their bodies."""
    graph, stacks = flat.graph, {}
    vertices = list(graph.vertices)
    emitted = graph.flow.emitted
    for v, place in zip(graph.vertices, flat.places, strict=True):
        inside = [one for one in chosen if len(one.path) > 1 and one.path[0] == place]
        if inside and emitted[v.index]:
            vertices[v.index], own = _with_stacks(v, emitted[v.index], inside)
            stacks.update(own)
    return replace(graph, vertices=tuple(vertices)), stacks


def _with_stacks(
    v: Vertex, emitted: tuple[int, ...], chosen: Sequence[Chosen]
) -> tuple[Vertex, dict[Port, Stack]]:
    region = v.function
    assert isinstance(region, Scan)
    flat = flattened_body(v, emitted, lambda v: not isinstance(v.function, Scan))
    inner = [one._replace(path=one.path[1:]) for one in chosen]
    body, found = _stacked(flat, inner)
    for port in _at(flat, inner) & set(active_ports(body)):
        place = flat.places[port.vertex]
        steps = (one.steps for one in inner if one.path == (place,) and one.output == port.output)
        found[port] = Stack((), (), frozenset(steps))
    cuts = tuple(sorted(found))
    body = replace(body, outputs=(*body.outputs, *cuts), roots=(*body.roots, *[True] * len(cuts)))
    region = replace(region, body=body, cuts=cuts)
    last = 0 if region.reverse else region.length - 1
    stacks = {
        stack: _inside(found[cut], region.length, last)
        for stack, cut in zip(region.stacks(v), cuts, strict=True)
    }
    outputs = [stacked_aval(body[c.vertex].outputs[c.output], region.length) for c in cuts]
    depends = region.reaches()
    carries = tuple(mask != 0 for mask in depends)
    outputs = (*v.outputs, *outputs)
    fields: dict[str, Any] = {"depends": depends, "carries": carries, "alias": ()}
    return replace(v, function=region, outputs=outputs, **fields), stacks


def _inside(stack: Stack, length: int, last: int) -> Stack:
    """The same with one more loop around it."""
    return stack._replace(lengths=(length, *stack.lengths), lasts=(last, *stack.lasts))
