"""Where numbers were lost: the first vertex, or the first error, that is not finite.

The forward pass first, in program order; then the error wave, from the output on. If both are
finite, it is inference that diverged, and the rule says what to try.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from dendrax import _graphs
from dendrax.graph import Graph, Port, Vertex, level_graph
from dendrax.inference import Pull, arrivals, evaluate
from dendrax.rules import Rule
from dendrax.support import Vertices


def first_nonfinite(
    fun: Callable[..., Any], *args: Any, rule: Rule, vertices: Vertices | None = None
) -> str:
    """A sentence that names the first vertex of a loss at which something is not finite.

    **Arguments:**

    - `fun`: a function that returns a scalar; its first argument holds the parameters.
    - `args`: where.
    - `rule`, `vertices`: as for `dendrax.value_and_grad`.

    **Returns:** the sentence; it is empty if everything is finite.
    """
    graph = _graphs.trace(fun, *args)
    leaves = graph.call.leaves()
    found = _lost_value(graph, leaves) or _lost_error(graph, leaves)
    if not found and rule.relaxes:
        shown = _graphs.trace(fun, *args, vertices=vertices or rule.vertices)
        found = _graphs.run(shown, rule).advice
    return found


def _lost_value(graph: Graph, leaves: Sequence[Any]) -> str:
    @jax.jit
    def lost(leaves: Any) -> Any:
        return {port: _count_lost(value) for port, value in evaluate(graph, leaves).items()}

    counts = _positive(lost(leaves))
    ports = sorted(counts)
    if not ports:
        return ""
    v = graph[ports[0].vertex]
    if v.kind != "internal":
        what = "parameter" if v.kind == "parameter" else "input"
        return f"The {what} {v.name} is not finite to begin with ({_share(v, ports[0], counts)})."
    return (
        f"The first vertex that is not finite is {_described(graph, v)}: its inputs are finite, "
        f"and of its output {_share(v, ports[0], counts)}."
    )


def _lost_error(graph: Graph, leaves: Sequence[Any]) -> str:
    clamp = Pull([1.0])

    @jax.jit
    def lost(leaves: Any) -> Any:
        return arrivals(graph, clamp, leaves, _count_lost).messages

    messages = _positive(lost(leaves))
    if not messages:
        return ""
    # The wave goes from the output down: the first sender is the last in program order.
    edge = max(messages, key=lambda edge: edge.user)
    user, source = graph[edge.user], graph[edge.source.vertex]
    return (
        f"All values are finite. The first error that is not finite is the one that "
        f"{_described(graph, user)} sends to {source.name}: of that message "
        f"{int(messages[edge])} of {np.prod(source.shape, dtype=int)} numbers are not."
    )


def _described(graph: Graph, v: Vertex) -> str:
    level = level_graph(graph).level_of.get(v.index)
    place = f", at {v.source}" if v.source else ""
    return f"{v.name}{'' if level is None else f' (level {level})'}{place}"


def _share(v: Vertex, port: Port, counts: dict[Any, Any]) -> str:
    size = int(np.prod(v.outputs[port.output].shape, dtype=int))
    return f"{int(counts[port])} of {size} numbers are not"


def _positive(counts: dict[Any, Any]) -> dict[Any, int]:
    return {key: int(count) for key, count in counts.items() if int(count)}


def _count_lost(value: Any) -> Any:
    if not jnp.issubdtype(value.dtype, jnp.inexact):
        return jnp.zeros((), jnp.int32)
    return jnp.sum(~jnp.isfinite(value), dtype=jnp.int32)
