"""What regions have in common: a body that is recorded, and a way back through it.

A region enters as a primitive with its inputs, which of them are active, and its parameters. Its
outputs leave, where their errors are (as `dendrax._local.Linear` says), and the way back.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import jax

from dendrax import _compat
from dendrax._wavefront import Run, Tape, record


@jax.tree_util.register_pytree_node_class
class RegionPullback:
    """The way back through a region: its own sums first, which are then added to those outside.

    ``pull(kept, errors)`` takes the errors of all outputs (``None``: absent) to the messages for
    the active inputs.
    """

    def __init__(self, pull: Callable[..., Sequence[Any]], carries: tuple[bool, ...], kept: Any):
        self.pull, self.carries, self.kept = pull, carries, kept

    def tree_flatten(self) -> Any:
        return (self.kept,), (self.pull, self.carries)

    @classmethod
    def tree_unflatten(cls, structure: Any, kept: Any) -> RegionPullback:
        return cls(*structure, *kept)

    def send(self, errors: Sequence[Any], sums: Sequence[_compat.Sum]) -> None:
        given = iter(errors)
        spread = [next(given) if flag else None for flag in self.carries]
        for total, message in zip(sums, self.pull(self.kept, spread), strict=True):
            if message is not None:
                total.accum(message)


def region_run(
    outputs: Sequence[Any], active: Sequence[bool], carries: Sequence[bool], pull: Any, kept: Any
) -> Run:
    """A region's results: an output has an error of its own, or none."""
    first = sum(active)
    ties = [first + sum(carries[:o]) if flag else None for o, flag in enumerate(carries)]
    return outputs, ties, RegionPullback(pull, tuple(carries), kept)


class Program:
    """A body's forward pass as a jaxpr: its outputs, and the residuals of its tape."""

    tree: Any
    carries: tuple[bool, ...]

    def __init__(self, body: _compat.ClosedJaxpr, active: Sequence[bool]):
        def forward(*inputs: Any) -> Any:
            outputs, tape = record(_compat.as_function(body), inputs, active)
            residuals, self.tree = jax.tree.flatten(tape)
            self.carries = tape.layout.carries
            return outputs, residuals

        closed = jax.make_jaxpr(forward)(*body.in_avals)
        self.jaxpr, self.consts = closed.jaxpr, closed.consts
        self.outputs = self.jaxpr.outvars[: len(body.out_avals)]
        self.residuals = self.jaxpr.outvars[len(body.out_avals) :]

    def tape(self, residuals: Sequence[Any]) -> Tape:
        return jax.tree.unflatten(self.tree, residuals)


def active_only(values: Sequence[Any], active: Sequence[bool]) -> list[Any]:
    return [value for value, flag in zip(values, active, strict=True) if flag]


def made_once(make: Callable[..., Any], body: _compat.ClosedJaxpr, *settings: Any) -> Any:
    """``make(body, *settings)``, made once: eagerly, a ``jit`` is compiled once, as with JAX."""
    if any(map(_compat.is_tracer, body.consts)):
        return make(body, *settings)
    return _make_once(make, body, settings, _compat.trace_context())


@functools.lru_cache(maxsize=512)
def _make_once(
    make: Callable[..., Any], body: _compat.ClosedJaxpr, settings: tuple[Any, ...], context: Any
) -> Any:
    return make(body, *settings)
