"""Matplotlib figures: made, painted and written always in the same way."""

from __future__ import annotations

import io
import os
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from dendrax.draw._file import file_kind, write
from dendrax.draw._paint import matplotlib_or_complain
from dendrax.support import Scale


def new_figure(height: float = 3.4) -> tuple[Any, Any]:
    """A figure and its axes."""
    figure = _empty_figure(height)
    return figure, figure.add_subplot()


def _empty_figure(height: float) -> Any:
    matplotlib_or_complain()
    from dendrax.draw._shown import NotebookFigure

    return NotebookFigure(figsize=(5.6, height), layout="constrained")


class Curve(NamedTuple):
    """A line over time."""

    name: str
    values: np.ndarray
    width: float
    colour: Any = None


def paint_curves(axes: Any, curves: Sequence[Curve], label: str, scale: Scale = "auto") -> None:
    """Lines on an axis that says how it is divided.

    ``"auto"`` is logarithmic, without exact zeros; if something is negative, logarithmic on both
    sides of 0; and linear if all is 0.
    """
    finite = np.concatenate([c.values[np.isfinite(c.values)] for c in curves] or [np.zeros(0)])
    chosen = _scale_for(finite) if scale == "auto" else scale
    for name, values, width, colour in curves:
        hidden = ~np.isfinite(values) | ((values <= 0) & (chosen == "log"))
        text = " " * name.startswith("_") + name + _loss_of(values)  # "_" would hide it
        axes.plot(np.where(hidden, np.nan, values), lw=width, color=colour, label=text)
    axes.set(xlabel="time t", ylabel=label + ("" if chosen == "linear" else " (log scale)"))
    if chosen == "symlog":
        sizes = np.abs(finite[finite != 0])
        axes.set_yscale("symlog", linthresh=max(sizes.min(), 1e-6 * sizes.max()))
    else:
        axes.set_yscale(chosen)


def _scale_for(finite: np.ndarray) -> str:
    if (finite < 0).any():
        return "symlog"
    return "log" if (finite > 0).any() else "linear"


def _loss_of(values: np.ndarray) -> str:
    """From when on a curve is not seen any more, because its numbers are lost."""
    lost = np.flatnonzero(~np.isfinite(values))
    return f", not finite at t = {lost[0]}" if len(lost) else ""


def zero_and_log_axes(values: np.ndarray, height: float) -> tuple[Any, Any, Any]:
    """A figure whose axis is broken, and both its parts: exactly 0, and the rest, logarithmic.

    If nothing is 0, or everything, the axis is whole, and both parts are the same.
    """
    figure, rest = _empty_figure(height), values[np.isfinite(values) & (values > 0)]
    if not (values == 0).any():
        axes = _log_part(figure.add_subplot(), rest)
        return figure, axes, axes
    if not len(rest):
        axes = _zero_part(figure.add_subplot())
        return figure, axes, axes
    left, right = figure.subplots(1, 2, sharey=True, width_ratios=(1, 7))
    figure.get_layout_engine().set(wspace=0.0, w_pad=0.02)
    right.spines[["left", "top", "right"]].set_visible(False)
    right.tick_params(axis="y", left=False, labelleft=False)
    slash = {"marker": [(-1, -2), (1, 2)], "ms": 7, "ls": "", "color": "k", "clip_on": False}
    for axes, edge in ((left, 1), (right, 0)):
        axes.plot([edge], [0], transform=axes.transAxes, **slash)
    return figure, _zero_part(left), _log_part(right, rest)


def _zero_part(axes: Any) -> Any:
    axes.set(xlim=(-1, 1), xticks=[0], xticklabels=["0"], facecolor="#e4f4e8")
    return axes


def _log_part(axes: Any, positive: np.ndarray) -> Any:
    """Whole powers of ten, so that the axis can be read."""
    axes.set_xscale("log", nonpositive="mask")
    if len(positive):
        low, high = np.log10(positive.min()), np.log10(positive.max())
        axes.set_xlim(10.0 ** (np.floor(low) - 0.2), 10.0 ** (np.ceil(high) + 0.1))
    return axes


def ramp(part: float) -> Any:
    """A colour between dark (0) and light (1)."""
    from matplotlib import colormaps

    return colormaps["viridis"](part)


def finish(figure: Any, axes: Any, path: Any, *, legend: bool = True) -> Any:
    """The figure, with its legend, written if there is a path."""
    axes.spines[["top", "right"]].set_visible(False)
    if legend and axes.get_legend_handles_labels()[0]:
        figure.legend(loc="outside right upper", frameon=False, fontsize=8)
    if path is not None:
        save_figure(figure, path)
    return figure


def save_figure(figure: Any, path: str | os.PathLike[str]) -> None:
    """Write a figure."""
    write(path, figure_bytes(figure, file_kind(path)))


def figure_bytes(figure: Any, kind: str) -> bytes:
    """A figure as a file: no date, names of parts from a fixed salt, so always the same bytes."""
    import matplotlib

    stream = io.BytesIO()
    dated = {"svg": {"Date": None}, "pdf": {"CreationDate": None}, "png": {}}[kind]
    with matplotlib.rc_context({"svg.hashsalt": "dendrax", "svg.fonttype": "none"}):
        figure.savefig(stream, format=kind, dpi=200, metadata=dated)
    return stream.getvalue()


def paint_wave(axes: Any, sizes: np.ndarray, *, is_wave: bool) -> None:
    """Paint sizes by level and time.

    Behind a wave errors may grow without bounds, and nobody learns from them: the colours span the
    errors on the diagonal, and those behind it are pale.
    """
    from matplotlib.colors import LogNorm
    from matplotlib.ticker import MaxNLocator

    shown = np.ma.masked_where(~np.isfinite(sizes) | (sizes <= 0), sizes)
    level, time = np.indices(sizes.shape)
    front = np.ma.masked_where(time != level, shown) if is_wave else shown
    limits = (front.min(), front.max()) if front.count() else (1.0, 10.0)
    style = {"aspect": "auto", "cmap": "magma_r", "interpolation": "nearest"}
    image = axes.imshow(front, norm=LogNorm(*limits), **style)
    if is_wave:
        axes.imshow(np.ma.masked_where(time <= level, shown), norm=image.norm, alpha=0.25, **style)
    axes.figure.colorbar(image, ax=axes, label="size of the errors")
    axes.set(xlabel="time t", ylabel="level")
    for axis in (axes.xaxis, axes.yaxis):
        axis.set_major_locator(MaxNLocator(integer=True))
