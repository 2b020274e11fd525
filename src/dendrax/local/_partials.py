"""The derivatives of an energy, which is one vertex's own function of its prediction and value."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp

Array = Any


def derivative(function: Callable[[Array], Array], at: Array) -> Array:
    """The derivative of a function whose result is one number."""
    total, pull = jax.vjp(function, at)
    return pull(jnp.ones_like(total))[0]
