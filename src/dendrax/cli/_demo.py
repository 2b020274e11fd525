"""``dendrax demo``: what levels do for Z-IL, on the paper's six networks; and every rule learns."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

import dendrax
from dendrax import ZIL
from dendrax.cli import _learning
from dendrax.models import Problem, problem

NETWORKS = {
    "mlp": "MLP",
    "cnn": "CNN",
    "rnn": "RNN",
    "fc_resnet": "FC-ResNet",
    "resnet18": "ResNet18",
    "transformer": "Transformer",
}


@dataclass(frozen=True)
class Row:
    """One line of the table."""

    name: str
    vertices: int
    levels: int
    delays: int
    original: float
    levelled: float
    exact: bool
    ratio: float


def run(seconds: float) -> None:
    """Measure each network and print the table."""
    console = Console()
    rows, trained = [], []
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn())
    with Progress(*columns, TimeElapsedColumn(), console=console, transient=True) as progress:
        task = progress.add_task("", total=2 * len(NETWORKS) + len(_learning.RULES))
        for key, name in NETWORKS.items():
            progress.update(task, description=f"{name}: divergence")
            counts, original = _original_divergence(key)
            progress.advance(task)
            progress.update(task, description=f"{name}: exactness and speed")
            rows.append(Row(name, *counts, original, *_exactness_and_speed(key, seconds)))
            progress.advance(task)
        for rule in _learning.RULES:
            progress.update(task, description=f"{type(rule).__name__} learns FashionMNIST")
            trained.append(_learning.measure(rule))
            progress.advance(task)
    console.print(_table(rows))
    _verdict(console, rows)
    console.print(_learning.table(trained))


def _original_divergence(key: str) -> tuple[tuple[int, int, int], float]:
    """Size of the levelled graph, and how far original Z-IL is off, in the paper's setting.

    Small networks of the same structure, in float64, with the output clamped to a target.
    """
    with jax.enable_x64(True):
        p = problem(key, dtype=jnp.float64, small=True)
        graph = dendrax.trace(p.predict, p.model, p.inputs, vertices="layer")
        levelled = dendrax.level(graph)
        counts = len(levelled.level_of), len(levelled.levels), levelled.num_delays

        @jax.jit
        def gradients(model: Any, inputs: Any, target: Any) -> Any:
            original = dendrax.run(graph, ZIL(levelled=False), model, inputs, target=target)
            exact = dendrax.run(graph, ZIL(), model, inputs, target=target)
            return original.gradient, exact.gradient

        return counts, _distance(*gradients(p.model, p.inputs, p.target))


def _exactness_and_speed(key: str, seconds: float) -> tuple[float, bool, float]:
    """Z-IL against `jax.value_and_grad` on the full-size network: divergence and time ratio."""
    p = problem(key)
    arguments = p.model, p.inputs, p.target
    ours, theirs = (_compiled(transform, p) for transform in (dendrax, jax))
    found, expected = ours(*arguments), theirs(*arguments)
    exact = all(map(_equal, jax.tree.leaves(found), jax.tree.leaves(expected)))
    times = []
    deadline = time.perf_counter() + seconds
    while time.perf_counter() < deadline or len(times) < 5:
        times.append((_seconds(ours, arguments), _seconds(theirs, arguments)))
    mine, reference = np.median(times, axis=0)
    return _distance(found[1], expected[1]), exact, float(mine / reference)


def _compiled(module: Any, p: Problem) -> Any:
    return jax.jit(module.value_and_grad(p.loss)).lower(p.model, p.inputs, p.target).compile()


def _seconds(call: Any, arguments: Any) -> float:
    start = time.perf_counter()
    jax.block_until_ready(call(*arguments))
    return time.perf_counter() - start


def _equal(a: Any, b: Any) -> bool:
    return bool((a == b).all())


def _distance(found: Any, expected: Any) -> float:
    squares = jax.tree.map(lambda a, b: float(jnp.sum((a - b) ** 2)), found, expected)
    return float(np.sqrt(sum(jax.tree.leaves(squares))))


def _table(rows: list[Row]) -> Table:
    table = Table(title="Z-IL on the computational graph of six networks")
    table.add_column("network")
    for title in ("vertices", "levels", "delays", "original", "Z-IL", "time/BP"):
        table.add_column(title, justify="right")
    for row in rows:
        table.add_row(
            row.name,
            str(row.vertices),
            str(row.levels),
            str(row.delays),
            _number(row.original),
            "[green]0.0[/]" if row.exact else _number(row.levelled),
            f"{row.ratio:.3f}",
        )
    return table


def _number(divergence: float) -> str:
    if divergence == 0:
        return "[green]0.0[/]"
    if not np.isfinite(divergence):
        return "[red]diverges[/]"
    return f"{divergence:.1e}" if divergence < 1e-12 else f"[red]{divergence:.3g}[/]"


def _verdict(console: Console, rows: list[Row]) -> None:
    console.print(
        "vertices, levels, delays: the small network's graph, every layer a vertex; delays are "
        "the identity vertices that keep errors in step.\n"
        "original: Z-IL without levels, the distance of its update to backprop's (small network, "
        "float64, output clamped to a target; below 1e-12 is rounding of the compiled loop).\n"
        "Z-IL: with levels, the distance to jax.grad (full-size network, float32, compiled); 0.0 "
        "means that every bit agrees.\n"
        "time/BP: Z-IL's update against jax.value_and_grad's, median of interleaved runs.",
        style="dim",
    )
    if all(row.exact for row in rows):
        console.print("[bold green]Z-IL equals jax.grad bit for bit on all six networks.[/]\n")
    else:
        wrong = ", ".join(row.name for row in rows if not row.exact)
        console.print(f"[bold red]Not exact: {wrong}[/]")
        raise SystemExit(1)
