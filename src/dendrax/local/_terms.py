"""One vertex as Z-IL's dynamics see it: its messages taken apart into terms."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import jax

from dendrax import _compat
from dendrax.local._function import linearise
from dendrax.support import complain


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
        if _compat.is_tracer(silent):
            flags = [_compat.on_all_devices(silent, term) for term in flat]
        else:
            flags = [silent] * len(flat)
        pairs = zip(flags, flat, strict=True)
        flat = iter(
            [_compat.choose(flag, jax.lax.full_like(term, 0), term) for flag, term in pairs]
        )
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
