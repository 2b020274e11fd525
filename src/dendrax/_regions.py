"""The wavefront inside regions: an inner ``jit``, a ``remat``, a ``scan``.

Each kind says how its body's forward pass is run and what is kept of it until the wave comes, and
then runs the body's wave. The programs that come out are those of JAX's own reverse mode, down to
the calls and the loops, because XLA rounds differently where they differ.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import jax

from dendrax import _compat
from dendrax._hoist import Env, split_constant
from dendrax._open import Jit, Region, Remat, Scan
from dendrax._wavefront import (
    Pullbacks,
    body_backward,
    body_forward,
    run_backward,
    run_region,
    spread_errors,
)

Run = tuple[Sequence[Any], Callable[[tuple[Any, ...]], list[Any]]]


class _Program:
    """A body's forward pass as a jaxpr: its outputs, and the residuals of its pullbacks."""

    tree: Any

    def __init__(self, region: Region, emitted: tuple[int, ...]):
        def forward(*inputs: Any) -> Any:
            outputs, pullbacks = body_forward(region, emitted, inputs)
            residuals, self.tree = jax.tree.flatten(pullbacks)
            return outputs, residuals

        avals = [region.body[leaf].outputs[0] for leaf in region.input_leaves]
        closed = jax.make_jaxpr(forward)(*avals)
        self.jaxpr, self.consts = closed.jaxpr, closed.consts
        self.outputs = self.jaxpr.outvars[: len(region.body.outputs)]
        self.residuals = self.jaxpr.outvars[len(region.body.outputs) :]


# ---- jit -----------------------------------------------------------------------------------------


@run_region.register
def _run_jit(
    region: Jit, inputs: Sequence[Any], emitted: tuple[int, ...], received: tuple[int, ...]
) -> Run:
    """Keep the call: XLA rounds differently where it cannot see the boundary that JAX left."""
    # Kept with the body, which outlives this trace: an eager caller compiles once, as with JAX.
    calls, key = region.body.memo, ("jit", emitted, received)
    call = calls[key] = calls.get(key) or _JitCall(region, emitted, received)
    outputs, residuals = call.forward(*inputs)
    residuals = call.packing.restore(inputs, outputs, residuals)
    return outputs, jax.tree_util.Partial(call.backward, residuals)


class _JitCall:
    """The body's forward pass and wave, each under ``jit`` as the body was."""

    tree: Any
    packing: _Packing

    def __init__(self, region: Region, emitted: tuple[int, ...], received: tuple[int, ...]):
        def forward(*inputs: Any) -> Any:
            outputs, pullbacks = body_forward(region, emitted, inputs)
            residuals, self.tree = jax.tree.flatten(pullbacks)
            self.packing = _Packing(inputs, outputs, residuals)
            return outputs, self.packing.packed(residuals)

        def backward(residuals: list[Any], errors: Sequence[Any]) -> list[Any]:
            pullbacks = jax.tree.unflatten(self.tree, residuals)
            return body_backward(region, emitted, received, pullbacks, errors)

        self.forward, self.backward = jax.jit(forward), jax.jit(backward)


class _Packing:
    """Which residuals need not leave a jit, being its arguments, its results or duplicates."""

    def __init__(self, inputs: Sequence[Any], outputs: Sequence[Any], residuals: Sequence[Any]):
        places: dict[int, tuple[str, int]] = {}
        for i, value in enumerate(residuals):
            places.setdefault(id(value), ("residual", i))
        places.update((id(value), ("output", o)) for o, value in enumerate(outputs))
        places.update((id(value), ("input", k)) for k, value in enumerate(inputs))
        self.places = [places[id(value)] for value in residuals]
        self.kept = [i for i, place in enumerate(self.places) if place == ("residual", i)]

    def packed(self, residuals: Sequence[Any]) -> list[Any]:
        """The residuals that have to leave."""
        return [residuals[i] for i in self.kept]

    def restore(
        self, inputs: Sequence[Any], outputs: Sequence[Any], packed: Sequence[Any]
    ) -> list[Any]:
        """All residuals."""
        sources: dict[str, Any] = {"input": inputs, "output": outputs}
        sources["residual"] = dict(zip(self.kept, packed, strict=True))
        return [sources[kind][i] for kind, i in self.places]


# ---- remat ---------------------------------------------------------------------------------------


@run_region.register
def _run_remat(
    region: Remat, inputs: Sequence[Any], emitted: tuple[int, ...], received: tuple[int, ...]
) -> Run:
    """Keep only the inputs, and what the policy says; linearise when the wave comes."""
    plan = _Recompute(region, emitted, received)
    if region.policy is None:
        return region(*inputs), jax.tree_util.Partial(plan.pull, list(inputs), [])
    outputs, saved = plan.evaluate_and_save(inputs)
    return outputs, jax.tree_util.Partial(plan.pull, list(inputs), saved)


class _Recompute:
    """The body's forward pass, split into what is saved and what is computed again."""

    def __init__(self, region: Remat, emitted: tuple[int, ...], received: tuple[int, ...]):
        self.region, self.emitted, self.received = region, emitted, received
        self.program = program = _Program(region, emitted)
        policy = region.policy
        saved = [eqn for eqn in program.jaxpr.eqns if policy and _compat.saves(policy, eqn)]
        kept = {var for eqn in saved for var in eqn.outvars}
        again = [eqn for eqn in program.jaxpr.eqns if kept.isdisjoint(eqn.outvars)]
        self.again = _compat.live_equations(again, program.residuals)
        atoms = [*program.residuals, *(atom for eqn in self.again for atom in eqn.invars)]
        self.saved = [var for var in _compat.unique_vars(atoms) if var in kept]

    def evaluate_and_save(self, inputs: Sequence[Any]) -> tuple[list[Any], list[Any]]:
        """Outputs and saved values, each rounded to its own precision, as JAX does."""
        program, jaxpr = self.program, self.program.jaxpr
        results = [*program.outputs, *self.saved]
        eqns = _compat.live_equations(jaxpr.eqns, results)
        evaluate = _compat.with_equations(jaxpr, eqns, [*jaxpr.constvars, *jaxpr.invars], results)
        values = _compat.as_function(evaluate)(*program.consts, *inputs)
        count = len(program.outputs)
        return values[:count], list(map(_compat.round_to_own_precision, values[count:]))

    def pull(self, inputs: list[Any], saved: list[Any], errors: tuple[Any, ...]) -> list[Any]:
        """Compute the region again and send the wave through it."""
        inputs, saved, errors = self._fenced(inputs, saved, errors)
        program, jaxpr = self.program, self.program.jaxpr
        arguments = [*jaxpr.constvars, *jaxpr.invars, *self.saved]
        again = _compat.with_equations(jaxpr, self.again, arguments, program.residuals)
        residuals = _compat.as_function(again)(*program.consts, *inputs, *saved)
        pullbacks = jax.tree.unflatten(program.tree, residuals)
        return body_backward(self.region, self.emitted, self.received, pullbacks, errors)

    def _fenced(self, inputs: list[Any], saved: list[Any], errors: tuple[Any, ...]) -> Any:
        """Keep XLA from recognising the recomputation and undoing it."""
        fence = self.region.prevent_cse
        if fence is False:
            return inputs, saved, errors
        flags = fence if isinstance(fence, tuple) else (True,) * len(inputs)
        chosen = [value for value, flag in zip(inputs, flags, strict=True) if flag]
        chosen, saved, errors = jax.lax.optimization_barrier((chosen, saved, errors))
        behind = iter(chosen)
        inputs = [
            next(behind) if flag else value for value, flag in zip(inputs, flags, strict=True)
        ]
        return inputs, saved, errors


# ---- scan ----------------------------------------------------------------------------------------


@run_region.register
def _run_scan(
    region: Scan, inputs: Sequence[Any], emitted: tuple[int, ...], received: tuple[int, ...]
) -> Run:
    """A forward scan that stacks the residuals of the body's pullbacks, then a reverse scan.

    Residuals that are the same at every step (weights) are not stacked, and those that are slices
    of the xs are read from the xs again.
    """
    step = _Step(region, emitted)
    consts, init, xs = region.split(inputs)
    constant = step.hoist(consts)

    def body(carry: list[Any], x: list[Any]) -> Any:
        results = step.vary(constant, carry, x)
        return results[: region.num_carry], results[region.num_carry :]

    carry, ys = jax.lax.scan(
        body, init, xs, length=region.length, reverse=region.reverse, unroll=region.unroll
    )
    num_ys = len(region.body.outputs) - region.num_carry
    backward = functools.partial(_scan_backward, region, step, emitted, received)
    pullback = jax.tree_util.Partial(backward, constant, xs, ys[num_ys:])
    return [*carry, *ys[:num_ys]], pullback


class _Step:
    """One time step of a scan's forward pass, in two parts: hoisted and repeated."""

    def __init__(self, region: Scan, emitted: tuple[int, ...]):
        self.program = program = _Program(region, emitted)
        self.consts, self.carry, self.xs = region.split(program.jaxpr.invars)
        self.split = split_constant(program.jaxpr, [*program.jaxpr.constvars, *self.consts])
        results = _compat.unique_vars([*program.outputs, *program.residuals])
        used = [name for piece in self.split.each for name in piece.inputs]
        constant = self.split.constant
        self.constant = [name for name in dict.fromkeys([*results, *used]) if name in constant]
        elsewhere = {*self.constant, *self.xs}
        residuals = _compat.unique_vars(program.residuals)
        self.stacked = [var for var in residuals if var not in elsewhere]

    def hoist(self, consts: Sequence[Any]) -> list[Any]:
        """The values that are constant over time."""
        program = self.program
        env: Env = dict(zip(program.jaxpr.constvars, program.consts, strict=True))
        env.update(zip(self.consts, consts, strict=True))
        for piece in self.split.once:
            piece.run(env)
        return [env[name] for name in self.constant]

    def vary(self, constant: Sequence[Any], carry: Sequence[Any], x: Sequence[Any]) -> list[Any]:
        """The body's outputs at one time step, then the residuals to stack."""
        names = [*self.constant, *self.carry, *self.xs]
        env: Env = dict(zip(names, [*constant, *carry, *x], strict=True))
        for piece in self.split.each:
            piece.run(env)
        return [_read(env, atom) for atom in (*self.program.outputs, *self.stacked)]

    def pullbacks(
        self, constant: Sequence[Any], x: Sequence[Any], stacked: Sequence[Any]
    ) -> Pullbacks:
        """The body's pullbacks at one time step."""
        names = [*self.constant, *self.xs, *self.stacked]
        env: Env = dict(zip(names, [*constant, *x, *stacked], strict=True))
        residuals = [_read(env, atom) for atom in self.program.residuals]
        return jax.tree.unflatten(self.program.tree, residuals)


def _read(env: Env, atom: Any) -> Any:
    return env[atom] if isinstance(atom, _compat.Var) else atom.val


def _scan_backward(
    region: Scan,
    step: _Step,
    emitted: tuple[int, ...],
    received: tuple[int, ...],
    constant: list[Any],
    xs: list[Any],
    stacked: list[Any],
    errors: tuple[Any, ...],
) -> list[Any]:
    """The body's wave at each time step, from the last to the first.

    The scan carries the sums at its constants and the errors at its carries.
    """
    flow, seeded = region.wave(emitted), region.seeds(emitted)
    spread = spread_errors(region, emitted, errors)
    leaves = [region.body[leaf].outputs[0] for leaf in region.input_leaves]
    consts, carries, _ = region.split(leaves)
    told_consts, _, told_xs = region.split([k in received for k in range(len(leaves))])
    sums = [_compat.zeros(a) if told else None for a, told in zip(consts, told_consts, strict=True)]
    ends = list(zip(carries, spread[: region.num_carry], seeded, strict=False))
    carry_error = [_or_zeros(error, aval) if seed else None for aval, error, seed in ends]

    def body(state: Any, slices: Any) -> Any:
        sums, carry_error = state
        ys_error, x, residuals = slices
        pullbacks = step.pullbacks(constant, x, residuals)
        none = [None] * len(region.constants)
        found = run_backward(
            region.body, flow, pullbacks, [*carry_error, *ys_error], [*none, *sums]
        )
        sums, before, at_x = region.split(found[len(none) :])
        steps = zip(before, carries, seeded, strict=False)
        before = [_or_zeros(error, aval) if seed else None for error, aval, seed in steps]
        return (sums, before), [error for error, told in zip(at_x, told_xs, strict=True) if told]

    (sums, carry_error), at_xs = jax.lax.scan(
        body,
        (sums, carry_error),
        (spread[region.num_carry :], xs, stacked),
        length=region.length,
        reverse=not region.reverse,
        unroll=region.unroll,
    )
    stacks = iter(at_xs)
    messages = [*sums, *carry_error, *(next(stacks) if told else None for told in told_xs)]
    return [messages[k] for k in received]


def _or_zeros(error: Any, aval: Any) -> Any:
    return _compat.zeros(aval) if error is None else error
