"""A `Result` as the explorer embeds it: every size as 16 bits on a logarithmic scale.

Enters: the statistics of a run. Leaves: a table of sizes, one row per quantity and vertex (and per
place in a delay line), one column per time; of a record that is too large only some of the times.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np

from dendrax.draw._structure import labels_of, learning_times, modules_of, rule_text
from dendrax.graph import Edge, Graph, LevelledGraph, Port, Vertex
from dendrax.inference import Clamp, Record, Result, arrivals, size
from dendrax.rules import Rule

QUANTITIES = ("error", "x", "mu")
STEPS = 65532  # between the smallest and the largest; even, so that 1 has a code of its own
LOST = 65535  # the code of what is not finite
MAX_CODES = 800_000  # of a page; two bytes each
MOST_LAYERS = 10  # curves of energy


@dataclass(frozen=True)
class Track:
    """One run over time.

    - ``rule``: in words.
    - ``learns``: when each parameter does, in words.
    - ``times``: those that were kept.
    - ``energy``: at these times; of arrivals, half the squared errors of the level that the wave is
      at, since nobody has computed the energy behind it.
    - ``layers``: the share of each layer in the energy, by name.
    - ``sizes``: rows of quantities and of places in delay lines, columns of times.
    - ``delayed``: whether the rule waits in the delays.
    - ``wave``: whether the error takes one level per time step.
    - ``arrivals``: whether there is only one column, what was found when the wave arrived.
    - ``note``: what the reader should know, such as that times were left out.
    """

    rule: str
    learns: dict[int, str]
    times: np.ndarray
    energy: np.ndarray
    sizes: np.ndarray
    delayed: bool
    wave: bool
    note: str
    arrivals: bool = False
    layers: Mapping[str, np.ndarray] = field(default_factory=dict[str, np.ndarray])


def track(
    result: Result, levelled: LevelledGraph, slots: Sequence[Vertex], *, budget: int
) -> Track:
    """The record of a run, sampled so that it has at most ``budget`` codes."""
    statistics = _sizes(result, slots)
    waiting = _waiting(result, levelled)
    rows = np.concatenate([statistics, waiting]) if len(waiting) else statistics
    count = rows.shape[1]
    kept = _kept_times(count, len(rows), budget)
    notes = [result.advice] if result.advice else []
    if len(kept) < count:
        notes.append(
            f"The record of {count} time steps is too large to embed; {len(kept)} of them are "
            "shown."
        )
    rule = rule_text(result.rule)
    return Track(
        rule=rule,
        learns=learning_times(result.rule, levelled, last=count - 1),
        times=kept,
        energy=np.asarray(result.energy, np.float64)[kept],
        sizes=rows[:, kept],
        delayed=bool(len(waiting)),
        wave=bool(getattr(result.rule, "is_wave", False)),
        note=f"{rule}: {' '.join(notes)}" if notes else "",
        layers={name: shares[kept] for name, shares in _layers(result, levelled.graph).items()},
    )


def _layers(result: Result, graph: Graph) -> dict[str, np.ndarray]:
    """The energy of each outermost module over time, from the output down, and of the rest."""
    if not hasattr(result, "energies"):
        return {}
    modules, labels = modules_of(graph), labels_of(graph)
    names = {v.name: (modules[v.index] or (labels[v.index],))[0] for v in graph}
    found: dict[str, np.ndarray] = {}
    for v, shares in reversed(list(result.energies[:].items())):
        parts = shares if isinstance(shares, tuple) else (shares,)
        total = np.sum([np.asarray(part, np.float64) for part in parts], axis=0)
        name = names.get(v.name, "delays")
        found[name] = found[name] + total if name in found else total
    if len(found) <= MOST_LAYERS:
        return found
    largest = sorted(found, key=lambda name: -np.nanmax(np.abs(found[name]), initial=0.0))
    kept = set(largest[: MOST_LAYERS - 1])
    rest = np.sum([shares for name, shares in found.items() if name not in kept], axis=0)
    return {name: shares for name, shares in found.items() if name in kept} | {"others": rest}


def is_too_large(levelled: LevelledGraph, slots: Sequence[Vertex], *, budget: int) -> bool:
    """Whether the whole record of a wave would be too large to embed."""
    times = len(levelled.levels) + 1
    return times * (len(QUANTITIES) * len(slots) + levelled.num_delays) > budget


def reach_of(tracks: Sequence[Track]) -> int:
    """How many powers of ten, up and down, hold all sizes."""
    found = [one.sizes[np.isfinite(one.sizes) & (one.sizes > 0)] for one in tracks]
    logs = np.abs(np.log10(np.concatenate([sizes.ravel() for sizes in found])))
    return max(10, int(np.ceil(logs.max(initial=0.0))))


def encode(sizes: np.ndarray, reach: int) -> np.ndarray:
    """Non-negative numbers -> codes: 0 is exactly zero, `LOST` is not finite."""
    with np.errstate(divide="ignore", invalid="ignore"):
        place = (np.log10(sizes) + reach) / (2 * reach)
    codes = 1 + np.round(np.clip(place, 0.0, 1.0) * STEPS)
    codes = np.where(sizes == 0, 0, np.where(np.isfinite(sizes), codes, LOST))
    return codes.astype("<u2")


def decode(codes: np.ndarray, reach: int) -> np.ndarray:
    """The inverse of `encode`, to 0.04 % within ten powers of ten and 1.2 % within all of them."""
    sizes = 10.0 ** (-reach + (codes.astype(np.float64) - 1) / STEPS * 2 * reach)
    return np.where(codes == 0, 0.0, np.where(codes == LOST, np.nan, sizes))


def track_wave(
    rule: Rule,
    levelled: LevelledGraph,
    slots: Sequence[Vertex],
    clamp: Clamp,
    measure: Callable[[Any], float] = size,
) -> Track:
    """The record of a wave from its arrivals: one column, in which each row has its own time.

    What passes through a delay line does not change, so there is one row for the whole line.
    ``measure`` finds the root mean square of an array.
    """
    graph, last = levelled.graph, max(levelled.level_of[v.index] for v in slots)
    found = arrivals(graph, clamp, measure=measure)
    errors, values = (
        [float(joined(graph, v, [sizes[port] for port in emitted_ports(graph, v)])) for v in slots]
        for sizes in (found.errors, found.values)
    )
    waiting = [found.messages[edge] for edge, delay in levelled.delays.items() if delay]
    return Track(
        rule=rule_text(rule),
        learns=learning_times(rule, levelled, last=last),
        times=np.arange(last + 1),
        energy=_energy_of_front(levelled, slots, errors),
        sizes=np.array([*errors, *values, *values, *waiting])[:, None],
        delayed=bool(waiting),
        wave=True,
        note=f"{rule_text(rule)}: found by one pass over the {len(slots)} vertices, as the wave "
        "arrives; behind it what has passed stays in sight, and nothing more is computed.",
        arrivals=True,
    )


def _energy_of_front(
    levelled: LevelledGraph, slots: Sequence[Vertex], errors: Sequence[float]
) -> np.ndarray:
    """Half the squared errors of each level."""
    energy = np.zeros(max(levelled.level_of[v.index] for v in slots) + 1)
    for v, error in zip(slots, errors, strict=True):
        ports = emitted_ports(levelled.graph, v)
        energy[levelled.level_of[v.index]] += (
            0.5 * error**2 * sum(v.outputs[port.output].size for port in ports)
        )
    return energy


def _kept_times(count: int, rows: int, budget: int) -> np.ndarray:
    most = max(2, budget // max(rows, 1))
    if count <= most:
        return np.arange(count)
    return np.unique(np.linspace(0, count - 1, most).round().astype(int))


def _sizes(result: Result, slots: Sequence[Vertex]) -> np.ndarray:
    """Rows: the error of every slot, then the values, then the predictions."""
    tables = [statistics_of(result.statistics, v.name) for v in slots]
    return np.concatenate(list(np.moveaxis(np.stack(tables), 2, 0)))


def statistics_of(record: Record, vertex: str | int) -> np.ndarray:
    """Error, value and prediction (columns) of a vertex over time (rows)."""
    found, v = record[:][vertex], record.graph[vertex]
    return joined(record.graph, v, found if isinstance(found, tuple) else (found,))


def joined(graph: Graph, v: Vertex, parts: Sequence[Any]) -> np.ndarray:
    """One root mean square from those of each output of a vertex that carries errors."""
    if len(parts) == 1:
        return np.asarray(parts[0], np.float64)
    weights = [v.outputs[port.output].size for port in emitted_ports(graph, v)]
    squares = [
        w * np.square(np.asarray(p, np.float64)) for w, p in zip(weights, parts, strict=True)
    ]
    return np.sqrt(sum(squares) / max(sum(weights), 1))


def emitted_ports(graph: Graph, v: Vertex) -> list[Port]:
    """The outputs of a vertex that carry errors."""
    return [Port(v.index, o) for o in graph.flow.emitted[v.index]]


def _waiting(result: Result, levelled: LevelledGraph) -> np.ndarray:
    """Rows: the places of each delay line, as `delay_lines` counts them; none without delays."""
    delays = {edge: delay for edge, delay in levelled.delays.items() if delay}
    if waiting := getattr(result, "waiting", None):
        return np.concatenate([np.asarray(waiting[edge], np.float64).T for edge in delays])
    if not delays or not getattr(result.rule, "levelled", False):
        return np.zeros((0, 0))
    record = result.statistics
    return np.stack([statistics_of(record, v)[:, 0] for v in _written_delays(levelled)])


def _written_delays(levelled: LevelledGraph) -> list[int]:
    """The delays that IL has written out as vertices, in the order of the places."""
    expanded = levelled.expand()
    base = {v.index: i for i, v in enumerate(v for v in expanded if v.kind != "delay")}
    chains: dict[Edge, list[int]] = {}
    for v in (v for v in expanded if v.kind != "delay"):
        for port in v.inputs:
            chain: list[int] = []
            while expanded[port.vertex].kind == "delay":
                chain.insert(0, port.vertex)
                port = expanded[port.vertex].inputs[0]
            chains[Edge(Port(base[port.vertex], port.output), base[v.index])] = chain
    return [index for edge, delay in levelled.delays.items() if delay for index in chains[edge]]


class Line(NamedTuple):
    """A delay line: its number among all lines, and the number of its first place among all."""

    number: int
    first: int


def delay_lines(levelled: LevelledGraph) -> dict[Edge, Line]:
    """Where each delay line stands in a record."""
    lines: dict[Edge, Line] = {}
    total = 0
    for edge, delay in levelled.delays.items():
        if delay:
            lines[edge] = Line(len(lines), total)
            total += delay
    return lines
