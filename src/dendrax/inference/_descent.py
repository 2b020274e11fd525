"""How the energy went, and whether inference diverged: at every time step, or at both ends.

To look at the energy in each step costs up to 40 % of a step on small networks (on CPUs, where each
sum is a loop of its own). So whoever shows the course (`dendrax.run`, `dendrax.infer`) does, and
`dendrax.value_and_grad` compares the two ends.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from dendrax._compat import aval_of
from dendrax.graph import Port
from dendrax.inference._energy import Gaussian, total
from dendrax.inference._network import Look, Network
from dendrax.inference._trust import looked

Array = Any


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Descent:
    """How the energy went: at the ``start`` and at the ``end``, and the ``lowest`` seen.

    ``diverged_at`` is the time step from which on it was never again as low, or not finite, if at
    the end it has risen by a tenth of what it had fallen; -1 if all is well. ``starts`` are shares
    of the start, by name.
    """

    start: Array
    end: Array
    lowest: Array
    diverged_at: Array
    starts: dict[str, Array]

    @property
    def is_lost(self) -> Array:
        """Whether what is left means nothing any more: ten times the energy, or none at all."""
        return (self.diverged_at >= 0) & ~(self.end <= 10 * jnp.abs(self.start))

    @property
    def ends(self) -> tuple[Array, Array]:
        """At the start and at the end."""
        return self.start, self.end


class Seen(NamedTuple):
    """The lowest energy so far, and when that was."""

    lowest: Array
    at: Array


class Watch:
    """Looks at the energy at each time step."""

    def __init__(self, rule: Any, net: Network, start: Any):
        self.rule, self.net = rule, net
        first = looked(rule, net, start)
        self.start, self.starts = first.energy, view_names(net, first.energies)
        self.rounding = _rounding(first, self.start)
        self.seen = Seen(self.start, jnp.asarray(0))

    def now(self, state: Any, t: Array, seen: Seen) -> Seen:
        """What has been seen by now, at the time ``t``."""
        return self._with(self.rule.look(self.net, state).energy, t, seen)

    def _with(self, energy: Array, t: Array, seen: Seen) -> Seen:
        is_low = energy <= seen.lowest + self.rounding
        return Seen(jnp.fmin(seen.lowest, energy), jnp.where(is_low, t, seen.at))

    def descent(self, final: Look, used: Any, seen: Seen) -> Descent:
        """How it went, as seen until the end."""
        seen = self._with(final.energy, jnp.asarray(used), seen)
        most = seen.lowest + 0.1 * (self.start - seen.lowest) + self.rounding
        first = jnp.where(jnp.isfinite(self.start), jnp.minimum(seen.at + 1, used), 0)
        return _judged(self.start, final.energy, seen.lowest, most, first, self.starts)


def from_ends(rule: Any, net: Network, start: Any, final: Look, used: Any) -> Descent:
    """How it went, from the two ends. When it diverged is not known: at the last step it had."""
    first = looked(rule, net, start)
    parts, after = _energies_before(first), _quick_energy(final)
    before = _sum(parts.values())
    most = before + _rounding_by_type(net) * jnp.abs(before) + _rounding_by_type(net) ** 2
    at = jnp.asarray(used)
    return _judged(before, after, jnp.fmin(before, after), most, at, view_names(net, parts))


def _rounding_by_type(net: Network) -> float:
    """The least relative change of the energy that is not rounding."""
    types = [aval_of(value).dtype for value in (*net.values.values(), *net.outputs)]
    epsilons = [
        float(jnp.finfo(dtype).eps) for dtype in types if jnp.issubdtype(dtype, jnp.inexact)
    ]
    return max([1e-6, *(8 * epsilon for epsilon in epsilons)])


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
    return _sum(parts)


def _sum(parts: Iterable[Array]) -> Array:
    return jnp.asarray(sum(part.astype(float) for part in parts), float)


def view_names(net: Network, values: Mapping[Port, Any]) -> dict[str, Any]:
    """What is known of value nodes and outputs, by name."""
    names = {port: name for name, port in net.view.names.items()}
    names.update((port, net.view.shown[at.vertex].name) for port, at in net.view.roots.items())
    return {names[port]: value for port, value in values.items()}


def _square(values: Array) -> Array:
    if jnp.finfo(values.dtype).bits < 32:
        values = values.astype(jnp.float32)
    return jnp.vdot(values, values).real


def _rounding(first: Look, start: Array) -> Array:
    """What the energy may rise by without anything being wrong."""
    size = sum((_square(mu).astype(float) / 2 for mu in first.net.values.values()), jnp.zeros(()))
    return 1e-6 * (jnp.abs(start) + jnp.where(jnp.isfinite(size), size, 0))


def _judged(
    start: Array, end: Array, lowest: Array, most: Array, first: Any, starts: dict[str, Array]
) -> Descent:
    is_well = jnp.isfinite(end) & (end <= most)
    return Descent(start, end, lowest, jnp.where(is_well, -1, first), starts)
