"""Places from graphviz: `dot` keeps our rows and finds columns and curves."""

from __future__ import annotations

import itertools
import shlex
import shutil
import subprocess
from collections.abc import Iterator

from dendrax.draw._drawing import BOX, DELAY, MARGIN, Places, Point, middle_of, width_of
from dendrax.draw._plan import Connection, Plan
from dendrax.support import complain

POINTS = 72.0  # of an inch, in which dot counts
PATIENCE = 120  # seconds


def has_dot() -> bool:
    """Whether graphviz is installed."""
    return shutil.which("dot") is not None


def dot_places(plan: Plan) -> Places:
    """Places by graphviz."""
    if not has_dot():
        raise complain(
            FileNotFoundError,
            "layout='dot', but graphviz' program dot is not installed.",
            remedy="Install it (on Debian: apt install graphviz), or use layout='own', which needs "
            "nothing.",
        )
    chains = {c: _chain(n, c) for n, c in enumerate(plan.connections)}
    nodes, lines, width = _parsed(_asked("\n".join(_program(plan, chains))))
    return _places(plan, chains, nodes, lines, width)


def _asked(program: str) -> str:
    try:
        done = subprocess.run(
            ["dot", "-Tplain"],
            input=program,
            capture_output=True,
            text=True,
            check=False,
            timeout=PATIENCE,
        )
    except subprocess.TimeoutExpired:
        problem = f"dot has not finished after {PATIENCE} seconds; the graph is too large for it."
        raise complain(RuntimeError, problem, remedy="Use layout='own'.") from None
    if done.returncode:
        problem = f"dot failed: {done.stderr.strip()}"
        raise complain(RuntimeError, problem, remedy="Use layout='own'.")
    if not done.stdout.rstrip().endswith("stop"):
        raise complain(RuntimeError, "dot answered with no layout.", remedy="Use layout='own'.")
    return done.stdout


def _chain(number: int, c: Connection) -> list[str]:
    """The names of a connection's ends and delays, from the user down to the source."""
    delays = [f"d{number}_{k}" for k in reversed(range(c.delay))]
    return [f"v{c.user}", *delays, f"v{c.source}"]


def _program(plan: Plan, chains: dict[Connection, list[str]]) -> Iterator[str]:
    yield "digraph { nodesep=0.2; ranksep=0.3; edge [dir=none];"
    yield "node [shape=box, fixedsize=true];"
    rows: list[list[str]] = [[f"r{row}"] for row in range(plan.rows)]
    for index, s in plan.seen.items():
        rows[s.row].append(f"v{index}")
        yield f"v{index} [width={width_of(s.text) / POINTS:.3f}, height={BOX / POINTS:.3f}];"
    for c, chain in chains.items():
        for k, name in enumerate(chain[1:-1]):
            rows[plan.seen[c.user].row + 1 + k].append(name)
            yield f"{name} [width={DELAY[0] / POINTS:.3f}, height={DELAY[1] / POINTS:.3f}];"
        for upper, lower in itertools.pairwise(chain):
            yield f"{upper} -> {lower};"
    for row, names in enumerate(rows):
        yield f"r{row} [style=invis, width=0.01];"
        yield "{ rank=same; " + "; ".join(names) + " }"
    yield from (f"r{row} -> r{row + 1} [style=invis];" for row in range(plan.rows - 1))
    yield "}"


Line = list[Point]


def _parsed(text: str) -> tuple[dict[str, Point], dict[tuple[str, str], Line], float]:
    nodes: dict[str, Point] = {}
    lines: dict[tuple[str, str], Line] = {}
    width = 0.0
    for words in map(shlex.split, text.splitlines()):
        if words[0] == "graph":
            width = float(words[2]) * POINTS
        elif words[0] == "node":
            nodes[words[1]] = (float(words[2]) * POINTS, float(words[3]) * POINTS)
        elif words[0] == "edge":
            numbers = [float(word) * POINTS for word in words[4 : 4 + 2 * int(words[3])]]
            lines[words[1], words[2]] = list(zip(numbers[::2], numbers[1::2], strict=True))
    return nodes, lines, width


def _places(
    plan: Plan,
    chains: dict[Connection, list[str]],
    nodes: dict[str, Point],
    lines: dict[tuple[str, str], Line],
    width: float,
) -> Places:
    """dot's heights become ours: rows are as far apart as in our own layout."""
    heights = [nodes[f"r{row}"][1] for row in range(plan.rows)]

    def down(point: Point) -> Point:
        return MARGIN + point[0], _between(heights, point[1])

    def upwards(chain: list[str]) -> tuple[Point, ...]:
        pieces = [lines[pair][::-1] for pair in itertools.pairwise(chain)][::-1]
        kept = [pieces[0][0]]
        for back in pieces:  # between two delays the line runs on
            kept += [kept[-1], back[0], back[0]] * (back[0] != kept[-1]) + back[1:]
        return tuple(map(down, kept))

    return Places(
        {index: down(nodes[f"v{index}"]) for index in plan.seen},
        {
            c: tuple(down(nodes[n]) for n in reversed(chain[1:-1]))
            for c, chain in chains.items()
            if c.delay
        },
        {c: upwards(chain) for c, chain in chains.items()},
        MARGIN + width + 16,
    )


def _between(heights: list[float], y: float) -> float:
    """The height in our rows of a height in dot's, which fall from row to row."""
    if len(heights) < 2:
        return middle_of(0) + (heights[0] - y if heights else 0.0)
    row = next((k for k in range(len(heights) - 2) if heights[k + 1] < y), len(heights) - 2)
    part = (heights[row] - y) / (heights[row] - heights[row + 1])
    return middle_of(row) + part * (middle_of(row + 1) - middle_of(row))
