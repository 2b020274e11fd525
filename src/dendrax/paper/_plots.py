"""Findings to pictures, as SVG text: learning curves, scores, sweeps and error waves."""

from __future__ import annotations

import dataclasses
import re
import statistics
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
from matplotlib.figure import Figure

from dendrax.draw._figures import figure_bytes, paint_wave
from dendrax.paper._pictures import DRAWINGS, WAVE_CAPTIONS
from dendrax.paper._report import Plot
from dendrax.paper._store import Finding

COLOURS = {
    "BP, dendrax": "#999999",
    "BP": "#222222",
    "Z-IL": "#d62728",
    "IL": "#1f77b4",
    "FixedPrediction": "#2ca02c",
    "ErrorPC": "#9467bd",
    "IncrementalPC": "#ff7f0e",
}
AXES = {
    "steps": ("MLP: inference steps and γ", "steps T"),
    "precision": ("MLP: precision of the internal errors", "precision"),
    "vertices": ("MLP: which functions are vertices", "steps T"),
    "levels": ("FC-ResNet: IL with and without delays", "steps T"),
}


def all_plots(findings: Sequence[Finding]) -> list[Plot]:
    """Every picture that the findings fill."""
    makers = (_learning_curves, _energies, _scores, _sweeps, _waves, _drawn)
    return [plot for maker in makers for plot in maker(findings)]


def _learning_curves(findings: Sequence[Finding]) -> Iterator[Plot]:
    for course, runs in _grouped(findings, "training", "course").items():

        def draw(axes: Any, runs: list[Finding] = runs) -> None:
            for run in runs:
                points, rule = run.result["points"], run.settings["rule"]
                places = [point["update"] for point in points]
                heights = [100 * point["accuracy"] for point in points]
                _line(axes, places, heights, rule)
            axes.set(xlabel="updates", ylabel="test accuracy, %")
            _legend(axes)

        yield _plot(f"curve-{course}", f"{course}: {runs[0].settings['data']}", draw)


def _energies(findings: Sequence[Finding]) -> Iterator[Plot]:
    for course, runs in _grouped(findings, "training", "course").items():
        relaxing = [run for run in runs if run.result["points"][-1]["energy"] is not None]

        def draw(axes: Any, relaxing: list[Finding] = relaxing) -> None:
            for run in relaxing:
                points = run.result["points"]
                heights = [point["energy"] for point in points]
                _line(axes, [p["update"] for p in points], heights, run.settings["rule"])
            axes.set(xlabel="updates", ylabel="energy after inference", yscale="log")
            _legend(axes)

        if relaxing:
            yield _plot(f"energy-{course}", f"{course}: energy on test samples", draw)


def _scores(findings: Sequence[Finding]) -> Iterator[Plot]:
    for game, runs in _grouped(findings, "playing", "game").items():
        random = [run for run in runs if run.settings["rule"] == "random"]
        learned = [run for run in runs if run.settings["rule"] != "random"]
        if not learned or len(learned[0].result["steps"]) < 5:
            continue

        def draw(
            axes: Any, random: list[Finding] = random, learned: list[Finding] = learned
        ) -> None:
            for run in random:
                _band(axes, run.result["scores"])
            for run in learned:
                means = [statistics.mean(scores) for scores in run.result["scores"]]
                _line(axes, run.result["steps"], means, run.settings["rule"])
            axes.set(xlabel="actions", ylabel="score")
            _legend(axes)

        yield _plot(f"score-{game}", f"{game}: score of the agent", draw)


def _band(axes: Any, scores: Sequence[float]) -> None:
    """Random play: the mean, and a standard deviation on both sides."""
    middle, deviation = statistics.mean(scores), statistics.stdev(scores)
    axes.axhspan(middle - deviation, middle + deviation, color="#cccccc", alpha=0.4, lw=0)
    axes.axhline(middle, color="#888888", ls=":", label="random play")


def _sweeps(findings: Sequence[Finding]) -> Iterator[Plot]:
    for plot, series in _grouped(findings, "beyond", "plot").items():
        if plot not in AXES:
            continue
        title, label = AXES[plot]

        def draw(axes: Any, series: list[Finding] = series, label: str = label) -> None:
            for line in series:
                heights = [np.nan if d is None else d for d in line.result["distances"]]
                axes.plot(line.result["places"], heights, "o-", ms=3, label=line.settings["label"])
            axes.set(xlabel=label, ylabel="distance to BP, relative", xscale="log", yscale="log")
            _legend(axes)

        yield _plot(f"il-{plot}", title, draw)


def _waves(findings: Sequence[Finding]) -> Iterator[Plot]:
    for run in findings:
        if run.kind == "beyond" and run.settings["plot"] == "wave":
            sizes, label = np.array(run.result["sizes"], float), run.settings["label"]

            def draw(axes: Any, sizes: np.ndarray = sizes, label: str = label) -> None:
                paint_wave(axes, sizes, is_wave=label == "Z-IL")

            plot = _plot(f"wave-{label}", f"The error wave of {label} (FC-ResNet)", draw)
            yield dataclasses.replace(plot, caption=WAVE_CAPTIONS[label], wave=label)


def _drawn(findings: Sequence[Finding]) -> Iterator[Plot]:
    """What `dendrax.draw` has drawn already."""
    for run in findings:
        if run.kind == "pictures":
            for name, svg in run.result["plots"].items():
                title = f"{run.settings['model']}: {name.replace('-', ' ')}"
                known = DRAWINGS[name]
                yield Plot(name, title, _bare(svg), known.caption, known.wave, known.is_broad)


def _grouped(findings: Sequence[Finding], kind: str, by: str) -> dict[str, list[Finding]]:
    groups: dict[str, list[Finding]] = {}
    for found in findings:
        if found.kind == kind:
            groups.setdefault(found.settings[by], []).append(found)
    return groups


def _line(axes: Any, places: Sequence[float], heights: Sequence[Any], rule: str) -> None:
    """Z-IL lies exactly on BP: its dashes let BP show through."""
    known = {text.get_label() for text in axes.get_lines()}
    axes.plot(
        places,
        [np.nan if height is None else height for height in heights],
        color=COLOURS[rule],
        ls="--" if rule == "Z-IL" else "-",
        lw=3.5 if rule == "BP" else 1.5,
        label=None if rule in known else rule,
    )


def _legend(axes: Any) -> None:
    if axes.get_legend_handles_labels()[0]:
        axes.legend(frameon=False, fontsize=8)
    axes.spines[["top", "right"]].set_visible(False)


def _plot(name: str, title: str, draw: Callable[[Any], None]) -> Plot:
    figure = Figure(figsize=(5.2, 3.4), layout="constrained")
    axes = figure.add_subplot()
    draw(axes)
    axes.set_title(title, fontsize=10)
    slug = re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-")
    return Plot(slug, title, _bare(figure_bytes(figure, "svg").decode()))


def _bare(svg: str) -> str:
    """An SVG without the head of its file, to stand in a page."""
    return svg[svg.index("<svg") :]
