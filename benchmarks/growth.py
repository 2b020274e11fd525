"""How the time to trace and to level a graph grows with its size."""

import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
from rich.console import Console
from rich.progress import Progress
from rich.table import Table

import dendrax


@dataclass(frozen=True)
class Row:
    """One size: seconds for JAX's jaxpr alone, for tracing (with the jaxpr) and for levelling."""

    vertices: int
    levels: int
    delays: int
    jaxpr: float
    trace: float
    level: float


def chain_with_skips(length: int) -> Any:
    """A function of about ``length`` operations, every fourth with a skip connection."""

    def function(w: jax.Array) -> jax.Array:
        x = w
        for _ in range(length // 4):
            x = x + jnp.sin(jnp.cos(x) * w)
        return x

    return function


def run(console: Console, largest: int) -> list[Row]:
    """Graphs of 100, 1,000, ... vertices, up to ``largest``."""
    sizes = [size for size in (100, 1_000, 10_000, 100_000) if size <= largest]
    with Progress(console=console, transient=True) as progress:
        return [measure(n) for n in progress.track(sizes, description="tracing and levelling")]


def measure(size: int) -> Row:
    """Trace and level one graph."""
    function, w = chain_with_skips(size), jnp.asarray(0.5)
    start = time.perf_counter()
    jax.make_jaxpr(chain_with_skips(size))(w)
    jaxpr = time.perf_counter()
    graph = dendrax.trace(function, w)
    traced = time.perf_counter()
    levelled = dendrax.level(graph)
    done = time.perf_counter()
    return Row(
        vertices=len(graph),
        levels=len(levelled.levels),
        delays=levelled.num_delays,
        jaxpr=jaxpr - start,
        trace=traced - jaxpr,
        level=done - traced,
    )


def table(rows: Sequence[Row]) -> Table:
    """The rows, with microseconds per vertex."""
    result = Table(title="Tracing and levelling")
    columns = ("vertices", "levels", "delays", "jaxpr s", "trace s", "level s", "us/vertex")
    for title in columns:
        result.add_column(title, justify="right")
    for row in rows:
        result.add_row(
            f"{row.vertices:,}",
            f"{row.levels:,}",
            f"{row.delays:,}",
            f"{row.jaxpr:.3f}",
            f"{row.trace:.3f}",
            f"{row.level:.3f}",
            f"{1e6 * row.level / row.vertices:.1f}",
        )
    return result
