"""The curves of a run: losses, accuracy and whatever else was measured, by update."""

from __future__ import annotations

import os
import pathlib
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from dendrax.draw._figures import save_figure
from dendrax.draw._paint import matplotlib_or_complain
from dendrax.support import complain, public, warn
from dendrax.train._journal import Line, read_lines

MAX_PANELS = 24
_NOT_PLOTTED = ("step", "epoch", "seconds", "updates_per_second")


@public("dendrax.train.curves")
def curves(
    history: Sequence[Line] | str | os.PathLike[str], path: str | os.PathLike[str] | None = None
) -> Any:
    """Plot what a run measured.

    **Arguments:**

    - `history`: the `history` of a `Fitted`, or the folder of a run.
    - `path`: where to write the plot: SVG, PNG or PDF.

    **Returns:** a matplotlib figure: the losses in one panel, every other measure in its own.

    !!! example

        ```python
        from dendrax import train

        history = [{"step": step, "loss": 1 / step} for step in range(1, 100)]  # of train.fit
        train.curves(history, "curves.svg")
        ```
    """
    if isinstance(history, str | os.PathLike):
        history = read_lines(pathlib.Path(history) / "metrics.jsonl")
    if not history:
        raise complain(ValueError, "there is nothing to plot: the run has measured nothing yet.")
    if not all(isinstance(line, Mapping) and "step" in line for line in history):
        raise complain(
            ValueError,
            "history is not what a run measured: a line of it has no step.",
            remedy="Pass the history of what dendrax.train.fit returned, or the folder of a run.",
        )
    names = dict.fromkeys(name for line in history for name in line if name not in _NOT_PLOTTED)
    losses = [name for name in names if name.endswith("loss")]
    panels = [losses[:MAX_PANELS], *([name] for name in names if name not in losses)][:MAX_PANELS]
    if missing := len(names) - sum(map(len, panels)):
        warn(f"{missing:,} of {len(names):,} measures are left out: there is no room for more.")
    figure = matplotlib_or_complain().Figure(figsize=(5.6, 2.4 * len(panels)), layout="constrained")
    for axes, panel in zip(np.ravel(figure.subplots(len(panels), 1)), panels, strict=True):
        _paint(axes, history, panel)
    if path is not None:
        save_figure(figure, path)
    return figure


def _paint(axes: Any, history: Sequence[Line], names: Sequence[str]) -> None:
    for name in names:
        points = [(line["step"], line[name]) for line in history if line.get(name) is not None]
        steps, values = zip(*points, strict=True) if points else ((), ())
        marker = "o" if len(points) < 20 else None
        axes.plot(steps, values, marker=marker, ms=3, label=name.replace("_", " "))
    axes.set(xlabel="update", ylabel=names[0].replace("_", " ") if len(names) == 1 else "loss")
    axes.spines[["top", "right"]].set_visible(False)
    if len(names) > 1:
        axes.legend(frameon=False, fontsize=8)
