"""What a user says holds a network -> the `Clamp` that does."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp

from dendrax.graph import Graph
from dendrax.inference._clamp import Clamp, Free, Hold, Pull
from dendrax.inference._held import HeldValue, checked_mapping, held_value
from dendrax.support import complain


def flat_target(graph: Graph, target: Any) -> list[Any] | None:
    """The leaves of a target, which is a tree like the function's result; ``None`` at a place says
    that this output has none."""
    if target is None:
        return None
    leaves, tree = jax.tree.flatten(target)
    expected = graph.call.out_tree
    if tree == expected:
        return leaves
    leaves, tree = jax.tree.flatten(target, is_leaf=lambda part: part is None)
    if tree != expected:
        raise complain(
            ValueError,
            f"the target's tree {tree} is not that of the function's result {expected}.",
        )
    return leaves


def clamp_for(
    graph: Graph,
    target: Sequence[Any] | None,
    mask: Any = None,
    *,
    hold: Mapping[str, Any] | None = None,
    prior: Any = None,
    otherwise: type[Clamp] = Free,
) -> Clamp:
    """A target holds the outputs, where the mask is true; a scalar loss pulls with an error of 1;
    else nothing does."""
    avals = [graph[port.vertex].outputs[port.output] for port in graph.outputs]
    given = {"hold": checked_mapping("hold", hold), "prior": prior}
    if target is not None:
        targets = [_as_target(y, aval) for y, aval in zip(target, avals, strict=True)]
        for o in graph.ties.values():
            if targets[o] is not None:
                raise complain(
                    ValueError,
                    "an output has a target and is tied to an argument, too.",
                    remedy="Hold the argument: hold={'its name': (value, mask)}.",
                )
        if mask is None:
            return Hold(targets, **given)
        masked = _with_masks(graph, targets, mask)
        return Hold([b and b.value for b in masked], [b and b.mask for b in masked], **given)
    if mask is not None:
        raise complain(
            ValueError,
            "there is a mask, but no target that it is for.",
            remedy="Give both; to hold a part of a value node, hold={name: (value, mask)}.",
        )
    is_loss = len(avals) == 1 and avals[0].shape == () and not graph.ties
    if is_loss and jnp.issubdtype(avals[0].dtype, jnp.floating):
        return Pull([1.0], **given)
    return otherwise(**given)


def _with_masks(graph: Graph, targets: Sequence[Any], mask: Any) -> list[HeldValue | None]:
    """What each output is held at, and where."""
    masks = jax.tree.leaves(mask, is_leaf=lambda part: part is None)
    if len(masks) != len(targets):
        raise complain(
            ValueError,
            f"there are {len(masks)} masks for {len(targets)} outputs.",
            remedy="Give a mask of the form of the target.",
        )
    found: list[HeldValue | None] = []
    for at, target, own in zip(graph.outputs, targets, masks, strict=True):
        aval = graph[at.vertex].outputs[at.output]
        found.append(None if target is None else held_value("the output", (target, own), aval))
    return found


def _as_target(y: Any, aval: Any) -> Any:
    if y is None:
        return None
    y = jnp.asarray(y, aval.dtype)
    if y.shape != aval.shape:
        raise complain(
            ValueError,
            f"the target has shape {y.shape}, but the function returns shape {aval.shape}.",
            remedy="Give a target for each output, of the same shape.",
        )
    return y
