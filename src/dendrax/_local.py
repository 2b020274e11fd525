"""One vertex's own function: evaluate it, linearise it, and see which inputs its errors reach.

This is the only file that calls `jax.vjp`, and it only ever does so on one vertex's function.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import jax
import numpy as np

from dendrax import _compat
from dendrax._errors import complain, is_ours


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


def identity(*inputs: Any) -> list[Any]:
    """The function of delays and ports."""
    return list(inputs)


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
        _compat.transpose(self.linear.jaxpr, self.residuals, errors, sums)

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
    function: Callable[..., Sequence[Any]], values: Sequence[Any], active: Sequence[bool]
) -> tuple[Sequence[Any], Pullback]:
    """Evaluate one vertex's own function and take its pullback to the ``active`` inputs."""

    def local(*given: Any) -> list[Any]:
        moved = iter(given)
        pairs = zip(values, active, strict=True)
        return list(function(*(next(moved) if flag else value for value, flag in pairs)))

    outputs, pullback = jax.vjp(local, *(v for v, flag in zip(values, active, strict=True) if flag))
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

    def __init__(self, function: Callable[..., Any], avals: Sequence[Any], active: Sequence[bool]):
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
    operation: Applied, avals: Sequence[Any], active: Sequence[bool]
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
    operation: Applied, values: Sequence[Any], active: Sequence[bool]
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


def reach(equation: Equation, active: tuple[bool, ...]) -> Reach:
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


def _find_linear(equation: Equation, active: tuple[bool, ...]) -> tuple[Linear, list[int]]:
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


class explaining:
    """What JAX says of a derivative that does not exist gets the user's line and a remedy.

    Only that: a mistake in the operation itself (wrong shapes) or in a function of the user's stays
    as it is. ``operation`` is ``None`` where the user's functions run.
    """

    def __init__(self, operation: Applied | None, source: Any, inputs: Sequence[Any] | None = None):
        self.operation, self.source, self.inputs = operation, source, inputs

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: Any, error: BaseException | None, traceback: Any) -> None:
        if not isinstance(error, _NOT_DIFFERENTIABLE) or self.operation is None or is_ours(error):
            return
        name = self.operation.primitive.name
        if _compat.carries_function(self.operation.params) and name not in _WITHOUT_USER_CODE:
            return
        if self.inputs is not None:
            try:
                jax.eval_shape(self.operation, *self.inputs)
            except Exception:
                return
        source = self.source if isinstance(self.source, str) else _compat.source_line(self.source)
        raise cannot_differentiate(name, error, source) from error


_NOT_DIFFERENTIABLE = (NotImplementedError, ValueError, TypeError, AssertionError)
_WITHOUT_USER_CODE = ("while", "pure_callback", "io_callback")


def cannot_differentiate(name: str, error: Exception, source: str) -> Exception:
    """JAX's error for a vertex that has no derivative, with the user's line and a remedy."""
    kind = type(error) if type(error) in (TypeError, ValueError) else NotImplementedError
    problem, remedy = _NO_DERIVATIVE.get(name, _NO_DERIVATIVE_OF_OTHERS)
    return complain(kind, problem.format(name=name, error=error), source=source, remedy=remedy)


_NO_DERIVATIVE_OF_OTHERS = (
    "JAX has no reverse derivative for '{name}': {error}",
    "Wrap the operation in jax.custom_vjp or jax.custom_jvp, or cut it off with "
    "jax.lax.stop_gradient.",
)
_NO_DERIVATIVE = {
    "while": (
        "reverse-mode differentiation does not work through lax.while_loop, or lax.fori_loop with "
        "bounds that are not fixed: the number of steps is unknown when tracing.",
        "Use lax.scan, lax.fori_loop with Python integers as bounds, or jax.lax.stop_gradient if "
        "the loop should not learn.",
    )
}


class Circuit:
    """One vertex as the dynamics see it: a prediction, and messages taken apart into terms.

    A pullback may be a sum of terms (that of ``tanh`` has two), which JAX adds one by one to the
    sum that is waiting at the input. Messages that wait in a delay line are therefore kept as
    terms until they arrive. The terms are found by looking at what the pullback adds to the sum
    that passes through it.
    """

    _tree: Any

    def __init__(
        self,
        function: Callable[..., Sequence[Any]],
        in_avals: Sequence[Any],
        emitted: Sequence[int],
        received: Sequence[int],
    ):
        def forward(*inputs: Any) -> Any:
            outputs, pullback = linearise(function, inputs, emitted, received, received)
            residuals, self._tree = jax.tree.flatten(pullback)
            return [outputs[o] for o in emitted], residuals

        def pull(residuals: Any, errors: Any, sums: Any) -> Any:
            return jax.tree.unflatten(self._tree, residuals)((sums, errors))

        self._forward = jax.make_jaxpr(forward)(*in_avals)
        self._num_outputs = len(emitted)
        residuals = self._forward.out_avals[len(emitted) :]
        errors = tuple(self._forward.out_avals[: len(emitted)])
        sums = tuple(in_avals[k] for k in received)
        self._set_pull(jax.make_jaxpr(pull)(residuals, errors, sums), len(residuals) + len(errors))

    def _set_pull(self, program: _compat.ClosedJaxpr, num_inputs: int) -> None:
        jaxpr = program.jaxpr
        inputs, sums = jaxpr.invars[:num_inputs], jaxpr.invars[num_inputs:]
        made_by = {var: eqn for eqn in jaxpr.eqns for var in eqn.outvars}
        ends = zip(sums, jaxpr.outvars, strict=True)
        terms = [_terms(made_by, start, end) for start, end in ends]
        results = [atom for group in terms for atom in group]
        eqns = _compat.live_equations(jaxpr.eqns, results)
        self._pull = _compat.with_equations(jaxpr, eqns, [*jaxpr.constvars, *inputs], results)
        self._pull_consts = program.consts
        self.num_terms = tuple(map(len, terms))

    def predict(self, inputs: Sequence[Any]) -> tuple[list[Any], list[Any]]:
        """μ at the inputs, and what the messages need to know of it."""
        values = _compat.as_function(self._forward)(*inputs)
        return values[: self._num_outputs], values[self._num_outputs :]

    def messages(
        self, residuals: Sequence[Any], errors: Sequence[Any], early: Any
    ) -> list[tuple[Any, ...]]:
        """For each receiving input the terms of ε ∂μ/∂x, in the order in which they are added.

        ``early`` says that the wave is yet to come. A pullback is linear: no error, no message.
        Where the derivative is infinite, multiplying would give 0 * inf = NaN instead.
        """
        flat = _compat.as_function(self._pull)(*self._pull_consts, *residuals, *errors)
        silent = early
        if early is not False:
            silent = functools.reduce(
                jax.numpy.logical_and, [(e == 0).all() for e in errors], early
            )
        flat = iter([_compat.choose(silent, jax.lax.full_like(term, 0), term) for term in flat])
        return [tuple(next(flat) for _ in range(count)) for count in self.num_terms]


def _terms(made_by: Mapping[Any, Any], start: Any, end: Any) -> list[Any]:
    """What is added to ``start``, one after the other, to make ``end``."""
    terms = []
    while end is not start:
        eqn = made_by.get(end)
        if eqn is None or eqn.primitive.name != _compat.SUM_PRIMITIVE:
            raise complain(
                NotImplementedError,
                "the pullback of a vertex does not simply add to the sum at its input, so the "
                f"dynamics cannot take it apart: {eqn}",
                remedy="The wavefront, ZIL() without a record, does not need to.",
            )
        end, term = eqn.invars
        terms.append(term)
    return terms[::-1]
