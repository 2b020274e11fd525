"""Does a rule keep the steps of a loop apart? The data flow of whole arrays cannot tell.

A value node inside a loop is one array, stacked over the steps, and a rule may mix these: by a sum
over the first axis, or by the norm of the whole. So one step of a node is made NaN, and the rule
moves once. Where NaN comes to that no prediction, error or message of the network brings, the rule
has brought it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp

from dendrax.graph import Graph, Port
from dendrax.inference import Clamp, Look, Network, Values, network_of, view_of
from dendrax.rules import Rule

Step = tuple[int, ...]
Reached = Mapping[Port, Any]  # by value node: at which steps something has come to it


def mixed_steps(
    rule: Rule, graph: Graph, leaves: Sequence[Any], clamp: Clamp
) -> dict[str, list[str]]:
    """By value node: those of which a rule brings steps to it that the network does not bring."""
    view = view_of(graph)
    net = network_of(rule, graph, leaves, clamp, view)
    by_rule = jax.jit(lambda state: _reached(net, rule.step(net, state)))
    by_network = jax.jit(lambda x, error: _reached(net, _seen(net, x, error)))
    start = jax.tree.map(jnp.asarray, rule.start(net))
    found: dict[str, list[str]] = {}
    for node in (node for node in view.nodes if view.loops(node)):
        for step in _tried(view.loops(node)):
            near = by_network(
                _spoilt(net, net.values, node, step), _spoilt(net, net.zeros(), node, step)
            )
            reached = by_rule(_spoilt(net, start, node, step))
            for port, steps in reached.items():
                if (steps & ~near[port]).any():
                    found.setdefault(view.vertex(port).name, []).append(view.vertex(node).name)
    return {name: list(dict.fromkeys(sources)) for name, sources in found.items()}


def _tried(loops: tuple[int, ...]) -> Iterator[Step]:
    """The first steps, those in the middle, and the last."""
    places = zip(*((0, length // 2, length - 1) for length in loops), strict=True)
    return iter(dict.fromkeys(places))


def _seen(net: Network, x: Values, error: Values) -> list[Any]:
    """All that a network shows of value nodes and of errors."""

    def shown(look: Look) -> list[Any]:
        return [look.x, look.mu, look.epsilon, look.errors, look.arrived.nodes, look.slope]

    return [shown(net.look(x)), shown(net.look(net.values).with_errors(error))]


def _spoilt(net: Network, tree: Any, node: Port, step: Step) -> Any:
    """The same with NaN for what belongs to one step of a value node."""
    loops = net.view.loops(node)

    def spoil(path: Any, leaf: Any) -> Any:
        own = _node_of(net, path) == node and leaf.shape[: len(loops)] == loops
        return leaf.at[step].set(jnp.nan) if own and _may_be_nan(leaf) else leaf

    return jax.tree_util.tree_map_with_path(spoil, tree)


def _reached(net: Network, tree: Any) -> Reached:
    """At which steps of each value node something is NaN."""
    found: dict[Port, Any] = {}
    for path, leaf in jax.tree_util.tree_leaves_with_path(tree):
        node = _node_of(net, path)
        if node is None or not _may_be_nan(leaf):
            continue
        loops = net.view.loops(node)
        if leaf.shape[: len(loops)] == loops:
            lost = jnp.isnan(leaf).any(axis=tuple(range(len(loops), leaf.ndim)))
            found[node] = found.get(node, False) | lost
    return found


def _node_of(net: Network, path: Any) -> Port | None:
    """The value node to which an entry of a state belongs: its key, or its name."""
    keys = [getattr(entry, "key", None) for entry in reversed(path)]
    named = (net.view.names.get(key) if isinstance(key, str) else key for key in keys)
    return next((p for p in named if isinstance(p, Port) and p in net.view.nodes), None)


def _may_be_nan(leaf: Any) -> bool:
    return jnp.issubdtype(leaf.dtype, jnp.inexact)
