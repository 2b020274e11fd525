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
from dendrax.support import Vertices, VerticesWord, complain, warn
from dendrax.tracing import flatten, is_named, marks_inside
from dendrax.vertices._asked import named_ports, picked_ports
from dendrax.vertices._layers import Layers, active_ports
from dendrax.vertices._stacked import marked_scans, stack_marks, stacked_ports

_STEP = re.compile(r"\[\d+\](?=/)")


def with_vertices(graph: Graph, vertices: Vertices, *, unrolled: bool = False) -> Graph:
    """The graph of the chosen vertices, of a graph as it was traced.

    ``unrolled`` asks for a vertex per time step, also where value nodes could be stacked.
    """
    if vertices == "primitive":
        return checked(flatten(graph))
    written_out = unrolled or not isinstance(vertices, str)
    kept = set() if written_out else marked_scans(graph, throughout=vertices != "marked")

    def opens(v: Vertex) -> bool:
        return v.function not in kept

    flat = checked(flatten(graph, opens))
    if kept:
        flat = checked(stack_marks(flat, opens))
    where = liveness(flat)
    nodes = choose_nodes(flat, vertices, where)
    for said in dict.fromkeys(hidden_marks(flat)):
        warn(said)
    return checked(quotient(flat, nodes, where))


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
        elif isinstance(v.function, Equation) and not is_named(v):
            where = _STEP.sub("", v.name)  # once for all steps of a loop that was written out
            said += [
                f"the marked function {name!r} is inside {where} ({v.source}), which is one "
                "vertex, and so it is no value node. Mark a function that calls all of it."
                for name in dict.fromkeys(marks_inside(v.function.jaxpr.jaxpr))
            ]
    return said


def choose_nodes(
    graph: Graph, vertices: Vertices, where: Liveness = EVERYWHERE
) -> tuple[Port, ...]:
    """The value nodes of a flat graph of operations, in program order."""
    roots = {port for port, root in zip(graph.outputs, graph.roots, strict=True) if root}
    never = {port for port, live in where.live.items() if not live.any()}
    nodes = chosen_ports(graph, vertices) - roots - never
    if not isinstance(vertices, str) and not nodes and not graph.free:
        raise _no_nodes(graph, vertices)
    if vertices == "marked" and not nodes and not graph.free:
        raise complain(
            ValueError,
            "vertices='marked', but no marked function lies between a parameter and the output, so "
            f"there is no value node.{''.join(f' And {said}' for said in hidden_marks(graph))}",
            remedy="Mark the functions whose results should be value nodes with dendrax.vertex, or "
            "use vertices='layer'.",
        )
    return tuple(sorted(nodes))


def chosen_ports(graph: Graph, vertices: Vertices) -> set[Port]:
    """The ports that a choice means, the output's perhaps among them."""
    if isinstance(vertices, str):
        return CHOICES[vertices](graph)
    return picked_ports(graph, vertices) if callable(vertices) else named_ports(graph)


def _no_nodes(graph: Graph, vertices: Any) -> Exception:
    if callable(vertices):
        return complain(
            ValueError,
            f"the function vertices={getattr(vertices, '__name__', vertices)} picked no value "
            "node; the output, which is clamped, is none.",
            remedy="Let it return some of graph.active, or use vertices='layer'.",
        )
    names = [asked if isinstance(asked, str) else asked.__name__ for asked in vertices]
    return complain(
        ValueError,
        f"no result of the modules {', '.join(names)} lies between a parameter and the output, so "
        f"there is no value node.{''.join(f' And {said}' for said in hidden_marks(graph))}",
        remedy="Name other modules, or use vertices='layer'. A graph must be traced for modules: "
        f"dendrax.trace(..., vertices={tuple(names)}).",
    )


def _marks(graph: Graph) -> set[Port]:
    marks = {port for port in active_ports(graph) if is_marked(graph[port.vertex])}
    return marks | stacked_ports(graph)


def _layer_ends(graph: Graph) -> set[Port]:
    return Layers(graph).ends() | _marks(graph)


CHOICES: dict[VerticesWord, Callable[[Graph], set[Port]]] = {
    "layer": _layer_ends,
    "marked": _marks,
}
