"""Where value nodes start."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp

from dendrax.graph import Vertex
from dendrax.inference import Init, Network, Values
from dendrax.support import STARTS, Start, complain, one_of


def _noise(vertex: Vertex, mu: Any) -> Any:
    # Also where the user runs operation by operation: a generator of bits, run so, takes seconds.
    with jax.disable_jit(False):
        key = jax.random.fold_in(jax.random.key(0), vertex.index)
        noise = jax.random.normal(key, mu.shape, mu.dtype)
    return mu + noise


def _zeros(vertex: Vertex, mu: Any) -> Any:
    return jnp.zeros_like(mu)


_STARTS: dict[Start, Init | None] = {"forward": None, "zeros": _zeros, "noise": _noise}


def start_at(init: Start | Init) -> Init | None:
    """The function that starts value nodes; ``None`` for the forward pass."""
    return _checked(init) if callable(init) else _STARTS[init]


def _checked(init: Init) -> Init:
    def start(vertex: Vertex, mu: Any) -> Any:
        x = jnp.asarray(init(vertex, mu), mu.dtype)
        if x.shape != mu.shape:
            raise complain(
                ValueError,
                f"init gave {vertex.name} a value of shape {x.shape}, but its shape is {mu.shape}.",
                source=vertex.source,
                remedy="Return an array of the shape of mu, the value of the forward pass.",
            )
        return x

    return start


def check_init(rule: str, init: Any) -> None:
    """A start is one of the named ones, or a function."""
    if not callable(init):
        one_of(f"{rule}: init", init, STARTS)


def start_values(net: Network, init: Start | Init) -> Values:
    """The value nodes at their start."""
    begin = start_at(init)
    if begin is None or net.is_started:
        return net.values
    cuts = {port: begin(net.view.vertex(port), net.values[port]) for port in net.view.cuts}
    return {**net.values, **cuts}  # free arguments start where the user says
