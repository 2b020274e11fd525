"""Which functions count as elementary: a traced graph -> the graph of the chosen vertices.

A choice is a set of *value nodes*: the ports of the operations' graph that have a value of their
own which inference moves. What lies between them is the vertices' functions.

- ``"primitive"``: every operation that has an error is a value node: the graph as it is.
- ``"layer"``: the network that a paper would draw (`dendrax.vertices._layers`).
- ``"parameter"``: a vertex ends where an operation uses a parameter; loops are written out.
- ``"marked"``: the results of the functions that `dendrax.vertex` marked.
- ``("Block", "Embed")``: what modules of these names, or classes, return; the function was traced
  for it.
- a function: whatever it picks of the graph of operations.

The output is never a value node: the loss or the target clamps it. A scan stays a loop, and value
nodes inside are stacked over time (`dendrax.vertices._stacked`), but under ``"primitive"``,
``"parameter"``, a function, or for a rule that keeps errors in step.
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
    Vertex,
    checked,
    is_marked,
    is_stacked,
    quotient,
)
from dendrax.local import Equation
from dendrax.support import Vertices, warn
from dendrax.tracing import flatten, is_named, marks_inside
from dendrax.vertices._asked import named_ports, nothing_found, picked_ports
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

    is_written_out = unrolled or vertices == "parameter" or callable(vertices)
    if is_written_out or not has_loops(graph):
        flat = checked(flatten(graph))
        found = Looped(flat, choose(flat), EVERYWHERE)
    else:
        found = with_loops(graph, choose)
    if not (found.nodes or graph.free or vertices in ("layer", "parameter")):
        said = "".join(f" And {said}" for said in hidden_marks(found.graph, vertices))
        raise nothing_found(vertices, said)
    for said in dict.fromkeys(hidden_marks(found.graph, vertices)):
        warn(said)
    return checked(quotient(found.graph, sorted(found.nodes), found.where))


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
    is_one = isinstance(v.function, Equation) and not is_named(v)
    # A scan that is one has no step.
    return v.function if is_one and v.function.primitive != "scan" else None  # pyright: ignore


def choose_nodes(graph: Graph, vertices: Vertices) -> set[Port]:
    """The value nodes of a flat graph of operations without loops."""
    roots = {port for port, root in zip(graph.outputs, graph.roots, strict=True) if root}
    return chosen_ports(graph, vertices) - roots


def chosen_ports(graph: Graph, vertices: Vertices) -> set[Port]:
    """The ports that a choice means, the output's perhaps among them."""
    if vertices in CHOICES:
        return CHOICES[vertices](graph)
    return picked_ports(graph, vertices) if callable(vertices) else named_ports(graph)


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
