"""`explore`: a function and its arguments enter, one HTML file leaves that needs nothing else."""

from __future__ import annotations

import base64
import functools
import html
import importlib.resources
import json
import math
import os
import pathlib
import zlib
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from dendrax._graphs import level, run, trace
from dendrax._settings import check_rule, check_vertices
from dendrax.draw._file import check_writable, write
from dendrax.draw._notebook import show_page
from dendrax.draw._progress import Progress
from dendrax.draw._record import (
    MAX_CODES,
    QUANTITIES,
    STEPS,
    Track,
    delay_lines,
    encode,
    is_too_large,
    reach_of,
    track,
    track_wave,
)
from dendrax.draw._structure import (
    labels_of,
    local_text,
    modules_of,
    rows_of,
    rule_text,
    shape_text,
    source_of,
    type_text,
)
from dendrax.graph import Edge, Graph, LevelledGraph, Vertex
from dendrax.inference import Clamp, Result, clamp_for, flat_target, keeps_step, size
from dendrax.rules import ZIL, Rule
from dendrax.support import Vertices, complain, public
from dendrax.vertices import unrolled

MAX_STEPS = 100_000  # of a record; a page shows fewer
MOST_DYNAMICS = 150  # vertices; the dynamics of more take long to compile
SCRIPTS = ("payload", "layout", "colours", "pane", "charts", "panel", "controls", "app")


@public("dendrax.explore")
def explore(
    fun: Callable[..., Any],
    *args: Any,
    argnums: int | Sequence[int] = 0,
    has_aux: bool = False,
    rule: Rule | tuple[Rule, ...] = ZIL(),
    vertices: Vertices | None = None,
    target: Any = None,
    path: str | os.PathLike[str] = "explorer.html",
    title: str | None = None,
) -> pathlib.Path:
    """Write a page on which errors run through the graph of a function, for any current browser.

    Play and scrub through the time of inference, click a vertex for its source line, its local
    function and its error over time, search, collapse modules and delays, compare two rules. The
    page is one file and asks for nothing from the network.

    Of graphs with more than 150 vertices that have an error, or if the record would be too large,
    Z-IL shows the errors as the wave arrives, and not what happens behind it. The records of other
    rules are sampled if they are too large. The page says so. (IL on that many vertices takes
    minutes to compile; `vertices="layer"`, its default, has far fewer.)

    **Arguments:**

    - `fun`, `args`, `argnums`, `has_aux`: as for `dendrax.trace`. The function returns a loss, or
      anything if there is a `target`.
    - `rule`: one rule, or two to compare.
    - `vertices`: as for `dendrax.trace`. By default what the rule uses: operations for Z-IL, layers
      for IL and its relatives, and layers if one of two rules does.
    - `target`: what the output should be; a tree like the function's result.
    - `path`: the file to write.
    - `title`: by default the function's name.

    **Returns:** the path of the page. In a notebook the page is displayed, too, and its path
    printed.

    !!! example

        ```python
        import dendrax, jax.numpy as jnp


        def loss(w, x):
            return jnp.sum(jnp.tanh(x @ w) ** 2)


        dendrax.explore(loss, jnp.ones((3, 2)), jnp.ones((5, 3)), path="loss.html")
        ```
    """
    rules = tuple(rule) if isinstance(rule, (list, tuple)) else (rule,)
    for one in rules:
        check_rule(one)
    if not 1 <= len(rules) <= 2:
        raise complain(ValueError, f"rule has {len(rules)} rules.", remedy="Give one or two.")
    if many := [one for one in rules if (getattr(one, "num_steps", None) or 0) > MAX_STEPS]:
        raise complain(
            ValueError,
            f"{rule_text(many[0])} takes more time steps than can be shown.",
            remedy=f"Take at most num_steps={MAX_STEPS}.",
        )
    check_writable(path)
    usual: Vertices = "primitive"
    for one in rules:
        usual = one.vertices if usual == "primitive" else usual
    chosen = check_vertices("vertices", vertices) or usual
    graph = trace(fun, *args, argnums=argnums, has_aux=has_aux, vertices=chosen)
    if any(map(keeps_step, rules)):
        graph = unrolled(graph)
    page = write(path, _explorer_page(graph, rules, target, title or _name_of(fun)).encode())
    show_page(page)
    return page


def _name_of(fun: Any) -> str:
    while isinstance(fun, functools.partial):
        fun = fun.func
    return getattr(fun, "__qualname__", type(fun).__name__)


def _explorer_page(graph: Graph, rules: Sequence[Rule], target: Any, title: str) -> str:
    levelled, clamp = level(graph), _checked_clamp(graph, target)
    if not graph.active:
        raise complain(
            ValueError,
            "no parameter reaches the output, so there is no error to show.",
            remedy="Name the arguments that learn with argnums=.",
        )
    budget = MAX_CODES // len(rules)
    with Progress("dendrax.explore") as bar:
        tracks = [_tracked(levelled, rule, target, clamp, budget, bar) for rule in rules]
        bar.begin("writing")
        return _page_of(levelled, tracks, title)


def _tracked(
    levelled: LevelledGraph, rule: Rule, target: Any, clamp: Clamp, budget: int, bar: Progress
) -> Track:
    """What a rule does, by its dynamics; of a large graph as the wave arrives."""
    graph, slots = levelled.graph, list(levelled.graph.active)
    large = len(slots) > MOST_DYNAMICS or is_too_large(levelled, slots, budget=budget)
    if not (large and rule.is_wave and rule.keeps_time):
        bar.begin(f"compiling and running {rule_text(rule)}")
        result = run(graph, rule, target=target, record=("energy", "statistics"))
        return track(result, levelled, slots, budget=budget)

    def measure(array: Any) -> float:
        bar.advance()
        return size(array)

    ports = sum(len(graph.flow.emitted[v.index]) for v in slots)
    messages = sum(len(graph.flow.received[v.index]) for v in slots)
    bar.begin(f"following the wave of {rule_text(rule)}", 2 * ports + messages)
    return track_wave(rule, levelled, slots, clamp, measure)


def page_of_results(graph: Graph, results: Sequence[Result], title: str) -> str:
    """The page of what was run on a graph already, with records of energy and statistics."""
    levelled, budget = level(graph), MAX_CODES // len(results)
    tracks = [track(result, levelled, list(graph.active), budget=budget) for result in results]
    return _page_of(levelled, tracks, title)


def _page_of(levelled: LevelledGraph, tracks: Sequence[Track], title: str) -> str:
    slots = list(levelled.graph.active)
    return _page(title, _packed(_payload(levelled, slots, tracks, title), tracks))


def _checked_clamp(graph: Graph, target: Any) -> Clamp:
    clamp = clamp_for(graph, flat_target(graph, target))
    if not clamp.holds():
        several = " Of (loss, aux) only the loss: lambda *args: fun(*args)[0]."
        raise complain(
            ValueError,
            "the function does not return a scalar loss, so nothing would be clamped and no error "
            "would arise.",
            remedy="Give a target, of the shape of the result, or a function that returns a loss."
            + several * (len(graph.outputs) > 1),
        )
    return clamp


# ---- the data ------------------------------------------------------------------------------------


def _payload(
    levelled: LevelledGraph, slots: Sequence[Vertex], tracks: Sequence[Track], title: str
) -> dict[str, Any]:
    graph = levelled.graph
    active = {v.index: slot for slot, v in enumerate(slots)}
    rows, modules, labels = rows_of(levelled), modules_of(graph), labels_of(graph)
    offset, runs, reach = 0, [], reach_of(tracks)
    for one in tracks:
        runs.append(
            {
                "rule": one.rule,
                "learns": one.learns,
                "times": one.times.tolist(),
                "energy": _all_rounded(one.energy),
                "layers": {name: _all_rounded(shares) for name, shares in one.layers.items()},
                "offset": offset,
                "delayed": one.delayed,
                "wave": one.wave,
                "arrivals": one.arrivals,
                "note": one.note,
            }
        )
        offset += one.sizes.size
    return {
        "title": title,
        "num_levels": len(levelled.levels),
        "num_delays": levelled.num_delays,
        "num_slots": len(slots),
        "statistics": QUANTITIES,
        "scale": {"low": -reach, "high": reach, "steps": STEPS},
        "vertices": [
            {
                **_vertex(levelled, v),
                "label": labels[v.index],
                "row": rows[v.index],
                "modules": modules[v.index],
                "slot": active.get(v.index, -1),
            }
            for v in graph
        ],
        "edges": _edges(levelled, rows),
        "runs": runs,
    }


def _vertex(levelled: LevelledGraph, v: Vertex) -> dict[str, Any]:
    source = source_of(v)
    level = levelled.level_of.get(v.index)
    return {
        "name": v.name,
        "kind": v.kind,
        "shape": type_text(v),
        "level": level,
        "silent": level is None and v.kind != "data",
        "source": source.place,
        "code": source.code,
        "local": local_text(v, levelled.graph),
    }


def _all_rounded(values: np.ndarray) -> list[float | None]:
    return [_rounded(value) for value in values.tolist()]


def _rounded(value: float) -> float | None:
    return float(f"{value:.6g}") if math.isfinite(value) else None


def _edges(levelled: LevelledGraph, rows: Sequence[int]) -> list[dict[str, Any]]:
    """Every connection between vertices that have a row, those without errors included."""
    graph, lines = levelled.graph, delay_lines(levelled)
    found = []
    for v in graph:
        for port in v.inputs:
            edge = Edge(port, v.index)
            if rows[port.vertex] < 0 or rows[v.index] < 0:
                continue
            found.append(
                {
                    "source": port.vertex,
                    "user": v.index,
                    "shape": shape_text(graph[port.vertex].outputs[port.output]),
                    "delay": levelled.delays.get(edge, 0),
                    "line": lines.get(edge),
                    "silent": edge not in levelled.delays,
                }
            )
    return found


# ---- the page ------------------------------------------------------------------------------------


def _packed(payload: dict[str, Any], tracks: Sequence[Track]) -> str:
    """Length of the JSON, the JSON, the codes; compressed, in letters that HTML leaves alone."""
    text = json.dumps(payload, separators=(",", ":"), allow_nan=False).encode()
    head = len(text).to_bytes(4, "little") + text
    reach = payload["scale"]["high"]
    codes = b"".join(encode(one.sizes, reach).tobytes() for one in tracks)
    return base64.b64encode(zlib.compress(head + b"\0" * (len(head) % 2) + codes, 9)).decode()


def _page(title: str, payload: str) -> str:
    folder = importlib.resources.files("dendrax.draw") / "page"

    def read(name: str) -> str:
        return (folder / name).read_text(encoding="utf-8")

    parts = {
        "title": html.escape(f"{title} · dendrax"),
        "style": read("explorer.css"),
        "script": "\n".join(['"use strict";', *(read(f"{name}.js") for name in SCRIPTS)]),
        "payload": payload,
    }
    head, *rest = read("explorer.html").split("{{")
    return head + "".join(
        parts[name] + tail for name, tail in (piece.split("}}", 1) for piece in rest)
    )
