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
from dendrax.inference._batch import energies_of
from dendrax.inference._clamp import Clamp
from dendrax.inference._equations import energy
from dendrax.inference._evaluate import evaluate
from dendrax.inference._network import Network, View, quantities, view_of
from dendrax.inference._rule import Rule
from dendrax.inference._trust import (
    check_gradient,
    check_memory,
    check_num_steps,
    check_state,
    is_done,
    looked,
    running,
)
from dendrax.support import check_records
from dendrax.walk import carried_as, hoisted

Array = Any
State = Any
Note = Callable[[State], dict[str, Any]]  # what is recorded of a state


def network_of(
    rule: Rule, graph: Graph, leaves: Sequence[Any], clamp: Clamp, view: View | None = None
) -> Network:
    """The network that a rule runs on, at the forward pass."""
    view = view or view_of(graph, clamped=clamp.holds())
    forward = evaluate(view.graph, leaves)
    values = {port: forward[port] for port in view.nodes}
    outputs = [forward[port] for port in view.graph.outputs]
    return Network(view, leaves, clamp, energies_of(rule, view), rule.local, values, outputs)


class Descent(NamedTuple):
    """How the energy went: at the start and at the end; and the time step from which on it is
    larger than at the start, or not finite: -1 if all is well."""

    start: Array
    end: Array
    diverged_at: Array

    @property
    def ends(self) -> tuple[Array, Array]:
        """At the start and at the end."""
        return self.start, self.end


class Relaxed(NamedTuple):
    """What is left at the end.

    ``gradients`` by leaf (``None``: no error); ``outputs`` of the forward pass; ``settled``, where
    the value nodes of the outputs have arrived; the ``records``; ``num_steps`` used; whether the
    rule is ``done`` (``None`` without a tol); its ``memory``; the ``descent``, if it was watched.
    """

    gradients: list[Any]
    outputs: list[Any]
    settled: list[Any]
    records: dict[str, Any]
    num_steps: Any
    done: Array | None
    memory: Any
    descent: Descent | None


def relax(
    rule: Rule,
    graph: Graph,
    leaves: Sequence[Any],
    clamp: Clamp,
    record: Sequence[str] = (),
    *,
    memory: Any = None,
    watched: bool = False,
) -> Relaxed:
    """Relax the value nodes of a graph, then let the parameters learn."""
    net = network_of(rule, graph, leaves, clamp)
    with running(rule, "start"):
        check_memory(rule, net, memory)
        start = jax.tree.map(jnp.asarray, rule.start(net, memory))

    def look(state: State) -> dict[str, Any]:
        found = quantities(looked(rule, net, state)) if record else None
        return {name: getattr(found, name) for name in record}

    count = check_num_steps(rule, net)
    if record:
        check_records(jax.eval_shape(look, start), count + 1, copies=2)  # with the last
    watch = _Watch(rule, net, start) if watched and rule.descends else None
    loop = _run_all if rule.tol is None else _run_until
    with running(rule, "step"):
        end, records, used, last = loop(rule, net, start, count, look, watch)
    with running(rule, "gradient"):
        gradient = rule.gradient(net, end)
        if type(rule).gradient is not Rule.gradient:
            gradient = check_gradient(rule, net, gradient, end)
    gradients = [gradient.get(Port(leaf)) for leaf in net.view.graph.leaves]
    x = {} if clamp.holds() else looked(rule, net, end).x
    settled = [x.get(p, o) for p, o in zip(net.view.graph.outputs, net.outputs, strict=True)]
    return Relaxed(
        gradients,
        net.outputs,
        settled,
        records,
        used,
        None if rule.tol is None else is_done(rule, net, end),
        rule.memory(net, end),
        None if watch is None else watch.descent(end, used, last),
    )


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


class _Watch:
    """Looks at the energy at each time step, and remembers the last at which all was well."""

    def __init__(self, rule: Rule, net: Network, start: State):
        self.rule, self.net = rule, net
        first = looked(rule, net, start)
        sizes = [energy(mu).astype(float) for mu in first.mu.values()]
        size = jnp.sum(jnp.asarray(sizes, float))
        self.start = first.energy
        rounding = 1e-6 * (jnp.abs(self.start) + jnp.where(jnp.isfinite(size), size, 0))
        self.limit = self.start + rounding

    def last(self, state: State, t: Array, last: Array) -> Array:
        """The last time at which all was well, ``t`` if it is now."""
        return jnp.where(self._is_well(self.rule.look(self.net, state).energy), t, last)

    def _is_well(self, energy: Array) -> Array:
        return jnp.isfinite(energy) & (energy <= self.limit)

    def descent(self, end: State, used: Array, last: Array) -> Descent:
        energy = self.rule.look(self.net, end).energy
        diverged = jnp.minimum(last + 1, used)
        return Descent(self.start, energy, jnp.where(self._is_well(energy), -1, diverged))


def _run_all(
    rule: Rule, net: Network, start: State, num_steps: int, look: Note, watch: _Watch | None
) -> tuple[State, Any, Any, Array]:
    if not num_steps:
        return start, jax.tree.map(lambda now: now[None], look(start)), 0, jnp.asarray(-1)
    body, begin = _body(rule, net, start, look, watch)
    (end, _, well), records = jax.lax.scan(lambda carry, _: body(*carry), begin, length=num_steps)
    final = look(end)
    records = jax.tree.map(lambda past, now: jnp.concatenate([past, now[None]]), records, final)
    return end, records, num_steps, well


def _run_until(
    rule: Rule, net: Network, start: State, num_steps: int, look: Note, watch: _Watch | None
) -> tuple[State, Any, Array, Array]:
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
    (end, used, well), buffers = jax.lax.while_loop(moves, step, (begin, buffers))
    return end, _last_repeated(write(buffers, used, look(end)), used), used, well


def _body(
    rule: Rule, net: Network, start: State, look: Note, watch: _Watch | None
) -> tuple[Callable[..., Any], tuple[State, Array, Array]]:
    """One turn of the loop: ``(state, t, last well) -> the same one step later, record``."""

    def turn(state: State, t: Array, last: Array) -> Any:
        after = rule.step(net, state)
        if watch is not None:
            last = watch.last(state, t, last)
        return (after, t + 1, last), look(state)

    begin = start, jnp.asarray(0), jnp.asarray(-1)
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
