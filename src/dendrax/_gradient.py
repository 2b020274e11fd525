"""Runs a rule on a graph and hands back leaf gradients and what was recorded on the way."""

from __future__ import annotations

import functools
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from dendrax import _compat
from dendrax._check_graph import checked
from dendrax._dynamics import run_dynamics
from dendrax._equations import prediction_error
from dendrax._errors import complain
from dendrax._flatten import flatten
from dendrax._graph import Graph, Port, Vertex
from dendrax._level import LevelledGraph, contract_graph, level_graph
from dendrax._network import Clamp
from dendrax._relax import Outcome, Relaxation, run_relaxation
from dendrax._vertices import with_vertices
from dendrax._wavefront import run_backward, run_forward
from dendrax.rules import Rule, Timed

RECORDS = ("energy", "x", "mu", "epsilon")


class Moment(Mapping[Any, Any]):
    """A quantity at one time, by vertex (or its name, or its index)."""

    def __init__(self, graph: Graph, values: dict[Port, Any], t: int | slice):
        self._graph, self._values, self._t = graph, values, t

    def __getitem__(self, key: Vertex | str | int) -> Any:
        vertex = self._graph[key.name if isinstance(key, Vertex) else key]
        ports = [Port(vertex.index, o) for o in range(len(vertex.outputs))]
        values = tuple(self._values[port][self._t] for port in ports if port in self._values)
        if not values:
            raise KeyError(f"{key!r} has no error, so nothing was recorded for it")
        return values[0] if len(values) == 1 else values

    def __iter__(self) -> Iterator[Vertex]:
        return iter(dict.fromkeys(self._graph[port.vertex] for port in self._values))

    def __len__(self) -> int:
        return len({port.vertex for port in self._values})


class Record(Sequence[Moment]):
    """A quantity over time: ``record[t][vertex]``; ``record[:][vertex]`` has time as first axis."""

    def __init__(self, graph: Graph, values: dict[Port, Any], num_steps: int):
        self._graph, self._values, self._num_steps = graph, values, num_steps

    def __getitem__(self, t: Any) -> Any:
        if isinstance(t, int) and not -self._num_steps <= t < self._num_steps:
            raise IndexError(f"time {t} was not recorded; there are {self._num_steps} time steps")
        return Moment(self._graph, self._values, t)

    def __len__(self) -> int:
        return self._num_steps


@dataclass(frozen=True, repr=False)
class Result:
    """What `dendrax.run` found.

    - ``output``: the function's result by the forward pass (for a prediction by inference: where
      the value nodes of the output have arrived).
    - ``gradient``: ∂F/∂ζ, a tree like the differentiated arguments; ``None`` for a prediction.
    - ``energy``, ``energies``, ``x``, ``mu``, ``epsilon``: what was asked to be recorded;
      ``energy[t]``, and ``epsilon[t][vertex]`` for the others. (``"energy"`` brings both
      ``energy`` and ``energies``, its share by vertex.)
    - ``num_steps``: the number of time steps used; 0 for the wavefront, which needs none.
    - ``converged``: whether the rule stopped because of its ``tol``; ``None`` without one.
    - ``diverged_at``: the time step from which on the energy is larger than at the start, or not
      finite; ``None`` if all is well. See ``advice`` for what to do then.
    """

    output: Any
    gradient: Any
    energy: Any = None
    energies: Record | None = None
    x: Record | None = None
    mu: Record | None = None
    epsilon: Record | None = None
    num_steps: Any = 0
    converged: Any = None
    rule: Rule | None = None
    course: Course | None = None

    @functools.cached_property
    def diverged_at(self) -> int | None:
        return None if self.course is None else self.course.diverged_at()

    @property
    def advice(self) -> str:
        """What to try if inference diverged or did not converge; empty if all is well."""
        gamma = getattr(self.rule, "gamma", 1.0)
        if self.diverged_at is not None:
            assert self.course is not None
            return (
                f"Inference diverged: from step {self.diverged_at} on the energy is larger than at "
                f"the start ({self.course.start:.4g}), and at the end it is {self.course.end:.4g}. "
                f"Try a smaller gamma than {gamma}, for instance {gamma / 4:.3g}, or an optimizer "
                "for the value nodes such as optax.adam(0.01)."
            )
        if self.converged is not None and not self.converged:
            return (
                f"Inference did not converge in {int(self.num_steps)} steps. Try a larger "
                "num_steps, a larger gamma, or a larger tol."
            )
        return ""

    def __repr__(self) -> str:
        lines = [f"Result of {self.rule}: {self.num_steps} steps"]
        if self.course is not None:
            lines.append(f"  energy {self.course.start:.6g} -> {self.course.end:.6g}")
        if self.converged is not None:
            lines.append(f"  converged: {bool(self.converged)}")
        recorded = [name for name in RECORDS if getattr(self, name) is not None]
        lines += [f"  recorded: {', '.join(recorded)}"] * bool(recorded)
        return "\n".join(lines + [f"  {self.advice}"] * bool(self.advice))


@dataclass(frozen=True, eq=False)
class Course:
    """How the energy went: at the start, at the end, and, if one wants to know, in between."""

    start: Any
    end: Any
    energy: Callable[[], Any]

    def diverged_at(self) -> int | None:
        if np.isfinite(self.end) and self.end <= self.start + 1e-6 * abs(self.start):
            return None
        energy = np.asarray(self.energy())
        higher = ~np.isfinite(energy) | (energy > energy[0])
        return int(np.flatnonzero(~higher)[-1]) + 1


def is_wave(rule: Rule) -> bool:
    """Whether one pass over the graph gives the rule's result exactly."""
    return isinstance(rule, Timed) and rule.is_wave


def run_wave(graph: Graph, leaves: Sequence[Any]) -> tuple[list[Any], list[Any]]:
    """Outputs and leaf errors of a loss (the first output) by one pass over the graph."""
    outputs, pullbacks = run_forward(graph, graph.wave, leaves)
    errors = [jax.lax.full_like(outputs[0], 1)] + [None] * (len(outputs) - 1)
    return outputs, run_backward(graph, graph.wave, pullbacks, errors)


def run_loss_over_time(
    graph: Graph, leaves: Sequence[Any], rule: Rule, vertices: str
) -> tuple[list[Any], list[Any]]:
    """As `run_wave`, by the dynamics of a rule."""
    errors = [_one(graph)] + [None] * (len(graph.outputs) - 1)
    return run_over_time(graph, rule, vertices, leaves, errors)


def _one(graph: Graph) -> Any:
    port = graph.outputs[0]
    return jnp.ones((), graph[port.vertex].outputs[port.output].dtype)


def run_over_time(
    graph: Graph, rule: Rule, vertices: str, leaves: Sequence[Any], errors: Sequence[Any]
) -> tuple[list[Any], list[Any]]:
    """Outputs and leaf errors by a rule's dynamics, for a constant error at each output."""
    shown = checked(with_vertices(checked(flatten(graph)), vertices))
    clamp = Clamp(errors=errors)
    if isinstance(rule, Relaxation):
        outcome = run_relaxation(rule, relaxed_graph(rule, shown), leaves, clamp)
        return outcome.outputs, outcome.gradients
    assert isinstance(rule, Timed)
    levelled = checked(level_graph(shown))
    delays, schedule = rule.delays(levelled), rule.schedule(levelled)
    end = run_dynamics(levelled.graph, delays, schedule, leaves, clamp)
    return end.outputs, end.gradients


def relaxed_graph(rule: Rule, graph: Graph) -> Graph:
    """The graph that a relaxing rule runs on: with the delays written out if it wants them."""
    if not graph.nodes:
        warnings.warn(
            f"{type(rule).__name__}: the graph has no value node, only an output, so that nothing "
            "can relax and the gradient is backpropagation's. Choose other vertices, or mark some "
            "with dendrax.vertex.",
            stacklevel=2,
        )
    if not getattr(rule, "levelled", False):
        return graph
    return checked(level_graph(graph)).expand()


def run_rule(
    graph: Graph,
    rule: Rule,
    leaves: Sequence[Any],
    target: Sequence[Any] | None,
    record: Sequence[str],
) -> Result:
    """Run a rule on a flat graph: a loss, a clamped target, or a free prediction."""
    clamp = clamp_for(graph, target)
    if isinstance(rule, Relaxation):
        return _run_relaxation(graph, rule, leaves, clamp, record)
    assert isinstance(rule, Timed)
    if rule.is_wave and not record and clamp is not None:
        return _run_as_wave(graph, rule, leaves, clamp)
    return _run_dynamics(graph, rule, leaves, clamp, record)


def _run_dynamics(
    graph: Graph, rule: Timed, leaves: Sequence[Any], clamp: Clamp | None, record: Sequence[str]
) -> Result:
    contracted, written_delays = contract_graph(graph)
    levelled = checked(level_graph(contracted))
    schedule = rule.schedule(levelled)
    delays = {**written_delays, **rule.delays(levelled)}
    end = run_dynamics(contracted, delays, schedule, leaves, clamp or Clamp(), _kept(record))
    output = end.settled if clamp is None else end.outputs
    return Result(
        jax.tree.unflatten(graph.call.out_tree, output),
        None if clamp is None else graph.call.gradient(end.gradients),
        **_records(contracted, end.records, schedule.num_steps),
        num_steps=schedule.num_steps,
        rule=rule,
    )


def _run_relaxation(
    graph: Graph, rule: Any, leaves: Sequence[Any], clamp: Clamp | None, record: Sequence[str]
) -> Result:
    shown = relaxed_graph(rule, graph)

    def relax(record: Sequence[str]) -> Outcome:
        return run_relaxation(rule, shown, leaves, clamp or Clamp(), record)

    found = relax(_kept(record))
    records, used = found.records, found.num_steps
    if not _compat.is_tracer(used):
        used = int(used)
        records = jax.tree.map(lambda values: values[: used + 1], records)
    output = found.settled if clamp is None else found.outputs
    course = Course(*found.energies(), lambda: relax(("energy",)).records["energy"])
    return Result(
        jax.tree.unflatten(graph.call.out_tree, output),
        None if clamp is None else graph.call.gradient(found.gradients),
        **_records(shown, records, used + 1),
        num_steps=used,
        converged=None if found.slope is None else found.slope <= rule.tol,
        rule=rule,
        course=course if rule.descends else None,
    )


def _kept(record: Sequence[str]) -> tuple[str, ...]:
    return (*record, "energies") if "energy" in record else tuple(record)


def _records(graph: Graph, records: Mapping[str, Any], num_steps: Any) -> dict[str, Any]:
    return {
        name: values if name == "energy" else Record(graph, values, num_steps)
        for name, values in records.items()
    }


def _run_as_wave(graph: Graph, rule: Rule, leaves: Sequence[Any], clamp: Clamp) -> Result:
    operations = contract_graph(graph)[0] if graph.detail is None else graph.detail.graph
    outputs, pullbacks = run_forward(operations, operations.wave, leaves)
    errors = clamp.errors
    if errors is None:
        assert clamp.targets is not None
        errors = [prediction_error(mu, y) for mu, y in zip(outputs, clamp.targets, strict=True)]
    found = run_backward(operations, operations.wave, pullbacks, errors)
    output = jax.tree.unflatten(graph.call.out_tree, outputs)
    return Result(output, graph.call.gradient(found), rule=rule)


def clamp_for(graph: Graph, target: Sequence[Any] | None) -> Clamp | None:
    """A target clamps the outputs; a scalar loss pulls with an error of 1; else nothing does."""
    avals = [graph[port.vertex].outputs[port.output] for port in graph.outputs]
    if target is not None:
        return Clamp(targets=[_as_target(y, aval) for y, aval in zip(target, avals, strict=True)])
    if len(avals) == 1 and avals[0].shape == () and jnp.issubdtype(avals[0].dtype, jnp.floating):
        return Clamp(errors=[_one(graph)])
    return None


def _as_target(y: Any, aval: Any) -> Any:
    y = jnp.asarray(y, aval.dtype)
    if y.shape != aval.shape:
        raise complain(
            ValueError,
            f"the target has shape {y.shape}, but the function returns shape {aval.shape}.",
            remedy="Give a target for each output, of the same shape.",
        )
    return y


def as_flat(graph: Graph | LevelledGraph) -> Graph:
    """The flat graph behind a graph or levelled graph."""
    return graph.graph if isinstance(graph, LevelledGraph) else graph
