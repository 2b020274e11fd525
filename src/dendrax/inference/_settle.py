"""The loop over time: a rule's steps, compiled; stopping when done; what is recorded on the way.

Time: ``t = 0`` is the start, and a record has one entry for each of ``t = 0 ... num_steps``; the
parameters learn from the last.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from dendrax import _compat
from dendrax.graph import Graph, Port
from dendrax.inference._clamp import Clamp
from dendrax.inference._descent import Descent, EnergyWatch, from_ends
from dendrax.inference._energies import check_mask, energies_of, output_energies_of, priors_of
from dendrax.inference._evaluate import Cuts, Values, evaluate
from dendrax.inference._held import Held, HeldValue
from dendrax.inference._hold import resolved_holds, started
from dendrax.inference._network import Look, Network, quantities
from dendrax.inference._rule import Rule
from dendrax.inference._samples import samples_of
from dendrax.inference._trust import (
    check_gradient,
    check_memory,
    check_num_steps,
    check_state,
    is_done,
    looked,
    running,
)
from dendrax.inference._view import View, view_of
from dendrax.support import check_records
from dendrax.walk import carried_as, hoisted

Array = Any
State = Any
Note = Callable[[State], dict[str, Any]]  # what is recorded of a state


def network_of(
    rule: Rule,
    graph: Graph,
    leaves: Sequence[Any],
    clamp: Clamp,
    view: View | None = None,
    start: Any = None,
) -> Network:
    """The network that a rule runs on, at the forward pass, or with value nodes at a ``start``."""
    view = view or view_of(graph, clamped=clamp.holds())
    prior_energies, prior_means = priors_of(clamp.prior, view)
    energies = {**energies_of(rule, view, priors=prior_energies, is_mean=clamp.is_mean)}
    clamp, held_at = resolved_holds(clamp, view)
    held = {port: Held(energies[port], at) for port, at in held_at.items()}
    for port in held:
        if held_at[port].mask is not None:
            check_mask(energies[port], view.vertex(port).name, view.aval(port))
    at = {port: held_at[port] for port in view.cuts if port in held}
    cuts = Cuts(at, _placed, view.liveness)
    places = dict(zip(map(Port, view.graph.leaves), leaves, strict=True))
    for port in view.free:
        places[port] = held[port].placed(places[port]) if port in held else places[port]
    forward = evaluate(view.graph, [*places.values()], cuts=cuts)
    values = {port: cuts.x.get(port, forward[port]) for port in view.nodes}
    values.update(started(view, start))
    outputs = [forward[port] for port in view.graph.outputs]
    energies.update(held)
    clamp = clamp.given(output_energies_of(rule, view, clamp.held_outputs, clamp.masked_outputs))
    return Network(
        view,
        [*places.values()],
        clamp,
        energies,
        rule.local,
        values,
        outputs,
        held,
        prior_means,
        start is not None,
        {port: forward[port] for port in view.liveness.live if port in view.nodes},
        lambda: samples_of(rule, view).of(view),
    )


def _placed(mu: Array, held: HeldValue) -> Array:
    return held.placed(mu)


class Relaxed(NamedTuple):
    """What is left at the end.

    ``gradients`` by leaf (``None``: no error); ``outputs`` of the forward pass; ``settled``, where
    the value nodes of the outputs have arrived; the ``records``; ``num_steps`` used; whether the
    rule is ``done`` (``None`` without a tol); its ``memory``; the ``descent``, if it was watched;
    a ``look`` at the end.
    """

    gradients: list[Any]
    outputs: list[Any]
    settled: list[Any]
    records: dict[str, Any]
    num_steps: Any
    done: Array | None
    memory: Any
    descent: Descent | None
    look: Look


def relax(
    rule: Rule,
    graph: Graph,
    leaves: Sequence[Any],
    clamp: Clamp,
    record: Sequence[str] = (),
    *,
    memory: Any = None,
    watched: bool = False,
    start: Any = None,
) -> Relaxed:
    """Relax the value nodes of a graph, then let the parameters learn."""
    net = network_of(rule, graph, leaves, clamp, start=start)
    with running(rule, "start"):
        check_memory(rule, net, memory)
        begin = jax.tree.map(jnp.asarray, rule.start(net, memory))

    def look(state: State) -> dict[str, Any]:
        found = quantities(looked(rule, net, state)) if record else None
        return {name: getattr(found, name) for name in record}

    count = check_num_steps(rule, net)
    if record:
        check_records(jax.eval_shape(look, begin), count + 1, copies=2)  # with the last
    watch = EnergyWatch(rule, net, begin) if watched and rule.descends else None
    loop = _run_all if rule.tol is None else _run_until
    with running(rule, "step"):
        end, records, used, seen = loop(rule, net, begin, count, look, watch)
    with running(rule, "gradient"):
        final = looked(rule, net, end)
        descent = None
        if watch is not None:
            descent = watch.descent(final, used, seen)
        elif rule.descends and rule.on_divergence != "ignore":
            descent = from_ends(rule, net, begin, final, used)
        gradient = _gradient(rule, net, end, final, descent)
    gradients = [gradient.get(Port(leaf)) for leaf in net.view.graph.leaves]
    x = {} if clamp.holds() else final.x
    settled = [x.get(p, o) for p, o in zip(net.view.graph.outputs, net.outputs, strict=True)]
    return Relaxed(
        gradients,
        net.outputs,
        settled,
        records,
        used,
        None if rule.tol is None else is_done(rule, net, end),
        rule.memory(net, end),
        descent,
        final,
    )


def _gradient(rule: Rule, net: Network, end: State, final: Look, descent: Descent | None) -> Values:
    """What the parameters learn; NaN if inference has run away, and the rule says so."""
    if type(rule).gradient is Rule.gradient:
        gradient = final.gradient
    else:
        gradient = check_gradient(rule, net, rule.gradient(net, end), end)
    if rule.on_divergence != "nan" or descent is None:
        return gradient

    like = next(iter(gradient.values()), jnp.zeros(()))
    lost = ~_compat.on_all_devices(~descent.is_lost, like)
    # A branch, and not a choice between numbers: XLA would fuse that with what reads the gradient,
    # and round otherwise than without.
    return jax.lax.cond(lost, _nowhere, lambda gradient: gradient, gradient)


def _nowhere(gradient: Values) -> Values:
    return {port: jnp.full_like(error, jnp.nan) for port, error in gradient.items()}


def settle(rule: Rule, net: Network, state: State) -> State:
    """The state after a rule's time steps; for rules that are made of others.

    **Arguments:**

    - `rule`: the rule whose steps are made, until it is done if it has a `tol`.
    - `net`, `state`: the network, and where to start.

    !!! example

        ```python
        import dataclasses, dendrax, jax.numpy as jnp


        @dataclasses.dataclass(frozen=True)
        class Twice(dendrax.Rule):
            num_steps = 0
            batch = "sum"

            def gradient(self, net, state):
                coarse, fine = dendrax.IL(10, gamma=0.2), dendrax.IL(10, gamma=0.05)
                settled = dendrax.settle(coarse, net, coarse.start(net))
                return fine.gradient(net, dendrax.settle(fine, net, settled))


        def loss(w, x):
            return jnp.sum((jnp.tanh(x @ w[0]) @ w[1]) ** 2)


        args = [jnp.full((3, 4), 0.2), jnp.full((4, 2), 0.2)], jnp.ones((5, 3))
        dendrax.grad(loss, rule=Twice())(*args)[0][0, 0]  # -> 1.00
        ```
    """
    loop = _run_all if rule.tol is None else _run_until
    with running(rule, "step"):
        return loop(rule, net, state, check_num_steps(rule, net), lambda state: {}, None)[0]


def _run_all(
    rule: Rule, net: Network, start: State, num_steps: int, look: Note, watch: EnergyWatch | None
) -> tuple[State, Any, Any, Any]:
    if not num_steps:
        return start, jax.tree.map(lambda now: now[None], look(start)), 0, _seen(watch)
    body, begin = _body(rule, net, start, look, watch)
    (end, _, seen), records = jax.lax.scan(lambda carry, _: body(*carry), begin, length=num_steps)
    final = look(end)
    records = jax.tree.map(lambda past, now: jnp.concatenate([past, now[None]]), records, final)
    return end, records, num_steps, seen


def _run_until(
    rule: Rule, net: Network, start: State, num_steps: int, look: Note, watch: EnergyWatch | None
) -> tuple[State, Any, Array, Any]:
    """Stop as soon as the rule is done. Records wait in full-length buffers."""
    body, begin = _body(rule, net, start, look, watch)
    with running(rule, "done"):
        done, _ = hoisted(lambda state: is_done(rule, net, state), begin[0])
    buffers = jax.tree.map(
        lambda aval: jnp.zeros((num_steps + 1, *aval.shape), aval.dtype),
        jax.eval_shape(look, start),
    )

    def write(buffers: Any, t: Array, found: Any) -> Any:
        return jax.tree.map(lambda past, now: past.at[t].set(now), buffers, found)

    def moves(carry: Any) -> Array:
        (state, t, _), _ = carry
        return (t < num_steps) & ~_compat.on_all_devices(jnp.asarray(done(state)), num_steps)

    def step(carry: Any) -> Any:
        now, buffers = carry
        after, found = body(*now)
        return after, write(buffers, now[1], found)

    buffers = carried_as(buffers, jax.eval_shape(look, start))[0]
    (end, used, seen), buffers = jax.lax.while_loop(moves, step, (begin, buffers))
    return end, _last_repeated(write(buffers, used, look(end)), used), used, seen


def _seen(watch: EnergyWatch | None) -> Any:
    return () if watch is None else watch.seen


def _body(
    rule: Rule, net: Network, start: State, look: Note, watch: EnergyWatch | None
) -> tuple[Callable[..., Any], tuple[State, Array, Any]]:
    """One turn of the loop: ``(state, t, seen) -> the same one step later, record``."""

    def turn(state: State, t: Array, seen: Any) -> Any:
        with net.remembering():
            after = rule.step(net, state)
            if watch is not None:
                seen = watch.now(state, t, seen)
            return (after, t + 1, seen), look(state)

    begin = start, jnp.asarray(0), _seen(watch)
    while True:
        body, (after, _) = hoisted(turn, *begin)
        check_state(rule, start, after[0])
        begin, changed = carried_as(begin, after)
        if not changed:
            return body, begin


def _last_repeated(buffers: Any, used: Array) -> Any:
    """Records with the last entry in all places after it."""

    def repeat(values: Array) -> Array:
        past = jnp.arange(len(values)) > used
        return jnp.where(past.reshape(-1, *[1] * (values.ndim - 1)), values[used], values)

    return jax.tree.map(repeat, buffers)
