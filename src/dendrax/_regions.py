"""The wave inside regions: an inner ``jit``, a ``remat``, a ``scan``.

Each kind says how its body's forward pass is run and what is kept of it until the wave comes, and
then sends the wave back through the body. The programs that come out are those of JAX's own reverse
mode, down to the calls and the loops, because XLA rounds differently where they differ.

A region enters as a primitive with its inputs, which of them are active, and its parameters. Its
outputs leave, where their errors are (as `dendrax._local.Linear` says), and the way back.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import jax

from dendrax import _compat
from dendrax._hoist import Env, split_constant
from dendrax._local import differentiate_primitive
from dendrax._open import fixed_trip_count
from dendrax._wavefront import REGIONS, Run, Tape, record, send_back


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


def _region(
    outputs: Sequence[Any], active: Sequence[bool], carries: Sequence[bool], pull: Any, kept: Any
) -> Run:
    """A region's results: an output has an error of its own, or none."""
    first = sum(active)
    ties = [first + sum(carries[:o]) if flag else None for o, flag in enumerate(carries)]
    return outputs, ties, RegionPullback(pull, tuple(carries), kept)


class _Program:
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


def _active_only(values: Sequence[Any], active: Sequence[bool]) -> list[Any]:
    return [value for value, flag in zip(values, active, strict=True) if flag]


# ---- kept ----------------------------------------------------------------------------------------


def _kept(make: Callable[..., Any], body: _compat.ClosedJaxpr, *settings: Any) -> Any:
    """``make(body, *settings)``, made once: eagerly, a ``jit`` is compiled once, as with JAX."""
    if any(map(_compat.is_tracer, body.consts)):
        return make(body, *settings)
    return _make_once(make, body, settings, _compat.trace_context())


@functools.lru_cache(maxsize=512)
def _make_once(
    make: Callable[..., Any], body: _compat.ClosedJaxpr, settings: tuple[Any, ...], context: Any
) -> Any:
    return make(body, *settings)


# ---- jit -----------------------------------------------------------------------------------------


def run_jit(
    primitive: Any, values: Sequence[Any], active: Sequence[bool], params: dict[str, Any]
) -> Run:
    """Keep the call: XLA rounds differently where it cannot see the boundary that JAX left.

    Of a jit that is to be inlined (most of `jax.numpy`'s) JAX keeps none on the way back.
    """
    body = _compat.called_jaxpr(params)
    names = ("name", "inline", "in_shardings", "out_shardings")
    settings = tuple((name, params[name]) for name in names if name in params)
    call = _kept(_JitCall, body, tuple(active), settings)
    outputs, residuals = call.forward(*values)
    residuals = call.packing.restore(values, outputs, residuals)
    if params.get("inline"):
        return outputs, (), jax.tree.unflatten(call.tree, residuals)
    return _region(outputs, active, call.carries, call.backward, residuals)


class _JitCall:
    """The body's forward pass and wave, each under ``jit`` as the body was."""

    tree: Any
    packing: _Packing
    carries: tuple[bool, ...]

    def __init__(
        self,
        body: _compat.ClosedJaxpr,
        active: tuple[bool, ...],
        settings: tuple[tuple[str, Any], ...],
    ):
        params = dict(settings)
        function = _constrained(body, params)

        def forward(*inputs: Any) -> Any:
            outputs, tape = record(function, inputs, active)
            residuals, self.tree = jax.tree.flatten(tape)
            self.carries = tape.layout.carries
            self.packing = _Packing(inputs, outputs, residuals)
            return outputs, self.packing.packed(residuals)

        def backward(residuals: list[Any], errors: Sequence[Any]) -> list[Any]:
            tape = jax.tree.unflatten(self.tree, residuals)
            return _active_only(send_back(tape, errors), active)

        forward.__name__ = backward.__name__ = params.get("name", "call")
        self.forward = jax.jit(forward, inline=params.get("inline", False))
        self.backward = jax.jit(backward)


def _constrained(body: _compat.ClosedJaxpr, params: dict[str, Any]) -> Callable[..., list[Any]]:
    """A body as a function, with the shardings that its ``jit`` asks for."""

    def constrain(values: Sequence[Any], shardings: Sequence[Any]) -> list[Any]:
        values = list(values)
        for k, sharding in enumerate(shardings):
            if isinstance(sharding, jax.sharding.Sharding):
                values[k] = jax.lax.with_sharding_constraint(values[k], sharding)
        return values

    def function(*inputs: Any) -> list[Any]:
        given = constrain(inputs, params.get("in_shardings", ()))
        outputs = _compat.as_function(body)(*given)
        return constrain(outputs, params.get("out_shardings", ()))

    return function


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


def run_remat(
    primitive: Any, values: Sequence[Any], active: Sequence[bool], params: dict[str, Any]
) -> Run:
    """Keep only the inputs, and what the policy says; linearise when the wave comes."""
    plan = _Recompute(_compat.closed(params["jaxpr"]), tuple(active), params)
    if params["policy"] is None:
        outputs, saved = primitive.bind(*values, **params), []
    else:
        outputs, saved = plan.evaluate_and_save(values)
    kept = list(values), saved
    return _region(outputs, active, plan.program.carries, plan.pull, kept)


class _Recompute:
    """The body's forward pass, split into what is saved and what is computed again."""

    def __init__(self, body: _compat.ClosedJaxpr, active: tuple[bool, ...], params: dict[str, Any]):
        self.active, self.prevent_cse = active, params["prevent_cse"]
        self.program = program = _kept(_Program, body, active)
        policy = params["policy"]
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

    def pull(self, kept: tuple[list[Any], list[Any]], errors: Sequence[Any]) -> list[Any]:
        """Compute the region again and send the wave through it."""
        inputs, saved, errors = self._fenced(*kept, errors)
        program, jaxpr = self.program, self.program.jaxpr
        arguments = [*jaxpr.constvars, *jaxpr.invars, *self.saved]
        again = _compat.with_equations(jaxpr, self.again, arguments, program.residuals)
        residuals = _compat.as_function(again)(*program.consts, *inputs, *saved)
        return _active_only(send_back(program.tape(residuals), errors), self.active)

    def _fenced(self, inputs: list[Any], saved: list[Any], errors: Sequence[Any]) -> Any:
        """Keep XLA from recognising the recomputation and undoing it."""
        fence = self.prevent_cse
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


def run_scan(
    primitive: Any, values: Sequence[Any], active: Sequence[bool], params: dict[str, Any]
) -> Run:
    """A forward scan that stacks the residuals of the body's tape, then a reverse scan.

    Residuals that are the same at every step (weights) are not stacked, and those that are slices
    of the xs are read from the xs again.
    """
    step = _kept(_Step, params["jaxpr"], params["num_consts"], params["num_carry"], tuple(active))
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
    return _region(outputs, active, step.carries, pull, (constant, xs, ys[num_ys:]))


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

    def _settle(self, body: _compat.ClosedJaxpr, active: list[bool]) -> tuple[list[bool], _Program]:
        """The body's program, once it is known which carries are active at some time step."""
        first, second = self.num_consts, self.num_consts + self.num_carry
        while True:
            program = _kept(_Program, body, tuple(active))
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
    return _active_only([*sums, *carry_error, *at_xs], active)


def _or_zeros(error: Any, aval: Any) -> Any:
    return _compat.zeros(aval) if error is None else error


# ---- while ---------------------------------------------------------------------------------------


def run_while(
    primitive: Any, values: Sequence[Any], active: Sequence[bool], params: dict[str, Any]
) -> Run:
    """A ``while`` whose trip count the program fixes is a scan. JAX has no way back through others,
    and says so if an error comes."""
    first, num_consts = params["cond_nconsts"], params["body_nconsts"]
    length = fixed_trip_count(params, values)
    if length is None or any(active[:first]):
        outputs, pullback = differentiate_primitive(primitive, params, values, active)
        return outputs, pullback.linear.ties, pullback
    loop = {
        "jaxpr": params["body_jaxpr"],
        "num_consts": num_consts,
        "num_carry": len(values) - first - num_consts,
        "length": length,
        "reverse": False,
        "unroll": 1,
    }
    return run_scan(primitive, values[first:], active[first:], loop)


REGIONS.update(dict.fromkeys(_compat.JIT_PRIMITIVES, run_jit))
REGIONS.update(dict.fromkeys(_compat.REMAT_PRIMITIVES, run_remat))
REGIONS.update({"scan": run_scan, "while": run_while})
