"""The wave inside regions: an inner ``jit``, a ``remat``; loops are in `dendrax.walk._scan`.

Each kind says how its body's forward pass is run and what is kept of it until the wave comes, and
then sends the wave back through the body. The programs that come out are those of JAX's own reverse
mode, down to the calls and the loops, because XLA rounds differently where they differ.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import jax

from dendrax import _compat
from dendrax.local import (
    Applied,
    ByPlatform,
    Contraction,
    Convolution,
    differentiate_primitive,
    explaining,
    is_contraction,
    is_convolution,
    on_cpu,
)
from dendrax.walk._body import Program, active_only, made_once, region_run, with_constants
from dendrax.walk._scan import run_scan, run_while
from dendrax.walk._wave import Local, Run, reached, record, send_back

# ---- jit -----------------------------------------------------------------------------------------


def run_jit(operation: Applied, values: Sequence[Any], active: Sequence[int], local: Local) -> Run:
    """Keep the call: XLA rounds differently where it cannot see the boundary that JAX left.

    Of a jit that is to be inlined (most of `jax.numpy`'s) JAX keeps none on the way back.
    """
    params = operation.params
    body, values, active = with_constants(_compat.called_jaxpr(params), values, active)
    names = ("name", "inline", "in_shardings", "out_shardings", "compiler_options_kvs")
    settings = tuple((name, params[name]) for name in names if name in params)
    call = made_once(_JitCall, body, active, settings, local)
    outputs, residuals = call.forward(*values)
    residuals = call.packing.restore(values, outputs, residuals)
    if params.get("inline"):
        return Run(outputs, (), jax.tree.unflatten(call.tree, residuals))
    return region_run(outputs, active, call, residuals)


class _JitCall:
    """The body's forward pass and wave, each under ``jit`` as the body was."""

    tree: Any
    packing: _Packing
    carries: tuple[bool, ...]

    def __init__(
        self,
        body: _compat.Jaxpr,
        active: tuple[int, ...],
        settings: tuple[tuple[str, Any], ...],
        local: Local,
    ):
        params = dict(settings)
        self.active = active
        run_body = _constrained(body, params)

        def forward(*inputs: Any) -> Any:
            outputs, tape = record(run_body, inputs, active, local)
            residuals, self.tree = jax.tree.flatten(tape)
            self.carries = tape.layout.carries
            self.packing = _Packing(inputs, outputs, residuals)
            return outputs, self.packing.packed(residuals)

        def backward(residuals: list[Any], errors: Sequence[Any]) -> list[Any]:
            tape = jax.tree.unflatten(self.tree, residuals)
            return active_only(send_back(tape, errors), active)

        for function in (forward, backward):
            function.__name__ = function.__qualname__ = params.get("name", "call")
        options = dict(params.get("compiler_options_kvs", ())) or None
        inline = params.get("inline", False)
        self.forward = jax.jit(forward, inline=inline, compiler_options=options)
        self.pull = jax.jit(backward, compiler_options=options)

    def reach(self, errors: Sequence[bool]) -> list[bool]:
        tape = jax.tree.unflatten(self.tree, [None] * self.tree.num_leaves)
        return active_only(reached(tape, errors), self.active)


def _constrained(body: _compat.Jaxpr, params: dict[str, Any]) -> Callable[..., list[Any]]:
    """A body as a function, with the shardings that its ``jit`` asks for."""

    def constrain(values: Sequence[Any], shardings: Sequence[Any]) -> list[Any]:
        values = list(values)
        for k, sharding in enumerate(shardings):
            if isinstance(sharding, jax.sharding.Sharding):
                values[k] = jax.lax.with_sharding_constraint(values[k], sharding)
        return values

    def function(*inputs: Any) -> list[Any]:
        count = len(body.constvars)
        given = constrain(inputs[count:], params.get("in_shardings", ()))
        outputs = _compat.as_open_function(body)(*inputs[:count], *given)
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
    operation: Applied, values: Sequence[Any], active: Sequence[int], local: Local
) -> Run:
    """Keep only the inputs, and what the policy says; linearise when the wave comes."""
    params = operation.params
    body, values, active = with_constants(_compat.closed(params["jaxpr"]), values, active)
    plan = _Recompute(body, active, params, local)
    outputs, saved = plan.evaluate_and_save(values)
    return region_run(outputs, active, plan, (list(values), saved))


class _Recompute:
    """The body's forward pass, split into what is saved and what is computed again."""

    def __init__(
        self,
        body: _compat.Jaxpr,
        active: tuple[int, ...],
        params: dict[str, Any],
        local: Local,
    ):
        self.active, self.prevent_cse = active, params["prevent_cse"]
        self.program = program = made_once(Program, body, active, local)
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
        return active_only(send_back(program.tape(residuals), errors), self.active)

    @property
    def carries(self) -> tuple[bool, ...]:
        return self.program.carries

    def reach(self, errors: Sequence[bool]) -> list[bool]:
        return active_only(self.program.reached(errors), self.active)

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


# ---- how a vertex is run -------------------------------------------------------------------------

# A primitive with a body -> how it is run; ``None`` if it is a vertex like any other after all.
REGIONS: dict[str, Callable[[Applied, Sequence[Any], Sequence[int], Local], Run | None]] = {
    **dict.fromkeys(_compat.JIT_PRIMITIVES, run_jit),
    **dict.fromkeys(_compat.REMAT_PRIMITIVES, run_remat),
    "scan": run_scan,
    "while": run_while,
}


class Linearise:
    """A `Local`: regions are run with their body, any other vertex by ``vertex``.

    ``names_parameters``: whether it is told which inputs are which parameters.
    """

    names_parameters = False

    def vertex(self, operation: Applied, values: Sequence[Any], active: Sequence[int]) -> Run:
        raise NotImplementedError

    def __call__(
        self, operation: Applied, source: Any, values: Sequence[Any], active: Sequence[int]
    ) -> Run:
        if not self.names_parameters:
            active = list(map(bool, active))
        region = REGIONS.get(operation.primitive.name)
        run = region(operation, values, active, self) if region else None
        if run is not None:
            return run
        with explaining(operation, source, values):
            return self.vertex(operation, values, active)


def run_exactly(operation: Applied, values: Sequence[Any], active: Sequence[int]) -> Run:
    """Run a vertex, and take the pullback that JAX has for it."""
    outputs, sender = differentiate_primitive(operation, values, active)
    return Run(outputs, sender.linear.ties, sender, operation)


def run_fast(operation: Applied, values: Sequence[Any], active: Sequence[int]) -> Run:
    """The same for use in loops: on a CPU what products and convolutions read is put in place by
    itself, so that it is taken out of the loop where it does not move."""
    received = tuple(k for k, flag in enumerate(active) if flag)
    if is_contraction(operation):
        outputs = operation(*values)
        turned = Contraction.prepare(operation, values, received)
    elif is_convolution(operation):
        image, kernel = values
        turned = Convolution.prepare(operation, values, received)
        outputs = [on_cpu(turned, lambda image: operation(image, kernel)[0], image)]
    else:
        return run_exactly(operation, values, active)
    way = ByPlatform.prepare(turned, operation, values, received)
    return Run(outputs, [len(received)], way, operation)


class _Exact(Linearise):
    def vertex(self, operation: Applied, values: Sequence[Any], active: Sequence[int]) -> Run:
        return run_exactly(operation, values, active)


class _Fast(Linearise):
    def vertex(self, operation: Applied, values: Sequence[Any], active: Sequence[int]) -> Run:
        return run_fast(operation, values, active)


exact, fast = _Exact(), _Fast()
