"""What parameters learn by a rule that runs over time, and what else that leaves."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from dendrax.graph import Graph, Port, checked, level_graph
from dendrax.inference._clamp import Clamp, Pull
from dendrax.inference._dynamics import run_dynamics
from dendrax.inference._equations import largest
from dendrax.inference._notice import notice
from dendrax.inference._rule import Rule
from dendrax.inference._run import by_wave, check_settles, keeps_step, relaxed_graph
from dendrax.inference._settle import Relaxed, network_of, relax
from dendrax.inference._trust import check_no_memory
from dendrax.support import Vertices
from dendrax.vertices import with_vertices


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

    A rule that is one pass leaves the energy alone, which is the loss; with a target or a cotangent
    not even that.
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
    shown = _shown(graph, rule, vertices)
    check_settles(rule, shown, clamp)
    if rule.keeps_time:
        check_no_memory(rule, memory)
        levelled = checked(level_graph(shown))
        end = run_dynamics(levelled.graph, rule.schedule(levelled), leaves, clamp)
        return Learned(end.outputs, end.gradients, None)
    if rule.is_wave and clamp.holds():
        check_no_memory(rule, memory)
        return Learned(*by_wave(shown, rule, leaves, clamp), None)
    found = relax(rule, relaxed_graph(rule, shown), leaves, clamp, record, memory=memory)
    notice(rule, found.descent)
    return Learned(found.outputs, found.gradients, found)


def _shown(graph: Graph, rule: Rule, vertices: Vertices) -> Graph:
    """The graph of the value nodes, that says what was chosen."""
    shown = with_vertices(graph, vertices, unrolled=keeps_step(rule))
    return replace(shown, chosen=vertices)


def first_memory(graph: Graph, rule: Rule, vertices: Vertices, leaves: Sequence[Any]) -> Any:
    """What a rule remembers before it has moved: the memory with which nothing begins otherwise."""
    shown = _shown(graph, rule, vertices)
    net = network_of(rule, relaxed_graph(rule, shown), leaves, Pull([1.0]))
    return rule.memory(net, rule.start(net))
