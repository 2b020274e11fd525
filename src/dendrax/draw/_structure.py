"""What a picture of a graph is made from: rows, modules, words.

- Rows are levels. What carries no error has none; it stands one row below the lowest of its users.
- Modules are found from the parameters: ``model.blocks[0].conv.kernel`` lies in ``model``,
  ``model.blocks[0]`` and ``model.blocks[0].conv``. An operation belongs to the module of the
  parameters that it uses; one that uses none belongs to what comes after it, like a nonlinearity
  to the next layer, and else to what comes before; the sum of a residual block, to the block.
"""

from __future__ import annotations

import dataclasses
import linecache
import os
import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import jax

from dendrax.graph import Cone, Graph, LevelledGraph, Quotient, Vertex, identity, is_stacked
from dendrax.local import Constant, Equation

Path = tuple[str, ...]


def shape_text(aval: Any) -> str:
    """``20×128`` for an array, ``scalar`` for a number."""
    return "×".join(map(str, aval.shape)) or "scalar"


def type_text(v: Vertex) -> str:
    """``float32[20,128]``, for each output."""
    return ", ".join(f"{a.dtype}[{','.join(map(str, a.shape))}]" for a in v.outputs)


def rule_text(rule: Any) -> str:
    """The rule with the settings that are not its defaults: ``IL(num_steps=30)``."""
    fields = [
        (f.name, getattr(rule, f.name), f.default) for f in dataclasses.fields(rule) if f.init
    ]
    changed = [(name, value) for name, value, default in fields if repr(value) != repr(default)]
    settings = ", ".join(f"{name}={_setting_text(value)}" for name, value in changed)
    return f"{type(rule).__name__}({settings})"


def _setting_text(value: Any) -> str:
    """A setting without addresses in memory, which would differ from run to run."""
    text = repr(value)
    if " at 0x" in text or len(text) > 60:
        return getattr(value, "__name__", type(value).__name__)
    return text


def learning_times(rule: Any, levelled: LevelledGraph, *, last: int) -> dict[int, str]:
    """When each parameter learns, by index, in words; ``last`` is the last time step."""
    learned = [v.index for v in levelled.graph.parameters if v.index in levelled.level_of]
    if rule.moves_parameters:
        return dict.fromkeys(learned, "every step")
    if not rule.keeps_time:
        return dict.fromkeys(learned, f"the end, t = {last}")
    times: dict[int, list[int]] = {index: [] for index in learned}
    for edge, t in rule.schedule(levelled).learn_at.items():
        times[edge.source.vertex].append(t)
    return {
        index: "t = " + ", ".join(map(str, sorted(set(found)))) for index, found in times.items()
    }


def shortened(text: str, most: int) -> str:
    """``text`` with its middle left out if it is longer than ``most``: names differ at the end."""
    if len(text) <= most:
        return text
    head = most // 3
    return f"{text[:head]}…{text[len(text) - (most - head - 1) :]}"


# ---- rows ----------------------------------------------------------------------------------------


def rows_of(levelled: LevelledGraph) -> list[int]:
    """The row of each vertex, from 0 at the top; -1 for what leads nowhere."""
    graph = levelled.graph
    rows = [-1] * len(graph)
    for v in reversed(graph.vertices):
        if v.index in levelled.level_of:
            rows[v.index] = levelled.level_of[v.index]
        else:
            below = [rows[user.index] for user in graph.users(v) if rows[user.index] >= 0]
            rows[v.index] = max(below) + 1 if below else -1
    for port in graph.outputs:  # an output without an error stands on top
        if rows[port.vertex] < 0:
            rows[port.vertex] = 0
    return rows


# ---- modules -------------------------------------------------------------------------------------


def modules_of(graph: Graph) -> list[tuple[str, ...]]:
    """The modules that each vertex lies in, the outermost first; without one that holds all."""
    shared = len(_shared(graph))
    return [
        tuple("".join(path[shared : depth + 1]).lstrip(".") for depth in range(shared, len(path)))
        for path in _paths(graph)
    ]


def labels_of(graph: Graph) -> list[str]:
    """The names of the vertices, without what all parameters have in common."""
    shared = _shared(graph)
    steps = [_steps(_plain(v.name, graph)) for v in graph]
    return [
        "".join(path[len(shared) :]).lstrip(".")
        if shared and len(path) > len(shared) and path[: len(shared)] == shared
        else "".join(path)
        for path in steps
    ]


def _plain(name: str, graph: Graph) -> str:
    """``hidden`` as ``model.hidden``, unless that is a parameter beside it."""
    found = re.fullmatch(r"(.*/)?layer\((.*)\)(_\d+)?", name)
    if found is None or any(found[2] == leaf.name for leaf in graph.parameters):
        return name
    return "".join(part or "" for part in found.groups())


def _shared(graph: Graph) -> Path:
    """Where all parameters lie, such as ``("model",)``."""
    learned = [_steps(v.name)[:-1] for v in graph.parameters]
    return _common(learned) if len(learned) > 1 else ()


def _paths(graph: Graph) -> list[Path]:
    own = _own_paths(graph)
    paths: list[Path] = [path or () for path in own]
    for v in reversed(graph.vertices):  # what comes after
        if own[v.index] is None and _is_active(graph, v):
            paths[v.index] = _common(paths[u.index] for u in graph.users(v) if _is_active(graph, u))
    shared = len(_shared(graph))
    for v in graph.vertices:  # what comes before
        if own[v.index] is None and len(paths[v.index]) <= shared and _is_active(graph, v):
            before = sorted(u.index for u in graph.inputs(v) if _is_active(graph, u))
            inputs = [paths[index] for index in before]
            latest = next((path for path in reversed(inputs) if len(path) > shared), ())
            common = _common(inputs)
            paths[v.index] = common if len(common) > shared else latest[: shared + 1]
    return paths


def _own_paths(graph: Graph) -> list[Path | None]:
    """By the parameters that a vertex uses, itself or through vertices that use nothing else."""
    own: list[Path | None] = []
    pure: list[bool] = []  # made from parameters and constants only
    for v in graph.vertices:
        if v.function is None:
            own.append(_steps(v.name)[:-1] if v.kind == "parameter" else None)
            pure.append(v.kind == "parameter")
            continue
        inputs = [u.index for u in graph.inputs(v)]
        used = [own[i] for i in inputs if pure[i]]
        paths = [path for path in used if path is not None]
        own.append(_common(paths) if paths else None)
        pure.append(all(pure[i] for i in inputs))
    return own


def _steps(name: str) -> Path:
    """``model.blocks[0].kernel`` -> ``("model", ".blocks[0]", ".kernel")``."""
    return tuple(re.findall(r"(?:^|\.)[^.\[]+(?:\[\d+\])*|\[[^\]]*\]|.+", name))


def _common(paths: Iterable[Path]) -> Path:
    """The longest beginning that all paths share."""
    found = list(paths)
    if not found:
        return ()
    first, last = min(found), max(found)
    count = next((i for i, (a, b) in enumerate(zip(first, last, strict=False)) if a != b), None)
    return first[: min(len(first), len(last)) if count is None else count]


def _is_active(graph: Graph, v: Vertex) -> bool:
    return bool(graph.flow.emitted[v.index])


# ---- words ---------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Source:
    """A line of the user's code: where it is, for people, and the line with its neighbours."""

    place: str
    code: str


def source_of(v: Vertex, around: int = 2) -> Source:
    """The source line of a vertex, with ``around`` lines before and after it."""
    found = re.fullmatch(r"(.*?):(\d+)(?::\d+)?(?: \((.*)\))?", v.source)
    if found is None:
        return Source(v.source, "")
    file, line, function = found[1], int(found[2]), found[3]
    numbered = (
        (n, linecache.getline(file, n).rstrip()) for n in range(line - around, line + around + 1)
    )
    shown = [f"{'>' if n == line else ' '} {n:>4}  {text}" for n, text in numbered if text]
    return Source(
        f"{_near(file)}:{line}" + f" ({function})" * bool(function),
        "\n".join(shown) if linecache.getline(file, line) else "",
    )


def _near(file: str) -> str:
    """The path from here, or the end of one that lies elsewhere."""
    try:
        relative = os.path.relpath(file) if os.path.isabs(file) else file
    except (ValueError, OSError):  # another drive; a folder that is gone
        relative = ".."
    return relative if not relative.startswith("..") else os.sep.join(file.split(os.sep)[-3:])


def local_text(v: Vertex, graph: Graph, most: int = 3000) -> str:
    """The local function, as a jaxpr; of a vertex that is stacked over time that of one step."""
    if isinstance(graph, Quotient) and v.index in graph.loops:
        graph, v = graph.one_step(v)
    function = v.function
    if function is None or function is identity:
        return "" if function is None else "identity"
    if isinstance(function, Constant):
        return f"the constant {shortened(str(function.value), 60)}"
    if isinstance(function, Equation):
        text = str(function.jaxpr)
    elif isinstance(function, Cone) and any(map(is_stacked, function.members)):
        names = ", ".join(member.name for member in function.members)
        text = f"what all steps of a loop lead to: {names}"
    else:
        avals = [graph[port.vertex].outputs[port.output] for port in v.inputs]
        text = str(jax.make_jaxpr(function)(*avals))
    return text if len(text) <= most else f"{text[:most]}\n… {len(text) - most} characters more"
