"""Where to cut a graph into blocks of levels: equal work, and little to send.

Levels are longest paths to the output, as everywhere, with a few additions that keep what a device
needs behind it. Every vertex made of parameters has a level, also one without an error (the maximum
in a softmax): its users need its value. Of two vertices that use the same value, the later one
in program order is not further from the output: so the wave adds messages in reverse program order,
as JAX does, also where they come from different devices.

What is made of data alone has no level: it is computed wherever it is needed. What only brings a
parameter into shape for its user (a bias, broadcast to the batch) has its level. And what else is
made of parameters alone (their norm, in the loss) is computed where these live.

XLA rounds differently where it can see two operations at once (it makes one fused multiply-add of a
product and a sum). So graphs are preferably cut where it could not have looked across: at operands
of matrix products and convolutions, and at sums that are added to (the stream of a ResNet).
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from dendrax.graph import Graph, Port, Region, Scan, Vertex
from dendrax.local import Equation
from dendrax.placement._wires import size_in_bytes
from dendrax.support import complain


def placement_levels(graph: Graph, origin: Callable[[Port], Port]) -> dict[int, int]:
    """The level of each vertex that depends on a parameter and leads to an output, by index."""
    learned, with_user = _made_of_parameters(graph), _made_for_one_user(graph)
    level_of = {p.vertex: 0 for p in graph.outputs if p.vertex in learned}
    latest: dict[Port, int] = {}  # of each value, the highest level of the users seen so far
    for v in reversed(graph.vertices):
        if v.index not in level_of or v.function is None:
            continue
        told = _told(v)
        sums = [origin(port) for k, port in enumerate(v.inputs) if told >> k & 1]
        level = max([level_of[v.index], *(latest.get(port, 0) for port in sums)])
        level_of[v.index] = level
        latest.update(dict.fromkeys(sums, level))
        for port in v.inputs:
            if port.vertex in learned:
                below = level + (port.vertex not in with_user)
                level_of[port.vertex] = max(level_of.get(port.vertex, 0), below)
    found = {i: level for i, level in level_of.items() if graph[i].function is not None}
    return _without_gaps(_brought_home(graph, found, origin))


def _brought_home(
    graph: Graph, level_of: dict[int, int], origin: Callable[[Port], Port]
) -> dict[int, int]:
    """What is made of parameters alone, where these are used by others: a norm of weights in the
    loss is then computed where the weights live, and only the norm is sent."""
    alone = {leaf.index for leaf in graph.parameters}
    raised, level_of = set(), dict(level_of)
    before: dict[Port, int] = {}  # the level of the last user of each parameter so far
    for v in graph.vertices:
        if v.index not in level_of:
            continue
        if all(port.vertex in alone for port in v.inputs):
            alone.add(v.index)
            bounds = [
                level_of[port.vertex] if port.vertex in raised else before.get(origin(port), -1)
                for port in v.inputs
            ]
            if min(bounds) > level_of[v.index]:
                level_of[v.index] = min(bounds)
                raised.add(v.index)
        for port in v.inputs:
            if graph[port.vertex].kind == "parameter":
                before[origin(port)] = level_of[v.index]
    return level_of


def _without_gaps(level_of: Mapping[int, int]) -> dict[int, int]:
    """The levels renumbered, so that none is empty."""
    number = {level: n for n, level in enumerate(sorted(set(level_of.values())))}
    return {index: number[level] for index, level in level_of.items()}


def _told(v: Vertex) -> int:
    """A bit mask of the inputs that the vertex may send a message to."""
    mask = 0
    for depends in v.depends:
        mask |= depends
    return mask


def _made_of_parameters(graph: Graph) -> set[int]:
    made = {leaf.index for leaf in graph.parameters}
    for v in graph.vertices:
        if any(port.vertex in made for port in v.inputs):
            made.add(v.index)
    return made


def _made_for_one_user(graph: Graph) -> set[int]:
    """The vertices that bring a parameter into shape for its only user."""
    alone = {leaf.index for leaf in graph.parameters if len(graph.users(leaf)) == 1}
    results = {port.vertex for port in graph.outputs}
    for v in graph.vertices:
        is_shaped = _primitive(v) in _SHAPES and {port.vertex for port in v.inputs} <= alone
        if is_shaped and v.inputs and len(graph.users(v)) == 1 and v.index not in results:
            alone.add(v.index)
    return {index for index in alone if graph[index].function is not None}


def work(v: Vertex) -> int:
    """About how many multiplications and additions a vertex is."""
    if isinstance(v.function, Region):
        steps = v.function.length if isinstance(v.function, Scan) else 1
        return steps * sum(map(work, v.function.body))
    size = sum(math.prod(aval.shape) for aval in v.outputs)
    return size * _terms(v.function) if isinstance(v.function, Equation) else size


def _terms(equation: Equation) -> int:
    """How many products are added up for each number of the result."""
    eqn = equation.jaxpr.eqns[0]
    if equation.primitive == "dot_general":
        (contracted, _), _ = eqn.params["dimension_numbers"]
        return math.prod(eqn.invars[0].aval.shape[axis] for axis in contracted)
    if equation.primitive == "conv_general_dilated":
        kernel = eqn.invars[1].aval.shape
        return math.prod(kernel) // kernel[eqn.params["dimension_numbers"].rhs_spec[0]]
    return 1


def choose_cuts(graph: Graph, level_of: Mapping[int, int], num_blocks: int) -> tuple[int, ...]:
    """The lowest level of each block but the last, from the input on."""
    count = max(level_of.values(), default=-1) + 1
    if not count:
        raise complain(
            ValueError,
            "no parameter goes into the function's result, so there is nothing to place.",
            remedy="argnums says which arguments are parameters.",
        )
    if num_blocks > count:
        raise complain(
            ValueError,
            f"the function has {count} levels, which cannot be placed on {num_blocks} devices.",
            remedy=f"Use at most {count} devices.",
        )
    places = clean_cuts(graph, level_of)
    if len(places) < num_blocks - 1:
        places = range(count - 1, 0, -1)
    costs, bytes_at = [0] * count, _crossing(graph, level_of)
    for index, level in level_of.items():
        costs[level] += work(graph[index]) + 1
    edges = [count, *places, 0]
    pieces = [sum(costs[low:high]) for high, low in itertools.pairwise(edges)]
    ends = _balanced(pieces, num_blocks)
    ends = _quieter(pieces, [bytes_at[level] for level in edges[:-1]], ends)
    return tuple(edges[end] for end in ends)


def clean_cuts(graph: Graph, level_of: Mapping[int, int]) -> list[int]:
    """The levels above which a graph can be cut without a trace in the last bit, highest first."""
    count = max(level_of.values()) + 1
    products = {v.index for v in graph if _primitive(v) in _PRODUCTS}
    for v in reversed(graph.vertices):  # looking through what only moves numbers about
        users = graph.users(v)
        if _primitive(v) in _MOVES and users and all(user.index in products for user in users):
            products.add(v.index)
    biases = _made_for_one_user(graph)
    sums = {
        v.index
        for v in graph
        if _primitive(v) in _SUMS and not any(port.vertex in biases for port in v.inputs)
    }
    soft: dict[Port, int] = {}  # the lowest level of a user that XLA could fuse with
    for index, level in level_of.items():
        for port in graph[index].inputs if index not in products else ():
            is_stream = index in sums and port.vertex in sums
            if port.vertex in level_of and not is_stream:
                soft[port] = min(soft.get(port, level), level)
    spans = ((level + 1, level_of[port.vertex] + 1, 1) for port, level in soft.items())
    unclean = _added_up(spans, count)
    return [level for level in range(count - 1, 0, -1) if not unclean[level]]


def _primitive(v: Vertex) -> str:
    return v.function.primitive if isinstance(v.function, Equation) else ""


_PRODUCTS = ("dot_general", "conv_general_dilated")
_MOVES = ("reshape", "transpose", "squeeze", "copy")
_SHAPES = (*_MOVES, "broadcast_in_dim", "convert_element_type")
_SUMS = ("add", "sub", "add_any")


def _type(graph: Graph, port: Port) -> Any:
    return graph[port.vertex].outputs[port.output]


def _added_up(spans: Iterable[tuple[int, int, int]], count: int) -> list[int]:
    """The sum, at each place, of the amounts of all spans ``(first, end, amount)`` over it."""
    change = [0] * (count + 1)
    for first, end, amount in spans:
        change[first] += amount
        change[end] -= amount
    return list(itertools.accumulate(change))


def _balanced(costs: Sequence[int], num_blocks: int) -> list[int]:
    """Where each block but the last ends, such that the largest is as small as can be."""
    low, high = max(costs), sum(costs)
    while low < high:
        middle = (low + high) // 2
        if len(_filled(costs, middle)) < num_blocks:
            high = middle
        else:
            low = middle + 1
    ends = _filled(costs, low)
    while len(ends) < num_blocks - 1:  # fewer would do; no device shall be idle
        edges = [0, *ends, len(costs)]
        widest = max(itertools.pairwise(edges), key=lambda span: span[1] - span[0])
        ends = sorted([*ends, (widest[0] + widest[1]) // 2])
    return ends


def _filled(costs: Sequence[int], capacity: int) -> list[int]:
    """Where blocks end if each takes all that it can."""
    ends, load = [], 0
    for place, cost in enumerate(costs):
        if place and load + cost > capacity:
            ends.append(place)
            load = 0
        load += cost
    return ends


def _quieter(costs: Sequence[int], crossing: Sequence[int], ends: list[int]) -> list[int]:
    """Move each end to where the least is sent, as long as no block becomes much larger.

    ``crossing`` is what is sent if a block ends before each place.
    """
    sums = [0, *itertools.accumulate(costs)]
    edges = [0, *ends, len(costs)]
    most = 1.1 * max(sums[b] - sums[a] for a, b in itertools.pairwise(edges))
    for i in range(1, len(edges) - 1):
        before, after = edges[i - 1], edges[i + 1]
        fits = [
            end
            for end in range(before + 1, after)
            if sums[end] - sums[before] <= most and sums[after] - sums[end] <= most
        ]
        edges[i] = min(fits, key=lambda end: (crossing[end], abs(end - ends[i - 1])))
    return edges[1:-1]


def _crossing(graph: Graph, level_of: Mapping[int, int]) -> list[int]:
    """How many bytes are sent if the graph is cut above each level."""
    nearest: dict[Port, int] = {}
    for index, level in level_of.items():
        for port in graph[index].inputs:
            if port.vertex in level_of:
                nearest[port] = min(nearest.get(port, level), level)
    spans = (
        (level + 1, level_of[port.vertex] + 1, size_in_bytes(_type(graph, port)))
        for port, level in nearest.items()
    )
    return _added_up(spans, max(level_of.values()) + 1)
