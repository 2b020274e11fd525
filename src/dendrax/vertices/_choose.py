"""Which functions count as elementary: a traced graph -> the graph of the chosen vertices.

A choice is a set of *value nodes*: the ports of the operations' graph that have a value of their
own which inference moves. What lies between them is the vertices' functions.

- ``"primitive"``: every operation that has an error is a value node: the graph as it is.
- ``"layer"``: the textbook network ``μ_k = W_k f(x_{k-1}) + b_k``: a vertex ends where an operation
  uses a parameter, and what follows the last one (the loss) belongs to the output.
- ``"marked"``: the results of the functions that `dendrax.vertex` marked.
- ``("Block", "Embed")``: what modules of these names, or classes, return; the function was traced
  for it.
- a function: whatever it picks of the graph of operations.

The output is never a value node: the loss or the target clamps it. A scan whose value nodes are
marks stays a loop, and they are stacked over time (`dendrax.vertices._stacked`).
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace

from dendrax.graph import (
    EVERYWHERE,
    Graph,
    Liveness,
    Port,
    Quotient,
    Vertex,
    checked,
    is_marked,
    is_stacked,
    liveness,
    quotient,
)
from dendrax.local import Equation
from dendrax.support import Vertices, warn
from dendrax.tracing import flatten, is_named, marks_inside
from dendrax.vertices._asked import named_ports, nothing_found, picked_ports
from dendrax.vertices._layers import Layers, active_ports
from dendrax.vertices._stacked import marked_scans, stack_marks, stacked_ports

_STEP = re.compile(r"\[\d+\](?=/)")


def with_vertices(graph: Graph, vertices: Vertices, *, unrolled: bool = False) -> Graph:
    """The graph of the chosen vertices, of a graph as it was traced.

    ``unrolled`` asks for a vertex per time step, also where value nodes could be stacked.
    """
    if vertices == "primitive":
        return checked(flatten(graph))
    written_out = unrolled or vertices not in CHOICES
    kept = set() if written_out else marked_scans(graph, throughout=vertices != "marked")

    def opens(v: Vertex) -> bool:
        return v.function not in kept

    flat = checked(flatten(graph, opens))
    if kept:
        flat = checked(stack_marks(flat, opens))
    where = liveness(flat)
    nodes = choose_nodes(flat, vertices, where)
    for said in dict.fromkeys(hidden_marks(flat, vertices)):
        warn(said)
    return checked(quotient(flat, nodes, where))


def unrolled(graph: Graph) -> Graph:
    """The same graph with a vertex for each time step of a loop, for those who need the time."""
    if not isinstance(graph, Quotient) or not graph.loops:
        return graph
    assert graph.traced is not None and graph.chosen is not None
    return replace(with_vertices(graph.traced, graph.chosen, unrolled=True), chosen=graph.chosen)


def hidden_marks(graph: Graph, vertices: Vertices) -> list[str]:
    """What is to say of marks, or modules, that are inside of a vertex and so no value nodes."""
    if callable(vertices):
        return []
    modules = isinstance(vertices, tuple)
    what, remedy = "marked function", "Mark a function"
    if modules:
        what, remedy = "result of the module", "Name a module"
    said: list[str] = []
    for v in graph.active:
        if is_stacked(v):
            said += hidden_marks(v.function.body, vertices)  # pyright: ignore
        elif (program := _unopened(v, modules)) is not None:
            where = _STEP.sub("", v.name)  # once for all steps of a loop that was written out
            said += [
                f"the {what} {name!r} is inside {where} ({v.source}), which is one "
                f"vertex, and so it is no value node. {remedy} that calls all of it."
                for name in dict.fromkeys(marks_inside(program.jaxpr.jaxpr, modules=modules))
            ]
    return said


def _unopened(v: Vertex, modules: bool) -> Equation | None:
    """The program of a vertex that stays one, if it may have marks, or modules, inside."""
    if modules and is_marked(v):
        return v.function.equation  # pyright: ignore
    return v.function if isinstance(v.function, Equation) and not is_named(v) else None


def choose_nodes(
    graph: Graph, vertices: Vertices, where: Liveness = EVERYWHERE
) -> tuple[Port, ...]:
    """The value nodes of a flat graph of operations, in program order."""
    roots = {port for port, root in zip(graph.outputs, graph.roots, strict=True) if root}
    never = {port for port, live in where.live.items() if not live.any()}
    nodes = chosen_ports(graph, vertices) - roots - never
    if nodes or graph.free or vertices == "layer":
        return tuple(sorted(nodes))
    said = "".join(f" And {said}" for said in hidden_marks(graph, vertices))
    raise nothing_found(vertices, said)


def chosen_ports(graph: Graph, vertices: Vertices) -> set[Port]:
    """The ports that a choice means, the output's perhaps among them."""
    if vertices in CHOICES:
        return CHOICES[vertices](graph)
    return picked_ports(graph, vertices) if callable(vertices) else named_ports(graph)


def _marks(graph: Graph) -> set[Port]:
    marks = {port for port in active_ports(graph) if is_marked(graph[port.vertex])}
    return marks | stacked_ports(graph)


def _layer_ends(graph: Graph) -> set[Port]:
    return Layers(graph).ends() | _marks(graph)


CHOICES: dict[Vertices, Callable[[Graph], set[Port]]] = {
    "layer": _layer_ends,
    "marked": _marks,
}
