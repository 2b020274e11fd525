"""Into how many terms the message of one vertex falls that JAX adds up one by one."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import jax

from dendrax import _compat
from dendrax.local._linear import differentiate


def count_terms(
    function: Callable[..., Sequence[Any]], avals: Sequence[Any], emitted: Sequence[int], k: int
) -> int:
    """The number of terms of the message to input ``k``: that of ``tanh`` has two.

    ``emitted`` are the outputs that have an error.
    """

    def message(*values: Any) -> list[Any]:
        active = [place == k for place in range(len(values))]
        outputs, pullback = differentiate(function, values, active)
        pairs = [(pullback.linear.ties[o], outputs[o]) for o in emitted]
        total = _compat.Terms(avals[k])
        for tie, error in pairs:
            if tie == 0:  # the input itself, handed on
                total.accum(error)
        errors = dict(pairs)
        own = range(1, 1 + len(pullback.linear.jaxpr.outvars))
        pullback.send([errors.get(place) for place in own], [total])
        return total.terms

    return len(jax.eval_shape(message, *avals))
