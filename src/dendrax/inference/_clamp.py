"""Clamps: what holds a network. Asked here, and nowhere else."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import jax
import jax.numpy as jnp

from dendrax.inference._energy import Energy, Gaussian
from dendrax.inference._equations import prediction_error
from dendrax.inference._held import HeldValue, held_output

Array = Any


@dataclass(frozen=True, eq=False)
class Clamp:
    """What holds a network; by itself nothing. ``o`` counts the outputs of the function.

    - ``error(o, mu)``: the error of an output whose prediction is ``mu``; ``None``: it has none.
    - ``energy(o, mu)``: what the output costs.
    - ``moves``: whether the error changes with the prediction.
    - ``is_mean``: whether it may be a loss that is a mean over samples.
    - ``hold``: what value nodes are held at, by name.
    - ``prior``: the energies of free arguments, see `dendrax.infer`.
    """

    hold: Mapping[str, Any] = field(default_factory=dict, kw_only=True)
    prior: Any = field(default=None, kw_only=True)

    moves = True
    is_mean = False

    def error(self, o: int, mu: Array) -> Array | None:
        return None

    def energy(self, o: int, mu: Array) -> Array:
        raise NotImplementedError

    def holds(self) -> bool:
        """Whether the outputs follow from what predicts them; else they are value nodes."""
        return True

    @property
    def held_outputs(self) -> tuple[int, ...]:
        """The outputs that are held at a value."""
        return ()

    @property
    def masked_outputs(self) -> tuple[int, ...]:
        """Those of them of which only a part is held."""
        return ()

    def given(self, energies: Mapping[int, Energy]) -> Clamp:
        """The same with energies for the outputs, which matter if they are held."""
        return self


class Free(Clamp):
    """Nothing is held: prediction by inference."""

    def holds(self) -> bool:
        return False


@dataclass(frozen=True, eq=False)
class Pull(Clamp):
    """Outputs pulled by constant errors: 1 for a loss, otherwise a cotangent; ``None``: free. Only
    a loss ``is_mean``, maybe."""

    errors: Any
    is_mean: bool = field(default=True, kw_only=True)

    moves = False

    def error(self, o: int, mu: Array) -> Array | None:
        value = self.errors[o]
        return None if value is None else constant_error(mu, value)

    def energy(self, o: int, mu: Array) -> Array:
        """Linear in what the vertex predicts."""
        return jnp.sum((self.error(o, mu) * mu).real)


@dataclass(frozen=True, eq=False)
class Hold(Clamp):
    """Outputs whose value node is held at a target; ``None``: not this one. ``masks`` say where."""

    targets: Sequence[Any]
    masks: Sequence[Any] = ()
    energies: Mapping[int, Energy] = field(default_factory=dict)

    @property
    def held_outputs(self) -> tuple[int, ...]:
        return tuple(o for o, target in enumerate(self.targets) if target is not None)

    @property
    def masked_outputs(self) -> tuple[int, ...]:
        return tuple(o for o, mask in enumerate(self.masks) if mask is not None)

    def _at(self, o: int) -> HeldValue:
        return HeldValue(self.targets[o], self.masks[o] if self.masks else None)

    def error(self, o: int, mu: Array) -> Array | None:
        if self.targets[o] is None:
            return None
        if not self.energies and not self.masks:
            return prediction_error(mu, self.targets[o])
        return held_output(self.energies.get(o, Gaussian()), self._at(o), mu)[1]

    def energy(self, o: int, mu: Array) -> Array:
        return held_output(self.energies.get(o, Gaussian()), self._at(o), mu)[0]

    def given(self, energies: Mapping[int, Energy]) -> Hold:
        return Hold(self.targets, self.masks, energies, hold=self.hold, prior=self.prior)


def constant_error(mu: Array, value: Any) -> Array:
    """The error of a clamped output; a Python number stands for an array of the output's type."""
    return jax.lax.full_like(mu, value) if isinstance(value, float) else value.astype(mu.dtype)
