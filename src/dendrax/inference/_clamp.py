"""Clamps: what holds the outputs of a network. Asked here, and nowhere else."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp

from dendrax.inference._equations import energy, prediction_error

Array = Any


class Clamp:
    """What holds the outputs; by itself nothing. ``o`` counts the outputs of the function.

    - ``error(o, mu)``: the error of an output whose prediction is ``mu``; ``None``: it has none.
    - ``energy(o, mu)``: what the output costs.
    - ``moves``: whether the error changes with the prediction.
    """

    moves = True

    def error(self, o: int, mu: Array) -> Array | None:
        return None

    def energy(self, o: int, mu: Array) -> Array:
        raise NotImplementedError

    def holds(self) -> bool:
        """Whether it holds anything."""
        return True


class Free(Clamp):
    """Nothing is held: prediction by inference."""

    def holds(self) -> bool:
        return False


@dataclass(frozen=True, eq=False)
class Pull(Clamp):
    """Outputs pulled by constant errors: 1 for a loss, otherwise a cotangent; ``None``: free."""

    errors: Any
    moves = False

    def error(self, o: int, mu: Array) -> Array | None:
        value = self.errors[o]
        return None if value is None else constant_error(mu, value)

    def energy(self, o: int, mu: Array) -> Array:
        """Linear in what the vertex predicts."""
        return jnp.sum((self.error(o, mu) * mu).real)


@dataclass(frozen=True, eq=False)
class Hold(Clamp):
    """Outputs whose value node is held at a target, with the energy of any other error."""

    targets: Any

    def error(self, o: int, mu: Array) -> Array:
        return prediction_error(mu, self.targets[o])

    def energy(self, o: int, mu: Array) -> Array:
        return energy(self.error(o, mu))


def constant_error(mu: Array, value: Any) -> Array:
    """The error of a clamped output; a Python number stands for an array of the output's type."""
    return jax.lax.full_like(mu, value) if isinstance(value, float) else value.astype(mu.dtype)
