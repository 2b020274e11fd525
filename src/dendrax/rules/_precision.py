"""How much the internal errors weigh against the loss: π in ``F = L + 1/2 Σ π ε²``."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from dendrax.graph import Vertex
from dendrax.inference import Energies, Gaussian, check_batch
from dendrax.rules._base import check_positive

Precision = float | Callable[[Vertex], float]


def check_precision(rule: str, precision: Any, batch: Any) -> None:
    """A precision is a positive number or a function, a batch ``None``, ``"mean"`` or a size."""
    if not callable(precision):
        remedy = "Larger than 1 brings IL nearer to backpropagation, smaller takes it further away."
        check_positive(f"{rule}: precision", precision, remedy)
    check_batch(rule, batch)


def gaussian(rule: str, precision: Precision) -> Energies:
    """The energies of these precisions."""
    if not callable(precision):
        return Gaussian(precision)

    def energy(vertex: Vertex) -> Gaussian:
        value = precision(vertex)
        remedy = "Return a number for each vertex."
        check_positive(f"{rule}: precision of {vertex.name}", value, remedy)
        return Gaussian(float(value))

    return energy
