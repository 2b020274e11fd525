"""Z-IL's one pass over the levels.

The lemmas say that before time ``level(i)`` vertex ``i`` has not moved, and that what happens
behind the wave reaches no later update of a leaf. So at time `t` only the vertices of level `t` do
work, at the values of the forward pass, and the whole update costs one pullback per vertex:

    ε_i = Σ_{j in users(i)} ε_j ∂μ_j/∂x_i      at t = level(i)

Any topological order executes the same wave. We take reverse program order, because it adds the
messages of a vertex's users up in the order in which JAX's own backward pass does, and that decides
the last bit. Time is the level, a label (`dendrax.level`).

A graph enters with a `Flow`; its values and pullbacks leave `run_forward`, and the errors at its
leaves leave `run_backward`. Regions run the same two functions on their body.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import jax

from dendrax._graph import Flow, Graph, Port
from dendrax._local import linearise
from dendrax._open import Region

Pullbacks = list[Any]


def run_forward(graph: Graph, flow: Flow, leaves: Sequence[Any]) -> tuple[list[Any], Pullbacks]:
    """The forward pass: the graph's outputs, and the local pullback of each vertex on the way."""
    env = {Port(leaf): value for leaf, value in zip(graph.leaves, leaves, strict=True)}
    pullbacks: Pullbacks = [None] * len(graph)
    for v in graph.vertices:
        if v.function is None:
            continue
        inputs = [env[port] for port in v.inputs]
        received = flow.received[v.index]
        if not received:
            outputs = v.function(*inputs)
        elif isinstance(v.function, Region):
            outputs, pullbacks[v.index] = run_region(
                v.function, inputs, flow.emitted[v.index], received
            )
        else:
            emitted, summed = flow.emitted[v.index], flow.summed[v.index]
            outputs, pullbacks[v.index] = linearise(
                v.function, inputs, emitted, received, summed, flow.leaders[v.index]
            )
        env.update((Port(v.index, o), value) for o, value in enumerate(outputs))
    return [env[port] for port in graph.outputs], pullbacks


def run_backward(
    graph: Graph,
    flow: Flow,
    pullbacks: Pullbacks,
    errors: Sequence[Any],
    sums: Sequence[Any] = (),
) -> list[Any]:
    """The wave: from an error at each output to the error at each leaf; ``None`` means absent.

    ``sums`` are what the leaves already hold (``None``: nothing).
    """
    env: dict[Port, Any] = {}

    def accumulate(port: Port, message: Any) -> None:
        port = graph.origin(port)
        env[port] = jax.lax.add(env[port], message) if port in env else message

    for leaf, waiting in zip(graph.leaves, sums, strict=False):
        if waiting is not None:
            env[Port(leaf)] = waiting
    for port, error in zip(graph.outputs, errors, strict=True):
        if error is not None and graph.vertices[port.vertex].carries[port.output]:
            accumulate(port, error)
    for v in reversed(graph.vertices):
        if pullbacks[v.index] is None:
            continue
        arrived = tuple(env.pop(Port(v.index, o)) for o in flow.emitted[v.index])
        if isinstance(v.function, Region):
            messages = pullbacks[v.index](arrived)
            for k, message in zip(flow.received[v.index], messages, strict=True):
                accumulate(v.inputs[k], message)
        else:
            waiting = tuple(env[graph.origin(v.inputs[k])] for k in flow.summed[v.index])
            targets = [graph.origin(v.inputs[k]) for k in dict.fromkeys(flow.leaders[v.index])]
            env.update(zip(targets, pullbacks[v.index]((waiting, arrived)), strict=True))
    return [env.get(Port(leaf)) for leaf in graph.leaves]


@functools.singledispatch
def run_region(
    region: Region, inputs: Sequence[Any], emitted: tuple[int, ...], received: tuple[int, ...]
) -> tuple[Sequence[Any], Callable[[tuple[Any, ...]], list[Any]]]:
    """The outputs of a region, and its pullback from errors to the messages for ``received``.

    `dendrax._regions` says how for each kind of region.
    """
    raise NotImplementedError(f"no wavefront through {type(region).__name__}")


def body_forward(
    region: Region, emitted: tuple[int, ...], inputs: Sequence[Any]
) -> tuple[list[Any], Pullbacks]:
    """`run_forward` on a region's body."""
    return run_forward(region.body, region.wave(emitted), [*region.constants, *inputs])


def body_backward(
    region: Region,
    emitted: tuple[int, ...],
    received: tuple[int, ...],
    pullbacks: Pullbacks,
    errors: Sequence[Any],
) -> list[Any]:
    """`run_backward` on a region's body: the messages for ``received``."""
    spread = spread_errors(region, emitted, errors)
    messages = run_backward(region.body, region.wave(emitted), pullbacks, spread)
    return [messages[len(region.constants) + k] for k in received]


def spread_errors(region: Region, emitted: Sequence[int], errors: Sequence[Any]) -> list[Any]:
    """The errors of the emitted outputs, in the places of all outputs."""
    spread: list[Any] = [None] * len(region.body.outputs)
    for o, error in zip(emitted, errors, strict=True):
        spread[o] = error
    return spread
