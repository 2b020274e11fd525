"""How much the internal errors weigh against the loss: π in ``F = L + 1/2 Σ π ε²``."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from dendrax.graph import Port, Vertex
from dendrax.inference import Network
from dendrax.rules._base import check_positive
from dendrax.support import BATCH_LOSSES, BatchLoss, complain, one_of

Precision = float | Callable[[Vertex], float]


def check_precision(rule: str, precision: Any, batch: Any) -> None:
    """A precision is a positive number or a function, a batch ``None``, ``"mean"`` or a size."""
    if not callable(precision):
        remedy = "Larger than 1 brings IL nearer to backpropagation, smaller takes it further away."
        check_positive(f"{rule}: precision", precision, remedy)
    if isinstance(batch, bool) or not isinstance(batch, int):
        one_of(f"{rule}: batch", batch, (None, *BATCH_LOSSES))
    elif batch < 1:
        raise complain(ValueError, f"{rule}: batch={batch} is not the size of a batch.")


def precisions(
    rule: str, precision: Precision, batch: BatchLoss | int | None, net: Network, pieces: int = 1
) -> Mapping[Port, float]:
    """π of each value node. The network may see only one of several ``pieces`` of the batch."""
    chosen = {
        port: _precision(rule, precision, net.wiring.vertex(port)) for port in net.wiring.nodes
    }
    if batch is None:
        return chosen
    own = [port for port in chosen if not is_shared(net, net.wiring.vertex(port))]
    seen = batch_size(rule, net, own) if own and batch == "mean" else 1
    size = batch if isinstance(batch, int) else max(seen * pieces, 1)  # a batch may be empty
    return {port: value / size if port in own else value for port, value in chosen.items()}


def _precision(rule: str, precision: Precision, vertex: Vertex) -> float:
    if not callable(precision):
        return precision
    value = precision(vertex)
    check_positive(f"{rule}: precision of {vertex.name}", value, "Return a number for each vertex.")
    return float(value)


def is_shared(net: Network, vertex: Vertex) -> bool:
    """Whether all samples share a value node: it is made of parameters alone."""
    graph, todo, seen = net.wiring.shown, [vertex], set()
    while todo:
        v = todo.pop()
        if v.kind != "parameter" and not v.inputs and v.shape:
            return False
        fresh = [source for source in graph.inputs(v) if source.index not in seen]
        seen.update(source.index for source in fresh)
        todo += fresh
    return True


def batch_size(rule: str, net: Network, nodes: Sequence[Port]) -> int:
    """The size of the axis that all value nodes share; the data tell it from the others.

    A vectorised layer may leave the batch at another axis than the first.
    """
    shapes = [net.forward[port].shape for port in nodes]
    common = set.intersection(*map(set, shapes))
    data = [leaf.shape for leaf in net.wiring.graph.data if leaf.shape]
    first, every = {shape[0] for shape in data}, {size for shape in data for size in shape}
    for found in (common & first, common & every, common):
        if len(found) == 1:
            return min(found)
        if found:
            break
    listed = ", ".join(str(shape) for shape in dict.fromkeys(shapes))
    raise complain(
        ValueError,
        f"{rule}: batch='mean' needs one axis that the data and all value nodes share, but the "
        f"shapes of these are {listed}, and the size could be any of {sorted(found) or 'none'}.",
        remedy="Give the size of the batch yourself: batch=32 in place of batch='mean'.",
    )
