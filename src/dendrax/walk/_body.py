"""What regions have in common: a body that is recorded, and a way back through it.

A region enters as a primitive with its inputs, which of them are active, and its parameters. Its
outputs leave, where their errors are (as `dendrax.local._linear.Linear` says), and the way back.
"""

from __future__ import annotations

import itertools
import weakref
from collections.abc import Callable, Sequence
from typing import Any, Protocol

import jax

from dendrax import _compat
from dendrax.walk._wave import Local, Run, Tape, reached, record


@jax.tree_util.register_pytree_node_class
class RegionPullback:
    """The way back through a region: its own sums first, which are then added to those outside.

    ``way.pull(kept, errors)`` takes the errors of all outputs (``None``: absent) to the messages
    for the active inputs; ``way.reach`` says which of them there are.
    """

    def __init__(self, way: Way, kept: Any):
        self.way, self.kept = way, kept

    def tree_flatten(self) -> Any:
        return (self.kept,), self.way

    @classmethod
    def tree_unflatten(cls, way: Way, kept: Any) -> RegionPullback:
        return cls(way, *kept)

    def send(self, errors: Sequence[Any], sums: Sequence[_compat.Sum]) -> None:
        messages = self.way.pull(self.kept, self._spread(errors))
        for total, message in zip(sums, messages, strict=True):
            if message is not None:
                total.accum(message)

    def reach(self, errors: Sequence[bool]) -> Sequence[bool]:
        return self.way.reach([bool(error) for error in self._spread(errors)])

    def _spread(self, errors: Sequence[Any]) -> list[Any]:
        given = iter(errors)
        return [next(given) if flag else None for flag in self.way.carries]


class Way(Protocol):
    """How errors go back through a kind of region. ``carries`` says which outputs have an error."""

    @property
    def carries(self) -> tuple[bool, ...]: ...

    def pull(self, kept: Any, errors: Sequence[Any]) -> Sequence[Any]: ...

    def reach(self, errors: Sequence[bool]) -> Sequence[bool]: ...


def region_run(outputs: Sequence[Any], active: Sequence[int], way: Way, kept: Any) -> Run:
    """A region's results: an output has an error of its own, or none."""
    places = itertools.count(sum(active))
    ties = [next(places) if flag else None for flag in way.carries]
    return Run(outputs, ties, RegionPullback(way, kept))


class Program:
    """A body's forward pass as a jaxpr: its outputs, and the residuals of its tape.

    The constants of the body are among its inputs, before the others.
    """

    tree: Any
    carries: tuple[bool, ...]

    def __init__(self, body: _compat.Jaxpr, active: Sequence[int], local: Local):
        def forward(*inputs: Any) -> Any:
            outputs, tape = record(_compat.as_open_function(body), inputs, active, local)
            residuals, self.tree = jax.tree.flatten(tape)
            self.carries = tape.layout.carries
            return outputs, residuals

        avals = [var.aval for var in (*body.constvars, *body.invars)]
        closed = jax.make_jaxpr(forward)(*avals)
        self.active = active
        self.jaxpr, self.consts = closed.jaxpr, closed.consts
        self.outputs = self.jaxpr.outvars[: len(body.outvars)]
        self.residuals = self.jaxpr.outvars[len(body.outvars) :]

    def tape(self, residuals: Sequence[Any]) -> Tape:
        return jax.tree.unflatten(self.tree, residuals)

    def reached(self, errors: Sequence[bool]) -> list[bool]:
        """Which inputs get an error, if these outputs have one."""
        return reached(self.tape(self.residuals), errors)


def active_only(values: Sequence[Any], active: Sequence[int]) -> list[Any]:
    return [value for value, flag in zip(values, active, strict=True) if flag]


def made_once(make: Callable[..., Any], body: _compat.Jaxpr, *settings: Any) -> Any:
    """``make(body, *settings)``, made once: eagerly, a ``jit`` is compiled once, as with JAX.

    A body has no arrays in it: its constants are handed in like its arguments. What is made is
    forgotten with the body, and so it must not hold on to it: `_compat.copied` is another one.
    """
    known = _made.setdefault(body, {})
    key = (make, settings, _compat.trace_context())
    if key not in known:
        known[key] = make(_compat.copied(body), *settings)
    return known[key]


_made: weakref.WeakKeyDictionary[_compat.Jaxpr, dict[Any, Any]] = weakref.WeakKeyDictionary()


def with_constants(
    body: _compat.ClosedJaxpr, values: Sequence[Any], active: Sequence[int]
) -> tuple[_compat.Jaxpr, list[Any], tuple[int, ...]]:
    """A body, its inputs with its constants before the others, and which of them are active."""
    inactive = (False,) * len(body.consts)
    return body.jaxpr, [*body.consts, *values], (*inactive, *active)
