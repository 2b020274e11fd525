"""At which steps of a loop a value node inside it is one.

A loop written out has a value node only where an error comes by and goes on to a parameter: not
where the first steps read data alone, not where nobody asks for what the last step hands on, and
not where that is the output, which is clamped. The same node, stacked over time, is *live* at all
other steps. Where it is not, whoever reads it reads what is predicted for it.

A flat graph enters, with value nodes in its loops; a mask for each of their stacks leaves.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np

from dendrax.graph._graph import Graph, Port, Vertex, identity
from dendrax.graph._region import Scan, is_stacked

Mask = Any  # an array of truth values, with an axis for each loop around a value node


class Liveness(NamedTuple):
    """Of each stack that is not live at all its steps, at which it is; and which loops must run
    ``in_turn``, since a step reads what is predicted where the step before has no value node."""

    live: Mapping[Port, Mask]
    in_turn: frozenset[int]


EVERYWHERE = Liveness({}, frozenset())


def liveness(graph: Graph) -> Liveness:
    """Where the value nodes in the loops of a flat graph are live."""
    loops = list(filter(is_stacked, graph.vertices))
    if not loops:
        return EVERYWHERE
    forward = _forward(graph, [graph[leaf].carries[0] for leaf in graph.leaves])
    roots = {port for port, root in zip(graph.outputs, graph.roots, strict=True) if root}
    errors = _backward(graph, roots, forward)
    read = _backward(graph, roots, None)
    ends = dict(_ends(graph, roots))
    live: dict[Port, Mask] = {}
    in_turn = set()
    for v in loops:
        region = _scan(v)
        for stack, cut in zip(region.stacks(v), region.cuts, strict=True):
            carried, has_error, is_read = (
                _mask(region, cut, found.steps[v.index]) for found in (forward, errors, read)
            )
            at_end = np.zeros_like(has_error)
            if stack in ends:
                at_end[ends[stack]] = True
            if (is_read & carried & ~has_error).any():
                in_turn.add(v.index)
            if not (has_error & ~at_end).all():
                live[stack] = has_error & ~at_end
    return Liveness(live, frozenset(in_turn))


def _scan(v: Vertex) -> Scan:
    assert isinstance(v.function, Scan)
    return v.function


@dataclass(frozen=True, eq=False)
class _Walk:
    """One walk through a graph: which ports it comes to; and of each loop a walk per step, in the
    order in which the steps run."""

    ports: set[Port] = field(default_factory=set)
    steps: dict[int, list[_Walk]] = field(default_factory=dict)

    def at(self, v: Vertex) -> list[bool]:
        return [port in self.ports for port in v.inputs]


def _forward(graph: Graph, leaves: Iterable[bool]) -> _Walk:
    """From the leaves that learn or are free, along what carries errors."""
    pairs = zip(graph.leaves, leaves, strict=True)
    walk = _Walk({Port(leaf) for leaf, carries in pairs if carries})
    for v in graph.vertices:
        if v.function is None:
            continue
        given = walk.at(v)
        if is_stacked(v):
            outputs = _forward_in_loop(v, given, walk)
        else:
            outputs = [any(f and d >> k & 1 for k, f in enumerate(given)) for d in v.depends]
        walk.ports.update(Port(v.index, o) for o, carries in enumerate(outputs) if carries)
    return walk


def _forward_in_loop(v: Vertex, given: Sequence[bool], outer: _Walk) -> list[bool]:
    region = _scan(v)
    consts, carry, xs = region.split(given)
    before = [False] * len(region.constants) + consts
    steps = outer.steps[v.index] = []
    while len(steps) < region.length:
        step = _forward(region.body, [*before, *carry, *xs])
        after = [port in step.ports for port in region.body.outputs]
        is_last = after[: region.num_carry] == carry  # all further steps are the same
        steps.extend([step] * (region.length - len(steps) if is_last else 1))
        carry = after[: region.num_carry]
    results = region.body.outputs[region.num_carry : region.num_results]
    made = [any(port in step.ports for step in _distinct(steps)) for port in results]
    return [*carry, *made]


def _backward(graph: Graph, seeds: set[Port], forward: _Walk | None) -> _Walk:
    """From the seeds to where their errors come from; without a ``forward`` walk, to all that they
    are made of."""
    walk = _Walk({port for port in seeds if forward is None or port in forward.ports})
    for v in reversed(graph.vertices):
        if v.function is None:
            continue
        asked = [Port(v.index, o) in walk.ports for o in range(len(v.outputs))]
        if not any(asked):
            if is_stacked(v):
                walk.steps[v.index] = [_NOWHERE] * _scan(v).length
            continue
        if is_stacked(v):
            reached = _backward_in_loop(v, asked, forward, walk)
        elif forward is None:
            reached = v.inputs
        else:
            masks = [d for d, hit in zip(v.depends, asked, strict=True) if hit]
            reached = [p for k, p in enumerate(v.inputs) if any(m >> k & 1 for m in masks)]
        walk.ports.update(p for p in reached if forward is None or p in forward.ports)
    return walk


_NOWHERE = _Walk()


def _backward_in_loop(
    v: Vertex, asked: Sequence[bool], forward: _Walk | None, outer: _Walk
) -> list[Port]:
    region, body = _scan(v), _scan(v).body
    given = [None] * region.length if forward is None else forward.steps[v.index]
    leaves = [Port(leaf) for leaf in region.input_leaves]
    consts, before, xs = region.split(leaves)
    ys = body.outputs[region.num_carry : region.num_results]
    always = {p for p, hit in zip(ys, asked[region.num_carry :], strict=False) if hit}
    carry = list(asked[: region.num_carry])
    steps: list[_Walk] = []
    known: dict[Any, _Walk] = {}
    for at in reversed(given):
        key = (id(at), *carry)
        if key not in known:
            ends = {p for p, hit in zip(body.outputs, carry, strict=False) if hit}
            known[key] = _backward(body, always | ends, at)
        steps.append(known[key])
        carry = [leaf in known[key].ports for leaf in before]
    outer.steps[v.index] = steps[::-1]
    hit = {leaf for step in known.values() for leaf in (*consts, *xs) if leaf in step.ports}
    hit.update(leaf for leaf, flag in zip(before, carry, strict=True) if flag)
    return [port for port, leaf in zip(v.inputs, leaves, strict=True) if leaf in hit]


def _distinct(steps: Iterable[_Walk]) -> Iterable[_Walk]:
    return {id(step): step for step in steps}.values()


def _mask(region: Scan, cut: Port, steps: Sequence[_Walk]) -> Mask:
    """At which steps a walk comes to a value node."""
    inner = region.body[cut.vertex]
    known: dict[int, Mask] = {}
    for step in _distinct(steps):
        if is_stacked(inner):
            scan = _scan(inner)
            known[id(step)] = _mask(
                scan, scan.cuts[cut.output - scan.num_results], step.steps[cut.vertex]
            )
        else:
            known[id(step)] = cut in step.ports
    found = np.array([known[id(step)] for step in steps], bool)
    return found[::-1] if region.reverse else found


# ---- outputs that are value nodes ----------------------------------------------------------------


def _ends(graph: Graph, roots: set[Port]) -> Iterator[tuple[Port, tuple[int, ...]]]:
    """The value nodes that the last step of a loop hands on as an output: the stack of each, and
    the place in it. Written out, a vertex is its own output where nobody else reads it."""
    clamped = [_behind(graph, port) for port in sorted(roots)]
    apart = [port.vertex for port in roots]
    for port in clamped:
        place = _last_place(graph, port)
        handed = None if place is None else _handed_on(graph, port)
        if place is None or handed is None:
            continue
        readers = [v for v in graph.vertices if not handed.isdisjoint(v.inputs)]
        others = [v for v in readers if v.index not in apart]
        if not others and sum(p in handed for p in clamped) == 1:
            yield place


def _behind(graph: Graph, port: Port) -> Port:
    """An output of a graph, before it was given a vertex of its own."""
    v = graph[port.vertex]
    is_apart = v.function is identity and v.name.startswith("output")
    return v.inputs[0] if is_apart else port


def _last_place(graph: Graph, port: Port) -> tuple[Port, tuple[int, ...]] | None:
    """Where a loop's final carry lies in the stack of a value node, if that is what it is."""
    v = graph[port.vertex]
    if not is_stacked(v) or port.output >= _scan(v).num_carry:
        return None
    region = _scan(v)
    result, last = region.body.outputs[port.output], 0 if region.reverse else region.length - 1
    found = (result, ()) if result in region.cuts else _last_place(region.body, result)
    if found is None:
        return None
    stack, place = found
    return region.stacks(v)[region.cuts.index(stack)], (last, *place)


def _handed_on(graph: Graph, port: Port) -> set[Port] | None:
    """The ports at which the vertex behind a loop's final carry leaves; ``None`` if the loop itself
    reads it."""
    v = graph[port.vertex]
    if not is_stacked(v):
        return {Port(v.index, o) for o in range(len(v.outputs))}
    region = _scan(v)
    inner = _handed_on(region.body, region.body.outputs[port.output])
    results = region.body.outputs[: region.num_results]
    if inner is None or not inner.isdisjoint(results[region.num_carry :]):
        return None
    if any(not inner.isdisjoint(user.inputs) for user in region.body.vertices):
        return None
    return {Port(v.index, k) for k in range(region.num_carry) if results[k] in inner}
