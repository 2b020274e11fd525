"""The wave through loops: a ``scan``, and a ``while`` whose number of steps the program fixes."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

import jax

from dendrax import _compat
from dendrax._body import Program, active_only, made_once, region_run
from dendrax._hoist import Env, split_constant
from dendrax._open import fixed_trip_count
from dendrax._wavefront import Run, Tape, send_back


def run_scan(
    primitive: Any, values: Sequence[Any], active: Sequence[bool], params: dict[str, Any]
) -> Run:
    """A forward scan that stacks the residuals of the body's tape, then a reverse scan.

    Residuals that are the same at every step (weights) are not stacked, and those that are slices
    of the xs are read from the xs again.
    """
    step = made_once(
        _Step, params["jaxpr"], params["num_consts"], params["num_carry"], tuple(active)
    )
    consts, init, xs = step.split(values)
    constant = step.hoist(consts)
    count = step.num_carry

    def body(carry: list[Any], x: list[Any]) -> Any:
        results = step.vary(constant, carry, x)
        return results[:count], results[count:]

    loop = {key: params[key] for key in ("length", "reverse", "unroll")}
    carry, ys = jax.lax.scan(body, init, xs, **loop)
    num_ys = len(step.program.outputs) - count
    outputs = [*carry, *ys[:num_ys]]
    pull = functools.partial(_scan_back, step, tuple(active), tuple(loop.items()))
    return region_run(outputs, active, step.carries, pull, (constant, xs, ys[num_ys:]))


class _Step:
    """One time step of a scan's forward pass, in two parts: hoisted and repeated."""

    def __init__(
        self,
        body: _compat.ClosedJaxpr,
        num_consts: int,
        num_carry: int,
        active: tuple[bool, ...],
    ):
        self.num_consts, self.num_carry = num_consts, num_carry
        self.avals = body.in_avals
        self.active, self.program = self._settle(body, list(active))
        program = self.program
        self.carries = (*self.split(self.active)[1], *program.carries[num_carry:])
        self.consts, self.carry, self.xs = self.split(program.jaxpr.invars)
        self.pieces = split_constant(program.jaxpr, [*program.jaxpr.constvars, *self.consts])
        results = _compat.unique_vars([*program.outputs, *program.residuals])
        used = [name for piece in self.pieces.each for name in piece.inputs]
        constant = self.pieces.constant
        self.constant = [name for name in dict.fromkeys([*results, *used]) if name in constant]
        elsewhere = {*self.constant, *self.xs}
        residuals = _compat.unique_vars(program.residuals)
        self.stacked = [var for var in residuals if var not in elsewhere]

    def split(self, values: Sequence[Any]) -> tuple[list[Any], list[Any], list[Any]]:
        """Constants, carries and xs of the inputs."""
        first, second = self.num_consts, self.num_consts + self.num_carry
        return list(values[:first]), list(values[first:second]), list(values[second:])

    def _settle(self, body: _compat.ClosedJaxpr, active: list[bool]) -> tuple[list[bool], Program]:
        """The body's program, once it is known which carries are active at some time step."""
        first, second = self.num_consts, self.num_consts + self.num_carry
        while True:
            program = made_once(Program, body, tuple(active))
            pairs = zip(active[first:second], program.carries[: self.num_carry], strict=True)
            grown = [a or b for a, b in pairs]
            if grown == active[first:second]:
                return active, program
            active[first:second] = grown

    def hoist(self, consts: Sequence[Any]) -> list[Any]:
        """The values that are constant over time."""
        program = self.program
        env: Env = dict(zip(program.jaxpr.constvars, program.consts, strict=True))
        env.update(zip(self.consts, consts, strict=True))
        for piece in self.pieces.once:
            piece.run(env)
        return [env[name] for name in self.constant]

    def vary(self, constant: Sequence[Any], carry: Sequence[Any], x: Sequence[Any]) -> list[Any]:
        """The body's outputs at one time step, then the residuals to stack."""
        names = [*self.constant, *self.carry, *self.xs]
        env: Env = dict(zip(names, [*constant, *carry, *x], strict=True))
        for piece in self.pieces.each:
            piece.run(env)
        return [_read(env, atom) for atom in (*self.program.outputs, *self.stacked)]

    def tape(self, constant: Sequence[Any], x: Sequence[Any], stacked: Sequence[Any]) -> Tape:
        """The body's tape at one time step."""
        names = [*self.constant, *self.xs, *self.stacked]
        env: Env = dict(zip(names, [*constant, *x, *stacked], strict=True))
        return self.program.tape([_read(env, atom) for atom in self.program.residuals])


def _read(env: Env, atom: Any) -> Any:
    return env[atom] if isinstance(atom, _compat.Var) else atom.val


def _scan_back(
    step: _Step,
    active: tuple[bool, ...],
    loop: tuple[tuple[str, Any], ...],
    kept: tuple[list[Any], list[Any], list[Any]],
    errors: Sequence[Any],
) -> list[Any]:
    """The body's wave at each time step, from the last to the first.

    The scan carries the sums at its constants and the errors at its carries; as in JAX's, one that
    is absent is a zero.
    """
    constant, xs, stacked = kept
    flags = step.split(step.active)
    avals = step.split(step.avals)

    def present(values: Sequence[Any], part: int) -> list[Any]:
        triples = zip(values, avals[part], flags[part], strict=True)
        return [_or_zeros(value, aval) if flag else None for value, aval, flag in triples]

    def body(state: Any, slices: Any) -> Any:
        sums, carry_error = state
        ys_error, x, residuals = slices
        tape = step.tape(constant, x, residuals)
        found = step.split(send_back(tape, [*carry_error, *ys_error], sums))
        sums, before, at_x = (present(values, part) for part, values in enumerate(found))
        return (sums, before), at_x

    settings = dict(loop)
    settings["reverse"] = not settings["reverse"]
    sums = present([None] * step.num_consts, 0)
    carry_error = present(errors[: step.num_carry], 1)
    start = (sums, carry_error)
    slices = (list(errors[step.num_carry :]), xs, stacked)
    (sums, carry_error), at_xs = jax.lax.scan(body, start, slices, **settings)
    return active_only([*sums, *carry_error, *at_xs], active)


def _or_zeros(error: Any, aval: Any) -> Any:
    return _compat.zeros(aval) if error is None else error


def run_while(
    primitive: Any, values: Sequence[Any], active: Sequence[bool], params: dict[str, Any]
) -> Run | None:
    """A ``while`` whose trip count the program fixes is a scan. JAX has no way back through others,
    and says so if an error comes."""
    first, num_consts = params["cond_nconsts"], params["body_nconsts"]
    length = fixed_trip_count(params, values)
    if length is None or any(active[:first]):
        return None
    loop = {
        "jaxpr": params["body_jaxpr"],
        "num_consts": num_consts,
        "num_carry": len(values) - first - num_consts,
        "length": length,
        "reverse": False,
        "unroll": 1,
    }
    return run_scan(primitive, values[first:], active[first:], loop)
