"""How much the internal errors weigh against the loss: π in ``F = L + 1/2 Σ π ε²``."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from dendrax._errors import complain, one_of
from dendrax._graph import Port, Vertex
from dendrax._network import Network
from dendrax.rules._base import check_positive

Precision = float | Callable[[Vertex], float]


def check_precision(rule: str, precision: Any, batch: Any) -> None:
    """A precision is a positive number or a function, a batch ``None`` or ``"mean"``."""
    if not callable(precision):
        remedy = "Larger than 1 brings IL nearer to backpropagation, smaller takes it further away."
        check_positive(f"{rule}: precision", precision, remedy)
    one_of(f"{rule}: batch", batch, (None, "mean"))


def precisions(
    rule: str, precision: Precision, batch: str | None, net: Network
) -> Mapping[Port, float]:
    """π of each value node."""
    share = 1 / batch_size(rule, net) if batch == "mean" and net.wiring.nodes else 1
    if not callable(precision):
        return dict.fromkeys(net.wiring.nodes, precision * share)
    found = {port: precision(net.wiring.vertex(port)) for port in net.wiring.nodes}
    for port, value in found.items():
        name = net.wiring.vertex(port).name
        check_positive(f"{rule}: precision of {name}", value, "Return a number for each vertex.")
    return {port: float(value) * share for port, value in found.items()}


def batch_size(rule: str, net: Network) -> int:
    """The size of the axis that all value nodes share: the first of each, or the only common one.

    A vectorised layer may leave the batch at another axis than the first.
    """
    shapes = [net.forward[port].shape for port in net.wiring.nodes]
    first = {shape[0] if shape else None for shape in shapes}
    common = first if len(first) == 1 else set.intersection(*map(set, shapes))
    if len(common) != 1 or None in common:
        found = ", ".join(str(shape) for shape in dict.fromkeys(shapes))
        raise complain(
            ValueError,
            f"{rule}: batch='mean' needs one axis that all value nodes share, but their shapes "
            f"are {found}.",
            remedy="Give the size of the batch yourself: precision=1/B instead of batch='mean'.",
        )
    return next(size for size in common if size is not None)
