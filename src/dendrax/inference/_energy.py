"""Energies: what holds a value node `x` to its prediction `μ`."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from dendrax.graph import Vertex
from dendrax.inference._equations import energy, prediction_error, value_change

Array = Any


class Energy:
    """What a value node costs that is away from its prediction, ``E(μ, x)``.

    - ``energy(mu, x)``: the whole, one number.
    - ``error(mu, x)``: ``∂E/∂μ``, which is what the vertex sends to its inputs.
    - ``slope(mu, x, message)``: what the value node moves along, ``-∂E/∂x`` less the ``message``
      that has come from its users (``None``: none), in units of the energy itself.
    - ``over(samples)``: the same for a loss that is a mean over so many samples.
    """

    def energy(self, mu: Array, x: Array) -> Array:
        raise NotImplementedError

    def error(self, mu: Array, x: Array) -> Array:
        raise NotImplementedError

    def slope(self, mu: Array, x: Array, message: Array | None) -> Array:
        raise NotImplementedError

    def over(self, samples: int) -> Energy:
        raise NotImplementedError


@dataclass(frozen=True)
class Gaussian(Energy):
    """``E = π/2 |μ - x|²``, with ``∂E/∂μ = π ε = -∂E/∂x`` and ``ε = μ - x``.

    The slope is ``ε - message / π``: so precision weighs the errors against the loss, and does not
    change the speed of inference.

    **Arguments:** `precision`: π.

    !!! example

        ```python
        import dendrax, jax.numpy as jnp

        dendrax.Gaussian(precision=2.0).energy(mu=jnp.ones(3), x=jnp.zeros(3))  # -> 3.0
        ```
    """

    precision: float = 1.0

    def energy(self, mu: Array, x: Array) -> Array:
        return self.precision * energy(prediction_error(mu, x))

    def error(self, mu: Array, x: Array) -> Array:
        epsilon = prediction_error(mu, x)
        return epsilon if self.is_plain else self.precision * epsilon

    def slope(self, mu: Array, x: Array, message: Array | None) -> Array:
        if message is not None and not self.is_plain:
            message = message / self.precision
        return value_change(1, prediction_error(mu, x), message)

    @property
    def is_plain(self) -> bool:
        """Whether the precision is 1, which then does nothing at all."""
        return isinstance(self.precision, (int, float)) and self.precision == 1

    def over(self, samples: int) -> Gaussian:
        """The same for a loss that is a mean over samples."""
        return Gaussian(self.precision / samples)


# One for all value nodes, or one for each vertex.
Energies = Energy | Callable[[Vertex], Energy]
