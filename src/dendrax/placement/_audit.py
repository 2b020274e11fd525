"""Is a placement local? From the data flow of an update up to its gradients, traced by JAX.

Every array of the update is on some device: parameters where they live, data where they were given,
results where their operands are. An array changes places only by being sent. So we trace an update
in which sending leaves a mark, follow its equations, and see for each device which arrays it reads,
where they came from, and who sent them. An operation whose operands are on two devices, a parameter
that is read where it does not live, and an array sent past a neighbour are named.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import jax

from dendrax import _compat
from dendrax.inference import Values
from dendrax.placement._blocks import Partition
from dendrax.placement._wave import Runner
from dendrax.placement._wires import Link, What, Wires, size_in_bytes

_MARK = "dendrax_send"


@dataclass(frozen=True)
class PlacementAudit:
    """What each device of a placement reads, and what it sends. Print it for a table.

    - ``local``: whether every device reads its own parameters only, and hears from neighbours only.
    - ``offenders``: what is not so, in words.
    - ``reads``: for each device the parameters that its operations read.
    - ``links``: all that is sent in one update.
    """

    reads: tuple[tuple[str, ...], ...]
    links: tuple[Link, ...]
    offenders: tuple[str, ...]

    @property
    def local(self) -> bool:
        return not self.offenders

    def __str__(self) -> str:
        lines = [f"{'device':>6}  {'own parameters read':>19}  sends to"]
        for b, names in enumerate(self.reads):
            sent = [link for link in self.links if link.source == b]
            told = "; ".join(
                f"{link.target}: {link.values + link.errors} arrays, {link.bytes:,} bytes"
                for link in sent
            )
            lines.append(f"{b:>6}  {len(names):>19}  {told}".rstrip())
        verdict = "local" if self.local else "NOT local:"
        return "\n".join([*lines, f"placement: {verdict}", *(f"  {o}" for o in self.offenders)])

    __repr__ = __str__


class _MarkedWires(Wires):
    """Sending as a mark in the trace; whether it is between neighbours is seen later."""

    def send(self, value: Any, source: int, target: int, what: What) -> Any:
        def dendrax_send(value: Any) -> Any:
            return value

        dendrax_send.__name__ = f"{_MARK}_{source}_{target}_{what}"
        return jax.jit(dendrax_send)(value)


def audit_run(partition: Partition, runner: Runner, micro_batches: int) -> PlacementAudit:
    """Trace an update and follow every array."""
    names = [
        {port: partition.graph[port.vertex].name for port in partition.parameters(b)}
        for b in range(len(partition.blocks))
    ]
    parameters = [{port: _aval(partition, port) for port in own} for own in names]
    data = [
        {p: _aval(partition, p) for p in block.leaves if partition.graph[p.vertex].kind == "data"}
        for block in partition.blocks
    ]

    def update(parameters: Sequence[Values], data: Sequence[Sequence[Values]]) -> Any:
        learned: list[Values] = [{} for _ in partition.blocks]
        wires = _MarkedWires([None] * len(partition.blocks))
        results = runner.run(wires, parameters, data, lambda b, own: learned[b].update(own))
        return learned, results

    jaxpr = jax.make_jaxpr(update)(parameters, [data] * micro_batches)
    follower = _Follower(len(partition.blocks))
    inputs = iter(jaxpr.jaxpr.invars)
    for b, own in enumerate(parameters):
        for port in sorted(own):
            follower.put(next(inputs), b, names[b][port])
    for _ in range(micro_batches):
        for b, own in enumerate(data):
            for _ in own:
                follower.put(next(inputs), b)
    return follower.follow(jaxpr)


def _aval(partition: Partition, port: Any) -> Any:
    return partition.graph[port.vertex].outputs[port.output]


@dataclass
class _Follower:
    """Where every variable of a trace is.

    - ``place``: the device; ``parameter``: if it is one, its name and the device it lives on.
    """

    count: int
    place: dict[Any, int] = field(default_factory=dict)
    parameter: dict[Any, tuple[str, int]] = field(default_factory=dict)
    offenders: dict[str, None] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.reads: list[set[str]] = [set() for _ in range(self.count)]
        self.links: dict[tuple[int, int], Link] = {}

    def put(self, var: Any, device: int, parameter: str | None = None) -> None:
        """Say where an argument is."""
        self.place[var] = device
        if parameter is not None:
            self.parameter[var] = (parameter, device)

    def follow(self, jaxpr: Any) -> PlacementAudit:
        for eqn in jaxpr.eqns:
            name = str(eqn.params.get("name", ""))
            if name.startswith(_MARK):
                self._send(eqn, name)
            else:
                self._compute(eqn)
        links = tuple(self.links[key] for key in sorted(self.links))
        return PlacementAudit(
            tuple(tuple(sorted(names)) for names in self.reads), links, tuple(self.offenders)
        )

    def _send(self, eqn: Any, name: str) -> None:
        source, target, what = name.removeprefix(_MARK + "_").split("_")
        (var,), (result,) = eqn.invars, eqn.outvars
        here, there = int(source), int(target)
        if self.place.get(var, here) != here:  # a constant is made where it is needed
            self._accuse(f"device {here} sends what is on device {self.place[var]}.")
        if abs(here - there) != 1:
            self._accuse(f"device {here} sends to device {there}, which is not its neighbour.")
        link = self.links.setdefault((here, there), Link(here, there))
        link.add("value" if what == "value" else "error", size_in_bytes(var.aval))
        self.place[result] = there
        if what == "value" and var in self.parameter:  # an error is one, whatever it is made of
            self.parameter[result] = self.parameter[var]

    def _compute(self, eqn: Any) -> None:
        used = [var for var in _read(eqn) if var in self.place]
        places = sorted({self.place[var] for var in used})
        if len(places) > 1:
            self._accuse(f"an operation reads arrays on devices {', '.join(map(str, places))}.")
        for var in used:
            if var in self.parameter:
                self._read_parameter(*self.parameter[var], self.place[var])
        if places:
            self.place.update(dict.fromkeys(eqn.outvars, places[0]))
        for result, sources in zip(eqn.outvars, _sources(eqn), strict=True):
            # What is made of parameters alone is one in another form; a single number is not.
            is_form = sources and all(var in self.parameter for var in sources)
            if is_form and result.aval.size > 1:
                self.parameter[result] = self.parameter[sources[0]]

    def _read_parameter(self, name: str, home: int, device: int) -> None:
        if home == device:
            self.reads[device].add(name)
        else:
            self._accuse(f"device {device} reads {name}, which lives on device {home}.")

    def _accuse(self, text: str) -> None:
        self.offenders[text] = None


def _read(eqn: Any) -> list[Any]:
    """The variables that the results of an equation depend on."""
    return _compat.unique_vars([var for sources in _sources(eqn) for var in sources])


def _sources(eqn: Any) -> list[list[Any]]:
    """For each result the variables that it depends on; looks into compiled programs."""
    if eqn.primitive.name not in _compat.JIT_PRIMITIVES:
        return [_compat.unique_vars(eqn.invars)] * len(eqn.outvars)
    masks = _compat.dependencies(_compat.called_jaxpr(eqn.params).jaxpr)
    return [
        _compat.unique_vars([atom for k, atom in enumerate(eqn.invars) if mask >> k & 1])
        for mask in masks
    ]
