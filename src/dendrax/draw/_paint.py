"""A `Scene` as PNG or PDF, painted by matplotlib."""

from __future__ import annotations

import io
from typing import Any

from dendrax.draw._scene import INK, Band, Label, Node, Scene, Wire, diamond
from dendrax.support import complain, require_extra


def matplotlib_or_complain() -> Any:
    """matplotlib, which is an extra."""
    with require_extra("this picture (unless it is a drawing as SVG)", "draw"):
        import matplotlib.figure as figure
    return figure


FINEST, COARSEST = 200.0, 40.0  # dots per inch
MOST_DOTS, LONGEST_SIDE = 50e6, 60e3


def painted(scene: Scene, kind: str) -> bytes:
    """The scene as the content of a file of this kind, ``"png"`` or ``"pdf"``."""
    dpi = FINEST if kind == "pdf" else _resolution(scene)
    figures = matplotlib_or_complain()
    figure = figures.Figure(figsize=(scene.width / 72, scene.height / 72))
    axes = figure.add_axes((0, 0, 1, 1))
    axes.set(xlim=(0, scene.width), ylim=(scene.height, 0))
    axes.axis("off")
    for order, shape in enumerate(scene.shapes):
        _PAINTERS[type(shape)](axes, shape, order)
    stream = io.BytesIO()
    # No date: the same picture gives the same file.
    dated = {"CreationDate": None} if kind == "pdf" else {}
    figure.savefig(stream, format=kind, dpi=dpi, metadata=dated)
    return stream.getvalue()


def _resolution(scene: Scene) -> float:
    """Dots per inch, fewer for a large picture."""
    inches = scene.width / 72, scene.height / 72
    most = (MOST_DOTS / (inches[0] * inches[1])) ** 0.5
    dpi = min(FINEST, most, LONGEST_SIDE / max(inches))
    if dpi < COARSEST:
        raise complain(
            ValueError,
            f"the drawing, {inches[0]:.0f} x {inches[1]:.0f} inches, is too large for a PNG.",
            remedy="Save it as .svg or .pdf, or trace with vertices='layer'.",
        )
    return dpi


def _node(axes: Any, node: Node, order: int) -> None:
    from matplotlib.patches import Circle, FancyBboxPatch, Polygon

    look = {
        "facecolor": node.style.fill,
        "edgecolor": node.style.line,
        "linewidth": 1.4,
        "linestyle": (0, (3, 3)) if node.style.dashed else "solid",
        "zorder": order,
    }
    if node.outline == "circle":
        axes.add_patch(Circle((node.x, node.y), node.height / 2, **look))
    elif node.outline == "diamond":
        axes.add_patch(Polygon(diamond(node), **look))
    else:
        radius = 4.0 if node.outline == "box" else node.height / 2 - 0.1
        corner = (node.x - node.width / 2, node.y - node.height / 2)
        style = f"round,pad=0,rounding_size={radius}"
        axes.add_patch(FancyBboxPatch(corner, node.width, node.height, boxstyle=style, **look))
    if node.text:
        _write(axes, node.x, node.y, node.text, 10.5, INK, "center", "center", order)


def _wire(axes: Any, wire: Wire, order: int) -> None:
    from matplotlib.patches import FancyArrowPatch
    from matplotlib.path import Path

    path = Path(wire.points, [Path.MOVETO, *[Path.CURVE4] * (len(wire.points) - 1)])
    head = {"": "-", "arrow": "-|>", "bar": "|-|,widthA=0,widthB=0.35"}[wire.head]
    axes.add_patch(
        FancyArrowPatch(
            path=path,
            arrowstyle=head,
            mutation_scale=9,
            color=wire.colour,
            linewidth=1.2,
            linestyle=(0, (4, 4)) if wire.dashed else "solid",
            zorder=order,
        )
    )


def _label(axes: Any, label: Label, order: int) -> None:
    place = {"start": "left", "middle": "center", "end": "right"}[label.anchor]
    _write(axes, label.x, label.y, label.text, label.size, label.colour, place, "baseline", order)


def _band(axes: Any, band: Band, order: int) -> None:
    axes.axhspan(band.y, band.y + band.height, color="#f5f6f8", linewidth=0, zorder=order)


def _write(
    axes: Any,
    x: float,
    y: float,
    text: str,
    size: float,
    colour: str,
    across: str,
    down: str,
    order: int,
) -> None:
    axes.text(
        x,
        y,
        text,
        fontsize=size,
        color=colour,
        ha=across,
        va=down,
        zorder=order,
        parse_math=False,
    )


_PAINTERS: dict[type, Any] = {Node: _node, Wire: _wire, Label: _label, Band: _band}
