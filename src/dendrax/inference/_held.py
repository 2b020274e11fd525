"""Value nodes that are held at a value, wholly or where a mask says so."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp

from dendrax.inference._energy import Energy, total
from dendrax.local import derivative
from dendrax.support import complain, matching, nearest

Array = Any


@jax.tree_util.register_dataclass
@dataclass(frozen=True, eq=False)
class HeldValue:
    """What something is held at: a ``value`` where ``mask`` is true; ``None``: everywhere."""

    value: Array
    mask: Array | None

    def placed(self, x: Array) -> Array:
        """``x`` where nothing holds it."""
        return self.value if self.mask is None else jnp.where(self.mask, self.value, x)

    def joined(self, other: HeldValue) -> HeldValue:
        """What holds it where either of the two does; this one comes first."""
        if self.mask is None or other.mask is None:
            return HeldValue(self.placed(other.value), None)
        return HeldValue(self.placed(other.value), self.mask | other.mask)

    def apart(self, x: Array) -> Array:
        """``x`` where nothing holds it, zeros where something does."""
        return jnp.zeros_like(x) if self.mask is None else jnp.where(self.mask, 0, x)

    def of(self, x: Array) -> Array:
        """``x`` where something holds it."""
        return x if self.mask is None else jnp.where(self.mask, x, 0)


@dataclass(frozen=True, eq=False)
class Held(Energy):
    """The energy of a value node that is held. Where it is, nothing moves it."""

    inner: Energy
    at: HeldValue

    def placed(self, x: Array) -> Array:
        """The value of the node, which would be ``x``."""
        return self.at.placed(x)

    def energy(self, mu: Array, x: Array) -> Array:
        if self.inner.is_held_alike:
            return self.inner.energy(mu, x)
        held = self.inner.held(mu, self.at.value)
        if self.at.mask is None:
            return held
        free = self.inner.energy(mu, x)
        return jnp.where(self.at.mask, held, free) if free.shape else free

    def error(self, mu: Array, x: Array) -> Array:
        return self.inner.error(mu, x) if self.inner.is_held_alike else super().error(mu, x)

    def pull(self, mu: Array, x: Array) -> Array:
        pull = self.inner.pull if self.inner.is_held_alike else super().pull
        return self.at.apart(pull(mu, x))

    def slope(self, mu: Array, x: Array, message: Array | None) -> Array:
        if self.inner.is_held_alike:
            return self.at.apart(self.inner.slope(mu, x, message))
        return self.at.apart(super().slope(mu, x, message) / self.inner.units)


def held_output(energy: Energy, at: HeldValue, mu: Array) -> tuple[Array, Array]:
    """The energy of an output that is held, and its error. Where nothing holds it, it is what it is
    predicted to be."""
    if energy.of_error and energy.is_held_alike:
        x = at.placed(mu)
        return total(energy.energy(mu, x)), energy.error(mu, x)

    def of(mu: Array) -> Array:
        found = energy.held(mu, at.placed(jax.lax.stop_gradient(mu)))
        return total(at.of(found) if found.shape else found)

    return of(mu), derivative(of, mu)


def held_value(what: str, given: Any, aval: Any) -> HeldValue:
    """What a user gave to hold something at: a value, or a pair of value and mask."""
    value, mask = given if isinstance(given, tuple) and len(given) == 2 else (given, None)
    value = _spread(f"the value that holds {what}", jnp.asarray(value), aval.shape)
    if not jnp.can_cast(value.dtype, aval.dtype, "same_kind") and value.dtype != bool:
        raise complain(
            TypeError,
            f"the value that holds {what} is {value.dtype}, and {what} {aval.dtype}.",
            remedy="Give a value of that type.",
        )
    value = value.astype(aval.dtype)
    if mask is None:
        return HeldValue(value, None)
    mask = jnp.asarray(mask)
    if mask.dtype != bool:
        raise complain(
            TypeError,
            f"the mask of {what} is {mask.dtype}, not boolean.",
            remedy="Give True where the value is known and holds, for instance mask=image > 0.",
        )
    mask = _spread(f"the mask of {what}", mask, aval.shape)
    return HeldValue(jnp.where(mask, value, 0), mask)  # what is not known may be NaN


def _spread(what: str, value: Array, shape: tuple[int, ...]) -> Array:
    try:
        return jnp.broadcast_to(value, shape)
    except ValueError:
        raise complain(
            ValueError,
            f"{what} has shape {value.shape}, but the shape there is {shape}.",
            remedy="Give an array of that shape, or one that NumPy would broadcast to it.",
        ) from None


def meant_by(setting: str, pattern: str, names: Mapping[str, Any]) -> list[str]:
    """The names that a user means, which are some."""
    found = matching(pattern, names) if isinstance(pattern, str) else []
    if found:
        return found
    listed = ", ".join(list(names)[:8]) + ", ..." * (len(names) > 8)
    raise complain(
        ValueError,
        f"{setting}: there is no {pattern!r}.{nearest(pattern, names)}",
        remedy=f"Use one of: {listed or 'none'}.",
    )


def checked_mapping(setting: str, given: Any) -> Mapping[str, Any]:
    """Values by name; ``None`` is none of them."""
    if given is None:
        return {}
    if not isinstance(given, Mapping):
        raise complain(
            TypeError,
            f"{setting} must be a dictionary, got {type(given).__name__}.",
            remedy=f"Write {setting}={{'name of a vertex': value}}.",
        )
    return given
