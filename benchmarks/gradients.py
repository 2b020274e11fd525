"""Z-IL's gradient against JAX's own, on the paper's models, a deep Transformer and a deep MLP."""

import time
from collections.abc import Sequence
from dataclasses import dataclass

import jax
import numpy as np
from rich.console import Console
from rich.progress import Progress
from rich.table import Table

import dendrax
from benchmarks.timing import build, interleaved, temporary_bytes
from dendrax.models import Problem, problem
from dendrax.support._words import PROBLEM_NAMES, ProblemName

MODELS = PROBLEM_NAMES


@dataclass(frozen=True)
class Row:
    """One model: ratios are Z-IL / JAX; times in seconds.

    ``graph_share`` is tracing and levelling as a part of the first call.
    """

    name: str
    time_ratio: float
    memory_ratio: float
    divergence: float
    exact: bool
    update_ms: float
    compile_ratio: float
    graph_share: float
    num_runs: int


def run(console: Console, names: Sequence[ProblemName], seconds: float) -> list[Row]:
    """Measure each model for about ``seconds``."""
    rows = []
    with Progress(console=console, transient=True) as progress:
        for name in progress.track(names, description="Z-IL / JAX"):
            rows.append(measure(problem(name), seconds))
    return rows


def measure(p: Problem, seconds: float) -> Row:
    """Compile both, compare every bit, then time them in turns."""
    arguments = p.model, p.inputs, p.target
    graph_time = _graph_seconds(p)
    ours, trace, compile = build(dendrax.value_and_grad(p.loss), arguments)
    theirs, _, jax_compile = build(jax.value_and_grad(p.loss), arguments)
    found, expected = ours(*arguments), theirs(*arguments)
    pairs = list(zip(jax.tree.leaves(found), jax.tree.leaves(expected), strict=True))
    ratio, update, count = interleaved(ours, theirs, arguments, seconds)
    return Row(
        name=p.name,
        time_ratio=ratio,
        memory_ratio=temporary_bytes(ours) / max(temporary_bytes(theirs), 1),
        divergence=float(np.sqrt(sum(float(((a - b) ** 2).sum()) for a, b in pairs))),
        exact=all(bool((a == b).all()) for a, b in pairs),
        update_ms=update * 1e3,
        compile_ratio=compile / jax_compile,
        graph_share=graph_time / (trace + compile + update),
        num_runs=count,
    )


def _graph_seconds(p: Problem) -> float:
    start = time.perf_counter()
    dendrax.level(dendrax.trace(p.loss, p.model, p.inputs, p.target))
    return time.perf_counter() - start


def table(rows: Sequence[Row]) -> Table:
    """The rows, with the mean of the time ratios below."""
    result = Table(title="Z-IL / jax.value_and_grad, both jitted, float32")
    result.add_column("model", no_wrap=True)
    for title in ("time", "memory", "distance", "ms", "compile", "graph"):
        result.add_column(title, justify="right")
    for row in rows:
        result.add_row(
            row.name,
            f"{row.time_ratio:.3f}",
            f"{row.memory_ratio:.3f}",
            "0.0" if row.exact else f"{row.divergence:.2g}",
            f"{row.update_ms:.2f}",
            f"{row.compile_ratio:.2f}",
            f"{100 * row.graph_share:.0f} %",
        )
    mean = float(np.mean([row.time_ratio for row in rows]))
    result.add_section()
    result.add_row("mean", f"{mean:.3f}")
    result.caption = (
        "time, memory (XLA's temporary buffers), compile: ratios; distance: Euclidean "
        "distance of the gradients, 0.0 if every bit agrees; graph: tracing and levelling as a "
        "part of the first call"
    )
    return result
