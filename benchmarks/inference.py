"""IL and fixed predictions against the same loop written by hand, in one process, in turns."""

import functools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from rich.console import Console
from rich.table import Table

import dendrax
from benchmarks import handwritten
from benchmarks.handwritten import WORKLOADS, Workload
from benchmarks.timing import build, interleaved, temporary_bytes, with_progress

GAMMA = 0.1
STEPS = (20, 100)
COMPILED_STEPS = (20, 1000)


@dataclass(frozen=True)
class Row:
    """One workload and rule: time over that of the loop by hand, compile time, memory."""

    workload: str
    rule: str
    time_ratios: tuple[float, ...]
    compile_seconds: tuple[float, ...]
    memory_ratio: float


def run(console: Console, workloads: Sequence[str], seconds: float) -> list[Row]:
    """Measure each workload with each rule."""
    jobs = [(name, rule) for name in workloads for rule in RULES]
    return with_progress(console, jobs, functools.partial(measure, seconds=seconds / len(STEPS)))


def _il(num_steps: int) -> Any:
    return dendrax.IL(num_steps=num_steps, gamma=GAMMA, batch="sum")


def _fixed(num_steps: int) -> Any:
    return dendrax.FixedPrediction(num_steps=num_steps, gamma=GAMMA)


RULES = {"IL": (_il, handwritten.il), "fixed prediction": (_fixed, handwritten.fixed_prediction)}


def measure(name: str, rule: str, seconds: float) -> Row:
    """One workload with one rule."""
    workload, (make, by_hand) = WORKLOADS[name], RULES[rule]
    arguments = workload.data(0)
    ratios, memory = [], 1.0
    for num_steps in STEPS:
        ours, *_ = build(_ours(workload, make(num_steps)), arguments)
        theirs, *_ = build(by_hand(workload, num_steps, GAMMA), arguments)
        ratios.append(interleaved(ours, theirs, arguments, seconds)[0])
        memory = temporary_bytes(ours) / temporary_bytes(theirs)
    compiling = [sum(build(_ours(workload, make(n)), arguments)[1:]) for n in COMPILED_STEPS]
    return Row(name, rule, tuple(ratios), tuple(compiling), memory)


def _ours(workload: Workload, rule: Any) -> Any:
    return dendrax.value_and_grad(handwritten.loss_function(workload), rule=rule)


def table(rows: Sequence[Row]) -> Table:
    """The measurements as a table."""
    found = Table(
        title="Inference against the same loop by hand (float32)",
        caption="time: ratio of the medians of interleaved runs; compile: tracing included",
    )
    found.add_column("workload")
    found.add_column("rule")
    titles = [f"time, T={n}" for n in STEPS] + [f"compile s, T={n}" for n in COMPILED_STEPS]
    for title in (*titles, "memory"):
        found.add_column(title, justify="right")
    for row in rows:
        numbers = [f"{ratio:.3f}" for ratio in row.time_ratios]
        numbers += [f"{seconds:.2f}" for seconds in row.compile_seconds]
        found.add_row(row.workload, row.rule, *numbers, f"{row.memory_ratio:.3f}")
    return found
