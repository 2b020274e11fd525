"""Which functions count as elementary: a traced graph -> the graph of the chosen vertices.

A choice is a set of *value nodes*: the ports of the operations' graph that have a value of their
own which inference moves. What lies between them is the vertices' functions.

- ``"primitive"``: every operation that has an error is a value node: the graph as it is.
- ``"layer"``: the network that a paper would draw (`dendrax.vertices._layers`).
- ``"parameter"``: a vertex ends where an operation uses a parameter; loops are written out.
- ``"marked"``: the results of the functions that `dendrax.vertex` marked.

The output is never a value node: the loss or the target clamps it. A scan stays a loop, and value
nodes inside are stacked over time (`dendrax.vertices._stacked`).
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace

from dendrax.graph import (
    EVERYWHERE,
    Graph,
    Port,
    Quotient,
    checked,
    is_marked,
    is_stacked,
    quotient,
)
from dendrax.local import Equation
from dendrax.support import Vertices, complain, warn
from dendrax.tracing import flatten, marks_inside
from dendrax.vertices._layers import Layers
from dendrax.vertices._origins import active_ports
from dendrax.vertices._parameters import Parameters
from dendrax.vertices._stacked import Looped, has_loops, with_loops

_STEP = re.compile(r"\[\d+\](?=/)")


def with_vertices(graph: Graph, vertices: Vertices, *, unrolled: bool = False) -> Graph:
    """The graph of the chosen vertices, of a graph as it was traced.

    ``unrolled`` asks for a vertex per time step, also where value nodes could be stacked.
    """
    if vertices == "primitive":
        return checked(flatten(graph))

    def choose(graph: Graph) -> set[Port]:
        return choose_nodes(graph, vertices)

    unrolled = unrolled or vertices == "parameter" or not has_loops(graph)
    if unrolled:
        flat = checked(flatten(graph))
        found = Looped(flat, choose(flat), EVERYWHERE)
    else:
        found = with_loops(graph, choose)
    _check_some(found.graph, vertices, found.nodes)
    for said in dict.fromkeys(hidden_marks(found.graph)):
        warn(said)
    return checked(quotient(found.graph, sorted(found.nodes), found.where))


def unrolled(graph: Graph) -> Graph:
    """The same graph with a vertex for each time step of a loop, for those who need the time."""
    if not isinstance(graph, Quotient) or not graph.loops:
        return graph
    assert graph.traced is not None and graph.chosen is not None
    return replace(with_vertices(graph.traced, graph.chosen, unrolled=True), chosen=graph.chosen)


def hidden_marks(graph: Graph) -> list[str]:
    """What is to say of marks that are inside of a vertex and so no value nodes."""
    said: list[str] = []
    for v in graph.active:
        if is_stacked(v):
            said += hidden_marks(v.function.body)  # pyright: ignore
        elif isinstance(v.function, Equation) and v.function.primitive != "scan":  # of no step
            where = _STEP.sub("", v.name)  # once for all steps of a loop that was written out
            said += [
                f"the marked function {name!r} is inside {where} ({v.source}), which is one "
                "vertex, and so it is no value node. Mark a function that calls all of it."
                for name in dict.fromkeys(marks_inside(v.function.jaxpr.jaxpr))
            ]
    return said


def choose_nodes(graph: Graph, vertices: Vertices) -> set[Port]:
    """The value nodes of a flat graph of operations without loops."""
    roots = {port for port, root in zip(graph.outputs, graph.roots, strict=True) if root}
    return CHOICES[vertices](graph) - roots


def _check_some(graph: Graph, vertices: Vertices, nodes: set[Port]) -> None:
    if vertices == "marked" and not nodes and not graph.free:
        raise complain(
            ValueError,
            "vertices='marked', but no marked function lies between a parameter and the output, so "
            f"there is no value node.{''.join(f' And {said}' for said in hidden_marks(graph))}",
            remedy="Mark the functions whose results should be value nodes with dendrax.vertex, or "
            "use vertices='layer'.",
        )


def _marks(graph: Graph) -> set[Port]:
    return {port for port in active_ports(graph) if is_marked(graph[port.vertex])}


def _layer_ends(graph: Graph) -> set[Port]:
    return Layers(graph).ends() | _marks(graph)


def _parameter_ends(graph: Graph) -> set[Port]:
    return Parameters(graph).ends() | _marks(graph)


CHOICES: dict[Vertices, Callable[[Graph], set[Port]]] = {
    "layer": _layer_ends,
    "parameter": _parameter_ends,
    "marked": _marks,
}
