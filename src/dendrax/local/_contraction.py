"""A matrix product with a clamped weight, inside a loop: the weight transposed once, before it.

The message of ``x @ w`` is ``error @ w.T``. In a small network, transposing the weight anew in each
step of the loop costs a tenth of the whole.

An `Equation` enters, and the clamped operand; the prediction and the message leave.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, TypeGuard

import jax
import jax.numpy as jnp
from jax import lax

from dendrax.local._function import Equation


def is_contraction(function: Any) -> TypeGuard[Equation]:
    """Whether a local function is a product of two operands without batch axes."""
    if not isinstance(function, Equation) or function.primitive != "dot_general":
        return False
    _, batch = function.jaxpr.eqns[0].params["dimension_numbers"]
    return batch == ((), ()) and len(function.jaxpr.in_avals) == 2


@dataclass(frozen=True, eq=False)
class Contraction:
    """A product whose operand ``1 - free`` is clamped; ``turned`` has its kept axes first."""

    equation: Equation
    free: int
    turned: Any

    @classmethod
    def prepare(cls, equation: Equation, free: int, clamped: Any) -> Contraction:
        """Transpose the clamped operand."""
        contracted = _contracted(equation)[1 - free]
        kept = _others(clamped.ndim, contracted)
        return cls(equation, free, jnp.transpose(clamped, (*kept, *contracted)))

    def message(self, error: Any) -> Any:
        """ε ∂μ/∂x for the operand that is free."""
        params = self.equation.jaxpr.eqns[0].params
        aval = self.equation.jaxpr.in_avals[self.free]
        contracted = _contracted(self.equation)[self.free]
        kept = _others(aval.ndim, contracted)
        count = self.turned.ndim - len(contracted)
        first = len(kept) if self.free == 0 else 0  # where the clamped operand's axes are
        message = lax.dot_general(
            error,
            self.turned,
            ((tuple(range(first, first + count)), tuple(range(count))), ((), ())),
            precision=params["precision"],
            preferred_element_type=aval.dtype,
        )
        return moved_back(message, (*kept, *contracted))

    def linearise(
        self, inputs: Sequence[Any], received: tuple[int, ...], summed: tuple[int, ...]
    ) -> tuple[list[Any], Any]:
        """As `dendrax.local._function.linearise`, for a message to the free operand alone."""
        assert received == (self.free,)
        pull = jax.tree_util.Partial(functools.partial(_pull, bool(summed)), self)
        return self.equation(*inputs), pull


jax.tree_util.register_dataclass(
    Contraction, data_fields=["turned"], meta_fields=["equation", "free"]
)


def _pull(summed: bool, contraction: Contraction, given: Any) -> tuple[Any]:
    sums, (error,) = given
    message = contraction.message(error)
    return (lax.add(sums[0], message) if summed else message,)


def _contracted(equation: Equation) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """The contracted axes of either operand, in corresponding order.

    `Equation` takes its variables in the order of the equation, so operand 0 is the left one.
    """
    (left, right), _ = equation.jaxpr.eqns[0].params["dimension_numbers"]
    return tuple(left), tuple(right)


def moved_back(value: Any, places: Sequence[int]) -> Any:
    """Axis ``k`` of the value goes to ``places[k]``."""
    return jnp.transpose(value, tuple(places.index(axis) for axis in range(len(places))))


def _others(ndim: int, axes: Sequence[int]) -> tuple[int, ...]:
    return tuple(axis for axis in range(ndim) if axis not in axes)
