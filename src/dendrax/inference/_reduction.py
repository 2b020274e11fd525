"""Is a loss a sum over the samples? Only where that is certain.

A mean divides by the number of samples. So two traces of the function are compared, of which one
has a sample more: if any number in the program differs between them, or a number may be the inverse
of the size, or anything but numbers scales what is summed, then it may be a mean.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import Any

import numpy as np

from dendrax import _compat
from dendrax.graph import Graph, Port, Scan, Vertex
from dendrax.local import Constant, Equation

_HANDED_ON = ("neg", "convert_element_type", "squeeze", "reshape", "copy", "broadcast_in_dim")
_ADDED = ("add", "sub", "add_any")
_SUMS = ("reduce_sum", "dot_general")
_WEIGHING = ("div", "exp", "exp2", "logistic", "rsqrt")  # what may make weights that add up to one


def sums_samples(graph: Graph, again: Graph, nodes: Collection[Port], size: int) -> bool:
    """Whether the loss certainly is a sum over so many samples; ``again`` has one more."""
    own = [v for v in graph.vertices if v.function is not None]
    others = [v for v in again.vertices if v.function is not None]
    if [v.name for v in own] != [v.name for v in others]:
        return False
    pairs = zip(own, others, strict=True)
    if not all(_same_numbers(one, other) for one, other in pairs):
        return False
    if _small(graph) != _small(again):
        return False
    grown = {
        Port(one.index, o)
        for one, other in zip(own, others, strict=True)
        for o, (a, b) in enumerate(zip(one.outputs, other.outputs, strict=False))
        if a.shape != b.shape
    }
    roots = [port for port, root in zip(graph.outputs, graph.roots, strict=True) if root]
    walk = _Walk(graph, grown, set(nodes), size)
    return len(roots) == 1 and walk.is_sum(roots[0], 1.0)


class _Walk:
    def __init__(self, graph: Graph, grown: set[Port], nodes: set[Port], size: int):
        self.graph, self.grown, self.nodes, self.size = graph, grown, nodes, size

    def is_sum(self, port: Port, factor: float) -> bool:
        """Whether a value that has no axis of samples is certainly a sum over them, times at least
        ``factor``."""
        v = self.graph[port.vertex]
        if not isinstance(v.function, Equation) or port in self.nodes:
            return False
        name = v.function.primitive
        if any(source in self.grown for source in v.inputs):
            return name in _SUMS and self._is_whole(v, factor)
        if name in _ADDED:
            return any(self.is_sum(source, factor) for source in v.inputs)
        if name in ("mul", "div") and (scale := _scale(v)) is not None:
            return self.is_sum(v.inputs[0], factor * scale)
        handed_on = name in _HANDED_ON or name == "reduce_sum"
        return handed_on and len(v.inputs) == 1 and self.is_sum(v.inputs[0], factor)

    def _is_whole(self, v: Vertex, factor: float) -> bool:
        """Whether each sample counts in full in what is summed: down to the value nodes there are
        no small numbers, and no weights that may add up to one."""
        todo, seen = [v], {v.index}
        while todo:
            v = todo.pop()
            name = operation_of(v)
            if name in ("mul", "div"):
                scale = _scale(v)
                factor *= 1.0 if scale is None else min(scale, 1.0)
            if name in ("mul", "div", "dot_general") and any(map(self._may_weigh, v.inputs)):
                return False
            for port in v.inputs:
                if port in self.grown and port not in self.nodes and port.vertex not in seen:
                    seen.add(port.vertex)
                    todo.append(self.graph[port.vertex])
        return factor > 1.01 / self.size

    def _may_weigh(self, port: Port) -> bool:
        """Whether a factor is made of data, and one number for each sample."""
        todo, seen = [port], {port}
        while todo:
            at = todo.pop()
            v = self.graph[at.vertex]
            if self.graph.carries(at):
                continue
            aval, name = v.outputs[at.output], operation_of(v)
            is_number = np.issubdtype(aval.dtype, np.inexact)
            if is_number and (aval.size == self.size or name in _WEIGHING or "reduce" in name):
                return True
            fresh = [p for p in v.inputs if p not in seen]
            seen.update(fresh)
            todo += fresh
        return False


def operation_of(v: Vertex) -> str:
    """The primitive operation of a vertex, if it is one."""
    return v.function.primitive if isinstance(v.function, Equation) else ""


def _scale(v: Vertex) -> float | None:
    """The number that an equation multiplies its one input by; ``None`` if it is not known."""
    function = v.function
    if len(v.inputs) != 1 or not isinstance(function, Equation):
        return None
    (eqn,) = function.jaxpr.eqns
    numbers = [abs(float(x.val)) for x in eqn.invars if _is_number(x)]
    if len(numbers) != 1 or not numbers[0]:
        return None
    if function.primitive == "mul":
        return numbers[0]
    return None if _is_number(eqn.invars[0]) else 1 / numbers[0]


def _is_number(atom: Any) -> bool:
    return isinstance(atom, _compat.Literal) and np.ndim(atom.val) == 0


def _same_numbers(one: Vertex, other: Vertex) -> bool:
    """Whether the same numbers are written in two operations."""
    return list(_numbers(one.function)) == list(_numbers(other.function))


def _numbers(function: Any) -> Iterator[Any]:
    if isinstance(function, Constant):
        yield _as_number(function.value)
    elif isinstance(function, Equation):
        yield from _numbers_in(function.jaxpr.jaxpr)
    elif isinstance(function, Scan) or hasattr(function, "body"):
        for v in function.body.vertices:
            yield from _numbers(v.function)


def _numbers_in(jaxpr: Any) -> Iterator[Any]:
    for eqn in jaxpr.eqns:
        yield from (_as_number(x.val) for x in eqn.invars if isinstance(x, _compat.Literal))
        for value in eqn.params.values():
            for inner in value if isinstance(value, (tuple, list)) else (value,):
                inner = getattr(inner, "jaxpr", inner)
                if hasattr(inner, "eqns"):
                    yield from _numbers_in(inner)


def _as_number(value: Any) -> Any:
    return str(value) if np.ndim(value) == 0 else np.shape(value)


def _small(graph: Graph) -> list[Any]:
    """The numbers among the constants of a program."""
    constants = () if graph.call is None else graph.call.constants
    values = [c for c in constants if np.size(c) == 1 and not _compat.is_tracer(c)]
    return [_as_number(np.asarray(c).reshape(())) for c in values if _is_plain(c)]


def _is_plain(value: Any) -> bool:
    return np.issubdtype(np.asarray(value).dtype, np.number) if _has_dtype(value) else False


def _has_dtype(value: Any) -> bool:
    return isinstance(getattr(value, "dtype", None), np.dtype)
