"""A user's function and its arguments -> `Tape`, and the way back to the user's trees."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import jax.numpy as jnp

from dendrax import _compat
from dendrax.local import is_inexact
from dendrax.tracing import Arguments, Call, Results, flatten_results
from dendrax.walk._wave import PARAMETER, Local, Tape, plain, record


def record_call(
    fun: Callable[..., Any],
    arguments: Arguments,
    argnums: int | tuple[int, ...],
    local: Local,
    *,
    has_aux: bool = False,
) -> tuple[list[Any], Tape, Call]:
    """Run a call and record it for the wave.

    **Returns:** the function's results (the auxiliary ones last), the tape, and the call.
    """
    results = Results()
    auxiliary: list[Any] = []

    def flat(*traced: Any) -> list[Any]:
        outputs, aux = flatten_results(arguments.call(fun, traced), has_aux, results)
        auxiliary.extend(map(plain, aux))
        return outputs

    values = [jnp.asarray(leaf) for leaf in arguments.traced_leaves()]
    flags = [is_inexact(_compat.aval_of(value)) for value in values]
    numbers = itertools.count(PARAMETER)
    active = [next(numbers) if flag else 0 for flag in flags]
    outputs, tape = record(flat, values, active, local)
    return [*outputs, *auxiliary], tape, Call(arguments, (), results.out_tree, results.aux, argnums)
