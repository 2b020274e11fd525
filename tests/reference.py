"""The paper's dynamics once more, written as plainly as possible, to test the real ones against.

Works on a graph whose delays are written out as identity vertices (`LevelledGraph.expand`) or on
one without any. Value nodes are a dictionary, time is a Python loop, each local derivative is a
`jax.vjp` of one vertex's function, and the error is carried as PAPER-NOTES says. Shares no code
with `dendrax.inference._dynamics`.
"""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp

from dendrax import Graph


def forward(graph: Graph) -> dict[int, Any]:
    """The value of each (single-output) vertex."""
    values = dict(zip(graph.leaves, graph.call.leaves(), strict=True))
    for v in graph:
        if v.function is not None:
            (values[v.index],) = v.function(*(values[port.vertex] for port in v.inputs))
    return values


def simulate(
    graph: Graph,
    target: Any,
    *,
    gamma: float = 1.0,
    num_steps: int,
    learn_at: dict[tuple[int, int], int],
    start: dict[int, Any] | None = None,
) -> tuple[dict[int, Any], list[dict[int, Any]]]:
    """Gradients by leaf index, and the errors at each time. ``learn_at[leaf, user]`` is a time."""
    values = forward(graph)
    out = graph.outputs[0].vertex
    active = [v for v in graph.active if v.index != out]
    x = {**values, **(start or {})}
    gradient: dict[int, Any] = {}

    def predict(v: Any) -> Any:
        return v.function(*(x[port.vertex] for port in v.inputs))[0]

    mu = {v.index: predict(v) for v in graph.active}
    error = {v.index: mu[v.index] - x[v.index] for v in active}
    error[out] = mu[out] - target
    history = []
    for t in range(num_steps):
        history.append(dict(error))
        arriving: dict[int, list[tuple[int, Any]]] = {v.index: [] for v in graph}
        for v in reversed(graph.active):
            received = graph.flow.received[v.index]

            def local(*chosen: Any, v: Any = v, received: Any = received) -> Any:
                inputs = [x[port.vertex] for port in v.inputs]
                for k, value in zip(received, chosen, strict=True):
                    inputs[k] = value
                return v.function(*inputs)[0]

            sources = [v.inputs[k].vertex for k in received]
            _, pullback = jax.vjp(local, *(x[source] for source in sources))
            for source, message in zip(sources, pullback(error[v.index]), strict=True):
                arriving[source].append((v.index, message))
        for (leaf, user), when in learn_at.items():
            if when == t:
                for sender, message in arriving[leaf]:
                    if sender == user:
                        gradient[leaf] = gradient[leaf] + message if leaf in gradient else message
        change = {}
        for v in active:
            total = sum((m for _, m in arriving[v.index]), start=jnp.zeros_like(x[v.index]))
            change[v.index] = gamma * (error[v.index] - total)
        for index, dx in change.items():
            x[index] = x[index] + dx
        before, mu = mu, {v.index: predict(v) for v in graph.active}
        for v in active:
            moved = mu[v.index] - before[v.index]
            error[v.index] = error[v.index] + moved - change[v.index]
        error[out] = error[out] + (mu[out] - before[out])
    return gradient, history


def energy(
    graph: Graph,
    x: dict[tuple[int, int], Any],
    target: Any = None,
    precision: float = 1.0,
    of: Callable[[Any, Any, Any], Any] | None = None,
    of_target: Callable[[Any, Any], Any] | None = None,
) -> Any:
    """F as a function of the (single-output) value nodes, straight from the vertices' functions.

    What has no error follows the value nodes that it is computed from. ``of(vertex, mu, x)`` is
    another energy than half the square; ``of_target(mu, target)`` that of the output.
    """
    nodes = {v.index for v in graph.nodes}
    env = dict(zip(graph.leaves, graph.call.leaves(), strict=True))
    env.update({v.index: x[v.index, 0] for v in graph.free})
    total = 0.0
    for v in graph:
        if v.function is None:
            continue
        results = v.function(*(_output(env, port) for port in v.inputs))
        env[v.index] = results
        if v.index in nodes:
            emitted = graph.flow.emitted[v.index]
            env[v.index] = [x[v.index, o] if o in emitted else r for o, r in enumerate(results)]
            for o in emitted:
                error = results[o] - x[v.index, o]
                half = precision / 2 * jnp.sum((error * jnp.conj(error)).real)
                total = total + (half if of is None else of(v, results[o], x[v.index, o]))
    mu = _output(env, graph.outputs[0])
    if of_target is not None:
        return total + of_target(mu, target)
    return total + (mu if target is None else jnp.sum((mu - target) ** 2) / 2)


def _output(env: dict[int, Any], port: Any) -> Any:
    value = env[port.vertex]
    return value[port.output] if isinstance(value, list) else value
