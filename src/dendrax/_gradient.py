"""Runs a rule on a graph and hands back leaf gradients and what was recorded on the way."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import jax
import jax.numpy as jnp

from dendrax._check_graph import checked
from dendrax._dynamics import Clamp, run_dynamics
from dendrax._equations import prediction_error
from dendrax._errors import complain
from dendrax._flatten import flatten
from dendrax._graph import Graph, Port, Vertex
from dendrax._level import LevelledGraph, contract_graph, level_graph
from dendrax._wavefront import run_backward, run_forward
from dendrax.rules._base import Rule

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


@dataclass(frozen=True)
class Result:
    """What `dendrax.run` found.

    - ``output``: the function's result by the forward pass (for a prediction by inference: where
      the value nodes of the output have arrived).
    - ``gradient``: ∂F/∂ζ, a tree like the differentiated arguments; ``None`` for a prediction.
    - ``energy``, ``x``, ``mu``, ``epsilon``: what was asked to be recorded; ``energy[t]`` and
      ``epsilon[t][vertex]``.
    - ``num_steps``: the number of time steps; 0 for the wavefront, which needs none.
    """

    output: Any
    gradient: Any
    energy: Any = None
    x: Record | None = field(default=None, repr=False)
    mu: Record | None = field(default=None, repr=False)
    epsilon: Record | None = field(default=None, repr=False)
    num_steps: int = 0


def run_wave(graph: Graph, leaves: Sequence[Any]) -> tuple[list[Any], list[Any]]:
    """Outputs and leaf errors of a loss (the first output) by one pass over the graph."""
    outputs, pullbacks = run_forward(graph, graph.wave, leaves)
    errors = [jax.lax.full_like(outputs[0], 1)] + [None] * (len(outputs) - 1)
    return outputs, run_backward(graph, graph.wave, pullbacks, errors)


def run_loss_over_time(
    graph: Graph, leaves: Sequence[Any], rule: Rule
) -> tuple[list[Any], list[Any]]:
    """As `run_wave`, by the dynamics of a rule."""
    errors = [_one(graph)] + [None] * (len(graph.outputs) - 1)
    return run_over_time(graph, rule, leaves, errors)


def _one(graph: Graph) -> Any:
    port = graph.outputs[0]
    return jnp.ones((), graph[port.vertex].outputs[port.output].dtype)


def run_over_time(
    graph: Graph, rule: Rule, leaves: Sequence[Any], errors: Sequence[Any]
) -> tuple[list[Any], list[Any]]:
    """Outputs and leaf errors by a rule's dynamics, for a constant error at each output."""
    levelled = checked(level_graph(flatten(graph)))
    delays, schedule = rule.delays(levelled), rule.schedule(levelled)
    end = run_dynamics(levelled.graph, delays, schedule, leaves, Clamp(errors=errors))
    return end.outputs, end.gradients


def run_rule(
    graph: Graph,
    rule: Rule,
    leaves: Sequence[Any],
    target: Sequence[Any] | None,
    record: Sequence[str],
) -> Result:
    """Run a rule on a flat graph: a loss, a clamped target, or a free prediction."""
    contracted, written_delays = contract_graph(graph)
    clamp = _clamp(contracted, target)
    if rule.is_wave and not record and clamp is not None:
        return _run_as_wave(contracted, leaves, clamp)
    levelled = checked(level_graph(contracted))
    schedule = rule.schedule(levelled)
    delays = {**written_delays, **rule.delays(levelled)}
    end = run_dynamics(contracted, delays, schedule, leaves, clamp or Clamp(), record)
    named = {name: Record(contracted, end.records[name], schedule.num_steps) for name in record}
    if "energy" in record:
        named["energy"] = end.records["energy"]
    output = end.settled if clamp is None else end.outputs
    return Result(
        jax.tree.unflatten(graph.call.out_tree, output),
        None if clamp is None else graph.call.gradient(end.gradients),
        **named,
        num_steps=schedule.num_steps,
    )


def _run_as_wave(graph: Graph, leaves: Sequence[Any], clamp: Clamp) -> Result:
    outputs, pullbacks = run_forward(graph, graph.wave, leaves)
    errors = clamp.errors
    if errors is None:
        assert clamp.targets is not None
        errors = [prediction_error(mu, y) for mu, y in zip(outputs, clamp.targets, strict=True)]
    found = run_backward(graph, graph.wave, pullbacks, errors)
    output = jax.tree.unflatten(graph.call.out_tree, outputs)
    return Result(output, graph.call.gradient(found))


def _clamp(graph: Graph, target: Sequence[Any] | None) -> Clamp | None:
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
