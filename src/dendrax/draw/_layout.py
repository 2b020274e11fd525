"""Where things stand in a picture: rows are given (the levels), the columns are found here.

A `Block` is anything with a place of its own: a vertex in one row, or a wire that runs straight
through several. All blocks are sorted by where they would like to be, next to what they are linked
to, and then set down one after the other, as far left as the ones before allow; once more from the
right; and the mean of both is taken. (Two solutions in the same order have a mean that is one.)
No binary is needed. `dendrax.draw._dot` asks graphviz instead.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

SWEEPS = 40


class Block(NamedTuple):
    """What needs a place: its ``rows``, from the first to the last, and its ``width``."""

    first: int
    last: int
    width: float


class Link(NamedTuple):
    """Two blocks, the upper and the lower one, that want to stand below each other."""

    upper: int
    lower: int


def place(blocks: Sequence[Block], links: Iterable[Link], gap: float) -> list[float]:
    """The middle of each block; blocks that share a row stand at least ``gap`` apart."""
    above: list[list[int]] = [[] for _ in blocks]
    below: list[list[int]] = [[] for _ in blocks]
    for upper, lower in links:
        above[lower].append(upper)
        below[upper].append(lower)
    x = _start(blocks, below, gap)
    for sweep in range(SWEEPS):
        sides = (above, below) if sweep % 2 == 0 else (below, above)
        if sweep >= SWEEPS // 2:  # in the end both sides have a say
            sides = ([a + b for a, b in zip(above, below, strict=True)],) * 2
        x = _settle(blocks, _wishes(x, *sides), x, gap)
    left = min((value - block.width / 2 for value, block in zip(x, blocks, strict=True)), default=0)
    return [value - left for value in x]


def _start(blocks: Sequence[Block], below: Sequence[Sequence[int]], gap: float) -> list[float]:
    """Depth first from the top: what hangs together starts together."""
    order: dict[int, None] = {}
    for root in sorted(range(len(blocks)), key=lambda b: blocks[b].first):
        waiting = [root]
        while waiting:
            b = waiting.pop()
            if b not in order:
                order[b] = None
                waiting.extend(reversed(below[b]))
    return _pushed(blocks, list(order), [0.0] * len(blocks), gap)


def _wishes(
    x: Sequence[float], first: Sequence[Sequence[int]], second: Sequence[Sequence[int]]
) -> list[float]:
    """Half way to the mean of one's neighbours on one side, or else on the other.

    (All the way, two neighbours would change places for ever.)
    """
    wishes = []
    for b, here in enumerate(x):
        near = first[b] or second[b]
        wishes.append((here + sum(x[n] for n in near) / len(near)) / 2 if near else here)
    return wishes


def _settle(
    blocks: Sequence[Block], wishes: Sequence[float], x: Sequence[float], gap: float
) -> list[float]:
    order = sorted(range(len(blocks)), key=lambda b: (wishes[b], x[b]))
    right = _pushed(blocks, order, wishes, gap)
    mirrored = _pushed(blocks, order[::-1], [-wish for wish in wishes], gap)
    return [(a - b) / 2 for a, b in zip(right, mirrored, strict=True)]


def _pushed(
    blocks: Sequence[Block], order: Sequence[int], wishes: Sequence[float], gap: float
) -> list[float]:
    """In this order, each block where it wishes to be or as far right of that as it must."""
    x = [0.0] * len(blocks)
    edge: dict[int, float] = {}
    for b in order:
        first, last, width = blocks[b]
        rows = range(first, last + 1)
        free = max((edge[row] for row in rows if row in edge), default=None)
        wish = wishes[b]
        x[b] = wish if free is None else max(wish, free + gap + width / 2)
        for row in rows:
            edge[row] = x[b] + width / 2
    return x
