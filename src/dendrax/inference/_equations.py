"""The paper's equations, one function each.

Conventions (the main text's; its appendix flips the sign of ε):

    μ_i = g_i(x of its inputs)                                   prediction
    ε_i = μ_i - x_i                                              prediction error
    F   = 1/2 Σ_i ε_i²                                           energy
    Δx_i = γ (ε_i - Σ_{j in users(i)} ε_j ∂μ_j/∂x_i)             inference, -γ ∂F/∂x_i
    Δζ_i = -α Σ_{j in users(i)} ε_j ∂μ_j/∂ζ_i                    learning, -α ∂F/∂ζ_i

A rule hands back ``∂F/∂ζ``, the sum without ``-α``: the step size belongs to the optimizer.

Time: ``t = 0`` is the moment after the output has been clamped and before any value node has moved.
At time `t` the leaves that learn then do so from `ε_t`; after that the value nodes move.

The error is carried along rather than computed afresh from ``μ - x``, which would lose the last
bits. It is the same equation and just as local:

    ε_{t+1} = ε_t + (μ_{t+1} - μ_t) - Δx_t

When the wave arrives at a vertex, ``ε_t`` and the bracket are exactly zero, so ``ε_{t+1}`` is
exactly the sum of the messages.

Errors of complex vertices follow JAX's convention for cotangents, ``ε = conj(μ - x)``.
"""

from __future__ import annotations

import functools
from collections.abc import Iterable, Mapping
from typing import Any

import jax
import jax.numpy as jnp

Array = Any


def prediction_error(mu: Array, x: Array) -> Array:
    """ε = μ - x."""
    return jnp.conj(mu - x) if jnp.iscomplexobj(mu) else mu - x


def add_messages(messages: Iterable[Array]) -> Array | None:
    """Σ_j ε_j ∂μ_j/∂x_i over the users j, strictly left to right; ``None`` if there are none."""
    messages = list(messages)
    return functools.reduce(jax.lax.add, messages) if messages else None


def value_change(gamma: float, epsilon: Array, messages: Array | None) -> Array:
    """Δx = γ (ε - Σ_j ε_j ∂μ_j/∂x)."""
    pull = epsilon if messages is None else jax.lax.sub(epsilon, messages)
    scaled = pull if gamma == 1 else jnp.asarray(gamma, pull.real.dtype) * pull
    return jnp.conj(scaled) if jnp.iscomplexobj(scaled) else scaled


def carried_error(epsilon: Array, dx: Array) -> Array:
    """ε_t - Δx_t: the error after the value node has moved, while the prediction is still old."""
    return jax.lax.sub(epsilon, jnp.conj(dx) if jnp.iscomplexobj(dx) else dx)


def updated_error(carried: Array, mu: Array, mu_before: Array) -> Array:
    """ε_{t+1} = (ε_t - Δx_t) + (μ_{t+1} - μ_t), the bracket exactly zero where μ has not changed.

    Compiled, ``a * b - mu_before`` may become one fused multiply-add, which does not round the
    product and so leaves 1e-17 where there should be nothing. Unstable dynamics make that grow.
    """
    changed = jax.lax.add(carried, prediction_error(mu, mu_before))
    return jax.lax.select(jax.lax.eq(mu, mu_before), carried, changed)


def energy(epsilon: Array) -> Array:
    """1/2 ε², added up in float32 at least."""
    if jnp.finfo(epsilon.dtype).bits < 32:
        epsilon = epsilon.astype(jnp.float32)
    squares = (epsilon * jnp.conj(epsilon)).real if jnp.iscomplexobj(epsilon) else epsilon * epsilon
    return jnp.sum(squares) / 2


def largest(values: Mapping[Any, Array]) -> Array:
    """The largest absolute value."""
    found = [jnp.max(jnp.abs(value)).astype(float) for value in values.values() if value.size]
    return jnp.max(jnp.stack(found)) if found else jnp.zeros(())


def root_mean_square(values: Array, axis: Any = None) -> Array:
    """How large values are; squares that would overflow do not."""
    size = jnp.abs(values).astype(jnp.result_type(float))
    top = jnp.max(size, axis=axis, keepdims=True, initial=0)
    safe = jnp.where(top > 0, top, 1)
    mean = jnp.mean(jnp.square(size / safe), axis=axis, keepdims=True) if size.size else top
    return jnp.squeeze(top * jnp.sqrt(mean), axis)


def summaries(
    epsilon: Mapping[Any, Array], x: Mapping[Any, Array], mu: Mapping[Any, Array]
) -> dict[Any, Array]:
    """The root mean squares of error, value and prediction, by vertex."""
    return {
        key: jnp.stack([root_mean_square(part[key]) for part in (epsilon, x, mu)])
        for key in epsilon
    }
