"""How many samples a value node holds, where the loss is a mean over them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from dendrax.graph import Port, Vertex
from dendrax.inference._energy import Energy
from dendrax.inference._network import View
from dendrax.support import BATCH_LOSSES, complain, one_of


def over_samples(
    rule: Any, view: View, chosen: Mapping[Port, Energy], pieces: int = 1
) -> Mapping[Port, Energy]:
    """The energies of value nodes where the loss is a mean over a batch. The view may see only one
    of several ``pieces`` of it.

    Each sample has its own full energy; what all samples share has one.
    """
    check_batch(type(rule).__name__, rule.batch)
    if rule.batch is None:
        return chosen
    own = [port for port in chosen if not is_shared(view, view.vertex(port))]
    seen = _batch_size(rule, view, own) if own and rule.batch == "mean" else 1
    size = rule.batch if isinstance(rule.batch, int) else max(seen * pieces, 1)  # may be empty
    # A free argument without the axis of the samples is theirs together.
    alone = {port for port in view.free if size not in view.aval(port).shape}
    own = [port for port in own if port not in alone]
    return {port: energy.over(size) if port in own else energy for port, energy in chosen.items()}


def check_batch(rule: str, batch: Any) -> None:
    """A batch is ``None``, ``"mean"`` or a size."""
    if isinstance(batch, bool) or not isinstance(batch, int):
        one_of(f"{rule}: batch", batch, (None, *BATCH_LOSSES))
    elif batch < 1:
        raise complain(ValueError, f"{rule}: batch={batch} is not the size of a batch.")


def is_shared(view: View, vertex: Vertex) -> bool:
    """Whether all samples share a value node: it is made of parameters alone."""
    graph, todo, seen = view.shown, [vertex], set()
    while todo:
        v = todo.pop()
        if v.kind != "parameter" and not v.inputs and v.shape:
            return False
        fresh = [source for source in graph.inputs(v) if source.index not in seen]
        seen.update(source.index for source in fresh)
        todo += fresh
    return True


def _batch_size(rule: Any, view: View, nodes: Sequence[Port]) -> int:
    """The size of the axis that all value nodes share; the data tell it from the others.

    A vectorised layer may leave the batch at another axis than the first.
    """
    shapes = [view.aval(port).shape[len(view.loops(port)) :] for port in nodes]
    common = set.intersection(*map(set, shapes))
    leaves = (*view.graph.data, *view.graph.free)
    data = [leaf.shape for leaf in leaves if leaf.shape]
    first, every = {shape[0] for shape in data}, {size for shape in data for size in shape}
    for found in (common & first, common & every, common):
        if len(found) == 1:
            return min(found)
        if found:
            break
    listed = ", ".join(str(shape) for shape in dict.fromkeys(shapes))
    raise complain(
        ValueError,
        f"{type(rule).__name__}: batch='mean' needs one axis that the data and all value nodes "
        f"share, but the shapes of these are {listed}, and the size could be any of "
        f"{sorted(found) or 'none'}.",
        remedy="Give the size of the batch yourself: batch=32 in place of batch='mean'.",
    )
