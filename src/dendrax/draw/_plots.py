"""Plots of what `dendrax.run` and `dendrax.check` found, by matplotlib.

Each function returns a matplotlib ``Figure`` (a notebook shows it), and saves it if given a path.
"""

from __future__ import annotations

import contextlib
import os
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import jax
import numpy as np

from dendrax import _compat
from dendrax.certify import Certificate
from dendrax.draw._figures import (
    Curve,
    finish,
    new_figure,
    paint_curves,
    paint_wave,
    ramp,
    zero_and_log_axes,
)
from dendrax.draw._record import emitted_ports, statistics_of
from dendrax.draw._structure import rule_text, shortened
from dendrax.graph import Graph, Vertex, level_graph
from dendrax.inference import Record, Result
from dendrax.support import SCALES, Scale, complain, nearest, one_of, public

MOST_LINES = 12
MOST_TRACES = 10  # as many as there are colours


@public("dendrax.draw.energy")
def energy(
    result: Result, path: str | os.PathLike[str] | None = None, *, scale: Scale = "auto"
) -> Any:
    """Plot the energy over time: in total, and the share of each level (of the upper twelve).

    **Arguments:** `result`: from `dendrax.run(..., record="energy")`; `path`: where to save it;
    `scale`: `"log"`, which leaves out what is not positive, or `"linear"`. `"auto"` is logarithmic,
    on both sides of 0 if an energy is negative, as that of a negative loss is.

    **Returns:** a matplotlib figure.

    !!! example

        ```python
        import dendrax, jax.numpy as jnp

        loss = lambda w: jnp.sum((jnp.tanh(jnp.ones(3) @ w[0]) @ w[1]) ** 2)
        graph = dendrax.trace(loss, [jnp.eye(3), jnp.eye(3)])
        result = dendrax.run(graph, dendrax.IL(num_steps=9), record="energy")
        dendrax.draw.energy(result, "energy.svg")
        ```
    """
    one_of("scale", scale, SCALES)
    total = _energy(result)
    figure, axes = new_figure()
    shares = _by_level(result)
    shown = list(shares.items())[:MOST_LINES]
    rest = [share for _, share in list(shares.items())[MOST_LINES:]]
    curves = [
        Curve(f"level {level}", share, 1.0, ramp(0.85 * k / max(len(shown) - 1, 1)))
        for k, (level, share) in enumerate(shown)
    ]
    if rest:
        curves.append(Curve(f"{len(rest)} more levels", np.sum(rest, axis=0), 1.0, "#b0b0b0"))
    paint_curves(axes, [*curves, Curve("total", total, 2.2, "#111111")], "energy", scale)
    axes.set_title(rule_text(result.rule))
    return finish(figure, axes, path)


@public("dendrax.draw.wave")
def wave(result: Result, path: str | os.PathLike[str] | None = None) -> Any:
    """Plot the error wave: the size of the errors of each level (down) over time (across).

    For Z-IL it is a clean diagonal, with exact zeros ahead of it; what lies behind it, from which
    nobody learns, is pale. The errors of IL diffuse.

    **Arguments:** `result`: from `dendrax.run`, with `record="statistics"` or `"epsilon"`;
    `path`: where to save it.

    **Returns:** a matplotlib figure. Exact zeros are left white.

    !!! example

        ```python
        import dendrax, jax.numpy as jnp

        loss = lambda w: jnp.sum((jnp.tanh(jnp.ones(3) @ w[0]) @ w[1]) ** 2)
        graph = dendrax.trace(loss, [jnp.eye(3), jnp.eye(3)])
        dendrax.draw.wave(dendrax.run(graph, dendrax.ZIL(), record="statistics"), "wave.svg")
        ```
    """
    figure, axes = new_figure()
    paint_wave(axes, wave_sizes(result), is_wave=bool(getattr(result.rule, "is_wave", False)))
    axes.set_title(rule_text(result.rule))
    return finish(figure, axes, path, legend=False)


def wave_sizes(result: Result) -> np.ndarray:
    """The root mean square of the errors of each level (row) at each time (column)."""
    record, sizes = _errors(result)
    graph, rows = record.graph, []
    for level in level_graph(graph).levels:
        found = [(_size(graph, v), sizes[v.name]) for v in level if v.name in sizes]
        if found:
            with np.errstate(over="ignore"):  # behind the wave of Z-IL errors may grow
                squares = sum(weight * np.square(size) for weight, size in found)
            rows.append(np.sqrt(squares / max(sum(weight for weight, _ in found), 1)))
    if not rows:
        raise complain(
            ValueError,
            "no vertex of this graph has an error.",
            remedy="Name the arguments that learn with argnums= of dendrax.trace.",
        )
    return np.array(rows)


@public("dendrax.draw.traces")
def traces(
    result: Result,
    vertices: Vertex | str | Sequence[Vertex | str] | None = None,
    path: str | os.PathLike[str] | None = None,
) -> Any:
    """Plot the size of single vertices' errors over time.

    **Arguments:** `result`: from `dendrax.run`, with `record="statistics"` or `"epsilon"`;
    `vertices`: which, by themselves or by name (`"scan[3]/cell"`: one step of a loop), by default
    the ten whose errors become largest; `path`: where to save it.

    **Returns:** a matplotlib figure.

    !!! example

        ```python
        import dendrax, jax.numpy as jnp

        loss = lambda w: jnp.sum((jnp.tanh(jnp.ones(3) @ w[0]) @ w[1]) ** 2)
        graph = dendrax.trace(loss, [jnp.eye(3), jnp.eye(3)])
        result = dendrax.run(graph, dendrax.ZIL(), record="statistics")
        dendrax.draw.traces(result, ["tanh"], "traces.svg")
        ```
    """
    record, sizes = _errors(result)
    if vertices is None:
        largest = sorted(sizes, key=lambda name: -np.max(np.nan_to_num(sizes[name])))
        chosen = largest[:MOST_TRACES]
    else:
        several = [vertices] if isinstance(vertices, (str, Vertex)) else vertices
        chosen = [v.name if isinstance(v, Vertex) else v for v in several]
        unknown = [name for name in chosen if not _find_step(record, sizes, name)]
        if unknown:
            near = "".join(nearest(name, sizes, most=3) for name in unknown)
            more = f", and {len(sizes) - 8} more" * (len(sizes) > 8)
            raise complain(
                ValueError,
                f"nothing was recorded for {unknown}.{near}",
                remedy=f"Vertices with an error: {', '.join(list(sizes)[:8])}{more}.",
            )
    figure, axes = new_figure()
    curves = [Curve(shortened(name, 30), sizes[name], 1.5) for name in chosen]
    paint_curves(axes, curves, "size of the error")
    axes.set_title(rule_text(result.rule))
    return finish(figure, axes, path)


@public("dendrax.draw.compare")
def compare(
    results: Result | Iterable[Result] | Mapping[str, Result],
    path: str | os.PathLike[str] | None = None,
    *,
    scale: Scale = "auto",
) -> Any:
    """Plot the energies of several rules over time.

    **Arguments:** `results`: from `dendrax.run(..., record="energy")`, or a dictionary of them with
    the names to show; `path`: where to save it; `scale`: as for `dendrax.draw.energy`.

    **Returns:** a matplotlib figure.

    !!! example

        ```python
        import dendrax, jax.numpy as jnp

        loss = lambda w: jnp.sum((jnp.tanh(jnp.ones(3) @ w[0]) @ w[1]) ** 2)
        graph = dendrax.trace(loss, [jnp.eye(3), jnp.eye(3)])
        rules = (dendrax.IL(20, gamma=0.1), dendrax.IL(20, gamma=0.4))
        dendrax.draw.compare([dendrax.run(graph, rule, record="energy") for rule in rules])
        ```
    """
    one_of("scale", scale, SCALES)
    named = _named(results)
    figure, axes = new_figure(height=max(3.4, 0.2 * len(named)))
    curves = [Curve(name, _energy(result), 1.8) for name, result in named]
    paint_curves(axes, curves, "energy", scale)
    return finish(figure, axes, path)


@public("dendrax.draw.distances")
def distances(
    certificates: Certificate | Sequence[Certificate], path: str | os.PathLike[str] | None = None
) -> Any:
    """Plot the distance of each parameter's gradient to backpropagation's, relative to its norm.

    **Arguments:** `certificates`: one from `dendrax.check`, or several, of the same function with
    different rules; `path`: where to save it.

    **Returns:** a matplotlib figure. Distances of exactly 0 have a place of their own, left of
    where the axis is broken.

    !!! example

        ```python
        import dendrax, jax.numpy as jnp


        def loss(w, x):
            return jnp.sum((jnp.tanh(x @ w[0]) @ w[1]) ** 2)


        args = [jnp.ones((3, 3))] * 2, jnp.ones((5, 3))
        rules = (dendrax.ZIL(), dendrax.IL(20, batch="sum"))
        dendrax.draw.distances([dendrax.check(loss, *args, rule=rule) for rule in rules])
        ```
    """
    several = list(certificates) if isinstance(certificates, Iterable) else [certificates]
    _check_certificates(several)
    relative = [[row.distance / (row.norm or 1.0) for row in c.rows] for c in several]
    names = [shortened(row.name, 28) for row in several[0].rows]
    figure, left, right = zero_and_log_axes(np.ravel(relative), height=1.6 + 0.24 * len(names))
    for k, (certificate, values) in enumerate(zip(several, relative, strict=True)):
        places = np.arange(len(values)) + 0.16 * (k - (len(several) - 1) / 2)
        name = rule_text(certificate.rule) + _remark(certificate, values)
        for axes in dict.fromkeys((left, right)):
            here = (np.equal(values, 0) == (axes is left)) | (left is right)
            shown = np.where(here, values, np.nan)
            axes.plot(shown, places, "o", ms=5, color=f"C{k}", label=name)
    right.set_xlabel("distance to backpropagation's gradient, relative")
    left.set_yticks(range(len(names)), names, fontsize=8, parse_math=False)
    left.invert_yaxis()
    marks = left.get_legend_handles_labels()
    figure.legend(*marks, loc="outside upper center", frameon=False, fontsize=8, ncols=2)
    return finish(figure, left, path, legend=False)


def _check_certificates(several: Sequence[Any]) -> None:
    wrong = [one for one in several if not isinstance(one, Certificate)]
    if wrong or not several:
        found = f"got {type(wrong[0]).__name__}" if wrong else "got none"
        raise complain(
            TypeError, f"expected certificates, {found}.", remedy="Make them with dendrax.check."
        )
    if len({tuple(row.name for row in one.rows) for one in several}) > 1:
        raise complain(
            ValueError,
            "the certificates are of functions with different parameters.",
            remedy="Compare rules on one function, or draw a figure for each.",
        )


def _remark(certificate: Certificate, distances: Sequence[float]) -> str:
    norms = [row.norm for row in certificate.rows]
    lost = sum(not np.isfinite(d + norm) for d, norm in zip(distances, norms, strict=True))
    if lost:
        return f": {lost} of {len(distances)} not finite"
    return ": exactly 0" if certificate.exact else ""


# ---- what was recorded ---------------------------------------------------------------------------


def _named(results: Any) -> list[tuple[str, Result]]:
    """Results with names; those of the same rule are numbered."""
    if isinstance(results, Mapping):
        return list(results.items())
    several = [results] if isinstance(results, Result) else list(results)
    if not several:
        raise complain(ValueError, "no result.", remedy="Make one with dendrax.run.")
    seen: Counter[str] = Counter()
    named = []
    for result in several:
        _recorded(result, "energy")
        name = rule_text(result.rule)
        seen[name] += 1
        named.append((f"{name} ({seen[name]})" if seen[name] > 1 else name, result))
    return named


def _energy(result: Result) -> np.ndarray:
    return np.asarray(_recorded(result, "energy"), np.float64)


def _recorded(result: Result, name: str) -> Any:
    if not isinstance(result, Result):
        raise complain(
            TypeError,
            f"expected a Result, got {type(result).__name__}.",
            remedy="Make one with dendrax.run(graph, rule, record=...).",
        )
    found = getattr(result, name, None)
    if found is None:
        raise complain(
            ValueError,
            f"the result has no record of {name!r}.",
            remedy=f"Run the rule with dendrax.run(..., record={name!r}).",
        )
    if _compat.is_tracer(result.num_steps) or any(
        map(_compat.is_tracer, jax.tree.leaves(result.output))
    ):
        raise complain(
            TypeError,
            "inside jax.jit the numbers are not known yet.",
            remedy="Return what is to be drawn, and draw it outside.",
        )
    return found


def _errors(result: Result) -> tuple[Record, dict[str, np.ndarray]]:
    """The root mean square of each vertex's error over time, from whatever was recorded."""
    if hasattr(result, "epsilon"):
        record = _recorded(result, "epsilon")
        return record, {v.name: _rms(e) for v, e in record[:].items()}
    record = _recorded(result, "statistics")
    return record, {v.name: statistics_of(record, v.name)[:, 0] for v in record[:]}


def _find_step(record: Record, sizes: dict[str, np.ndarray], name: str) -> bool:
    """Whether there is a size of this name; that of one step of a loop, if it is asked for, is
    added."""
    if name not in sizes:
        with contextlib.suppress(KeyError):
            sizes[name] = _rms(record[:][name])
    return name in sizes


def _rms(errors: Any) -> np.ndarray:
    parts = errors if isinstance(errors, tuple) else (errors,)
    flat = [np.abs(np.asarray(e)).astype(np.float64).reshape(len(e), -1) for e in parts]
    return np.sqrt(np.mean(np.square(np.concatenate(flat, axis=1)), axis=1))


def _total(energies: Any) -> np.ndarray:
    parts = energies if isinstance(energies, tuple) else (energies,)
    return np.sum([np.asarray(part, np.float64) for part in parts], axis=0)


def _by_level(result: Result) -> dict[int, np.ndarray]:
    """The energy of each level over time, from the output down."""
    record = _recorded(result, "energies")
    level_of = level_graph(record.graph).level_of
    shares: dict[int, np.ndarray] = {}
    for v, found in record[:].items():
        shares[level_of[v]] = shares.get(level_of[v], 0) + _total(found)
    return dict(sorted(shares.items()))


def _size(graph: Graph, v: Vertex) -> int:
    return sum(v.outputs[port.output].size for port in emitted_ports(graph, v))
