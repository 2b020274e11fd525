"""Energies of value nodes inside loops: stacked over the steps, each step has its own."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp

from dendrax.inference._energy import Energy
from dendrax.inference._evaluate import where_live

Array = Any


@dataclass(frozen=True, eq=False)
class OverSteps(Energy):
    """The energy of one step, at each step of the loops around a value node: the first ``loops``
    axes. Where the node is not ``live`` it costs nothing (``None``: it is everywhere)."""

    inner: Energy
    loops: int
    live: Any

    @property
    def of_error(self) -> bool:  # pyright: ignore[reportIncompatibleVariableOverride]
        return self.inner.of_error

    @property
    def is_held_alike(self) -> bool:
        return self.inner.is_held_alike

    @property
    def units(self) -> float:
        return self.inner.units

    def energy(self, mu: Array, x: Array) -> Array:
        return self._each(self.inner.energy, mu, x)

    def held(self, mu: Array, value: Array) -> Array:
        return self._each(self.inner.held, mu, value)

    def error(self, mu: Array, x: Array) -> Array:
        return self._each(self.inner.error, mu, x)

    def pull(self, mu: Array, x: Array) -> Array:
        return self._each(self.inner.pull, mu, x)

    def slope(self, mu: Array, x: Array, message: Array | None) -> Array:
        return self._each(self.inner.slope, mu, x, message)

    def _each(self, function: Callable[..., Array], *values: Array | None) -> Array:
        for _ in range(self.loops):
            function = jax.vmap(function)
        found = function(*values)
        return found if self.live is None else where_live(self.live, found, jnp.zeros_like(found))
