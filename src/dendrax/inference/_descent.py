"""How the energy went, and whether inference diverged: at every time step, or at both ends.

To look at the energy in each step costs up to 40 % of a step on small networks (on CPUs, where each
sum is a loop of its own). So whoever shows the course (`dendrax.run`, `dendrax.infer`) does, and
`dendrax.value_and_grad` compares the two ends.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from dendrax._compat import aval_of
from dendrax.graph import Port
from dendrax.inference._energy import Energy, Gaussian, sum_of, total
from dendrax.inference._network import Look, Network
from dendrax.inference._trust import looked

Array = Any
RISE = 0.1  # of what the energy had fallen: momentum swings, too, but by less
SWING = 0.01  # of the lowest energy: an optimizer that starts where all has settled
RUN_AWAY = 10  # times the energy at the start: after less, nets have been seen to learn


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Descent:
    """How the energy went: at the ``start`` and at the ``end``, and the ``lowest`` seen.

    ``diverged_at`` is the time step from which on it was never again as low, or not finite, if at
    the end it has risen by a tenth of what it had fallen; -1 if all is well. Where only both ends
    were looked at (``is_watched`` is false), it is the last step, at which there was more than at
    the start. ``starts`` are shares of the start, by name; ``scale`` is the energy of errors as
    large as values usually are.
    """

    start: Array
    end: Array
    lowest: Array
    diverged_at: Array
    starts: dict[str, Array]
    scale: float = field(metadata={"static": True})
    is_watched: bool = field(metadata={"static": True})

    @property
    def is_lost(self) -> Array:
        """Whether what is left means nothing any more: much more energy than at the start, or none
        that is finite."""
        most = RUN_AWAY * (jnp.abs(self.start) + self.scale)
        return (self.diverged_at >= 0) & ~(self.end - self.start <= most)


class Lowest(NamedTuple):
    """The lowest energy so far, and when that was."""

    lowest: Array
    at: Array


class EnergyWatch:
    """Looks at the energy at each time step."""

    def __init__(self, rule: Any, net: Network, start: Any):
        self.rule, self.net = rule, net
        first = looked(rule, net, start)
        self.start, self.starts = first.energy, view_names(net, first.energies)
        self.rounding = _tolerance(net, self.start)
        self.seen = Lowest(self.start, jnp.asarray(0))

    def now(self, state: Any, t: Array, seen: Lowest) -> Lowest:
        """What has been seen by now, at the time ``t``."""
        return self._with(self.rule.look(self.net, state).energy, t, seen)

    def _with(self, energy: Array, t: Array, seen: Lowest) -> Lowest:
        is_low = energy <= seen.lowest + self.rounding
        return Lowest(jnp.fmin(seen.lowest, energy), jnp.where(is_low, t, seen.at))

    def descent(self, final: Look, used: Any, seen: Lowest) -> Descent:
        """How it went, as seen until the end."""
        seen = self._with(final.energy, jnp.asarray(used), seen)
        fallen = self.start - seen.lowest
        most = seen.lowest + RISE * fallen + SWING * jnp.abs(seen.lowest) + self.rounding
        first = jnp.where(jnp.isfinite(self.start), jnp.minimum(seen.at + 1, used), 0)
        at = _step(final.energy, most, first)
        return Descent(
            self.start, final.energy, seen.lowest, at, self.starts, _scale(self.net), True
        )


def from_ends(rule: Any, net: Network, start: Any, final: Look, used: Any) -> Descent:
    """How it went, from the two ends. When it diverged is not known: at the last step it had."""
    first = looked(rule, net, start)
    parts, after = _energies_before(first), _quick_energy(final)
    before = sum_of(parts.values())
    most = before + _tolerance(net, before)
    at = _step(after, most, jnp.asarray(used))
    lowest = jnp.fmin(before, after)
    return Descent(before, after, lowest, at, view_names(net, parts), _scale(net), False)


def _scale(net: Network) -> float:
    """The energy of errors of 1 everywhere, about which values of networks are."""

    def weight(energy: Energy) -> float:
        if isinstance(energy, Gaussian) and energy.is_number:
            return float(energy.precision)
        return energy.units

    return sum(weight(net.energies[p]) * value.size / 2 for p, value in net.values.items())


def _tolerance(net: Network, start: Array) -> Array:
    """What the energy may rise by without anything being wrong: what its values round to.

    A value of a network is seldom far from 1, so neurons are counted: to add up their squares takes
    longer than all else here.
    """
    values = [aval_of(value) for value in (*net.values.values(), *net.outputs)]
    floats = [aval for aval in values if jnp.issubdtype(aval.dtype, jnp.inexact)]
    relative = max([1e-6, *(8 * float(jnp.finfo(aval.dtype).eps) for aval in floats)])
    return relative * jnp.abs(start) + relative**2 * sum(aval.size for aval in floats)


def _energies_before(first: Look) -> dict[Port, Array]:
    """The energies at the start. At the forward pass those of Gaussian value nodes are zero, and
    the outputs are known."""
    net, view = first.net, first.net.view
    own = [port for port in view.cuts if port not in net.held]
    at_forward = all(first.x[port] is net.values[port] for port in own)
    zero = {p for p in own if at_forward and isinstance(net.energies[p], Gaussian)}
    outputs = net.outputs if at_forward and not net.held and not view.free else first.outputs
    found = {
        port: total(net.energies[port].energy(first.mu[port], first.x[port]))
        for port in first.mu
        if port not in zero
    }
    ends = enumerate(zip(view.graph.outputs, outputs, strict=True))
    clamped = [(o, port, mu) for o, (port, mu) in ends if port in view.roots]
    for o, port, mu in clamped:
        if net.clamp.error(o, mu) is not None:
            found[port] = net.clamp.energy(o, mu)
    return found


def _quick_energy(look: Look) -> Array:
    """The energy, with squares added up by a product: on CPUs a sum takes ten times as long."""
    net, parts = look.net, []
    for port, own in net.energies.items():
        if isinstance(own, Gaussian) and own.is_number:
            parts.append(own.precision / 2 * _square(look.epsilon[port]))
        else:
            parts.append(total(own.energy(look.mu[port], look.x[port])))
    ends = enumerate(zip(look.outputs, look.output_errors, strict=True))
    parts += [net.clamp.energy(o, mu) for o, (mu, error) in ends if error is not None]
    return sum_of(parts)


def view_names(net: Network, values: Mapping[Port, Any]) -> dict[str, Any]:
    """What is known of value nodes and outputs, by name."""
    names = {port: name for name, port in net.view.names.items()}
    names.update((port, net.view.shown[at.vertex].name) for port, at in net.view.roots.items())
    return {names[port]: value for port, value in values.items()}


def _square(values: Array) -> Array:
    if jnp.finfo(values.dtype).bits < 32:
        values = values.astype(jnp.float32)
    return jnp.vdot(values, values).real


def _step(end: Array, most: Array, first: Any) -> Array:
    """The step from which on the energy rose, if it is more than it may be at the end; else -1."""
    return jnp.where(jnp.isfinite(end) & (end <= most), -1, first)
