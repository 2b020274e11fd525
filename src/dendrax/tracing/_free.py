"""Free arguments: what relaxes together with the value nodes, and which output predicts it."""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import jax

from dendrax import _compat
from dendrax.graph import Graph
from dendrax.local import is_inexact
from dendrax.support import complain, matching, nearest

if TYPE_CHECKING:
    from dendrax.tracing._arguments import Arguments


def free_words(free: Any) -> tuple[Any, ...]:
    """What a user names as free, or tied: positions and names, one or several."""
    if free is None:
        return ()
    is_one = isinstance(free, str) or not isinstance(free, (Sequence, Mapping))
    return (free,) if is_one else tuple(free)


def positions_of(free: Any, titles: Sequence[str]) -> list[int]:
    """The arguments in which something is free."""
    found: list[int] = []
    for word in free_words(free):
        if isinstance(word, str):
            inside = [i for i, title in enumerate(titles) if _may_be_in(word, title)]
            if not inside:
                raise complain(
                    ValueError,
                    f"free={word!r} names no argument.{nearest(word, titles)}",
                    remedy=f"The arguments are {', '.join(titles) or 'none'}.",
                )
            found += inside
        else:
            found.append(_position(word, len(titles)))
    return found


def _may_be_in(word: str, title: str) -> bool:
    return "*" in word or word == title or word.startswith((f"{title}[", f"{title}."))


def _position(word: Any, count: int) -> int:
    try:
        if isinstance(word, bool):
            raise TypeError
        position = operator.index(word)
    except TypeError:
        raise complain(
            TypeError,
            f"free={word!r} is neither a position nor a name.",
            remedy="Count the arguments from 0 (free=1), or name them or a part of one "
            '(free="z", free="batch[\'image\']").',
        ) from None
    if not -count <= position < count:
        raise complain(
            ValueError, f"free={position}, but the function was called with {count} arguments."
        )
    return position % count


def with_free(arguments: Arguments, free: Any, *, differentiated: bool) -> Arguments:
    """The arguments, with the leaves marked that are free. These are no parameters: if parameters
    are ``differentiated``, that is a mistake."""
    if not free_words(free):
        return arguments
    flags = [False] * len(arguments.leaves)
    for word in free_words(free):
        for k in _leaves_of(arguments, word):
            flags[k] = True
    rows = zip(arguments.leaves, arguments.names, arguments.parameter, flags, strict=True)
    for leaf, name, parameter, flag in rows:
        if flag:
            _check_free(leaf, name, parameter and differentiated)
    learns = [old and not flag for old, flag in zip(arguments.parameter, flags, strict=True)]
    traced = [old or flag for old, flag in zip(arguments.traced, flags, strict=True)]
    return replace(arguments, free=flags, traced=traced, parameter=learns)


def _leaves_of(arguments: Arguments, word: Any) -> list[int]:
    if not isinstance(word, str):
        count = 1 + max((p for p in arguments.positions if p is not None), default=-1)
        place = operator.index(word)
        place = place if place >= 0 else place + count
        return [k for k, position in enumerate(arguments.positions) if position == place]
    meant = set(matching(word, arguments.names))
    found = [k for k, name in enumerate(arguments.names) if name in meant]
    if not found:
        raise complain(
            ValueError,
            f"free={word!r} names no part of an argument.{nearest(word, arguments.names)}",
            remedy=f"There are: {', '.join(arguments.names[:8])}.",
        )
    return found


def _check_free(leaf: Any, name: str, parameter: bool) -> None:
    if parameter:
        raise complain(
            ValueError,
            f"argument {name} is both free and differentiated: where it has settled its gradient "
            "is zero.",
            remedy="Leave it out of free, or out of argnums.",
        )
    if not _compat.is_typed(leaf) or not is_inexact(_compat.aval_of(leaf)):
        kind = _compat.aval_of(leaf).dtype if _compat.is_typed(leaf) else type(leaf).__name__
        raise complain(
            TypeError,
            f"argument {name} is free, but {kind} cannot relax.",
            remedy="Convert it to a float, or name the part of the argument that is free.",
        )


def mark_free(graph: Graph, flags: Sequence[bool]) -> Graph:
    """The graph with its free leaves as such; an error has to reach them."""
    if not any(flags):
        return graph
    vertices = list(graph.vertices)
    for leaf, flag in zip(graph.leaves, flags, strict=True):
        if flag:
            vertices[leaf] = replace(vertices[leaf], kind="free")
            if not graph.flow.emitted[leaf]:
                raise complain(
                    ValueError,
                    f"argument {vertices[leaf].name} is free, but the output does not depend on "
                    "it, so that no error reaches it.",
                    remedy="Leave it out of free, or use it in the function.",
                )
    return replace(graph, vertices=tuple(vertices))


# ---- ties ----------------------------------------------------------------------------------------

Where = int | str | Callable[[Any], Any] | None


def _pairs(tie: Any) -> Mapping[Any, Where]:
    return tie if isinstance(tie, Mapping) else {tie: None}


def ties_of(tie: Any, arguments: Arguments, out_tree: Any, graph: Graph) -> dict[int, int]:
    """Which output predicts which leaf of the graph; both are counted."""
    if tie is None:
        return {}
    offset = len(graph.leaves) - sum(arguments.traced)
    place = {k: offset + sum(arguments.traced[:k]) for k in range(len(arguments.leaves))}
    results = jax.tree.unflatten(out_tree, range(out_tree.num_leaves))
    found: dict[int, int] = {}
    for word, where in _pairs(tie).items():
        leaves = _leaves_of(arguments, word)
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
        raise complain(ValueError, f"a tie picks {o!r}, which is no part of the result.")
    port, given = graph.outputs[o], graph[graph.leaves[leaf]]
    aval = graph[port.vertex].outputs[port.output]
    if (aval.shape, aval.dtype) != (given.shape, given.dtype):
        raise complain(
            ValueError,
            f"{given.name} is tied to an output of type {aval.dtype} and shape {aval.shape}, but "
            f"it has type {given.dtype} and shape {given.shape}.",
            remedy="An output that predicts an argument has its type and shape.",
        )
