"""Findings to tables: what stands in them, the paper's figures beside ours."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Sequence

from dendrax.paper import _notes as notes
from dendrax.paper import _published as published
from dendrax.paper._divergence import COLUMNS1, COLUMNS3
from dendrax.paper._report import Table
from dendrax.paper._speed import interval
from dendrax.paper._store import Finding

OVERFLOW = "overflow"
MISSING = "-"


def all_tables(findings: Sequence[Finding]) -> list[Table]:
    """Every table that the findings fill."""
    tables = []
    for dtype in ("float64", "float32"):
        tables += [table1(findings, dtype), table2(findings, dtype), table3(findings, dtype)]
    tables += [subjects(findings), training(findings), playing(findings), beyond(findings)]
    return [table for table in tables if table.rows]


def table1(findings: Sequence[Finding], dtype: str) -> Table:
    """Original Z-IL against Z-IL on levelled graphs."""
    rows = []
    for row, found in rows_of(findings, "divergence", dtype):
        ours = [distance(found, column) for column in COLUMNS1]
        if ours[0] != MISSING:
            rows.append((row, number(published.TABLE1[row]), *ours))
    return Table(
        f"table1-{dtype}",
        f"Table 1: distance of one update to backpropagation's, not relative ({dtype})",
        ("network", "original, paper", "original", "Z-IL", "Z-IL, dynamics"),
        tuple(rows),
        notes.TABLE1,
    )


def table2(findings: Sequence[Finding], dtype: str) -> Table:
    """Time per update."""
    rows = []
    for row, found in rows_of(findings, "speed", dtype):
        paper = published.TABLE2[row]
        steps = sorted({f.settings["num_steps"] for f in found})
        low, high = interval([f.result["block_ratios"] for f in found])
        rows.append(
            (
                row,
                f"{paper.zil / paper.bp:.3f}",
                f"{mean(found, 'zil_over_bp'):.3f}",
                f"{low:.3f} to {high:.3f}",
                f"{paper.il / paper.bp:.0f}",
                f"{mean(found, 'il_over_bp'):.1f}",
                ", ".join(map(str, steps)),
                f"{mean(found, 'bp_ms'):.2f}",
                f"{mean(found, 'zil_ms'):.2f}",
                f"{mean(found, 'il_ms'):.1f}",
            )
        )
    names = ("network", "Z-IL / BP, paper", "Z-IL / BP", "95 %", "IL / BP, paper", "IL / BP", "T")
    return Table(
        f"table2-{dtype}",
        f"Table 2: time of one weight update ({dtype})",
        (*names, "BP, ms", "Z-IL, ms", "IL, ms"),
        tuple(rows),
        notes.TABLE2,
    )


def table3(findings: Sequence[Finding], dtype: str) -> Table:
    """Each of Z-IL's three conditions, left out."""
    rows = []
    for row, found in rows_of(findings, "divergence", dtype):
        ours = {column: distance(found, column) for column in COLUMNS3}
        if ours["timing"] == MISSING:
            continue
        beside = published.TABLE3[row]
        entries = [
            text
            for column in ("timing", "noise", "gamma")
            for text in (number(getattr(beside, column)), ours[column])
        ]
        rows.append((row, ours["wavefront"], ours["dynamics"], *entries))
    ablations = ("no level-timed update", "initial error", "gamma = 0.5")
    return Table(
        f"table3-{dtype}",
        f"Table 3: without one of Z-IL's conditions, distance not relative ({dtype})",
        (
            "network",
            "Z-IL",
            "Z-IL, dynamics",
            *(text for name in ablations for text in (f"{name}, paper", name)),
        ),
        tuple(rows),
        notes.TABLE3,
    )


def subjects(findings: Sequence[Finding]) -> Table:
    """What the rows of Tables 1 to 3 were measured on."""
    names = ("row", "name", "model", "data", "batch_size")
    rows = dict.fromkeys(
        tuple(str(f.settings[name]) for name in names)
        for f in findings
        if f.kind in ("divergence", "speed")
    )
    return Table(
        "networks",
        "What Tables 1 to 3 were measured on",
        ("row", "network", "model", "data", "batch"),
        tuple(rows),
        notes.NETWORKS,
    )


def beyond(findings: Sequence[Finding]) -> Table:
    """IL's distance to BP, at the end of each sweep."""
    rows = [
        (f.settings["model"], f.settings["plot"], f.settings["label"], f"{place:g}", _size(size))
        for f in findings
        if f.kind == "beyond" and "distances" in f.result
        for place, size in zip(f.result["places"], f.result["distances"], strict=True)
    ]
    return Table(
        "beyond",
        "Beyond the paper: IL's distance to backpropagation, relative",
        ("network", "sweep", "series", "T or precision", "distance"),
        tuple(rows),
        notes.BEYOND,
    )


def _size(value: float | None) -> str:
    return "diverges" if value is None else f"{value:.3g}"


def training(findings: Sequence[Finding]) -> Table:
    """Accuracy, time, and whether the weights are those of BP."""
    found = [f for f in findings if f.kind == "training"]
    rows = []
    for course, rule in dict.fromkeys((f.settings["course"], f.settings["rule"]) for f in found):
        runs = [f for f in found if (f.settings["course"], f.settings["rule"]) == (course, rule)]
        rows.append(_training_row(course, rule, runs, found))
    return Table(
        "training",
        "Training: the same start, the same batches, another rule",
        ("network", "data", "rule", "updates", "runs", "accuracy", "weights = BP's", "ms/update"),
        tuple(rows),
        notes.TRAINING,
    )


def _training_row(
    course: str, rule: str, runs: Sequence[Finding], found: Sequence[Finding]
) -> tuple[str, ...]:
    accuracies = [100 * run.result["points"][-1]["accuracy"] for run in runs]
    milliseconds = [
        1e3 * p["seconds"] / p["update"] for p in (r.result["points"][-1] for r in runs)
    ]
    spread = f" ± {statistics.stdev(accuracies):.2f}" if len(runs) > 1 else ""
    return (
        course,
        runs[0].settings["data"],
        rule,
        str(runs[0].settings["num_updates"]),
        str(len(runs)),
        f"{statistics.mean(accuracies):.2f}{spread} %",
        agreement(runs, found, rule),
        f"{statistics.mean(milliseconds):.2f}",
    )


def agreement(runs: Sequence[Finding], found: Sequence[Finding], rule: str) -> str:
    """At how many points the weights are those of BP, for rules that promise it."""
    if rule not in ("BP, dendrax", "Z-IL"):
        return ""
    same, total = agreeing_points(runs, found)
    return f"{same} of {total}" if total else MISSING


def agreeing_points(runs: Iterable[Finding], found: Sequence[Finding]) -> tuple[int, int]:
    """At how many points the weights are those of BP from the same start, and of how many."""
    same = total = 0
    for run in runs:
        names = ("course", "seed", "data", "model", "batch_size", "num_updates", "learning_rate")
        twins = [
            f.result["points"]
            for f in found
            if f.settings["rule"] == "BP" and all(f.settings[n] == run.settings[n] for n in names)
        ]
        for points in twins:
            pairs = zip(points, run.result["points"], strict=True)
            equal = [a["weights"] == b["weights"] for a, b in pairs]
            same, total = same + sum(equal), total + len(equal)
    return same, total


def playing(findings: Sequence[Finding]) -> Table:
    """The agent's scores beside random play."""
    found = {(f.settings["game"], f.settings["rule"]): f for f in findings if f.kind == "playing"}
    rows = []
    for game, rule in found:
        if rule == "random":
            continue
        run, random = found[game, rule].result, found.get((game, "random"))
        shown = [_spread(scores) for scores in (run["scores"][0], run["scores"][-1])]
        played = MISSING if random is None else _spread(random.result["scores"])
        agreement = _playing_agreement(found, game, rule)
        rows.append((game, rule, str(run["steps"][-1]), played, *shown, agreement))
    names = ("game", "rule", "actions", "random play", "untrained", "trained")
    return Table(
        "playing",
        "The recurrent Q-learning agent on Atari games",
        (*names, "weights = BP's"),
        tuple(rows),
        notes.PLAYING,
    )


def _playing_agreement(found: dict[tuple[str, str], Finding], game: str, rule: str) -> str:
    if rule != "Z-IL" or (game, "BP") not in found:
        return ""
    pairs = list(
        zip(found[game, "BP"].result["weights"], found[game, rule].result["weights"], strict=True)
    )
    return f"{sum(a == b for a, b in pairs)} of {len(pairs)}"


def _spread(scores: Sequence[float]) -> str:
    deviation = f" ± {statistics.stdev(scores):.0f}" if len(scores) > 1 else ""
    return f"{statistics.mean(scores):.0f}{deviation}"


def distance(found: Iterable[Finding], column: str) -> str:
    """The mean distance over the networks of a row."""
    values = [f.result["distance"] for f in found if f.settings["column"] == column]
    if not values:
        return MISSING
    return OVERFLOW if None in values else number(statistics.mean(values))


def number(value: float) -> str:
    """0 for 0.0 and nothing else."""
    return "0" if value == 0 else f"{value:.2e}"


def mean(found: Iterable[Finding], name: str) -> float:
    """The mean of a result over the networks of a row."""
    return statistics.mean(f.result[name] for f in found)


def rows_of(
    findings: Sequence[Finding], kind: str, dtype: str
) -> Iterable[tuple[str, list[Finding]]]:
    """The findings of one kind, by the row of the paper's tables that they belong to."""
    fitting = [f for f in findings if f.kind == kind and f.settings["dtype"] == dtype]
    for row in published.ROWS:
        found = [f for f in fitting if f.settings["row"] == row]
        if found:
            yield row, found
