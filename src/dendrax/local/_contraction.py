"""A matrix product inside a loop: what the messages read of the operands is turned beforehand.

The message of ``x @ w`` to ``x`` is ``error @ w.T``. In a small network, transposing the weight
anew in each step of the loop costs a tenth of the whole; turned here it is an operation of its own,
which a loop takes out of its body where the weight does not move. That is so on a CPU: see
`dendrax.local._platform`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax

from dendrax.local._linear import Applied
from dendrax.local._platform import laid_out

Axes = tuple[int, ...]


def is_contraction(operation: Applied) -> bool:
    """Whether an operation is a product of two operands without batch axes."""
    if operation.primitive.name != "dot_general":
        return False
    return operation.params["dimension_numbers"][1] == ((), ())


@dataclass(frozen=True, eq=False)
class Contraction:
    """The way back through a product.

    - ``others``: for each operand that gets a message the other one, its kept axes first.
    - ``received``: which operands these are.
    """

    others: list[Any]
    settings: _Settings
    received: Axes

    @classmethod
    def prepare(cls, operation: Applied, operands: Sequence[Any], received: Axes) -> Contraction:
        """Turn what the messages need."""
        ndims = tuple(jax.typeof(value).ndim for value in operands)
        dtypes = tuple(jax.typeof(value).dtype for value in operands)
        settings = _Settings(operation, ndims, dtypes)
        others = [laid_out(settings.turn(1 - k), operands[1 - k])[0] for k in received]
        return cls(others, settings, received)

    def message(self, k: int, error: Any) -> Any:
        """ε ∂μ/∂x for operand ``k``."""
        return self.settings.message(k, self.others[self.received.index(k)], error)


@dataclass(frozen=True, eq=False)
class _Settings:
    """What of a product is not an array."""

    operation: Applied
    ndims: tuple[int, int]
    dtypes: tuple[Any, Any]

    def kept(self, k: int) -> Axes:
        """The axes of an operand that the result has, too."""
        return tuple(axis for axis in range(self.ndims[k]) if axis not in self.contracted(k))

    def contracted(self, k: int) -> Axes:
        """The contracted axes of an operand, in the order of the other's."""
        return tuple(self.operation.params["dimension_numbers"][0][k])

    def turn(self, k: int) -> Callable[[Any], list[Any]]:
        """What brings an operand into place."""
        return lambda operand: [jnp.transpose(operand, (*self.kept(k), *self.contracted(k)))]

    def message(self, k: int, other: Any, error: Any) -> Any:
        """ε ∂μ/∂x for operand ``k``, given the other one turned."""
        kept, count = self.kept(k), len(self.kept(1 - k))
        first = len(kept) if k == 0 else 0  # where the other operand's axes are in the error
        axes = tuple(range(first, first + count)), tuple(range(count))
        message = lax.dot_general(
            error,
            other,
            (axes, ((), ())),
            precision=self.operation.params["precision"],
            preferred_element_type=self.dtypes[k],
        )
        return moved_back(message, (*kept, *self.contracted(k)))


jax.tree_util.register_dataclass(
    Contraction, data_fields=["others"], meta_fields=["settings", "received"]
)


def moved_back(value: Any, places: Sequence[int]) -> Any:
    """Axis ``k`` of the value goes to ``places[k]``."""
    return jnp.transpose(value, tuple(places.index(axis) for axis in range(len(places))))
