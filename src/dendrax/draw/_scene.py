"""A picture as a list of shapes, in points, y downwards; written as SVG here.

`dendrax.draw._paint` paints the same shapes as PNG and PDF.
"""

from __future__ import annotations

import html
from dataclasses import dataclass
from typing import Literal

Head = Literal["", "arrow", "bar"]  # excitatory ends in an arrow, inhibitory in a bar
Outline = Literal["box", "pill", "circle", "diamond"]

INK = "#1d2129"
QUIET = "#667080"
WIRE = "#8d96a3"


@dataclass(frozen=True)
class Style:
    """How a vertex looks: the colour of its outline and its filling."""

    line: str
    fill: str
    dashed: bool = False


# The paper's: leaves blue, internal vertices red, identity vertices green. A free leaf relaxes, as
# internal vertices do.
STYLES = {
    "parameter": Style("#2f6fd6", "#e6eefb"),
    "free": Style("#c93434", "#ffffff"),
    "data": Style("#7d8590", "#f1f2f4"),
    "internal": Style("#c93434", "#fbe9e8"),
    "delay": Style("#2a9147", "#e4f4e8"),
    "silent": Style("#9aa1ab", "#ffffff", dashed=True),
}


@dataclass(frozen=True)
class Node:
    """A vertex or a node of a circuit, around its middle, with a text inside."""

    x: float
    y: float
    width: float
    height: float
    text: str
    style: Style
    outline: Outline = "box"
    title: str = ""


@dataclass(frozen=True)
class Wire:
    """A line of cubic curves: a start, then for each curve two control points and its end."""

    points: tuple[tuple[float, float], ...]
    colour: str = WIRE
    head: Head = ""
    dashed: bool = False


@dataclass(frozen=True)
class Label:
    """A text; ``anchor`` is the place of ``x`` in it."""

    x: float
    y: float
    text: str
    size: float = 9.0
    colour: str = QUIET
    anchor: Literal["start", "middle", "end"] = "start"


@dataclass(frozen=True)
class Band:
    """The background of a row."""

    y: float
    height: float


Shape = Node | Wire | Label | Band


@dataclass(frozen=True)
class Scene:
    """What is drawn, from the back to the front, and how large it is."""

    width: float
    height: float
    shapes: tuple[Shape, ...]


def as_svg(scene: Scene) -> str:
    """The scene as the text of an SVG file."""
    width, height = f"{scene.width:.0f}", f"{scene.height:.0f}"
    colours = sorted({s.colour for s in scene.shapes if isinstance(s, Wire) and s.head})
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" '
            f'viewBox="0 0 {width} {height}" font-family="Helvetica, Arial, sans-serif">',
            f'<rect width="{width}" height="{height}" fill="#ffffff"/>',
            "<defs>",
            *(_marker(kind, colour) for colour in colours for kind in ("arrow", "bar")),
            "</defs>",
            *(_written(shape, scene) for shape in scene.shapes),
            "</svg>\n",
        ]
    )


def _marker(kind: str, colour: str) -> str:
    path = {"arrow": "M 0 1 L 8 4 L 0 7 z", "bar": "M 6.5 0 L 8 0 L 8 8 L 6.5 8 z"}[kind]
    return (
        f'<marker id="{kind}-{colour[1:]}" viewBox="0 0 8 8" refX="8" refY="4" markerWidth="8" '
        f'markerHeight="8" orient="auto" markerUnits="userSpaceOnUse">'
        f'<path d="{path}" fill="{colour}"/></marker>'
    )


def _written(shape: Shape, scene: Scene) -> str:
    match shape:
        case Node():
            return _node(shape)
        case Wire():
            return _wire(shape)
        case Label():
            return _text(
                shape.x, shape.y, shape.text, shape.size, shape.colour, anchor=shape.anchor
            )
        case Band():
            return (
                f'<rect y="{shape.y:.1f}" width="{scene.width:.0f}" height="{shape.height:.1f}" '
                'fill="#f5f6f8"/>'
            )


def _node(node: Node) -> str:
    dash = ' stroke-dasharray="3 3"' if node.style.dashed else ""
    paint = f'fill="{node.style.fill}" stroke="{node.style.line}" stroke-width="1.4"{dash}'
    left, top = node.x - node.width / 2, node.y - node.height / 2
    match node.outline:
        case "circle":
            shape = (
                f'<circle cx="{node.x:.1f}" cy="{node.y:.1f}" r="{node.height / 2:.1f}" {paint}/>'
            )
        case "diamond":
            corners = diamond(node)
            shape = (
                f'<polygon points="{" ".join(f"{x:.1f},{y:.1f}" for x, y in corners)}" {paint}/>'
            )
        case _:
            radius = 4.0 if node.outline == "box" else node.height / 2
            shape = (
                f'<rect x="{left:.1f}" y="{top:.1f}" width="{node.width:.1f}" '
                f'height="{node.height:.1f}" rx="{radius:.1f}" {paint}/>'
            )
    text = _text(node.x, node.y + 3.6, node.text, 10.5, INK, anchor="middle") if node.text else ""
    title = f"<title>{html.escape(node.title)}</title>" if node.title else ""
    return f"<g>{title}{shape}{text}</g>"


def diamond(node: Node) -> list[tuple[float, float]]:
    """The corners of a node that stands on its tip."""
    w, h = node.width / 2, node.height / 2
    return [
        (node.x, node.y - h),
        (node.x + w, node.y),
        (node.x, node.y + h),
        (node.x - w, node.y),
    ]


def _wire(wire: Wire) -> str:
    (x, y), *rest = wire.points
    curves = " ".join(f"{a:.1f} {b:.1f}" for a, b in rest)
    dash = ' stroke-dasharray="4 4"' if wire.dashed else ""
    head = f' marker-end="url(#{wire.head}-{wire.colour[1:]})"' if wire.head else ""
    return (
        f'<path d="M {x:.1f} {y:.1f} C {curves}" fill="none" stroke="{wire.colour}" '
        f'stroke-width="1.2"{dash}{head}/>'
    )


def _text(x: float, y: float, text: str, size: float, colour: str, *, anchor: str) -> str:
    return (
        f'<text x="{x:.1f}" y="{y:.1f}" font-size="{size:g}" fill="{colour}" '
        f'text-anchor="{anchor}">{html.escape(text)}</text>'
    )


def curve(start: tuple[float, float], end: tuple[float, float]) -> tuple[tuple[float, float], ...]:
    """The control points and the end of a curve that leaves and arrives upright."""
    bend = (end[1] - start[1]) / 2
    return (start[0], start[1] + bend), (end[0], end[1] - bend), end


def straight(
    start: tuple[float, float], end: tuple[float, float]
) -> tuple[tuple[float, float], ...]:
    """The control points and the end of a straight piece."""
    third = ((end[0] - start[0]) / 3, (end[1] - start[1]) / 3)
    near = (start[0] + third[0], start[1] + third[1])
    return near, (end[0] - third[0], end[1] - third[1]), end
