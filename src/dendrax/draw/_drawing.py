"""A graph in levels: a `Plan` and places enter, a `Scene` leaves."""

from __future__ import annotations

from dataclasses import dataclass

from dendrax.draw._layout import Block, Link, place
from dendrax.draw._plan import Connection, Plan
from dendrax.draw._scene import (
    STYLES,
    WIRE,
    Band,
    Label,
    Node,
    Scene,
    Shape,
    Wire,
    curve,
    straight,
)
from dendrax.draw._structure import type_text

ROW, BOX, GAP, LETTER, MARGIN = 52.0, 24.0, 14.0, 5.7, 40.0
DELAY = (22.0, 15.0)  # width and height of an identity vertex

Point = tuple[float, float]


@dataclass(frozen=True)
class Places:
    """Where things are: vertices, the delays of each connection, and its line, upwards."""

    vertices: dict[int, Point]
    delays: dict[Connection, tuple[Point, ...]]
    lines: dict[Connection, tuple[Point, ...]]
    width: float


def width_of(text: str) -> float:
    """The width of a vertex with this text."""
    return max(30.0, len(text) * LETTER + 14)


def middle_of(row: float) -> float:
    """The height at which a row stands."""
    return (row + 0.5) * ROW


def own_places(plan: Plan) -> Places:
    """Places by our own layout, which needs no binary."""
    blocks = [Block(s.row, s.row, width_of(s.text)) for s in plan.seen.values()]
    at = {index: b for b, index in enumerate(plan.seen)}
    links: list[Link] = []
    passing: dict[Connection, int] = {}
    for c in plan.connections:
        upper, lower = plan.seen[c.user].row, plan.seen[c.source].row
        if lower - upper < 2:
            links.append(Link(at[c.user], at[c.source]))
            continue
        passing[c] = len(blocks)
        links += [Link(at[c.user], len(blocks)), Link(len(blocks), at[c.source])]
        wide = DELAY[0] + (18.0 if plan.collapsed else 0.0)
        blocks.append(Block(upper + 1, lower - 1, wide if c.delay else 6.0))
    x = place(blocks, links, GAP)
    vertices = {
        i: (MARGIN + x[b], middle_of(s.row))
        for (i, s), b in zip(plan.seen.items(), range(len(at)), strict=True)
    }
    lines, delays = {}, {}
    for c in plan.connections:
        across = MARGIN + x[passing[c]] if c in passing else None
        lines[c] = _line(plan, vertices, c, across)
        if c.delay and across is not None:
            first = plan.seen[c.source].row - 1
            rows = (
                [first - (c.delay - 1) / 2] if plan.collapsed else range(first, first - c.delay, -1)
            )
            delays[c] = tuple((across, middle_of(row)) for row in rows)
    width = max((MARGIN + x[b] + block.width / 2 for b, block in enumerate(blocks)), default=0)
    return Places(vertices, delays, lines, width + 16)


def _line(
    plan: Plan, vertices: dict[int, Point], c: Connection, across: float | None
) -> tuple[Point, ...]:
    """From the top of the source to the bottom of its user, past other rows at ``across``."""
    (x0, y0), (x1, y1) = vertices[c.source], vertices[c.user]
    start, end = (x0, y0 - BOX / 2), (x1, y1 + BOX / 2)
    if across is None:
        return (start, *curve(start, end))
    low = (across, middle_of(plan.seen[c.source].row - 1))
    high = (across, middle_of(plan.seen[c.user].row + 1))
    return (start, *curve(start, low), *straight(low, high), *curve(high, end))


def drawn(plan: Plan, places: Places, *, shapes: bool) -> Scene:
    """The picture: rows, wires, vertices, words."""
    found: list[Shape] = []
    for row in range(plan.rows):
        if row % 2 == 0:
            found.append(Band(row * ROW, ROW))
        found.append(Label(8, middle_of(row) + 3, f"S{_subscript(row)}"))
    for c, line in places.lines.items():
        colour = STYLES["delay"].line if c.delay else WIRE
        found.append(Wire(line, colour, "arrow", dashed=c.silent))
    for c, points in places.delays.items():
        text = f"×{c.delay}" if len(points) < c.delay else ""
        size = (max(DELAY[0], width_of(text)) if text else DELAY[0], DELAY[1])
        title = f"{c.delay} delays" if text else "delay"
        found += [Node(x, y, *size, text, STYLES["delay"], title=title) for x, y in points]
    if shapes:
        # One for all lines that leave a vertex with the same shape: they begin at one place.
        lines = {(c.source, c.shape): line for c, line in places.lines.items()}
        found += [_shape_label(s, line) for (_, s), line in lines.items() if s != "scalar"]
    for index, s in plan.seen.items():
        x, y = places.vertices[index]
        title = "\n".join(filter(None, (s.vertex.name, type_text(s.vertex), s.vertex.source)))
        outline = "box" if s.vertex.kind == "internal" else "pill"
        found.append(Node(x, y, width_of(s.text), BOX, s.text, STYLES[s.style], outline, title))
    return Scene(max(places.width, 120.0), max(plan.rows, 1) * ROW, tuple(found))


def _shape_label(shape: str, line: tuple[Point, ...]) -> Label:
    """Where a line begins, on the side to which it goes."""
    (x, y), right = line[0], line[-1][0] >= line[0][0]
    return Label(x + (3 if right else -3), y - 3, shape, 7.5, anchor="start" if right else "end")


def _subscript(number: int) -> str:
    return str(number).translate(str.maketrans("0123456789", "₀₁₂₃₄₅₆₇₈₉"))
