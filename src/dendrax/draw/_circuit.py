"""A small graph as the predictive-coding circuit: value nodes, error nodes and their connections.

For a vertex ``i`` with ``μ_i = g_i(x)`` and ``ε_i = μ_i - x_i`` the equations of
`dendrax.inference._equations` say who excites and who inhibits whom:

    x_j --> ε_i   a prediction, from each input j        x_i --| ε_i   what it is compared with
    ε_i --> x_i   a value node follows its prediction    ε_i --| x_j   and gives way to errors above

A parameter ``ζ`` has no error of its own: it excites ``ε_i`` and learns from it (dashed). The value
node of the output is clamped (grey).
"""

from __future__ import annotations

from dendrax.draw._layout import Block, Link, place
from dendrax.draw._plan import Connection, Plan, Seen
from dendrax.draw._scene import STYLES, Label, Node, Scene, Shape, Style, Wire
from dendrax.support import complain

MOST = 24
ROW, PAIR, SIZE, MARGIN = 92.0, 64.0, 34.0, 30.0
EXCITES, INHIBITS, LEARNS = "#2f6fd6", "#c93434", "#2a9147"
VALUE, ERROR = Style("#1d2129", "#ffffff"), Style("#c93434", "#fbe9e8")
CLAMPED = Style("#1d2129", "#d9dce1")

Point = tuple[float, float]


def check_small(plan: Plan) -> None:
    """A circuit of many vertices is a tangle."""
    if len(plan.seen) > MOST:
        raise complain(
            ValueError,
            f"a circuit of {len(plan.seen)} vertices would be unreadable; {MOST} is the most.",
            remedy="Draw the graph with dendrax.draw.graph, or trace with vertices='layer'.",
        )


def circuit_scene(plan: Plan) -> Scene:
    """The circuit of a plan."""
    blocks = [Block(s.row, s.row, _width(s)) for s in plan.seen.values()]
    at = {index: b for b, index in enumerate(plan.seen)}
    links = [Link(at[c.user], at[c.source]) for c in plan.connections]
    x = place(blocks, links, 40.0)
    value: dict[int, Point] = {}
    error: dict[int, Point] = {}
    for index, s in plan.seen.items():
        right, y = MARGIN + x[at[index]] + _width(s) / 2 - SIZE / 2, (s.row + 0.5) * ROW
        value[index] = (MARGIN + x[at[index]], y)
        if _has_error(s):
            value[index], error[index] = (right - PAIR, y), (right, y)
    shapes: list[Shape] = []
    for c in plan.connections:
        shapes += _between(plan, c, value[c.source], error.get(c.user))
    for index, point in error.items():
        shapes += _within(value[index], point)
    shapes += _nodes(plan, value, error)
    width = max((x[b] + block.width / 2 for b, block in enumerate(blocks)), default=0.0)
    height = plan.rows * ROW
    return Scene(max(width + 2 * MARGIN, 400.0), height + 30, (*shapes, *_key(height)))


def _width(s: Seen) -> float:
    """A vertex is its name, its value node and its error node; a leaf one node, named below."""
    letters = 5.0 * len(s.text)
    return letters + 5 + SIZE + PAIR if _has_error(s) else max(SIZE, letters)


def _has_error(s: Seen) -> bool:
    return s.vertex.kind in ("internal", "delay") and not s.silent


def _between(plan: Plan, c: Connection, source: Point, error: Point | None) -> list[Wire]:
    """A prediction upwards; an error downwards, to a value node or, dashed, to a parameter."""
    if error is None:
        return []
    up = _bent(source, error, 10.0)
    found = [Wire(up, EXCITES, "arrow", dashed=False)]
    kind = plan.seen[c.source].vertex.kind
    if not c.silent:
        down = _bent(error, source, 10.0)
        learns = kind == "parameter"
        found.append(
            Wire(down, LEARNS if learns else INHIBITS, "arrow" if learns else "bar", dashed=learns)
        )
    return found


def _within(value: Point, error: Point) -> list[Wire]:
    return [
        Wire(_bent(value, error, 8.0), INHIBITS, "bar"),
        Wire(_bent(error, value, 8.0), EXCITES, "arrow"),
    ]


def _bent(start: Point, end: Point, bend: float) -> tuple[Point, ...]:
    """From the rim of one node to that of another, bent to the right of the way."""
    dx, dy = end[0] - start[0], end[1] - start[1]
    length = max((dx * dx + dy * dy) ** 0.5, 1.0)
    ux, uy = dx / length, dy / length
    rim = SIZE / 2 + 2
    a = (start[0] + ux * rim - uy * bend * 0.5, start[1] + uy * rim + ux * bend * 0.5)
    b = (end[0] - ux * rim - uy * bend * 0.5, end[1] - uy * rim + ux * bend * 0.5)
    run, rise = b[0] - a[0], b[1] - a[1]
    near = (a[0] + run * 0.3 - uy * bend, a[1] + rise * 0.3 + ux * bend)
    far = (b[0] - run * 0.3 - uy * bend, b[1] - rise * 0.3 + ux * bend)
    return a, near, far, b


def _nodes(plan: Plan, value: dict[int, Point], error: dict[int, Point]) -> list[Shape]:
    shapes: list[Shape] = []
    for index, s in plan.seen.items():
        x, y = value[index]
        style = STYLES[s.style] if index not in error else CLAMPED if s.row == 0 else VALUE
        letter = "x" if s.vertex.kind != "parameter" else "ζ"
        shapes.append(Node(x, y, SIZE, SIZE, letter, style, "circle", s.vertex.name))
        if index in error:
            ex, ey = error[index]
            shapes.append(Node(ex, ey, SIZE, SIZE, "ε", ERROR, "diamond", s.vertex.name))
            shapes.append(Label(x - SIZE / 2 - 5, y + 3, s.text, anchor="end"))
        else:
            shapes.append(Label(x, y + SIZE / 2 + 11, s.text, anchor="middle"))
    return shapes


def _key(y: float) -> list[Shape]:
    words = (
        (EXCITES, "arrow", False, "excites"),
        (INHIBITS, "bar", False, "inhibits"),
        (LEARNS, "arrow", True, "learns from"),
    )
    shapes: list[Shape] = []
    for k, (colour, head, dashed, text) in enumerate(words):
        x = 20.0 + 130 * k
        line = ((x, y + 14), (x + 12, y + 14), (x + 24, y + 14), (x + 36, y + 14))
        shapes.append(Wire(line, colour, head, dashed))  # pyright: ignore[reportArgumentType]
        shapes.append(Label(x + 44, y + 17, text, 10.0))
    return shapes
