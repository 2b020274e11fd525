"""``dendrax show``: a function's levels, delays, parameters and slowest vertices, as tables."""

from __future__ import annotations

from rich.console import Console
from rich.progress import Progress
from rich.table import Table
from rich.text import Text

import dendrax
from dendrax import LevelledGraph
from dendrax.cli._explore import NOT_TRACED, numbers
from dendrax.cli._function import find_function
from dendrax.cli._speaking import speaking
from dendrax.cli._timing import MOST, Timing, timings
from dendrax.draw._structure import shortened, source_of, type_text
from dendrax.support import Vertices


def run(
    spec: str,
    *,
    arguments: str | None,
    argnums: str,
    vertices: Vertices,
    most: int,
    time: bool,
) -> None:
    """Print the tables; at most ``most`` rows of each, the first and the last."""
    console = Console(highlight=False)
    with speaking(Console(stderr=True, highlight=False), NOT_TRACED):
        found = find_function(spec, arguments)
        graph = dendrax.trace(found.fun, *found.args, argnums=numbers(argnums), vertices=vertices)
        levelled = dendrax.level(graph)
    console.print("\n".join(repr(levelled).split("\n")[:2]), markup=False)
    console.print(_levels(levelled, most))
    if levelled.num_delays:
        console.print(_delays(levelled, most))
    console.print(_parameters(levelled, most))
    if time:
        console.print(_slowest(_timed(levelled, console), most))


def _levels(levelled: LevelledGraph, most: int) -> Table:
    table = Table("level", "vertices", "names", title="Levels")
    rows = [
        (f"S{k}", str(len(level)), shortened(", ".join(v.name for v in level), 90))
        for k, level in enumerate(levelled.levels)
    ]
    return _filled(table, rows, most)


def _delays(levelled: LevelledGraph, most: int) -> Table:
    table = Table("delay", "from", "to", "shape", title="Longest delays")
    graph = levelled.graph
    longest = sorted(levelled.delays.items(), key=lambda item: -item[1])
    rows = [
        (
            str(delay),
            graph[edge.source.vertex].name,
            graph[edge.user].name,
            type_text(graph[edge.source.vertex]),
        )
        for edge, delay in longest
        if delay
    ]
    return _filled(table, rows, most, head_only=True)


def _parameters(levelled: LevelledGraph, most: int) -> Table:
    table = Table("parameter", "type", "numbers", "level", "learns at (Z-IL)", title="Parameters")
    graph = levelled.graph
    rows = []
    for v in graph.parameters:
        level = levelled.level_of.get(v.index)
        place = ("-", "never") if level is None else (f"S{level}", f"t = {level - 1}")
        rows.append((v.name, type_text(v), f"{v.outputs[0].size:,}", *place))
    total = sum(v.outputs[0].size for v in graph.parameters)
    table.caption = f"{total:,} numbers in all"
    return _filled(table, rows, most)


def _timed(levelled: LevelledGraph, console: Console) -> list[Timing]:
    found = []
    with Progress(console=console, transient=True) as progress:
        task = progress.add_task("timing vertices", total=None)
        for done, total, timing in timings(levelled.graph):
            progress.update(task, completed=done, total=total)
            found.append(timing)
    return sorted(found, key=lambda timing: -timing.seconds)


def _slowest(found: list[Timing], most: int) -> Table:
    table = Table("vertex", "type", "time", "source", title="Slowest vertices")
    table.caption = (
        f"Prediction and message of one vertex, compiled by itself; medians. Of the {MOST} "
        "different functions with the largest arrays."
    )
    rows = [
        (t.vertex.name, type_text(t.vertex), f"{1e6 * t.seconds:.0f} µs", source_of(t.vertex).place)
        for t in found
    ]
    return _filled(table, rows, most, head_only=True)


def _filled(
    table: Table, rows: list[tuple[str, ...]], most: int, *, head_only: bool = False
) -> Table:
    table.title_justify = table.caption_justify = "left"
    shown = rows
    if len(rows) > most:
        head = most if head_only else most - most // 3
        gap = (f"… {len(rows) - most} more", *[""] * (len(rows[0]) - 1))
        shown = [*rows[:head], gap, *(() if head_only else rows[len(rows) - most // 3 :])]
    for row in shown:
        table.add_row(*map(Text, row))  # not marked up, whatever names look like
    return table
