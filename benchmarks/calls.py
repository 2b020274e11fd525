"""What a call costs in Python: tracing and lowering a long function, and every eager call.

Both as ratios Z-IL / JAX, in turns, the order changing each time. Each lowering is of a new
function, so that nothing of an earlier one can be reused.
"""

import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
from rich.console import Console
from rich.progress import Progress
from rich.table import Table

import dendrax
from benchmarks.timing import interleaved
from dendrax.models import problem

LENGTHS = (500, 5_000, 50_000)
MODELS = ("mlp", "cnn", "rnn_scan", "resnet18", "transformer")


@dataclass(frozen=True)
class Row:
    """One function: ``ratio`` is Z-IL / JAX, ``seconds`` are JAX's."""

    name: str
    what: str
    ratio: float
    seconds: float
    num_runs: int


def chain(length: int) -> Callable[[jax.Array], jax.Array]:
    """A function of about ``length`` operations, some with a skip connection."""

    def function(x: jax.Array) -> jax.Array:
        for _ in range(length // 4):
            x = jnp.sin(x) * 0.5 + x
            x = x - 0.1
        return jnp.sum(x)

    return function


def deep_mlp(weights: Any, x: jax.Array) -> jax.Array:
    """A multilayer perceptron and its loss, without an inner ``jit`` of its own."""
    for w, b in weights:
        x = jnp.tanh(x @ w + b)
    return jnp.mean(x**2)


def run(console: Console, seconds: float, longest: int) -> list[Row]:
    """Lower chains of up to ``longest`` operations; call models eagerly for about ``seconds``."""
    weights = [(0.1 * jnp.ones((32, 32)), jnp.zeros(32)) for _ in range(20)]
    eager: list[tuple[str, Any, tuple[Any, ...]]] = [
        ("MLP, 20 layers of 32", deep_mlp, (weights, jnp.ones((16, 32))))
    ]
    for name in MODELS:
        p = problem(name, small=True)
        eager.append((p.name, p.loss, (p.model, p.inputs, p.target)))
    lengths = [length for length in LENGTHS if length <= longest]
    with Progress(console=console, transient=True) as progress:
        rows = [lowering(n) for n in progress.track(lengths, description="lowering, Z-IL / JAX")]
        for name, loss, arguments in progress.track(eager, description="eager calls, Z-IL / JAX"):
            ours, theirs = dendrax.value_and_grad(loss), jax.value_and_grad(loss)
            ratio, mine, count = interleaved(ours, theirs, arguments, seconds)
            rows.append(Row(name, "eager call", ratio, mine / ratio, count))
    return rows


def lowering(length: int) -> Row:
    """Trace and lower a chain by both, several times."""
    repeats = max(3, min(20, 25_000 // length))
    times: dict[Any, list[float]] = {dendrax: [], jax: []}
    for turn in range(-1, repeats):
        for library in (dendrax, jax) if turn % 2 else (jax, dendrax):
            start = time.perf_counter()
            jax.jit(library.value_and_grad(chain(length))).lower(jnp.ones(8))
            if turn >= 0:
                times[library].append(time.perf_counter() - start)
    ours, theirs = (statistics.median(times[library]) for library in (dendrax, jax))
    return Row(f"chain of {length:,} operations", "trace and lower", ours / theirs, theirs, repeats)


def table(rows: Sequence[Row]) -> Table:
    """The rows for people."""
    result = Table(title="The cost of a call, Z-IL / JAX")
    for title, justify in (
        ("function", "left"),
        ("what", "left"),
        ("ratio", "right"),
        ("JAX ms", "right"),
        ("runs", "right"),
    ):
        result.add_column(title, justify=justify)  # pyright: ignore[reportArgumentType]
    for row in rows:
        shown = f"{row.ratio:.2f}", f"{1e3 * row.seconds:,.1f}", str(row.num_runs)
        result.add_row(row.name, row.what, *shown)
    return result
