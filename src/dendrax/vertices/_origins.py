"""What values are made of: numbers, constants, parameters, or data that have gone through these."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from dendrax.graph import Graph, Port, Vertex, is_marked, is_stacked
from dendrax.local import Equation

CONTRACTIONS = ("dot_general", "conv_general_dilated")
SUMS = ("add", "sub", "add_any")
PRODUCTS = ("mul", "div")
ELEMENTWISE = (*SUMS, *PRODUCTS, "max", "min", "pow", "atan2", "select_n")
STRUCTURAL = (
    "reshape",
    "transpose",
    "squeeze",
    "expand_dims",
    "broadcast_in_dim",
    "convert_element_type",
    "reduce_precision",
    "copy",
    "neg",
    "sharding_constraint",
)

# A "number" is a scalar, or one spread over an array; a "parameter" may have been reshaped, cast or
# normalised; a "product" is made of parameters by a layer; and whatever data have gone into is a
# "signal".
Origin = Literal["number", "constant", "parameter", "product", "signal"]


def active_ports(graph: Graph) -> list[Port]:
    """The ports that have an error, in program order."""
    return [Port(v.index, o) for v in graph.active for o in graph.flow.emitted[v.index]]


def operation(v: Vertex) -> str:
    """The name of a vertex's primitive operation."""
    return v.function.primitive if isinstance(v.function, Equation) else v.name


def has_nodes(v: Vertex) -> bool:
    """Whether a vertex is marked, or is a loop with value nodes inside."""
    return is_marked(v) or is_stacked(v)


def uses_weight(given: Sequence[Origin]) -> bool:
    """Whether a contraction is a layer's: with a parameter, or with a weight made of some."""
    return "parameter" in given or ("product" in given and "signal" in given)


def origins(graph: Graph) -> dict[Port, Origin]:
    """What each value of a graph is made of."""
    found: dict[Port, Origin] = {}
    all_scalar = all(v.shape == () for v in graph.active)
    for v in graph.vertices:
        given: list[Origin] = [found[port] for port in v.inputs]
        shapes = [graph[port.vertex].outputs[port.output].shape for port in v.inputs]
        if _is_normed(v, given, shapes):
            given = ["parameter"]
        origin = _origin(v, given, all_scalar)
        found.update((Port(v.index, o), origin) for o in range(len(v.outputs)))
    return found


def _is_normed(v: Vertex, given: Sequence[Origin], shapes: Sequence[tuple[int, ...]]) -> bool:
    """Whether a parameter is only divided by a number, which data or states may have made."""
    others = [shape for shape, origin in zip(shapes, given, strict=True) if origin != "parameter"]
    scales = operation(v) in PRODUCTS and "parameter" in given and bool(v.shape)
    return scales and all(shape == () for shape in others)


def _origin(v: Vertex, given: Sequence[Origin], all_scalar: bool) -> Origin:
    if v.function is None:
        if v.kind == "parameter":
            return "parameter"
        return "signal" if v.shape or all_scalar else "number"
    if "signal" in given or has_nodes(v):
        return "signal"
    contracts = operation(v) in CONTRACTIONS and uses_weight(given)
    if contracts and ("constant" in given or "number" in given):
        return "signal"
    if contracts or "product" in given:
        return "product"
    if "parameter" in given:
        return "parameter"
    spreads = operation(v) in (*ELEMENTWISE, *STRUCTURAL)
    scalar = all(not aval.shape for aval in v.outputs)
    return "number" if scalar or (spreads and "constant" not in given) else "constant"


def scalar_tail(graph: Graph) -> set[int]:
    """The vertices from which only scalars lead to the output: sums of losses and penalties."""
    inner = {v.index for v in graph.active}
    if all(v.shape == () for v in graph.active):
        return set()
    tail: set[int] = set()
    for v in reversed(graph.active):
        users = [user.index for user in graph.users(v) if user.index in inner]
        if all(aval.shape == () for aval in v.outputs) and tail.issuperset(users):
            tail.add(v.index)
    return tail
