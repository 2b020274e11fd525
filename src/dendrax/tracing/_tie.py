"""Ties: which output of a function predicts which of its free arguments. They make cycles."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import jax

from dendrax.graph import Graph
from dendrax.support import complain
from dendrax.tracing._free import Where, leaves_of

if TYPE_CHECKING:
    from dendrax.tracing._arguments import Arguments


def ties_of(arguments: Arguments, out_tree: Any, graph: Graph) -> dict[int, int]:
    """Which output predicts which leaf of the graph; both are counted."""
    offset = len(graph.leaves) - sum(arguments.traced)
    place = {k: offset + sum(arguments.traced[:k]) for k in range(len(arguments.leaves))}
    results = jax.tree.unflatten(out_tree, range(out_tree.num_leaves))
    found: dict[int, int] = {}
    for word, where in arguments.ties.items():
        leaves = leaves_of(arguments, word)
        outputs = jax.tree.leaves(_picked(results, where, word))
        if len(leaves) != len(outputs):
            raise complain(
                ValueError,
                f"tie={{{word!r}: ...}} has {len(leaves)} arrays in the argument and "
                f"{len(outputs)} in the output.",
                remedy="Tie an argument to an output of the same tree.",
            )
        for k, o in zip(leaves, outputs, strict=True):
            _check_tie(graph, place[k], o)
            found[place[k]] = o
    return found


def _picked(results: Any, where: Where, word: Any) -> Any:
    if where is None:
        return results
    try:
        return where(results) if callable(where) else results[where]
    except (TypeError, KeyError, IndexError, AttributeError) as problem:
        raise complain(
            ValueError,
            f"tie={{{word!r}: {where!r}}} finds nothing in the function's result: {problem}.",
            remedy="Give the position or the key of a part of the result, or a function that "
            "picks it: tie={'h': lambda result: result['h']}.",
        ) from None


def _check_tie(graph: Graph, leaf: int, o: Any) -> None:
    if not isinstance(o, int) or not 0 <= o < len(graph.outputs):
        raise complain(
            ValueError,
            f"a tie picks {o!r}, which is no part of the result.",
            remedy="Let it pick a part: tie={'h': lambda result: result['h']}.",
        )
    port, given = graph.outputs[o], graph[graph.leaves[leaf]]
    aval = graph[port.vertex].outputs[port.output]
    if (aval.shape, aval.dtype) != (given.shape, given.dtype):
        raise complain(
            ValueError,
            f"{given.name} is tied to an output of type {aval.dtype} and shape {aval.shape}, but "
            f"it has type {given.dtype} and shape {given.shape}.",
            remedy="An output that predicts an argument has its type and shape.",
        )
