"""Z-IL's one pass over the levels.

The lemmas say that before time ``level(i)`` vertex ``i`` has not moved, and that what happens
behind the wave reaches no later update of a leaf. So at time `t` only the vertices of level `t` do
work, at the values of the forward pass, and the whole update costs one pullback per vertex:

    ε_i = Σ_{j in users(i)} ε_j ∂μ_j/∂x_i      at t = level(i)

Any topological order executes the same wave. We take reverse program order, because it adds the
messages of a vertex's users up in the order in which JAX's own backward pass does, and that decides
the last bit. Time is the level, a label (`dendrax.level`).

A graph enters with a `Flow`; its values and pullbacks leave `run_forward`, and the errors at its
leaves leave `run_backward`. Regions run the same two functions on their body.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import jax

from dendrax import _compat
from dendrax._graph import Flow, Graph, Port
from dendrax._hoist import Env, split_constant
from dendrax._local import linearise
from dendrax._open import Jit, Region, Remat, Scan

Pullbacks = list[Any]


def run_forward(graph: Graph, flow: Flow, leaves: Sequence[Any]) -> tuple[list[Any], Pullbacks]:
    """The forward pass: the graph's outputs, and the local pullback of each vertex on the way."""
    env = {Port(leaf): value for leaf, value in zip(graph.leaves, leaves, strict=True)}
    pullbacks: Pullbacks = [None] * len(graph)
    for v in graph.vertices:
        if v.function is None:
            continue
        inputs = [env[port] for port in v.inputs]
        received = flow.received[v.index]
        if not received:
            outputs = v.function(*inputs)
        elif isinstance(v.function, Region):
            outputs, pullbacks[v.index] = _open_region(
                v.function, inputs, flow.emitted[v.index], received
            )
        else:
            emitted, summed = flow.emitted[v.index], flow.summed[v.index]
            outputs, pullbacks[v.index] = linearise(
                v.function, inputs, emitted, received, summed, flow.leaders[v.index]
            )
        env.update((Port(v.index, o), value) for o, value in enumerate(outputs))
    return [env[port] for port in graph.outputs], pullbacks


def run_backward(
    graph: Graph,
    flow: Flow,
    pullbacks: Pullbacks,
    errors: Sequence[Any],
    sums: Sequence[Any] = (),
) -> list[Any]:
    """The wave: from an error at each output to the error at each leaf; ``None`` means absent.

    ``sums`` are what the leaves already hold (``None``: nothing).
    """
    env: dict[Port, Any] = {}

    def accumulate(port: Port, message: Any) -> None:
        port = graph.origin(port)
        env[port] = jax.lax.add(env[port], message) if port in env else message

    for leaf, waiting in zip(graph.leaves, sums, strict=False):
        if waiting is not None:
            env[Port(leaf)] = waiting
    for port, error in zip(graph.outputs, errors, strict=True):
        if error is not None and graph.vertices[port.vertex].carries[port.output]:
            accumulate(port, error)
    for v in reversed(graph.vertices):
        if pullbacks[v.index] is None:
            continue
        arrived = tuple(env.pop(Port(v.index, o)) for o in flow.emitted[v.index])
        if isinstance(v.function, Region):
            messages = pullbacks[v.index](arrived)
            for k, message in zip(flow.received[v.index], messages, strict=True):
                accumulate(v.inputs[k], message)
        else:
            waiting = tuple(env[graph.origin(v.inputs[k])] for k in flow.summed[v.index])
            targets = [graph.origin(v.inputs[k]) for k in dict.fromkeys(flow.leaders[v.index])]
            env.update(zip(targets, pullbacks[v.index]((waiting, arrived)), strict=True))
    return [env.get(Port(leaf)) for leaf in graph.leaves]


def _open_region(
    region: Region, inputs: Sequence[Any], emitted: Sequence[int], received: Sequence[int]
) -> tuple[Sequence[Any], Callable[[tuple[Any, ...]], list[Any]]]:
    """The outputs of a region, and its pullback from errors to messages for ``received``."""
    match region:
        case Scan():
            return _run_scan(region, inputs, tuple(emitted), tuple(received))
        case Remat():
            return _run_remat(region, inputs, tuple(emitted), tuple(received))
        case _:
            return _run_jit(region, inputs, tuple(emitted), tuple(received))


def _spread(region: Region, emitted: Sequence[int], errors: Sequence[Any]) -> list[Any]:
    """The errors of the emitted outputs, in the places of all outputs."""
    spread: list[Any] = [None] * len(region.body.outputs)
    for o, error in zip(emitted, errors, strict=True):
        spread[o] = error
    return spread


def _body_forward(
    region: Region, emitted: tuple[int, ...], inputs: Sequence[Any]
) -> tuple[list[Any], Pullbacks]:
    return run_forward(region.body, region.wave(emitted), [*region.constants, *inputs])


def _body_backward(
    region: Region,
    emitted: tuple[int, ...],
    received: tuple[int, ...],
    pullbacks: Pullbacks,
    errors: Sequence[Any],
) -> list[Any]:
    spread = _spread(region, emitted, errors)
    messages = run_backward(region.body, region.wave(emitted), pullbacks, spread)
    return [messages[len(region.constants) + k] for k in received]


# ---- jit -----------------------------------------------------------------------------------------


def _run_jit(
    region: Region, inputs: Sequence[Any], emitted: tuple[int, ...], received: tuple[int, ...]
) -> tuple[Sequence[Any], Callable[..., list[Any]]]:
    """Keep the call: XLA rounds differently where it cannot see the boundary that JAX left."""
    call = _compiled(region, emitted, received)
    outputs, residuals = call.forward(*inputs)
    residuals = call.packing.restore(inputs, outputs, residuals)
    return outputs, jax.tree_util.Partial(call.backward, residuals)


@functools.lru_cache(maxsize=512)
def _compiled(region: Region, emitted: tuple[int, ...], received: tuple[int, ...]) -> Any:
    return _JitCall(region, emitted, received)


class _JitCall:
    """The body's forward pass and wave, each under ``jit`` as the body was."""

    def __init__(self, region: Region, emitted: tuple[int, ...], received: tuple[int, ...]):
        def forward(*inputs: Any) -> Any:
            outputs, pullbacks = _body_forward(region, emitted, inputs)
            residuals, self.tree = jax.tree.flatten(pullbacks)
            self.packing = _Packing(inputs, outputs, residuals)
            return outputs, self.packing.packed(residuals)

        def backward(residuals: list[Any], errors: Sequence[Any]) -> list[Any]:
            pullbacks = jax.tree.unflatten(self.tree, residuals)
            return _body_backward(region, emitted, received, pullbacks, errors)

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
        sources = {"input": inputs, "output": outputs}
        sources["residual"] = dict(zip(self.kept, packed, strict=True))
        return [sources[kind][i] for kind, i in self.places]


# ---- remat ---------------------------------------------------------------------------------------


def _run_remat(
    region: Remat, inputs: Sequence[Any], emitted: tuple[int, ...], received: tuple[int, ...]
) -> tuple[Sequence[Any], Callable[..., list[Any]]]:
    """Keep only the inputs, and what the policy says; linearise when the wave comes."""
    plan = _Recompute(region, emitted, received)
    if region.policy is None:
        return region(*inputs), jax.tree_util.Partial(plan.pull, list(inputs), [])
    outputs, saved = plan.evaluate_and_save(inputs)
    return outputs, jax.tree_util.Partial(plan.pull, list(inputs), saved)


class _Recompute:
    """The body's forward pass as a jaxpr, split into what is saved and what is computed again."""

    def __init__(self, region: Remat, emitted: tuple[int, ...], received: tuple[int, ...]):
        self.region, self.emitted, self.received = region, emitted, received

        def forward(*inputs: Any) -> Any:
            outputs, pullbacks = _body_forward(region, emitted, inputs)
            residuals, self.tree = jax.tree.flatten(pullbacks)
            return outputs, residuals

        leaves = region.body.leaves[len(region.constants) :]
        self.program = jax.make_jaxpr(forward)(*(region.body[i].outputs[0] for i in leaves))
        jaxpr = self.program.jaxpr
        self.num_outputs = len(region.body.outputs)
        self.residuals = jaxpr.outvars[self.num_outputs :]
        kept = [
            var
            for eqn in jaxpr.eqns
            if region.policy is not None and _compat.saves(region.policy, eqn)
            for var in eqn.outvars
        ]
        again = [eqn for eqn in jaxpr.eqns if kept == [] or set(kept).isdisjoint(eqn.outvars)]
        self.again = _compat.live_equations(again, self.residuals)
        needed = {*_compat.unique_vars(self.residuals)}
        needed.update(var for eqn in self.again for var in _compat.unique_vars(eqn.invars))
        self.saved = [var for var in kept if var in needed]

    def evaluate_and_save(self, inputs: Sequence[Any]) -> tuple[list[Any], list[Any]]:
        """Outputs and saved values, each rounded to its own precision, as JAX does."""
        jaxpr = self.program.jaxpr
        results = [*jaxpr.outvars[: self.num_outputs], *self.saved]
        eqns = _compat.live_equations(jaxpr.eqns, results)
        program = _compat.with_equations(
            jaxpr, eqns, [*jaxpr.constvars, *jaxpr.invars], results
        )
        values = _compat.as_function(program)(*self.program.consts, *inputs)
        saved = values[self.num_outputs :]
        return values[: self.num_outputs], list(map(_compat.round_to_own_precision, saved))

    def pull(self, inputs: list[Any], saved: list[Any], errors: tuple[Any, ...]) -> list[Any]:
        """Compute the region again and send the wave through it."""
        inputs, saved, errors = self._fenced(inputs, saved, errors)
        jaxpr = self.program.jaxpr
        arguments = [*jaxpr.constvars, *jaxpr.invars, *self.saved]
        program = _compat.with_equations(jaxpr, self.again, arguments, self.residuals)
        residuals = _compat.as_function(program)(*self.program.consts, *inputs, *saved)
        pullbacks = jax.tree.unflatten(self.tree, residuals)
        return _body_backward(self.region, self.emitted, self.received, pullbacks, errors)

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


def _run_scan(
    region: Scan, inputs: Sequence[Any], emitted: tuple[int, ...], received: tuple[int, ...]
) -> tuple[Sequence[Any], Callable[..., list[Any]]]:
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
    """One time step of a scan's forward pass, as a jaxpr in two parts: hoisted and repeated."""

    def __init__(self, region: Scan, emitted: tuple[int, ...]):
        def forward(*inputs: Any) -> Any:
            outputs, pullbacks = _body_forward(region, emitted, inputs)
            residuals, self.tree = jax.tree.flatten(pullbacks)
            return outputs, residuals

        avals = [region.body[leaf].outputs[0] for leaf in region.input_leaves]
        self.program = jax.make_jaxpr(forward)(*avals)
        self.jaxpr = self.program.jaxpr
        self.consts, self.carry, self.xs = region.split(self.jaxpr.invars)
        self.outputs = self.jaxpr.outvars[: len(region.body.outputs)]
        self.residuals = self.jaxpr.outvars[len(region.body.outputs) :]
        self._split()

    def _split(self) -> None:
        """Tell what is constant over time from what changes."""
        self.split = split_constant(self.jaxpr, [*self.jaxpr.constvars, *self.consts])
        results = _compat.unique_vars([*self.outputs, *self.residuals])
        used = [name for piece in self.split.each for name in piece.inputs]
        constant = self.split.constant
        self.constant = [name for name in dict.fromkeys([*results, *used]) if name in constant]
        elsewhere = {*self.constant, *self.xs}
        self.stacked = [v for v in _compat.unique_vars(self.residuals) if v not in elsewhere]

    def hoist(self, consts: Sequence[Any]) -> list[Any]:
        """The values that are constant over time."""
        env: Env = dict(zip(self.jaxpr.constvars, self.program.consts, strict=True))
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
        return [_read(env, atom) for atom in (*self.outputs, *self.stacked)]

    def pullbacks(
        self, constant: Sequence[Any], x: Sequence[Any], stacked: Sequence[Any]
    ) -> Pullbacks:
        """The body's pullbacks at one time step."""
        names = [*self.constant, *self.xs, *self.stacked]
        env: Env = dict(zip(names, [*constant, *x, *stacked], strict=True))
        return jax.tree.unflatten(self.tree, [_read(env, atom) for atom in self.residuals])


def _read(env: Env, atom: _compat.Atom) -> Any:
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
    spread = _spread(region, emitted, errors)
    leaves = [region.body[leaf] for leaf in region.input_leaves]
    consts, carries, inputs = region.split([k in received for k in range(len(leaves))])
    sums = [_compat.zeros(leaf.outputs[0]) if r else None for leaf, r in zip(leaves, consts)]
    carry_error = [
        (_compat.zeros(leaf.outputs[0]) if error is None else error) if seed else None
        for leaf, error, seed in zip(leaves[region.num_consts :], spread, seeded)
    ][: region.num_carry]

    def body(state: Any, slices: Any) -> Any:
        sums, carry_error = state
        ys_error, x, residuals = slices
        messages = run_backward(
            region.body,
            flow,
            step.pullbacks(constant, x, residuals),
            [*carry_error, *ys_error],
            [*[None] * len(region.constants), *sums],
        )[len(region.constants) :]
        sums, before, at_x = region.split(messages)
        before = [
            None if now is None else (_compat.zeros(_aval(now)) if new is None else new)
            for now, new in zip(carry_error, before)
        ]
        return (sums, before), [message for message, r in zip(at_x, inputs) if r]

    (sums, carry_error), at_xs = jax.lax.scan(
        body,
        (sums, carry_error),
        (spread[region.num_carry :], xs, stacked),
        length=region.length,
        reverse=not region.reverse,
        unroll=region.unroll,
    )
    at_xs = iter(at_xs)
    messages = [*sums, *carry_error, *(next(at_xs) if r else None for r in inputs)]
    return [messages[k] for k in received]


def _aval(value: Any) -> Any:
    return _compat.aval_of(value)
