"""What it costs an update to notice that inference has diverged, beside the same update that does
not look (``on_divergence="ignore"``)."""

import dataclasses
import functools
from collections.abc import Sequence

from rich.console import Console
from rich.table import Table

import dendrax
from benchmarks import handwritten
from benchmarks.handwritten import WORKLOADS
from benchmarks.rules import Cost
from benchmarks.timing import build, interleaved, with_progress

RULES = {
    "IL, T = 20": dendrax.IL(20, batch="sum"),
    "IL, T = 100": dendrax.IL(100, batch="sum"),
    "ErrorPC": dendrax.ErrorPC(batch="sum"),
}


def run(console: Console, workloads: Sequence[str], seconds: float) -> list[Cost]:
    """Measure each workload with each rule."""
    jobs = [(workload, rule) for rule in RULES for workload in workloads]
    return with_progress(console, jobs, functools.partial(measure, seconds=seconds))


def measure(name: str, rule: str, seconds: float) -> Cost:
    """One rule on one workload."""
    loss, arguments = handwritten.loss_function(WORKLOADS[name]), WORKLOADS[name].data(0)
    silent = dataclasses.replace(RULES[rule], on_divergence="ignore")
    rules = (RULES[rule], silent)
    looks, blind = (build(dendrax.value_and_grad(loss, rule=r), arguments)[0] for r in rules)
    ratio, *_ = interleaved(looks, blind, arguments, seconds)
    return Cost(name, rule, RULES[rule].num_steps, ratio)


def table(costs: Sequence[Cost]) -> Table:
    """The measurements as a table: a row for each rule."""
    workloads = list(dict.fromkeys(cost.workload for cost in costs))
    found = Table(
        title="An update that notices divergence / one that does not look (float32)",
        caption="medians of interleaved runs; the goal is 1.01",
    )
    for heading in ("rule", *workloads):
        found.add_column(heading, justify="left" if heading == "rule" else "right")
    ratios = {(cost.rule, cost.workload): f"{cost.time_ratio:.3f}" for cost in costs}
    for rule in dict.fromkeys(cost.rule for cost in costs):
        found.add_row(rule, *(ratios[rule, workload] for workload in workloads))
    return found
