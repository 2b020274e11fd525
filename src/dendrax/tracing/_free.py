"""Free arguments: what relaxes together with the value nodes."""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, NamedTuple

from dendrax import _compat
from dendrax.graph import Graph
from dendrax.local import is_inexact
from dendrax.support import complain, counted, matching, nearest

if TYPE_CHECKING:
    from dendrax.tracing._arguments import Arguments


Where = int | str | Callable[[Any], Any] | None


class Relaxing(NamedTuple):
    """What a user names as free: ``words`` are positions, counted from 0, and names. ``ties`` are
    those that an output predicts, and which."""

    words: tuple[int | str, ...] = ()
    ties: Mapping[int | str, Where] = {}


def relaxing(free: Any, tie: Any, titles: Sequence[str]) -> Relaxing:
    """What is free, also because it is tied; ``titles`` are the names of the arguments."""
    is_one = isinstance(free, str) or not isinstance(free, Sequence)
    given = [free] if is_one and free is not None else free or []
    words = [_resolved("free", word, titles) for word in given]
    ties = {_resolved("tie", word, titles): where for word, where in _tied(tie).items()}
    return Relaxing((*words, *ties), ties)


def _tied(tie: Any) -> Mapping[Any, Where]:
    if tie is None:
        return {}
    if isinstance(tie, Mapping):
        return tie
    if isinstance(tie, (str, int)):
        return {tie: None}
    raise complain(
        TypeError,
        f"tie={tie!r} is neither an argument nor a dictionary.",
        remedy='Write tie="h" if the whole result predicts h, or tie={"h": "key of the result"}.',
    )


def _resolved(setting: str, word: Any, titles: Sequence[str]) -> int | str:
    """A word for an argument, or a part of one: checked, and positions counted from 0."""
    if isinstance(word, str):
        if not any(_may_be_in(word, title) for title in titles):
            raise complain(
                ValueError,
                f"{setting}={word!r} names no argument.{nearest(word, titles)}",
                remedy=f"The arguments are {', '.join(titles) or 'none'}.",
            )
        return word
    try:
        if isinstance(word, bool):
            raise TypeError
        position = operator.index(word)
    except TypeError:
        raise complain(
            TypeError,
            f"{setting}={word!r} is neither a position nor a name.",
            remedy="Count the arguments from 0 (free=1), or name them or a part of one "
            '(free="z", free="batch[\'image\']").',
        ) from None
    if not -len(titles) <= position < len(titles):
        raise complain(
            ValueError,
            f"{setting}={position}, but the function was called with "
            f"{counted(len(titles), 'argument')}.",
            remedy="Only positional arguments can be free.",
        )
    return position % len(titles)


def _may_be_in(word: str, title: str) -> bool:
    return "*" in word or word == title or word.startswith((f"{title}[", f"{title}."))


def positions_of(relaxing: Relaxing, titles: Sequence[str]) -> set[int]:
    """The arguments in which something is free."""
    found = {word for word in relaxing.words if isinstance(word, int)}
    names = [word for word in relaxing.words if isinstance(word, str)]
    return found | {
        i for i, title in enumerate(titles) if any(_may_be_in(word, title) for word in names)
    }


def with_free(arguments: Arguments, relaxing: Relaxing, *, differentiated: bool) -> Arguments:
    """The arguments, with the leaves marked that are free. These are no parameters: if parameters
    are ``differentiated``, that is a mistake."""
    if not relaxing.words:
        return arguments
    flags = [False] * len(arguments.leaves)
    for word in relaxing.words:
        for k in leaves_of(arguments, word):
            flags[k] = True
    rows = zip(arguments.leaves, arguments.names, arguments.parameter, flags, strict=True)
    for leaf, name, parameter, flag in rows:
        if flag:
            _check_free(leaf, name, parameter and differentiated)
    learns = [old and not flag for old, flag in zip(arguments.parameter, flags, strict=True)]
    traced = [old or flag for old, flag in zip(arguments.traced, flags, strict=True)]
    return replace(arguments, free=flags, traced=traced, parameter=learns, ties=relaxing.ties)


def leaves_of(arguments: Arguments, word: int | str) -> list[int]:
    """The leaves that a word names."""
    if isinstance(word, int):
        return [k for k, position in enumerate(arguments.positions) if position == word]
    meant = set(matching(word, arguments.names))
    found = [k for k, name in enumerate(arguments.names) if name in meant]
    if not found:
        raise complain(
            ValueError,
            f"{word!r} names no part of an argument.{nearest(word, arguments.names)}",
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
