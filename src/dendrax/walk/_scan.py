"""The wave through loops: a ``scan``, and a ``while`` whose number of steps the program fixes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import jax

from dendrax import _compat
from dendrax.local import Applied
from dendrax.tracing import fixed_trip_count
from dendrax.walk._body import Program, active_only, made_once, region_run, with_constants
from dendrax.walk._hoist import Env, split_constant
from dendrax.walk._wave import Local, Run, Tape, send_back


def run_scan(operation: Applied, values: Sequence[Any], active: Sequence[int], local: Local) -> Run:
    """A forward scan that stacks the residuals of the body's tape, then a reverse scan.

    Residuals that are the same at every step (weights) are not stacked, and those that are slices
    of the xs are read from the xs again.
    """
    params = operation.params
    body, values, active = with_constants(params["jaxpr"], values, active)
    num_consts = params["num_consts"] + len(values) - len(params["jaxpr"].in_avals)
    step = made_once(_ScanStep, body, num_consts, params["num_carry"], active, local)
    consts, init, xs = step.split(values)
    constant = step.hoist(consts)
    count = step.num_carry

    def run(carry: list[Any], x: list[Any]) -> Any:
        results = step.vary(constant, carry, x)
        return results[:count], results[count:]

    loop = {key: params[key] for key in ("length", "reverse", "unroll")}
    carry, ys = jax.lax.scan(run, init, xs, **loop)
    num_ys = len(step.program.outputs) - count
    kept = step.kept(constant, xs), ys[num_ys:]
    way = _ScanWay(step, active, tuple(loop.items()))
    return region_run([*carry, *ys[:num_ys]], active, way, kept)


class _ScanStep:
    """One time step of a scan's forward pass, in two parts: hoisted and repeated."""

    def __init__(
        self,
        body: _compat.Jaxpr,
        num_consts: int,
        num_carry: int,
        active: tuple[int, ...],
        local: Local,
    ):
        self.num_consts, self.num_carry = num_consts, num_carry
        self.avals = [var.aval for var in (*body.constvars, *body.invars)]
        self.active, self.program = self._settle(body, list(active), local)
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
        self.unstacked = [var for var in residuals if var in elsewhere]

    def split(self, values: Sequence[Any]) -> tuple[list[Any], list[Any], list[Any]]:
        """Constants, carries and xs of the inputs."""
        first, second = self.num_consts, self.num_consts + self.num_carry
        return list(values[:first]), list(values[first:second]), list(values[second:])

    def _settle(
        self, body: _compat.Jaxpr, active: list[int], local: Local
    ) -> tuple[list[int], Program]:
        """The body's program, once it is known which carries are active at some time step."""
        first, second = self.num_consts, self.num_consts + self.num_carry
        while True:
            program = made_once(Program, body, tuple(active), local)
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

    def kept(self, constant: Sequence[Any], xs: Sequence[Any]) -> tuple[list[Any], list[Any]]:
        """Of the constants and the xs those that the way back needs."""
        env: Env = dict(zip([*self.constant, *self.xs], [*constant, *xs], strict=True))
        own = [env[name] for name in self.unstacked if name not in self.xs]
        return own, [env[name] for name in self.unstacked if name in self.xs]

    def tape(self, constant: Sequence[Any], x: Sequence[Any], stacked: Sequence[Any]) -> Tape:
        """The body's tape at one time step."""
        own = [name for name in self.unstacked if name not in self.xs]
        names = [*own, *(name for name in self.unstacked if name in self.xs), *self.stacked]
        env: Env = dict(zip(names, [*constant, *x, *stacked], strict=True))
        return self.program.tape([_read(env, atom) for atom in self.program.residuals])


def _read(env: Env, atom: Any) -> Any:
    return env[atom] if isinstance(atom, _compat.Var) else atom.val


@dataclass(frozen=True, eq=False)
class _ScanWay:
    """The body's wave at each time step, from the last to the first.

    The scan carries the sums at its constants and the errors at its carries. An error that is there
    at some time steps only is a zero at the others, as with JAX.
    """

    step: _ScanStep
    active: tuple[int, ...]
    loop: tuple[tuple[str, Any], ...]

    @property
    def carries(self) -> tuple[bool, ...]:
        return self.step.carries

    def flow(self, errors: Sequence[bool]) -> tuple[list[bool], list[bool]]:
        """Which outputs of the body have an error at some time step, and which inputs get one."""
        step, seeded = self.step, list(errors)
        while True:
            hit = step.program.reached(seeded)
            carry_hit = step.split(hit)[1]
            grown = [a or b for a, b in zip(seeded, carry_hit, strict=False)]
            if grown == seeded[: step.num_carry]:
                first = step.num_consts
                hit[first : first + step.num_carry] = grown
                return seeded, hit
            seeded[: step.num_carry] = grown

    def reach(self, errors: Sequence[bool]) -> list[bool]:
        return active_only(self.flow(errors)[1], self.active)

    def pull(self, kept: Any, errors: Sequence[Any]) -> list[Any]:
        step = self.step
        (constant, xs), stacked = kept
        flags = step.split(self.flow([error is not None for error in errors])[1])
        avals = step.split(step.avals)

        def present(values: Sequence[Any], part: int) -> list[Any]:
            triples = zip(values, avals[part], flags[part], strict=True)
            return [_or_zeros(value, aval) if flag else None for value, aval, flag in triples]

        def body(state: Any, slices: Any) -> Any:
            sums, carry_error = state
            ys_error, x, residuals = slices
            tape = step.tape(constant, x, residuals)
            held = [*sums, *[None] * (len(step.avals) - len(sums))]
            found = step.split(send_back(tape, [*carry_error, *ys_error], held))
            sums, before, at_x = (present(values, part) for part, values in enumerate(found))
            return (sums, before), at_x

        loop = dict(self.loop)
        loop["reverse"] = not loop["reverse"]
        sums = present([None] * step.num_consts, 0)
        carry_error = present(errors[: step.num_carry], 1)
        slices = (list(errors[step.num_carry :]), xs, stacked)
        (sums, carry_error), at_xs = jax.lax.scan(body, (sums, carry_error), slices, **loop)
        return active_only([*sums, *carry_error, *at_xs], self.active)


def _or_zeros(error: Any, aval: Any) -> Any:
    return _compat.zeros(aval) if error is None else error


def run_while(
    operation: Applied, values: Sequence[Any], active: Sequence[int], local: Local
) -> Run | None:
    """A ``while`` whose trip count the program fixes is a scan. JAX has no way back through others,
    and says so if an error comes."""
    params = operation.params
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
    return run_scan(operation._replace(params=loop), values[first:], active[first:], local)
