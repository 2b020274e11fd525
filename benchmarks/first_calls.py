"""The first call of a gradient, by Z-IL and by JAX: trace, lower, compile, run.

Each call is the first of its process (``benchmarks.first_call_worker``), which finds nothing
compiled before: JAX's persistent cache is off. The two take turns, the order changing each time.
"""

import json
import statistics
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from rich.console import Console
from rich.progress import Progress
from rich.table import Table

Library = Literal["dendrax", "jax", "marked IL", "IL"]

MODELS = ("transformer12", "resnet50")
GOAL = 1.15


@dataclass(frozen=True)
class FirstCall:
    """One first call, in seconds, and the sha256 of the value and the gradient."""

    lowering: float
    compiling: float
    running: float
    digest: str

    @property
    def total(self) -> float:
        """All of the call."""
        return self.lowering + self.compiling + self.running


@dataclass(frozen=True)
class Row:
    """One model: ratios of medians are Z-IL / JAX, ``seconds`` and ``jax_seconds`` the medians."""

    name: str
    ratio: float
    lowering_ratio: float
    compile_ratio: float
    seconds: float
    jax_seconds: float
    same_bits: bool
    num_runs: int


def run(console: Console, num_runs: int, names: Sequence[str] = MODELS) -> list[Row]:
    """Make ``num_runs`` first calls of each model by each library, with a bar meanwhile."""
    with Progress(console=console, transient=True) as progress:
        task = progress.add_task("first calls", total=2 * num_runs * len(names))
        rows = []
        for name in names:
            calls: dict[Library, list[FirstCall]] = {"dendrax": [], "jax": []}
            for library in turns(num_runs):
                progress.update(task, description=f"first call of {name}: {library}")
                calls[library].append(launch(name, library))
                progress.advance(task)
            rows.append(summary(name, calls))
        return rows


def turns(num_runs: int) -> list[Library]:
    """Who calls when: both in every round, and not always the same one first."""
    rounds: tuple[tuple[Library, Library], ...] = (("jax", "dendrax"), ("dendrax", "jax"))
    return [library for turn in range(num_runs) for library in rounds[turn % 2]]


def launch(name: str, library: Library) -> FirstCall:
    """One first call, in a process that ends before the next one starts."""
    command = [sys.executable, "-m", "benchmarks.first_call_worker", name, library]
    finished = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=False)
    if finished.returncode:
        raise ChildProcessError(
            f"benchmarks.first_calls: the process that calls {name} by {library} ended with exit"
            f" code {finished.returncode} (-9 often means that memory ran out)."
        )
    return FirstCall(**json.loads(finished.stdout))


def summary(name: str, calls: Mapping[Library, Sequence[FirstCall]]) -> Row:
    """The medians of all calls of one model."""

    def ratio(what: str) -> float:
        return _median(calls["dendrax"], what) / _median(calls["jax"], what)

    return Row(
        name=name,
        ratio=ratio("total"),
        lowering_ratio=ratio("lowering"),
        compile_ratio=ratio("compiling"),
        seconds=_median(calls["dendrax"], "total"),
        jax_seconds=_median(calls["jax"], "total"),
        same_bits=len({call.digest for found in calls.values() for call in found}) == 1,
        num_runs=len(calls["jax"]),
    )


def _median(calls: Sequence[FirstCall], what: str) -> float:
    return statistics.median(getattr(call, what) for call in calls)


def table(rows: Sequence[Row]) -> Table:
    """The rows for people."""
    result = Table(title="The first call, Z-IL / jax.value_and_grad, both jitted, float32")
    result.add_column("model", no_wrap=True)
    for title in ("first call", "trace, lower", "compile", "Z-IL s", "JAX s", "bits", "runs"):
        result.add_column(title, justify="right")
    for row in rows:
        result.add_row(
            row.name,
            f"{row.ratio:.3f}",
            f"{row.lowering_ratio:.2f}",
            f"{row.compile_ratio:.2f}",
            f"{row.seconds:.2f}",
            f"{row.jax_seconds:.2f}",
            "same" if row.same_bits else "differ",
            str(row.num_runs),
        )
    result.caption = (
        "first call: trace, lower, compile and run, each in a fresh process without compiled "
        f"programs from before; ratios of medians; the goal is at most {GOAL}"
    )
    return result
