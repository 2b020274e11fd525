"""Runs a rule on a graph and hands back leaf gradients and what was recorded on the way."""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from dendrax import _compat
from dendrax.graph import (
    Edge,
    Graph,
    LevelledGraph,
    Port,
    checked,
    contract_graph,
    level_graph,
    operations_of,
)
from dendrax.inference._clamp import Clamp, Free, Hold, Pull
from dendrax.inference._descent import Descent
from dendrax.inference._dynamics import run_dynamics
from dendrax.inference._equations import largest
from dendrax.inference._evaluate import evaluate
from dendrax.inference._held import Bound, bound_of
from dendrax.inference._network import which_leaves
from dendrax.inference._notice import notice, on_divergence, on_no_convergence
from dendrax.inference._records import Record, Recorded
from dendrax.inference._rule import Rule
from dendrax.inference._settle import Relaxed, network_of, relax
from dendrax.inference._trust import check_no_memory
from dendrax.support import QUANTITIES, Vertices, complain, html_table, warn
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
        found = -1 if self.descent is None else int(self.descent.diverged_at)
        return None if found < 0 else found

    @property
    def advice(self) -> str:
        """What to try if inference diverged or did not converge; empty if all is well."""
        if self.rule is None:
            return ""
        if self.diverged_at is not None:
            assert self.descent is not None
            return on_divergence(self.rule, self.descent, self.graph)
        return on_no_convergence(self.converged, self.num_steps)

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


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Outcome:
    """What an update leaves besides value and gradient; a pytree.

    - ``memory``: what the next update is to start from, if the rule remembers anything.
    - ``energy``: the energy where inference has settled: of the whole network, which for a
      generative one is what says how well it does. ``course``: at every time step, if
      ``has_result="energy"`` asked for it.
    - ``num_steps``: the time steps used.
    - ``slope``: the largest slope of a value node at the end; 0 where all have settled.
    - ``diverged``: whether the energy was larger at the end than at the start, or not finite.
    - ``args``: the arguments, with the free ones where they have settled; ``None`` if none is free.

    A rule that is one pass leaves the memory and the energy, which is the loss; the rest is
    ``None``.
    """

    memory: Any = None
    energy: Any = None
    course: Any = None
    num_steps: Any = None
    slope: Any = None
    diverged: Any = None
    args: Any = None


class Learned(NamedTuple):
    """The results of a function, the errors at its leaves, and what else is left."""

    outputs: list[Any]
    gradients: list[Any]
    relaxed: Relaxed | None

    def outcome(self, call: Any) -> Outcome:
        """What is left, for those who ask."""
        found = self.relaxed
        if found is None:
            return Outcome()
        descent = found.descent
        return Outcome(
            found.memory,
            found.look.energy,
            found.records.get("energy"),
            jnp.asarray(found.num_steps),
            largest(found.look.slope),
            None if descent is None else descent.diverged_at >= 0,
            settled_arguments(call, found) if found.look.net.view.free else None,
        )


def settled_arguments(call: Any, found: Relaxed) -> tuple[Any, ...]:
    """The arguments of a call, with the free ones where they have settled."""
    net = found.look.net
    places = zip(map(Port, net.view.graph.leaves), net.leaves, strict=True)
    leaves = [found.look.x.get(port, value) for port, value in places]
    return tuple(call.arguments.filled(leaves[len(call.constants) :])[0])


def learn(
    graph: Graph,
    rule: Rule,
    vertices: Vertices,
    leaves: Sequence[Any],
    clamp: Clamp,
    memory: Any = None,
    record: Sequence[str] = (),
) -> Learned:
    """What a rule learns over time from what holds the network."""
    shown = with_vertices(graph, vertices, unrolled=keeps_step(rule))
    check_settles(rule, shown, clamp)
    if rule.keeps_time:
        check_no_memory(rule, memory)
        levelled = checked(level_graph(shown))
        end = run_dynamics(levelled.graph, rule.schedule(levelled), leaves, clamp)
        return Learned(end.outputs, end.gradients, None)
    found = relax(rule, relaxed_graph(rule, shown), leaves, clamp, record, memory=memory)
    notice(rule, found.descent)
    return Learned(found.outputs, found.gradients, found)


def check_settles(rule: Rule, graph: Graph, clamp: Clamp) -> None:
    """What is free or held needs a rule whose value nodes settle."""
    asked = [
        name
        for name, given in (("free", graph.free), ("hold", clamp.hold), ("prior", clamp.prior))
        if given
    ]
    if asked and not (rule.relaxes and rule.settles):
        name = type(rule).__name__
        raise complain(
            ValueError,
            f"{name} cannot heed {' and '.join(asked)}: its value nodes do not settle.",
            remedy="Use a rule whose value nodes do, such as rule=dendrax.IL().",
        )
    if graph.ties and keeps_step(rule):
        refuse_cycle(graph)


def first_memory(graph: Graph, rule: Rule, vertices: Vertices, leaves: Sequence[Any]) -> Any:
    """What a rule remembers before it has moved: the memory with which nothing begins otherwise."""
    shown = with_vertices(graph, vertices, unrolled=keeps_step(rule))
    net = network_of(rule, relaxed_graph(rule, shown), leaves, Pull([1.0]))
    return rule.memory(net, rule.start(net))


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


def _run_as_wave(graph: Graph, rule: Rule, leaves: Sequence[Any], clamp: Clamp) -> Result:
    operations = operations_of(graph)
    if operations is graph:
        operations = contract_graph(graph)[0]
    outputs, tape = record_graph(operations, leaves, rule.local)
    found = send_back(tape, [clamp.error(o, mu) for o, mu in enumerate(outputs)])
    output = jax.tree.unflatten(graph.call.out_tree, outputs)
    return Result(output, graph.call.gradient(found), rule=rule, graph=graph)


def flat_target(graph: Graph, target: Any) -> list[Any] | None:
    """The leaves of a target, which is a tree like the function's result; ``None`` at a place says
    that this output has none."""
    if target is None:
        return None
    leaves, tree = jax.tree.flatten(target)
    expected = graph.call.out_tree
    if tree == expected:
        return leaves
    leaves, tree = jax.tree.flatten(target, is_leaf=lambda part: part is None)
    if tree != expected:
        raise complain(
            ValueError,
            f"the target's tree {tree} is not that of the function's result {expected}.",
        )
    return leaves


def clamp_for(
    graph: Graph,
    target: Sequence[Any] | None,
    mask: Any = None,
    *,
    hold: Mapping[str, Any] | None = None,
    prior: Any = None,
    otherwise: type[Clamp] = Free,
) -> Clamp:
    """A target holds the outputs, where the mask is true; a scalar loss pulls with an error of 1;
    else nothing does."""
    avals = [graph[port.vertex].outputs[port.output] for port in graph.outputs]
    given = {"hold": _checked_hold(hold), "prior": prior}
    if target is not None:
        targets = [_as_target(y, aval) for y, aval in zip(target, avals, strict=True)]
        for o in graph.ties.values():
            if targets[o] is not None:
                raise complain(
                    ValueError,
                    "an output has a target and is tied to an argument, too.",
                    remedy="Hold the argument: hold={'its name': (value, mask)}.",
                )
        if mask is None:
            return Hold(targets, **given)
        masked = _with_masks(graph, targets, mask)
        return Hold([b and b.value for b in masked], [b and b.mask for b in masked], **given)
    if mask is not None:
        raise complain(ValueError, "there is a mask, but no target that it is for.")
    is_loss = len(avals) == 1 and avals[0].shape == () and not graph.ties
    if is_loss and jnp.issubdtype(avals[0].dtype, jnp.floating):
        return Pull([1.0], **given)
    return otherwise(**given)


def _checked_hold(hold: Any) -> Mapping[str, Any]:
    if hold is None:
        return {}
    if not isinstance(hold, Mapping):
        raise complain(
            TypeError,
            f"hold must be a dictionary, got {type(hold).__name__}.",
            remedy="Write hold={'name of a vertex': value}, or (value, mask) to hold a part.",
        )
    return hold


def _with_masks(graph: Graph, targets: Sequence[Any], mask: Any) -> list[Bound | None]:
    """What each output is held at, and where."""
    masks = jax.tree.leaves(mask, is_leaf=lambda part: part is None)
    if len(masks) != len(targets):
        raise complain(
            ValueError,
            f"there are {len(masks)} masks for {len(targets)} outputs.",
            remedy="Give a mask of the form of the target.",
        )
    found: list[Bound | None] = []
    for at, target, own in zip(graph.outputs, targets, masks, strict=True):
        aval = graph[at.vertex].outputs[at.output]
        found.append(None if target is None else bound_of("the output", (target, own), aval))
    return found


def _as_target(y: Any, aval: Any) -> Any:
    if y is None:
        return None
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
