"""The functions of vertices that are operations of the program."""

from __future__ import annotations

import functools
from collections.abc import Callable
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
