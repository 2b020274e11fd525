"""Findings to tables that fit 80 columns; their distances are relative.

What is left out stands in the tables of `_tables`: the paper's distances, which are not relative,
and times in milliseconds.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable, Iterator, Sequence

from dendrax.paper import _published as published
from dendrax.paper import _tables as tables
from dendrax.paper._report import Table
from dendrax.paper._store import Finding
from dendrax.paper._tables import (
    MISSING,
    OVERFLOW,
    agreement,
    rows_of,
)

RELATIVE = "Relative distance to BP's update ({})"
NOTE1 = (
    "paper: whether the distance of original Z-IL is 0 there. Z-IL: one compiled pass. dynamics: "
    "every value node moves at every time step."
)
NOTE2 = "95 %: where the ratio lies in resamples of the measured times. T: the time steps of IL."
OVERFLOW_NOTE = "overflow: the value nodes left the range of the numbers."
TRAINING = (
    "accuracy: on the test set, after {updates} updates. weights = BP's: at how many points of the "
    "run every bit of them is (empty: rules that learn something else). IncrementalPC moves the "
    "weights at its own rate, the others by the same optimizer. BP is jax.grad; BP, dendrax "
    "computes the same on dendrax's graph."
)


def table1(findings: Sequence[Finding]) -> Table:
    """Original Z-IL against Z-IL on levelled graphs."""
    rows, dtype = [], _precision(findings)
    for row, found in rows_of(findings, "divergence", dtype):
        paper = "0" if published.TABLE1[row] == 0 else "not 0"
        ours = [relative(found, column) for column in ("original", "wavefront", "dynamics")]
        if ours[0] != MISSING:
            rows.append((row, ours[0], paper, *ours[1:]))
    columns = ("network", "original Z-IL", "paper", "Z-IL", "dynamics")
    note = f"{NOTE1} {_overflow(rows)}".rstrip()
    return Table("", RELATIVE.format(dtype), columns, tuple(rows), note)


def table2(findings: Sequence[Finding]) -> Table:
    """Time per update, over BP's: the ratios of the full table."""
    full = tables.table2(findings, "float32")
    columns = ("network", "Z-IL / BP", "95 %", "paper, Z-IL", "IL / BP", "paper, IL", "T")
    rows = tuple(tuple(row[place] for place in (0, 2, 3, 1, 5, 4, 6)) for row in full.rows)
    return Table("", "Time of one update over BP's (float32)", columns, rows, NOTE2)


def table3(findings: Sequence[Finding]) -> Table:
    """Each of Z-IL's three conditions, left out."""
    rows, dtype = [], _precision(findings)
    for row, found in rows_of(findings, "divergence", dtype):
        ours = [relative(found, name) for name in ("wavefront", "timing", "noise", "gamma")]
        if ours[1] != MISSING:
            rows.append((row, *ours))
    columns = ("network", "Z-IL", "all learn at the end", "initial error", "gamma = 0.5")
    return Table("", RELATIVE.format(dtype), columns, tuple(rows), _overflow(rows))


def trainings(findings: Sequence[Finding]) -> Iterator[tuple[str, str, Table]]:
    """The name of each network that learned, its data, and its table."""
    found = [f for f in findings if f.kind == "training"]
    for name in dict.fromkeys(f.settings["course"] for f in found):
        runs = [f for f in found if f.settings["course"] == name]
        updates = sorted({f.settings["num_updates"] for f in runs})
        note = TRAINING.format(updates=" or ".join(map(str, updates)))
        rules = dict.fromkeys(f.settings["rule"] for f in runs)
        rows = tuple(_rule_row(rule, runs) for rule in sorted(rules, key=_place))
        columns = ("rule", "accuracy", "weights = BP's")
        title = "The same start, the same batches, another rule"
        yield (
            name,
            runs[0].settings["data"],
            Table("", title, columns, rows, note),
        )


def _place(rule: str) -> int:
    """BP comes first, then Z-IL, which must agree with it; the others stay in their order."""
    return 0 if rule.startswith("BP") else 1 if rule == "Z-IL" else 2


def _rule_row(rule: str, found: Sequence[Finding]) -> tuple[str, ...]:
    runs = [f for f in found if f.settings["rule"] == rule]
    ends = [run.result["points"][-1] for run in runs]
    accuracy = statistics.mean(100 * end["accuracy"] for end in ends)
    return rule, f"{accuracy:.1f} %", agreement(runs, found, rule)


def _precision(findings: Sequence[Finding]) -> str:
    """float64, as in the paper, unless distances were measured in float32 only."""
    wide = any(rows_of(findings, "divergence", "float64"))
    return "float64" if wide else "float32"


def _overflow(rows: Sequence[Sequence[str]]) -> str:
    return OVERFLOW_NOTE if any(OVERFLOW in row for row in rows) else ""


def relative(found: Iterable[Finding], column: str) -> str:
    """The mean of distances over the length of BP's update, over the networks of a row."""
    results = [f.result for f in found if f.settings["column"] == column]
    if not results:
        return MISSING
    if any(result["distance"] is None or result["norm"] is None for result in results):
        return OVERFLOW
    return _short(statistics.mean(_ratio(r["distance"], r["norm"]) for r in results))


def _ratio(distance: float, norm: float) -> float:
    """0 for the same update, even where both are no update at all."""
    if distance == 0:
        return 0.0
    return distance / norm if norm else math.inf


def _short(value: float) -> str:
    """0 for 0.0 and nothing else; powers of ten only where plain digits would be too many."""
    if value == 0:
        return "0"
    if not 0.01 <= value < 1e5:
        return f"{value:.1e}"
    return f"{value:.2f}" if value < 10 else f"{value:,.0f}"
