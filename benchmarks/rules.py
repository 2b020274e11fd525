"""What an update by each rule costs, in backpropagations: the table of rules in README.md."""

import functools
from collections.abc import Sequence
from dataclasses import dataclass

import jax
from rich.console import Console
from rich.table import Table

import dendrax
from benchmarks import handwritten
from benchmarks.handwritten import WORKLOADS
from benchmarks.timing import build, interleaved, with_progress

# With their own settings, on losses that are sums; FixedPrediction, whose steps follow the depth,
# with as many as IL.
RULES = {
    "ZIL": dendrax.ZIL(),
    "IL": dendrax.IL(batch="sum"),
    "IncrementalPC": dendrax.IncrementalPC(batch="sum"),
    "FixedPrediction": dendrax.FixedPrediction(num_steps=20),
    "ErrorPC": dendrax.ErrorPC(batch="sum"),
}


@dataclass(frozen=True)
class Cost:
    """One rule on one workload: its time over that of ``jax.value_and_grad``."""

    workload: str
    rule: str
    num_steps: int | None
    time_ratio: float


def run(console: Console, workloads: Sequence[str], seconds: float) -> list[Cost]:
    """Measure each workload with each rule."""
    jobs = [(workload, rule) for rule in RULES for workload in workloads]
    return with_progress(console, jobs, functools.partial(measure, seconds=seconds))


def measure(name: str, rule: str, seconds: float) -> Cost:
    """One rule on one workload."""
    loss, arguments = handwritten.loss_function(WORKLOADS[name]), WORKLOADS[name].data(0)
    ours, *_ = build(dendrax.value_and_grad(loss, rule=RULES[rule]), arguments)
    backprop, *_ = build(jax.value_and_grad(loss), arguments)
    ratio, *_ = interleaved(ours, backprop, arguments, seconds)
    return Cost(name, rule, RULES[rule].num_steps, ratio)


def table(costs: Sequence[Cost]) -> Table:
    """The measurements as a table: a row for each rule."""
    workloads = list(dict.fromkeys(cost.workload for cost in costs))
    found = Table(
        title="The cost of one update, in backpropagations (float32)",
        caption="the rules' own settings (FixedPrediction: 20 steps); medians of interleaved runs",
    )
    for heading in ("rule", "steps", *workloads):
        found.add_column(heading, justify="left" if heading == "rule" else "right")
    for rule in dict.fromkeys(cost.rule for cost in costs):
        row = [cost for cost in costs if cost.rule == rule]
        ratios = (f"{cost.time_ratio:.2f}" for cost in row)
        found.add_row(rule, str(row[0].num_steps or ""), *ratios)
    return found
