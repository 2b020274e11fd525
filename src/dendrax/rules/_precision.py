"""How much the internal errors weigh against the loss: a precision, or whole energies."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from dendrax.graph import Vertex
from dendrax.inference import check_batch, frozen_energies, said_by
from dendrax.rules._base import check_positive
from dendrax.support import ON_DIVERGENCE, complain, one_of

Precision = float | Callable[[Vertex], Any]


def check_energies(rule: Any) -> None:
    """A precision is a positive number or a function, and stands for Gaussian energies; a batch is
    ``"mean"``, ``"sum"`` or a size."""
    name = type(rule).__name__
    if not callable(rule.precision):
        remedy = "Larger than 1 brings IL nearer to backpropagation, smaller takes it further away."
        check_positive(f"{name}: precision", rule.precision, remedy)
    if said_by(rule) is not None and (callable(rule.precision) or rule.precision != 1):
        raise complain(
            ValueError,
            f"{name}: both precision and energies are given.",
            remedy="A precision is short for energies: write energies=dendrax.Gaussian("
            "precision), or leave energies out.",
        )
    if rule.energies is not None:
        object.__setattr__(rule, "energies", frozen_energies(name, rule.energies))
    check_batch(name, rule.batch)
    one_of(f"{name}: on_divergence", rule.on_divergence, ON_DIVERGENCE)
