"""A product as XLA likes it on a CPU, and as JAX has it on every other platform.

Which of the two runs is decided when a program is compiled: one that is exported from a machine
without accelerator for a GPU holds the plain products. Both forms enter as ways back; the way back
that leaves has both.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import jax
import jax.numpy as jnp
from jax import lax

from dendrax import _compat
from dendrax.local._linear import Applied, Pullback, differentiate_primitive


def on_cpu(cpu: Callable[..., Any], elsewhere: Callable[..., Any], *values: Any) -> Any:
    """``cpu(*values)`` on a CPU, ``elsewhere(*values)`` on all other platforms."""
    return lax.platform_dependent(*values, cpu=cpu, default=elsewhere)


def laid_out(turn: Callable[[Any], list[Any]], value: Any) -> list[Any]:
    """``turn(value)`` for a CPU. Elsewhere nobody reads it, and it is left as it is."""
    shapes = [aval.shape for aval in jax.eval_shape(turn, value)]
    return on_cpu(turn, lambda value: [jnp.reshape(value, shape) for shape in shapes], value)


class Way(Protocol):
    """A way back through a product."""

    def message(self, k: int, error: Any) -> Any:
        """ε ∂μ/∂x for input ``k``."""
        ...


@dataclass(frozen=True, eq=False)
class ByPlatform:
    """The way back through a product: laid out for a ``cpu``; ``elsewhere`` JAX's own, one for each
    of the inputs that get a message. Each message is by itself: what is not wanted is not made."""

    cpu: Way
    elsewhere: list[Pullback]
    received: tuple[int, ...]

    @classmethod
    def prepare(
        cls, cpu: Way, operation: Applied, values: Sequence[Any], received: tuple[int, ...]
    ) -> ByPlatform:
        """Join the way back of an operation for a CPU with JAX's own."""
        only = [[place == k for place in range(len(values))] for k in received]
        ways = [differentiate_primitive(operation, values, active)[1] for active in only]
        return cls(cpu, ways, received)

    def send(self, errors: Sequence[Any], sums: Sequence[_compat.Sum]) -> None:
        """Add the messages ε ∂μ/∂x to the sums at the inputs."""
        for k, way, total in zip(self.received, self.elsewhere, sums, strict=True):
            cpu, elsewhere = (
                functools.partial(self.cpu.message, k),
                functools.partial(_message, way),
            )
            total.accum(on_cpu(cpu, elsewhere, errors[0]))

    def reach(self, errors: Sequence[bool]) -> list[bool]:
        """An error of the product reaches all inputs."""
        return [bool(errors[0])] * len(self.received)


def _message(way: Pullback, error: Any) -> Any:
    """The message that goes back to the only input."""
    (tangent,) = way.linear.jaxpr.invars
    total = _compat.new_sum(tangent.aval)
    way.send([error], [total])
    return _compat.summed(total)


jax.tree_util.register_dataclass(
    ByPlatform, data_fields=["cpu", "elsewhere"], meta_fields=["received"]
)
