"""Value nodes that somebody asked for: the results of modules, or what a function picks.

A flat graph of operations enters; the ports that are meant leave.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from dendrax.graph import Graph, Port, Vertex, identity
from dendrax.local import is_inexact
from dendrax.support import complain, in_short
from dendrax.tracing import is_named
from dendrax.vertices._origins import active_ports

_KINDS = "vertices of the graph that it was given, their indices, names or ports"


def named_ports(graph: Graph) -> set[Port]:
    """The results of modules. One that hands on what an inner one returned is no node again."""
    named = {port for port in active_ports(graph) if is_named(graph[port.vertex])}
    return {port for port in named if _made(graph, graph[port.vertex].inputs[0]) not in named}


def _made(graph: Graph, port: Port) -> Port:
    """Where a value comes from that was only handed on."""
    while graph[port.vertex].function is identity:
        port = graph[port.vertex].inputs[port.output]
    return port


def picked_ports(graph: Graph, choose: Callable[[Graph], Iterable[Any]]) -> set[Port]:
    """What a user's function picks. The output, which is clamped, is left out."""
    found = choose(graph)
    if isinstance(found, (Vertex, Port, str)):
        found = [found]
    if not isinstance(found, Iterable):
        raise complain(
            TypeError,
            f"the function vertices={_title(choose)} returned {in_short(found)}.",
            remedy=f"Let it return a list of {_KINDS}.",
        )
    roots = {port for port, root in zip(graph.outputs, graph.roots, strict=True) if root}
    return {port for one in found for port in _ports(graph, one, _title(choose))} - roots


def _ports(graph: Graph, one: Any, title: str) -> Iterator[Port]:
    """The ports that are meant by one of the things that a function returned."""
    if isinstance(one, Port):
        if not _has(graph, one):
            raise _strange(title, f"{one}, but the graph has no such port")
        yield _checked(graph, one, title)
        return
    v = _vertex(graph, one, title)
    emitted = graph.flow.emitted[v.index] if v.function is not None else ()
    for o in emitted or (0,):
        yield _checked(graph, Port(v.index, o), title)


def _has(graph: Graph, port: Port) -> bool:
    return 0 <= port.vertex < len(graph) and 0 <= port.output < len(graph[port.vertex].outputs)


def _vertex(graph: Graph, one: Any, title: str) -> Vertex:
    if isinstance(one, Vertex):
        if one.index >= len(graph) or graph[one.index] is not one:
            raise _strange(title, f"the vertex {one.name} of another graph")
        return one
    if isinstance(one, str):
        try:
            return graph[one]
        except KeyError as problem:
            raise _strange(title, f"the name {one!r}, but {problem.args[0].rstrip('.')}") from None
    try:
        index = operator.index(one)
    except TypeError:
        kind = type(one).__name__
        raise _strange(title, f"{in_short(one)}, of type {kind}", TypeError) from None
    if not 0 <= index < len(graph):
        raise _strange(title, f"the index {index}, but the graph has {len(graph)} vertices")
    return graph[index]


def _strange(title: str, what: str, kind: type[Exception] = ValueError) -> Exception:
    stop = "" if what.endswith("?") else "."
    return complain(
        kind, f"the function vertices={title} picked {what}{stop}", remedy=f"Return {_KINDS}."
    )


def _checked(graph: Graph, port: Port, title: str) -> Port:
    """A port that can be a value node."""
    v = graph[port.vertex]
    aval = v.outputs[port.output]
    if v.function is None:
        lack, remedy = f"is a leaf ({v.kind}) and has no prediction", "Pick what reads it."
    elif not is_inexact(aval):
        lack = f"is {aval.dtype}, and inference moves floating-point numbers"
        remedy = "Pick the operation that makes floats of it."
    elif port.output not in graph.flow.emitted[v.index]:
        lack = "carries no error: no parameter reaches it, or it does not reach the output"
        remedy = "Pick among graph.active, whose vertices have an error."
    else:
        return port
    raise complain(
        ValueError,
        f"the function vertices={title} picked {v.name} (vertex {v.index}), which {lack}.",
        source=v.source,
        remedy=remedy,
    )


def nothing_found(vertices: Any, said: str) -> Exception:
    """The error where a choice means no value node; ``said`` is what may explain it."""
    if vertices == "marked":
        return complain(
            ValueError,
            "vertices='marked', but no marked function lies between a parameter and the output, so "
            f"there is no value node.{said}",
            remedy="Mark the functions whose results should be value nodes with dendrax.vertex, or "
            "use vertices='layer'.",
        )
    if callable(vertices):
        return complain(
            ValueError,
            f"the function vertices={_title(vertices)} picked no value node; the output, which is "
            "clamped, is none.",
            remedy="Let it return some of graph.active, or use vertices='layer'.",
        )
    names = tuple(asked if isinstance(asked, str) else asked.__name__ for asked in vertices)
    return complain(
        ValueError,
        f"no result of the modules {', '.join(names)} lies between a parameter and the output, so "
        f"there is no value node.{said}",
        remedy="Name other modules, or use vertices='layer'. A graph knows the modules that it "
        f"was traced for: dendrax.trace(..., vertices={names}).",
    )


def _title(choose: Any) -> str:
    return getattr(choose, "__name__", type(choose).__name__)
