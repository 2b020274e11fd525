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
from dendrax._errors import complain


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
    leaders: Sequence[int] | None = None,
) -> tuple[Sequence[Any], Callable[[tuple[Any, ...]], tuple[Any, ...]]]:
    """Evaluate a local function at its inputs and take its local pullback.

    **Arguments:**

    - `emitted`: the outputs that will have an error.
    - `received`: the inputs that get a message.
    - `leaders`: for each of `received` the input whose sum it shares; by default itself.
    - `summed`: those leaders at which a sum of earlier messages is waiting.

    **Returns:** all outputs, and a pullback from ``(sums, errors)`` to the new sums, one for each
    leader. The waiting sums pass *through* the pullback: we differentiate ``x -> (x, g(x))``, so
    that each term of the message is added to the sum in the order in which JAX adds it.
    """
    leaders = received if leaders is None else leaders
    free = list(dict.fromkeys(leaders))

    def local(*values: Any) -> tuple[Any, Sequence[Any]]:
        given = dict(zip(free, values, strict=True))
        merged = [given.get(k, value) for k, value in enumerate(inputs)]
        for k, leader in zip(received, leaders, strict=True):
            if k != leader:
                merged[k] = _with_tangent_of(inputs[k], given[leader])
        outputs = function(*merged)
        kept = tuple(outputs[o] for o in emitted)
        return (tuple(given[k] for k in summed), kept), outputs

    _, pullback, outputs = jax.vjp(local, *(inputs[k] for k in free), has_aux=True)
    return outputs, pullback


@jax.custom_jvp
def _with_tangent_of(value: Any, leader: Any) -> Any:
    """``value``, with the tangent of ``leader``: JAX uses one tangent for a value and its alias."""
    return value


@_with_tangent_of.defjvp
def _(primals: Any, tangents: Any) -> Any:
    return primals[0], tangents[1]


class Reach(NamedTuple):
    """Where the errors of a vertex go.

    - ``depends``: for each output a bit mask of the inputs that its error sends a message to.
    - ``alias``: for each output the input whose tangent JAX hands on untouched (``x + 1`` has the
      tangent of ``x``), or ``None``. JAX then has one sum for both, and so must we.
    """

    depends: tuple[int, ...]
    alias: tuple[int | None, ...]


def reach(equation: Equation, active: tuple[bool, ...]) -> Reach:
    """Which of the ``active`` inputs the errors of an equation reach.

    Found from the local pullback itself: a message that does not depend on the error (what is
    behind ``stop_gradient``, ``floor``, a comparison) does not exist.
    """
    key = _signature(equation, active)
    if key is None:
        return _find_reach(equation, active)
    if key not in _known:
        if len(_known) > 10_000:
            _known.clear()
        _known[key] = _find_reach(equation, active)
    return _known[key]


_known: dict[Any, Reach] = {}


def _signature(equation: Equation, active: tuple[bool, ...]) -> Any:
    """What decides the dependencies; ``None`` where that is more than a few plain values."""
    eqn = equation.jaxpr.eqns[0]
    if _compat.carries_function(eqn):
        return None
    position = {var: k for k, var in enumerate(equation.jaxpr.jaxpr.invars)}
    inputs = tuple(
        (position[atom] if isinstance(atom, _compat.Var) else None, atom.aval)
        for atom in eqn.invars
    )
    key = (eqn.primitive, tuple(sorted(eqn.params.items())), inputs, active)
    try:
        hash(key)
    except TypeError:
        return None
    return key


def _find_reach(equation: Equation, active: tuple[bool, ...]) -> Reach:
    received = [k for k, is_active in enumerate(active) if is_active]
    emitted = [o for o, aval in enumerate(equation.jaxpr.out_avals) if is_inexact(aval)]
    masks = [0] * len(equation.jaxpr.out_avals)
    alias: list[int | None] = [None] * len(masks)

    def pull(inputs: Sequence[Any], errors: Any) -> Any:
        _, pullback = linearise(equation, inputs, emitted, received, ())
        return pullback(((), errors))

    in_avals = list(equation.jaxpr.in_avals)
    errors = tuple(equation.jaxpr.out_avals[o] for o in emitted)
    if not emitted:
        return Reach(tuple(masks), tuple(alias))
    try:
        jaxpr = jax.make_jaxpr(pull)(in_avals, errors)
    except Exception as error:
        raise _cannot_differentiate(equation, error) from error
    masks_of_errors = [0] * len(in_avals) + [1 << position for position in range(len(errors))]
    reached = _compat.dependencies(jaxpr, masks_of_errors)
    for k, sources in zip(received, reached, strict=True):
        for position, o in enumerate(emitted):
            masks[o] |= (sources >> position & 1) << k
    if any(atom in jaxpr.jaxpr.invars for atom in _compat.unique_vars(jaxpr.jaxpr.outvars)):
        alias = _find_alias(equation, emitted, received)
    return Reach(tuple(masks), tuple(alias))


def _find_alias(
    equation: Equation, emitted: Sequence[int], received: Sequence[int]
) -> list[int | None]:
    """The outputs whose tangent *is* the tangent of an input."""

    def push(inputs: Sequence[Any], tangents: Any) -> Any:
        def local(*values: Any) -> Any:
            merged = list(inputs)
            for k, value in zip(received, values, strict=True):
                merged[k] = value
            outputs = equation(*merged)
            return [outputs[o] for o in emitted]

        return jax.jvp(local, [inputs[k] for k in received], tangents)[1]

    in_avals = list(equation.jaxpr.in_avals)
    jaxpr = jax.make_jaxpr(push)(in_avals, [in_avals[k] for k in received]).jaxpr
    tangent_of = dict(zip(jaxpr.invars[len(in_avals) :], received, strict=True))
    alias: list[int | None] = [None] * len(equation.jaxpr.out_avals)
    for o, atom in zip(emitted, jaxpr.outvars, strict=True):
        if isinstance(atom, _compat.Var):
            alias[o] = tangent_of.get(atom)
    return alias


def _cannot_differentiate(equation: Equation, error: Exception) -> Exception:
    kind = type(error) if isinstance(error, (TypeError, ValueError)) else NotImplementedError
    try:
        return complain(
            kind,
            f"JAX has no reverse derivative for '{equation.primitive}': {error}",
            source=equation.source,
            remedy="Wrap the operation in jax.custom_vjp or jax.custom_jvp, or cut it off with "
            "jax.lax.stop_gradient.",
        )
    except TypeError:  # an exception type of its own that takes other arguments
        return error


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
