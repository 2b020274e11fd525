"""What a loss over samples does to the energies of value nodes: each sample has its own."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from dendrax.graph import Port
from dendrax.inference._energy import Energy
from dendrax.inference._samples import Samples, is_shared, samples_of
from dendrax.inference._view import View
from dendrax.support import BATCH_LOSSES, complain, one_of, warn


def over_samples(
    rule: Any, view: View, chosen: Mapping[Port, Energy], pieces: int = 1
) -> Mapping[Port, Energy]:
    """The energies of value nodes where the loss is a mean over a batch. The view may see only one
    of several ``pieces`` of it.

    Each sample has its own full energy; what all samples share has one.
    """
    name, batch = type(rule).__name__, rule.batch
    check_batch(name, batch)
    if batch == "sum" or not chosen:
        return chosen
    found = samples_of(rule, view)
    if found.is_sum:
        warn(
            f"{name}: the loss adds up {found.size} samples and divides by nothing, but "
            f"batch={batch!r} takes it for their mean, so that it pulls {found.size} times as "
            "hard as meant. Say batch='sum', or take the mean."
        )
    if batch == "mean":
        if found.problem:
            raise _ask(name, found)
        size = 1 if found.size is None else max(found.size * pieces, 1)  # may be empty
    else:
        size = batch
        _compare(name, batch, found, pieces)
    own = _own(view, found, size)
    return {port: energy.over(size) if port in own else energy for port, energy in chosen.items()}


def check_batch(rule: str, batch: Any) -> None:
    """A batch is ``"mean"``, ``"sum"`` or a size."""
    if batch is None:
        raise complain(
            ValueError,
            f"{rule}: batch=None is not known any more.",
            remedy="It meant a loss that is a sum over samples: batch='sum'. A mean is "
            "batch='mean', the default.",
        )
    if isinstance(batch, bool) or not isinstance(batch, int):
        one_of(f"{rule}: batch", batch, BATCH_LOSSES)
    elif batch < 1:
        raise complain(ValueError, f"{rule}: batch={batch} is not the size of a batch.")


def _own(view: View, found: Samples, size: int) -> set[Port]:
    """The value nodes of which each sample has a part of its own."""
    if found.size is not None:
        return {port for port, axis in found.of(view).items() if axis is not None}
    # Without an axis that is known, a free argument without one of this size is theirs together.
    alone = {port for port in view.free if size not in view.aval(port).shape}
    return {p for p in view.nodes if p not in alone and not is_shared(view, view.vertex(p))}


def _ask(rule: str, found: Samples) -> Exception:
    return complain(
        ValueError,
        f"{rule}: batch='mean' takes the loss for a mean over samples, but how many there are "
        f"cannot be told: {found.problem}.",
        remedy="Give the number of samples yourself: batch=32, batch=1 for one sample, or "
        "batch='sum' for a loss that is their sum.",
    )


def _compare(rule: str, batch: int, found: Samples, pieces: int) -> None:
    """Warn of a number of samples that is another than there are. Of sequences someone may count
    the tokens."""
    if found.size is None:
        return
    size = max(found.size * pieces, 1)
    counts_parts = batch % size == 0 and batch // size in found.factors
    if batch != size and not counts_parts:
        warn(
            f"{rule}: batch={batch}, but there are {size} samples. Leave batch out for a loss that "
            f"is their mean, or say batch={size}; batch='sum' if it is their sum."
        )
