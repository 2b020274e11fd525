"""What the report claims, each decided by the findings; any of them can fail."""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from dendrax.paper import _published as published
from dendrax.paper._speed import interval
from dendrax.paper._store import Finding
from dendrax.paper._tables import agreeing_points, mean, number, rows_of

WANTED_ACCURACY = 0.898  # on the full FashionMNIST; the best published that we know is 89.88 %
WANTED_RUNS = 3
BLUNT = 0.05  # an interval wider than this decides nothing
FULL_FASHION = "FashionMNIST (60000 + 10000)"


@dataclass(frozen=True)
class Claim:
    """A statement, whether it holds, and what it rests on.

    ``exact`` claims have nothing to do with speed or luck: if one fails, something is broken.
    """

    text: str
    holds: bool
    evidence: str
    exact: bool = False


def all_claims(findings: Sequence[Finding]) -> list[Claim]:
    """Those that the findings can decide."""
    exact = (_exact, _pattern, _conditions, _same_weights, _same_agents)
    others = (_as_fast, _il_speed, _il_accuracy, _learns_to_play)
    return [claim for maker in (*exact, *others) for claim in maker(findings)]


def _exact(findings: Sequence[Finding]) -> Iterable[Claim]:
    for column, how in (("wavefront", "compiled"), ("dynamics", "by the full dynamics")):
        found = _column(findings, column)
        if found:
            wrong = [f.name for f in found if f.result["distance"] != 0]
            text = f"Z-IL's update is backpropagation's, {how}: the distance is exactly 0.0"
            yield Claim(text, not wrong, f"{_tally(found, wrong)}: {_rows(found)}", exact=True)


def _pattern(findings: Sequence[Finding]) -> Iterable[Claim]:
    found = _column(findings, "original")
    if found:
        wrong = [
            f.name
            for f in found
            if (f.result["distance"] == 0) != (published.TABLE1[f.settings["row"]] == 0)
        ]
        text = "Original Z-IL (without levels) is 0.0 where the paper's is, and not elsewhere"
        yield Claim(text, not wrong, _tally(found, wrong), exact=True)


def _conditions(findings: Sequence[Finding]) -> Iterable[Claim]:
    found = [f for column in ("timing", "noise", "gamma") for f in _column(findings, column)]
    if found:
        wrong = [f.name for f in found if f.result["distance"] == 0]
        overflown = sum(f.result["distance"] is None for f in found)
        evidence = _tally(found, wrong) + (f", {overflown} of them overflow" if overflown else "")
        text = "Each of the three conditions is needed: without one the distance is not 0"
        yield Claim(text, not wrong, evidence, exact=True)


def _same_weights(findings: Sequence[Finding]) -> Iterable[Claim]:
    found = [f for f in findings if f.kind == "training"]
    runs = [f for f in found if f.settings["rule"] == "Z-IL"]
    same, total = agreeing_points(runs, found)
    if total:
        text = "Trained by BP (jax.grad) and by Z-IL, every weight is the same, bit for bit"
        courses = dict.fromkeys(f.settings["course"] for f in runs)
        evidence = f"{same} of {total} points of the learning curves: {'; '.join(courses)}"
        yield Claim(text, same == total, evidence, exact=True)


def _same_agents(findings: Sequence[Finding]) -> Iterable[Claim]:
    found = {(f.settings["game"], f.settings["rule"]): f for f in findings if f.kind == "playing"}
    games = [game for game, rule in found if rule == "Z-IL" and (game, "BP") in found]
    if games:
        wrong = [game for game in games if found[game, "BP"].result != found[game, "Z-IL"].result]
        text = "Agents that learn by BP and by Z-IL play the same games with the same weights"
        evidence = f"{len(games) - len(wrong)} of {len(games)} games: {', '.join(games)}"
        yield Claim(text, not wrong, evidence, exact=True)


def _as_fast(findings: Sequence[Finding]) -> Iterable[Claim]:
    """Below the paper's ratio, or not to be told from it by a measurement that is not blunt."""
    for dtype, rows in _speed_rows(findings):
        shown, holds = [], True
        for row, found in rows:
            ratio, paper = mean(found, "zil_over_bp"), _paper_ratio(row, "zil")
            low, high = interval([f.result["block_ratios"] for f in found])
            holds &= ratio <= paper or (low <= paper and high - low < BLUNT)
            shown.append(f"{row} {ratio:.3f} ({low:.3f} to {high:.3f}), paper {paper:.3f}")
        text = f"Z-IL / BP is at most the paper's ratio, within noise ({dtype})"
        yield Claim(text, holds, "; ".join(shown))


def _il_speed(findings: Sequence[Finding]) -> Iterable[Claim]:
    for dtype, rows in _speed_rows(findings):
        shown, holds = [], True
        for row, found in rows:
            ratio, paper = mean(found, "il_over_bp"), _paper_ratio(row, "il")
            steps = " and ".join(sorted({str(f.settings["num_steps"]) for f in found}))
            holds &= ratio <= paper
            shown.append(f"{row} {ratio:.1f} (T = {steps}), paper {paper:.0f}")
        text = f"IL's time / BP's is at most the paper's ratio ({dtype})"
        yield Claim(text, holds, "; ".join(shown))


def _il_accuracy(findings: Sequence[Finding]) -> Iterable[Claim]:
    runs = [
        f.result["points"][-1]["accuracy"]
        for f in findings
        if f.kind == "training"
        and f.settings["rule"] == "IL"
        and f.settings["course"].startswith("MLP")
        and f.settings["data"] == FULL_FASHION
    ]
    if runs:
        found = statistics.mean(runs)
        text = f"An MLP trained by IL reaches {100 * WANTED_ACCURACY:.1f} % on FashionMNIST"
        holds = found >= WANTED_ACCURACY and len(runs) >= WANTED_RUNS
        text += f", in mean over {WANTED_RUNS} runs"
        yield Claim(text, holds, f"{100 * found:.2f} %, the mean of {len(runs)} runs")


def _learns_to_play(findings: Sequence[Finding]) -> Iterable[Claim]:
    found = {(f.settings["game"], f.settings["rule"]): f for f in findings if f.kind == "playing"}
    shown, better = [], False
    for (game, rule), run in found.items():
        if rule != "Z-IL" or (game, "random") not in found or len(run.result["steps"]) < 5:
            continue
        random, (start, *_) = found[game, "random"].result["scores"], run.result["scores"]
        late = run.result["scores"][len(run.result["scores"]) // 2 :]
        end = [score for scores in late for score in scores]
        better |= _clearly_above(end, random) and _clearly_above(end, start)
        means = [f"{statistics.mean(scores):.1f}" for scores in (random, start, end)]
        shown.append(f"{game}: random play {means[0]}, untrained {means[1]}, trained {means[2]}")
    if shown:
        text = (
            "On at least one game the agent, in the second half of its training, scores more than "
            "random play and than untrained, by over five standard errors"
        )
        yield Claim(text, better, "; ".join(shown))


def _clearly_above(scores: Sequence[float], others: Sequence[float]) -> bool:
    errors = (statistics.variance(games) / len(games) for games in (scores, others))
    return statistics.mean(scores) - statistics.mean(others) > 5 * math.sqrt(sum(errors))


def _column(findings: Sequence[Finding], column: str) -> list[Finding]:
    return [f for f in findings if f.kind == "divergence" and f.settings["column"] == column]


def _rows(found: Sequence[Finding]) -> str:
    return ", ".join(dict.fromkeys(f.settings["row"] for f in found))


def _speed_rows(
    findings: Sequence[Finding],
) -> Iterable[tuple[str, list[tuple[str, list[Finding]]]]]:
    for dtype in ("float64", "float32"):
        rows = list(rows_of(findings, "speed", dtype))
        if rows:
            yield dtype, rows


def _paper_ratio(row: str, rule: str) -> float:
    paper = published.TABLE2[row]
    return getattr(paper, rule) / paper.bp


def _tally(found: Sequence[Finding], wrong: Sequence[str]) -> str:
    if not wrong:
        return f"{len(found)} of {len(found)} measurements"
    first = next(f for f in found if f.name == wrong[0]).result["distance"]
    shown = "overflow" if first is None else number(first)
    return f"{len(wrong)} of {len(found)} fail, first: {wrong[0]} ({shown})"
