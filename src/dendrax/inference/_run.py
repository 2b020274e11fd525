"""Runs a rule on a graph and hands back leaf gradients and what was recorded on the way."""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import jax

from dendrax import _compat
from dendrax.graph import (
    Cone,
    Edge,
    Graph,
    LevelledGraph,
    Quotient,
    checked,
    contract_graph,
    is_stacked,
    level_graph,
    operations_of,
)
from dendrax.inference._clamp import Clamp
from dendrax.inference._descent import Descent
from dendrax.inference._dynamics import run_dynamics
from dendrax.inference._evaluate import evaluate
from dendrax.inference._network import which_leaves
from dendrax.inference._notice import advice, step_of
from dendrax.inference._records import Record, Recorded
from dendrax.inference._rule import Rule
from dendrax.inference._settle import relax
from dendrax.support import QUANTITIES, complain, html_table, warn
from dendrax.vertices import unrolled, with_vertices
from dendrax.walk import Local, Tape, exact, port, record, send_back

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
    - ``diverged_at``: the time step from which on the energy rose for good (by a tenth of what it
      had fallen, or more), or was not finite; ``None`` if all is well. See ``advice`` for what to
      do then.

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
        return step_of(self.descent)

    @property
    def advice(self) -> str:
        """What to try if inference diverged or did not converge; empty if all is well."""
        if self.rule is None:
            return ""
        return advice(self.rule, self.descent, self.converged, self.num_steps, self.graph)

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
            start, end = float(self.descent.start), float(self.descent.end)
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


def record_graph(
    graph: Graph, leaves: Sequence[Any], local: Local = exact
) -> tuple[list[Any], Tape]:
    """The outputs of a graph, and the tape on which its vertices are noted for the wave."""

    def function(*leaves: Any) -> list[Any]:
        values = evaluate(graph, leaves, port)
        return [values[p] for p in graph.outputs]

    return record(function, leaves, which_leaves(graph), local)


def check_settles(rule: Rule, graph: Graph, clamp: Clamp) -> None:
    """What is free or held needs a rule whose value nodes settle."""
    alone = len(graph.free) > len(graph.ties)
    said = {"free": alone, "tie": graph.ties, "hold": clamp.hold, "prior": clamp.prior}
    asked = [name for name, given in said.items() if given]
    if asked and not (rule.relaxes and rule.settles):
        name = type(rule).__name__
        raise complain(
            ValueError,
            f"{name} can do nothing about {' and '.join(asked)}: its value nodes do not settle.",
            remedy="Use a rule whose value nodes do, such as rule=dendrax.IL().",
        )


def keeps_step(rule: Rule) -> bool:
    """Whether a rule keeps errors in step by delays, and so needs a vertex per step of a loop."""
    return rule.keeps_time or rule.levelled


def relaxed_graph(rule: Rule, graph: Graph | LevelledGraph) -> Graph:
    """The graph that a relaxing rule runs on: with the delays written out if it wants them."""
    flat = as_flat(graph)
    if not (flat.nodes or flat.free) and rule.descends and not rule.is_wave:
        warn(
            f"{type(rule).__name__}: the graph has no value node, only an output, so that nothing "
            "can relax (and the first step's gradient is backpropagation's). Choose other "
            "vertices, or mark some with dendrax.vertex."
        )
    if not rule.levelled:
        return flat
    refuse_cycle(flat)
    levelled = graph if isinstance(graph, LevelledGraph) else checked(level_graph(graph))
    return checked(levelled.expand())


def _refuse_delays_in_loops(graph: Graph) -> None:
    """A vertex for all steps of a loop is none that could wait step by step."""
    if isinstance(graph, Quotient):
        return
    for v in graph.vertices:
        if isinstance(v.function, Cone) and any(map(is_stacked, v.function.members)):
            raise complain(
                ValueError,
                f"the graph has its delays written out, but {v.name} is one vertex for all steps "
                "of a loop, of which each waits for another time.",
                source=v.source,
                remedy="Run the graph itself, by a rule that keeps errors in step and so sees a "
                "vertex for each step: dendrax.run(graph, dendrax.IL(levelled=True)).",
            )


def refuse_cycle(graph: Graph) -> None:
    """A graph with a tie has no levels."""
    for leaf, o in graph.ties.items():
        free, output = graph[graph.leaves[leaf]], graph[graph.outputs[o].vertex]
        raise complain(
            ValueError,
            f"the graph has a cycle, and so no levels: {free.name} is predicted by {output.name}, "
            "which reads it.",
            source=output.source,
            remedy=f"Cut the cycle: trace the function without the tie of {free.name}.",
        )


def graph_for(rule: Rule, graph: Graph | LevelledGraph) -> Graph | LevelledGraph:
    """The graph with the vertices that were chosen for it; else those of the rule."""
    flat = as_flat(graph)
    if flat.chosen is not None:
        return graph
    return replace(with_vertices(flat.traced or flat, rule.vertices), chosen=rule.vertices)


def run_rule(
    graph: Graph | LevelledGraph,
    rule: Rule,
    leaves: Sequence[Any],
    clamp: Clamp,
    record: Sequence[str],
) -> Result:
    """Run a rule on a flat graph: a loss, a clamped target, or a free prediction."""
    check_settles(rule, as_flat(graph), clamp)
    _refuse_delays_in_loops(as_flat(graph))
    if rule.is_wave and not record and clamp.holds():
        return _run_as_wave(as_flat(graph), rule, leaves, clamp)
    if keeps_step(rule) and (flat := unrolled(as_flat(graph))) is not as_flat(graph):
        graph = flat
    if rule.keeps_time:
        return _run_over_levels(graph, rule, leaves, clamp, record)
    return _run_relaxation(graph, rule, leaves, clamp, record)


def _run_over_levels(
    graph: Graph | LevelledGraph,
    rule: Rule,
    leaves: Sequence[Any],
    clamp: Clamp,
    record: Sequence[str],
) -> Result:
    given = as_flat(graph)
    contracted, written_delays = contract_graph(given)
    if any(written_delays.values()):
        levelled = checked(level_graph(contracted))
    else:
        levelled = graph if isinstance(graph, LevelledGraph) else checked(level_graph(given))
    schedule = rule.schedule(levelled)
    schedule = replace(schedule, delays={**written_delays, **schedule.delays})
    flat = levelled.graph
    end = run_dynamics(flat, schedule, leaves, clamp, _kept(record))
    output = end.outputs if clamp.holds() else end.settled
    return Result(
        jax.tree.unflatten(flat.call.out_tree, output),
        flat.call.gradient(end.gradients) if clamp.holds() else None,
        **_records(flat, end.records, schedule.num_steps),
        num_steps=schedule.num_steps,
        rule=rule,
        graph=given,
    )


def _run_relaxation(
    graph: Graph | LevelledGraph,
    rule: Rule,
    leaves: Sequence[Any],
    clamp: Clamp,
    record: Sequence[str],
) -> Result:
    shown = relaxed_graph(rule, graph)
    found = relax(rule, shown, leaves, clamp, _kept(record), watched=True)
    records, used = found.records, found.num_steps
    if not _compat.is_tracer(used):
        used = int(used)
        records = jax.tree.map(lambda values: values[: used + 1], records)
    call = shown.call
    return Result(
        jax.tree.unflatten(call.out_tree, found.outputs if clamp.holds() else found.settled),
        call.gradient(found.gradients) if clamp.holds() else None,
        **_records(shown, records, used + 1),
        num_steps=used,
        converged=found.done,
        rule=rule,
        graph=shown,
        descent=found.descent,
    )


def _kept(record: Sequence[str]) -> tuple[str, ...]:
    companions = {"energy": "energies", "statistics": "waiting"}
    return (*record, *(companions[name] for name in record if name in companions))


def _records(graph: Graph, records: Mapping[str, Any], num_steps: Any) -> dict[str, Any]:
    return {
        name: values if name in ("energy", "waiting") else Record(graph, values, num_steps)
        for name, values in records.items()
    }


def by_wave(
    graph: Graph, rule: Rule, leaves: Sequence[Any], clamp: Clamp
) -> tuple[list[Any], list[Any]]:
    """The outputs, and the errors at the leaves, by one pass."""
    operations = operations_of(graph)
    if operations is graph:
        operations = contract_graph(graph)[0]
    outputs, tape = record_graph(operations, leaves, rule.local)
    return outputs, send_back(tape, [clamp.error(o, mu) for o, mu in enumerate(outputs)])


def _run_as_wave(graph: Graph, rule: Rule, leaves: Sequence[Any], clamp: Clamp) -> Result:
    outputs, found = by_wave(graph, rule, leaves, clamp)
    output = jax.tree.unflatten(graph.call.out_tree, outputs)
    return Result(output, graph.call.gradient(found), rule=rule, graph=graph)


def as_flat(graph: Graph | LevelledGraph) -> Graph:
    """The flat graph behind a graph or levelled graph."""
    return graph.graph if isinstance(graph, LevelledGraph) else graph
