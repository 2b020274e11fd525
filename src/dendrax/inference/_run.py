"""Runs a rule on a graph and hands back leaf gradients and what was recorded on the way."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from dendrax import _compat
from dendrax.graph import Edge, Graph, LevelledGraph, Port, checked, contract_graph, level_graph
from dendrax.inference._dynamics import run_dynamics
from dendrax.inference._equations import prediction_error
from dendrax.inference._network import Clamp, constant_error, evaluate
from dendrax.inference._records import Record, Recorded
from dendrax.inference._relax import Outcome, Relaxation, run_relaxation
from dendrax.inference._rule import Rule
from dendrax.inference._timed import Timed
from dendrax.support import QUANTITIES, Vertices, complain, html_table, warn
from dendrax.tracing import flatten
from dendrax.vertices import with_vertices
from dendrax.walk import Tape, exact, port, record, send_back

NO_GRADIENT = (
    "None, because nothing was clamped: there is no target, and the output is not a scalar loss. "
    "Write dendrax.run(..., target=...), or trace a function that returns a scalar loss."
)


@dataclass(frozen=True, eq=False, repr=False)
class Result:
    """What `dendrax.run` found. Print it for a summary.

    - ``output``: the function's result by the forward pass (for a prediction by inference: where
      the value nodes of the output have arrived).
    - ``gradient``: ∂F/∂ζ, a tree like the differentiated arguments; ``None`` for a prediction,
      which is what a run is without a target, unless the output is a scalar loss.
    - ``energy``, ``energies``, ``x``, ``mu``, ``epsilon``: what was asked to be recorded;
      ``energy[t]``, and ``epsilon[t][vertex]`` for the others. (``"energy"`` brings both
      ``energy`` and ``energies``, its share by vertex.) What was not raises an
      ``AttributeError`` that says how to record it, so ``hasattr(result, "energy")`` asks for it.
    - ``statistics``: for models whose records would be too large: ``statistics[t][vertex]`` are the
      root mean squares of error, value and prediction. ``waiting[edge][t]`` has those of the errors
      in a delay line, the place next to the source first.
    - ``graph``: the graph that ran: with the vertices that were chosen, or those of the rule.
    - ``num_steps``: the number of time steps used; 0 for the wavefront, which needs none.
    - ``converged``: whether the rule stopped because of its ``tol``; ``None`` without one.
    - ``diverged_at``: the time step from which on the energy is larger than at the start, or not
      finite; ``None`` if all is well. See ``advice`` for what to do then.

    Inside `jax.jit` the numbers are not known yet: ``diverged_at`` and ``advice`` are for outside,
    and records of a rule with a ``tol`` have their last entry repeated to full length.
    """

    output: Any
    gradient: Any
    energy: Recorded[Any] = Recorded()
    energies: Recorded[Record] = Recorded()
    x: Recorded[Record] = Recorded()
    mu: Recorded[Record] = Recorded()
    epsilon: Recorded[Record] = Recorded()
    statistics: Recorded[Record] = Recorded()
    waiting: Recorded[Mapping[Edge, Any]] = Recorded()
    num_steps: Any = 0
    converged: Any = None
    rule: Rule | None = None
    graph: Graph | None = None
    descent: Descent | None = None

    @functools.cached_property
    def diverged_at(self) -> int | None:
        return None if self.descent is None else self.descent.diverged_at()

    @property
    def advice(self) -> str:
        """What to try if inference diverged or did not converge; empty if all is well."""
        if self.diverged_at is not None:
            assert self.descent is not None
            return self.descent.advice(self.diverged_at)
        if self.converged is not None and not self.converged:
            return (
                f"Inference did not converge in {int(self.num_steps)} steps. Try a larger "
                "num_steps or tol, a larger gamma, or, if the energy goes up and down, a smaller."
            )
        return ""

    def __repr__(self) -> str:
        lines = [f"  {name}{' ' if name == 'energy' else ': '}{text}" for name, text in self._facts]
        return "\n".join([self._title, *lines, *(f"  {remark}" for remark in self._remarks)])

    def _repr_html_(self) -> str:
        return html_table(self._title, (), self._facts, below=" ".join(self._remarks))

    @property
    def _title(self) -> str:
        return f"Result of {self.rule}: {self.num_steps} steps"

    @property
    def _traced(self) -> bool:
        return any(map(_compat.is_tracer, jax.tree.leaves((self.output, self.gradient))))

    @property
    def _facts(self) -> list[tuple[str, str]]:
        """What there is to say, by name."""
        facts = []
        if not self._traced and self.descent is not None:
            start, end, _ = self.descent.ends
            facts.append(("energy", f"{start:.6g} -> {end:.6g}"))
        if not self._traced and self.converged is not None:
            facts.append(("converged", str(bool(self.converged))))
        if recorded := [name for name in QUANTITIES if hasattr(self, name)]:
            facts.append(("recorded", ", ".join(recorded)))
        if self.gradient is None:
            facts.append(("gradient", NO_GRADIENT))
        return facts

    @property
    def _remarks(self) -> list[str]:
        if self._traced:
            return ["(inside jax.jit: the numbers are not known yet)"]
        return [self.advice] if self.advice else []


@dataclass(frozen=True, eq=False)
class Descent:
    """How the energy went, for those who want to know: nothing is computed before that.

    - ``energies()``: at the start, at the end, and that of the predictions for comparison.
    - ``record()``: at every time step.
    - ``chosen``: the vertices that the rule ran on.
    """

    rule: Relaxation
    energies: Callable[[], tuple[Any, Any, Any]]
    record: Callable[[], Any]
    chosen: Vertices | None = None

    @functools.cached_property
    def ends(self) -> tuple[float, float, float]:
        start, end, size = map(float, self.energies())
        return start, end, size

    def diverged_at(self) -> int | None:
        """The step from which on the energy is above its start by more than rounding."""
        start, end, size = self.ends
        rounding = 1e-6 * (abs(start) + (size if np.isfinite(size) else 0.0))
        if np.isfinite(end) and end <= start + rounding:
            return None
        energy = np.asarray(self.record(), np.float64)
        well = np.flatnonzero(np.isfinite(energy) & (energy <= start + rounding))
        return min(int(well[-1]) + 1, len(energy) - 1) if len(well) else 0

    def advice(self, step: int) -> str:
        start, end, _ = self.ends
        if not np.isfinite(start):
            return (
                f"The energy is {start} from the start: the function is not finite where the "
                "value nodes begin. Try init='forward', or look at the function's values there."
            )
        return (
            f"Inference diverged: from step {step} on the energy is larger than at the start "
            f"({start:.4g}), and at the end it is {end:.4g}. Try {self._other_vertices()}"
            f"{self.rule.remedy()}."
        )

    def _other_vertices(self) -> str:
        """With every operation a vertex there are many more errors than a rule is meant for."""
        if self.chosen != "primitive" or self.rule.vertices == "primitive":
            return ""
        return f"vertices={self.rule.vertices!r} (every operation is a vertex here), then "


def is_wave(rule: Rule) -> bool:
    """Whether one pass over the graph gives the rule's result exactly."""
    return isinstance(rule, Timed) and rule.is_wave


def record_graph(graph: Graph, leaves: Sequence[Any]) -> tuple[list[Any], Tape]:
    """The outputs of a graph, and the tape on which its vertices are noted for the wave."""

    def function(*leaves: Any) -> list[Any]:
        values = evaluate(graph, leaves, port)
        return [values[p] for p in graph.outputs]

    active = [graph.carries(Port(leaf)) for leaf in graph.leaves]
    return record(function, leaves, active, exact)


def run_loss_over_time(
    graph: Graph, leaves: Sequence[Any], rule: Rule, vertices: Vertices
) -> tuple[list[Any], list[Any]]:
    """Outputs and leaf errors of a loss (the first output) by the dynamics of a rule."""
    errors = [1.0] + [None] * (len(graph.outputs) - 1)
    return run_over_time(graph, rule, vertices, leaves, errors)


def run_over_time(
    graph: Graph, rule: Rule, vertices: Vertices, leaves: Sequence[Any], errors: Sequence[Any]
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


def relaxed_graph(rule: Relaxation, graph: Graph) -> Graph:
    """The graph that a relaxing rule runs on: with the delays written out if it wants them."""
    if not graph.nodes and rule.descends:
        warn(
            f"{type(rule).__name__}: the graph has no value node, only an output, so that nothing "
            "can relax (and the first step's gradient is backpropagation's). Choose other "
            "vertices, or mark some with dendrax.vertex."
        )
    if not rule.levelled:
        return graph
    return checked(level_graph(graph)).expand()


def graph_for(rule: Rule, graph: Graph) -> Graph:
    """The flat graph with the vertices that were chosen for it; else those of the rule."""
    if graph.chosen is not None:
        return graph
    return replace(checked(with_vertices(graph, rule.vertices)), chosen=rule.vertices)


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
        graph=graph,
    )


def _run_relaxation(
    graph: Graph,
    rule: Relaxation,
    leaves: Sequence[Any],
    clamp: Clamp | None,
    record: Sequence[str],
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

    def energy() -> Any:
        return relax(("energy",)).records["energy"][: found.num_steps + 1]

    descent = Descent(rule, found.energies, energy, graph.chosen)
    return Result(
        jax.tree.unflatten(graph.call.out_tree, output),
        None if clamp is None else graph.call.gradient(found.gradients),
        **_records(shown, records, used + 1),
        num_steps=used,
        converged=None if found.slope is None else found.slope <= rule.tol,
        rule=rule,
        graph=shown,
        descent=descent if rule.descends else None,
    )


def _kept(record: Sequence[str]) -> tuple[str, ...]:
    companions = {"energy": "energies", "statistics": "waiting"}
    return (*record, *(companions[name] for name in record if name in companions))


def _records(graph: Graph, records: Mapping[str, Any], num_steps: Any) -> dict[str, Any]:
    return {
        name: values if name in ("energy", "waiting") else Record(graph, values, num_steps)
        for name, values in records.items()
    }


def _run_as_wave(graph: Graph, rule: Rule, leaves: Sequence[Any], clamp: Clamp) -> Result:
    operations = contract_graph(graph)[0] if graph.detail is None else graph.detail.graph
    outputs, tape = record_graph(operations, leaves)
    if clamp.targets is not None:
        errors = [prediction_error(mu, y) for mu, y in zip(outputs, clamp.targets, strict=True)]
    else:
        assert clamp.errors is not None
        errors = [constant_error(mu, e) for mu, e in zip(outputs, clamp.errors, strict=True)]
    found = send_back(tape, errors)
    output = jax.tree.unflatten(graph.call.out_tree, outputs)
    return Result(output, graph.call.gradient(found), rule=rule, graph=graph)


def flat_target(graph: Graph, target: Any) -> list[Any] | None:
    """The leaves of a target, which is a tree like the function's result."""
    if target is None:
        return None
    leaves, tree = jax.tree.flatten(target)
    expected = graph.call.out_tree
    if tree != expected:
        raise complain(
            ValueError,
            f"the target's tree {tree} is not that of the function's result {expected}.",
        )
    return leaves


def clamp_for(graph: Graph, target: Sequence[Any] | None) -> Clamp | None:
    """A target clamps the outputs; a scalar loss pulls with an error of 1; else nothing does."""
    avals = [graph[port.vertex].outputs[port.output] for port in graph.outputs]
    if target is not None:
        return Clamp(targets=[_as_target(y, aval) for y, aval in zip(target, avals, strict=True)])
    if len(avals) == 1 and avals[0].shape == () and jnp.issubdtype(avals[0].dtype, jnp.floating):
        return Clamp(errors=[1.0])
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
