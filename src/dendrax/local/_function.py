"""One vertex's own function: evaluate it, linearise it, and see which inputs its errors reach.

This is the only file that calls `jax.vjp`, and it only ever does so on one vertex's function.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import jax
import numpy as np

from dendrax import _compat


@dataclass(frozen=True, eq=False)
class Equation:
    """One equation of a jaxpr as a local function. A variable it uses twice is one argument."""

    jaxpr: _compat.ClosedJaxpr
    source: str

    @functools.cached_property
    def _function(self) -> Callable[..., list[Any]]:
        return _compat.as_function(self.jaxpr)

    def __call__(self, *inputs: Any) -> list[Any]:
        return self._function(*inputs)

    @property
    def primitive(self) -> str:
        return self.jaxpr.eqns[0].primitive.name


@dataclass(frozen=True, eq=False)
class Constant:
    """A literal of the program."""

    value: Any

    def __call__(self) -> list[Any]:
        return [self.value]


def is_inexact(aval: Any) -> bool:
    """Whether values of this type can carry an error at all."""
    return jax.numpy.issubdtype(aval.dtype, np.inexact)


def linearise(
    function: Callable[..., Sequence[Any]],
    inputs: Sequence[Any],
    emitted: Sequence[int],
    received: Sequence[int],
    summed: Sequence[int],
) -> tuple[Sequence[Any], Callable[[tuple[Any, ...]], tuple[Any, ...]]]:
    """Evaluate a local function at its inputs and take its local pullback.

    **Arguments:**

    - `emitted`: the outputs that will have an error.
    - `received`: the inputs that get a message.
    - `summed`: those of them at which a sum of earlier messages is waiting.

    **Returns:** all outputs, and a pullback from ``(sums, errors)`` to the new sums, one for each
    of `received`. The waiting sums pass *through* the pullback: we differentiate ``x -> (x,
    g(x))``, so that each term of the message is added to the sum in the order in which JAX adds it.
    """

    def local(*values: Any) -> tuple[Any, Sequence[Any]]:
        given = dict(zip(received, values, strict=True))
        outputs = function(*(given.get(k, value) for k, value in enumerate(inputs)))
        kept = tuple(outputs[o] for o in emitted)
        return (tuple(given[k] for k in summed), kept), outputs

    _, pullback, outputs = jax.vjp(local, *(inputs[k] for k in received), has_aux=True)
    return outputs, pullback
