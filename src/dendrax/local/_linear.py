"""One vertex linearised: its linear map, its pullback, and which inputs its errors reach."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, cast

import jax
import numpy as np

from dendrax import _compat
from dendrax.local._explain import asking_jax, explaining
from dendrax.local._function import Equation


@dataclass(frozen=True, eq=False)
class Linear:
    """The linear map of one vertex: from tangents at its active inputs to those at its outputs.

    - ``jaxpr``: that map; its constants are the residuals, its results the tangents of its own.
    - ``ties``: for each output of the vertex where its tangent is: a position in the tangents of
      the active inputs followed by the map's own, or ``None`` if JAX says that it has none (a
      comparison, `jax.lax.stop_gradient`). That of ``x + 1`` *is* the tangent of ``x``: JAX then
      has one sum for both, and so must we.
    """

    jaxpr: _compat.Jaxpr
    ties: tuple[int | None, ...]

    @functools.cached_property
    def masks(self) -> list[int]:
        """For each result a bit mask of the active inputs that its error sends a message to."""
        return _compat.dependencies(self.jaxpr)


@jax.tree_util.register_pytree_node_class
class Pullback:
    """The way back through one vertex, at the values that it was linearised at.

    A number of the program stays one, it is no array: XLA multiplies by 1/4 where it knows that it
    is to divide by 4, and rounds differently where it does not.
    """

    def __init__(self, linear: Linear, residuals: Sequence[Any]):
        pairs = [(value, _compat.is_literal(value)) for value in residuals]
        self._arrays = [value for value, literal in pairs if not literal]
        literals = tuple((value,) if literal else None for value, literal in pairs)
        self._static = _Static(linear, literals)

    @property
    def linear(self) -> Linear:
        return self._static.linear

    @property
    def residuals(self) -> list[Any]:
        arrays = iter(self._arrays)
        return [next(arrays) if value is None else value[0] for value in self._static.literals]

    def tree_flatten(self) -> tuple[Sequence[Any], _Static]:
        return self._arrays, self._static

    @classmethod
    def tree_unflatten(cls, static: _Static, arrays: Sequence[Any]) -> Pullback:
        self = object.__new__(cls)
        self._arrays, self._static = list(arrays), static
        return self

    def send(self, errors: Sequence[Any], sums: Sequence[_compat.Sum]) -> None:
        """Add the messages ε ∂μ/∂x, term by term as JAX does, to the sums at the inputs.

        ``errors`` are those of the map's own results; ``None`` is an error that is absent.
        """
        fitting = self._fit(errors)
        with asking_jax() if fitting else contextlib.nullcontext():
            _compat.transpose(self.linear.jaxpr, self.residuals, errors, sums)

    def _fit(self, errors: Sequence[Any]) -> bool:
        """Whether errors have the shapes of the results: else it is they that are wrong."""
        pairs = zip(self.linear.jaxpr.outvars, errors, strict=True)
        return all(
            error is None or np.shape(error) == np.shape(cast(Any, var.aval))
            for var, error in pairs
        )

    def reach(self, errors: Sequence[bool]) -> list[bool]:
        """Which inputs get a message, if these results have an error."""
        masks = zip(self.linear.masks, errors, strict=True)
        mask = functools.reduce(int.__or__, (m for m, error in masks if error), 0)
        return [bool(mask >> k & 1) for k in range(len(self.linear.jaxpr.invars))]


@dataclass(frozen=True)
class _Static:
    """What of a pullback is not an array; equal if its map is the same, and its literals are."""

    linear: Linear
    literals: tuple[tuple[Any] | None, ...]

    def __hash__(self) -> int:
        return hash((self.linear, len(self.literals)))


def differentiate(
    function: Callable[..., Sequence[Any]], values: Sequence[Any], active: Sequence[int]
) -> tuple[Sequence[Any], Pullback]:
    """Evaluate one vertex's own function and take its pullback to the ``active`` inputs."""

    def local(*given: Any) -> list[Any]:
        moved = iter(given)
        pairs = zip(values, active, strict=True)
        return list(function(*(next(moved) if flag else value for value, flag in pairs)))

    with asking_jax():
        outputs, pullback = jax.vjp(
            local, *(v for v, flag in zip(values, active, strict=True) if flag)
        )
    jaxpr, has_tangent, residuals = _compat.linear_program(pullback)
    places = {var: k for k, var in enumerate(jaxpr.invars)}
    own: list[Any] = []
    ties: list[int | None] = []
    tangents = iter(jaxpr.outvars)
    for flag in has_tangent:
        tangent = next(tangents) if flag else None
        if isinstance(tangent, _compat.Var) and tangent not in places:
            places[tangent] = len(places)
            own.append(tangent)
        ties.append(places.get(tangent) if isinstance(tangent, _compat.Var) else None)
    return outputs, Pullback(Linear(_compat.with_outputs(jaxpr, own), tuple(ties)), residuals)


class Applied(NamedTuple):
    """A primitive operation and its parameters."""

    primitive: Any
    params: dict[str, Any]

    def __call__(self, *inputs: Any) -> Sequence[Any]:
        found = self.primitive.bind(*inputs, **self.params)
        return found if self.primitive.multiple_results else [found]


class Operation:
    """A primitive operation with its derivative, for inputs of given types: looked up once."""

    linear: Linear

    def __init__(self, function: Callable[..., Any], avals: Sequence[Any], active: Sequence[int]):
        def forward(*inputs: Any) -> Any:
            outputs, pullback = differentiate(function, inputs, active)
            self.linear = pullback.linear
            return outputs, pullback.residuals

        program = jax.make_jaxpr(forward)(*avals)
        self._count = len(self.linear.ties)
        self._forward = _compat.program_of(program)

    def __call__(self, *inputs: Any) -> tuple[Sequence[Any], Pullback]:
        values = self._forward(*inputs)
        return values[: self._count], Pullback(self.linear, values[self._count :])


_operations: dict[Any, Operation] = {}


def find_operation(
    operation: Applied, avals: Sequence[Any], active: Sequence[int]
) -> Operation | None:
    """A primitive operation with its derivative; ``None`` if it has a function of the user's in it.

    What is remembered is about primitives and types only.
    """
    primitive, params = operation
    key = (primitive, *params.items(), *avals, *active, _compat.trace_context())
    try:
        found = _operations.get(key)
    except TypeError:  # parameters that cannot be a key
        return None
    if found is None and not _compat.carries_function(params):
        if len(_operations) >= 10_000:
            _operations.clear()
        found = _operations[key] = Operation(operation, avals, active)
    return found


def differentiate_primitive(
    operation: Applied, values: Sequence[Any], active: Sequence[int]
) -> tuple[Sequence[Any], Pullback]:
    """As `differentiate`, of a primitive operation."""
    found = find_operation(operation, [jax.typeof(value) for value in values], active)
    return differentiate(operation, values, active) if found is None else found(*values)


class Reach(NamedTuple):
    """Where the errors of a vertex go.

    - ``depends``: for each output a bit mask of the inputs that its error sends a message to.
    - ``alias``: for each output the input whose tangent JAX hands on untouched, or ``None``.
    """

    depends: tuple[int, ...]
    alias: tuple[int | None, ...]


def reach(equation: Equation, active: tuple[int, ...]) -> Reach:
    """Which of the ``active`` inputs the errors of an equation reach.

    Read off the linear map: a message exists where a tangent at the output depends on the one at
    the input. (The message itself may be constant: a ``custom_vjp`` rule can ignore the error.)
    """
    eqn = equation.jaxpr.eqns[0]
    with explaining(Applied(eqn.primitive, eqn.params), equation.source):
        linear, received = _find_linear(equation, active)
    masks = [1 << k for k in received]
    for own in linear.masks:
        hit = [masks[k] for k in range(len(received)) if own >> k & 1]
        masks.append(functools.reduce(int.__or__, hit, 0))
    depends = tuple(0 if tie is None else masks[tie] for tie in linear.ties)
    alias = [None if t is None or t >= len(received) else received[t] for t in linear.ties]
    return Reach(depends, tuple(alias))


def _find_linear(equation: Equation, active: tuple[int, ...]) -> tuple[Linear, list[int]]:
    """The linear map of an equation, and the input that each of its tangents belongs to."""
    eqn, unique = equation.jaxpr.eqns[0], equation.jaxpr.jaxpr.invars
    if not _compat.carries_function(eqn.params):
        inputs = [unique.index(a) if isinstance(a, _compat.Var) else None for a in eqn.invars]
        flags = [k is not None and active[k] for k in inputs]
        avals = [atom.aval for atom in eqn.invars]
        operation = find_operation(Applied(eqn.primitive, eqn.params), avals, flags)
        if operation is not None:
            return operation.linear, [k for k in inputs if k is not None and active[k]]
    found: list[Linear] = []

    def forward(*inputs: Any) -> Any:
        outputs, pullback = differentiate(equation, inputs, active)
        found.append(pullback.linear)
        return outputs

    jax.eval_shape(forward, *equation.jaxpr.in_avals)
    return found[0], [k for k, flag in enumerate(active) if flag]
