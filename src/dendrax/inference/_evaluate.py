"""Every value of a graph, from its leaves: the forward pass, also with value nodes held.

Value nodes inside a `scan` enter as arrays stacked over time, and what is predicted for them leaves
so. Where these nodes are all that one step hands to the next, no step has to wait for another: the
steps run side by side.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp

from dendrax.graph import EVERYWHERE, Graph, Liveness, Port, Scan, Vertex, identity, is_stacked

Array = Any
Values = dict[Port, Array]
Value = Callable[[Array, Array], Array]


class Cuts:
    """What the users of value nodes read in place of predictions.

    Enters: ``given`` by node. Leaves: the predictions ``mu``, and what users read, ``x``: what is
    given, or a function ``value`` of the prediction and that. Where a node is not ``live``, they
    read the prediction.
    """

    def __init__(
        self,
        given: Mapping[Port, Array],
        value: Value | None = None,
        live: Liveness = EVERYWHERE,
    ):
        self.given, self.value, self.live = given, value, live
        self.mu: Values = {}
        self.x: Values = {}

    def cut(self, port: Port, mu: Array) -> Array:
        """What users of a port read."""
        if port not in self.given:
            return mu
        given = self.given[port]
        self.mu[port] = mu
        x = given if self.value is None else self.value(mu, given)
        mask = self.live.live.get(port)
        self.x[port] = x if mu is None or mask is None else where_live(mask, x, mu)
        return self.x[port]


def where_live(mask: Any, x: Array, otherwise: Array) -> Array:
    """A value where a mask says so, which has only the first axes of it."""
    mask = jnp.asarray(mask)
    if mask.ndim:
        mask = jax.lax.broadcast_in_dim(mask, jnp.shape(x), range(mask.ndim))
    return jax.lax.select(mask, x, otherwise)


def evaluate(
    graph: Graph,
    leaves: Sequence[Any],
    hand_on: Callable[[Any], Any] = lambda value: value,
    cuts: Cuts | None = None,
) -> Values:
    """Every value of the graph. Delays and ports ``hand_on`` their input; users of a value node
    read what the ``cuts`` say. What is made of ``None`` is ``None``: it is not known yet."""
    cuts = Cuts({}) if cuts is None else cuts
    env = {Port(leaf): value for leaf, value in zip(graph.leaves, leaves, strict=True)}
    for v in graph.vertices:
        if v.function is None:
            continue
        inputs = [env[port] for port in v.inputs]
        for o, value in enumerate(_run(v, inputs, hand_on, cuts)):
            port = Port(v.index, o)
            env[port] = cuts.cut(port, value)
    return env


def _run(v: Vertex, inputs: list[Any], hand_on: Callable[[Any], Any], cuts: Cuts) -> Sequence[Any]:
    if is_stacked(v):
        assert isinstance(v.function, Scan)
        return _Loop(v, v.function, inputs, cuts).run()
    if any(value is None for value in inputs):
        return [None] * len(v.outputs)
    assert v.function is not None
    return list(map(hand_on, inputs)) if v.function is identity else v.function(*inputs)


class _Loop:
    """A scan with value nodes inside: ``given`` are their stacks, or ``None``, and ``live`` are the
    steps at which each is live, or ``None`` for all."""

    def __init__(self, v: Vertex, region: Scan, inputs: Sequence[Any], cuts: Cuts):
        self.region, self.value = region, cuts.value
        self.must_wait = v.index in cuts.live.in_turn
        self.given = [cuts.given.get(port) for port in region.stacks(v)]
        self.live = [cuts.live.live.get(port) for port in region.stacks(v)]
        consts, self.init, self.xs = region.split(inputs)
        self.consts = [*region.constants, *consts]
        self.options = {"length": region.length, "reverse": region.reverse}

    def run(self) -> list[Any]:
        """The results, then the predictions of the value nodes (where none is given: values)."""
        is_given = any(x is not None for x in self.given)
        if is_given and self.value is None and not self.must_wait:
            found = self.side_by_side()
            if found is not None:
                return found
        return self.in_turn()

    def step(self, carry: Sequence[Any], x: Sequence[Any], nodes: Any) -> list[Any]:
        """What the body makes of one time step."""
        body, cuts = self.region.body, self.region.cuts
        given, live = (
            {port: here for port, here in zip(cuts, part, strict=True) if here is not None}
            for part in nodes
        )
        at = Cuts(given, self.value, Liveness(live, self._inner_loops()))
        env = evaluate(body, [*self.consts, *carry, *x], cuts=at)
        results = [env[port] for port in body.outputs[: self.region.num_results]]
        return [*results, *(at.mu.get(port, env[port]) for port in cuts)]

    def in_turn(self) -> list[Any]:
        """One step after the other."""
        if any(value is None for value in (*self.consts, *self.init, *self.xs)):
            return [None] * len(self.region.body.outputs)
        count = self.region.num_carry

        def step(carry: list[Any], slices: Any) -> tuple[list[Any], list[Any]]:
            found = self.step(carry, *slices)
            return found[:count], found[count:]

        slices = (self.xs, self._nodes())
        carry, stacks = jax.lax.scan(step, self.init, slices, **self.options)
        return [*carry, *stacks]

    def _nodes(self) -> tuple[list[Any], list[Any]]:
        """The value nodes, and where they are live, to be taken apart by step."""
        return self.given, jax.tree.map(jnp.asarray, self.live)

    def _inner_loops(self) -> frozenset[int]:
        """The loops inside that must run in turn: all, if this one must."""
        body = self.region.body if self.must_wait else ()
        return frozenset(v.index for v in body if is_stacked(v))

    def side_by_side(self) -> list[Any] | None:
        """All steps at once, if what carries errors from step to step is all held by value nodes.

        What a step hands on is found first, as far as it is made of what is known.
        """
        region = self.region
        known: dict[int, tuple[Any, Any]] = {}  # by carry: what each step reads; the end of a count
        while len(known) < region.num_carry:
            found = self._at_once(known)
            fresh = [k for k in range(region.num_carry) if k not in known and found[k] is not None]
            known.update((k, (self._shifted(self.init[k], found[k]), None)) for k in fresh)
            if not fresh and not self._count(known):
                return None
        found = self._at_once(known)
        last = 0 if region.reverse else -1
        ends = [known[k][1] for k in range(region.num_carry)]
        carried = [found[k][last] if end is None else end for k, end in enumerate(ends)]
        return [*carried, *found[region.num_carry :]]

    def _at_once(self, known: Mapping[int, tuple[Any, Any]]) -> list[Any]:
        carry = [known[k][0] if k in known else None for k in range(self.region.num_carry)]
        return jax.vmap(self.step)(carry, self.xs, self._nodes())

    def _shifted(self, init: Any, after: Any) -> Any:
        """What each step reads, if these are the values ``after`` each."""
        if init is None:
            return None
        parts = [after[1:], init[None]] if self.region.reverse else [init[None], after[:-1]]
        return jnp.concatenate(parts)

    def _count(self, known: dict[int, tuple[Any, Any]]) -> bool:
        """Find what no error passes through (a counter, a key) one step after the other."""
        leaves = self.region.split(self.region.input_leaves)[1]
        rest = [k for k in range(self.region.num_carry) if k not in known]
        if any(self.region.body.carries(Port(leaves[k])) for k in rest):
            return False
        if any(self.init[k] is None for k in rest):
            return False

        def step(changing: list[Any], slices: Any) -> tuple[list[Any], list[Any]]:
            before, x, nodes = slices
            carry = [before.get(k) for k in range(self.region.num_carry)]
            for k, value in zip(rest, changing, strict=True):
                carry[k] = value
            found = self.step(carry, x, nodes)
            return [found[k] for k in rest], changing

        before = {k: stack for k, (stack, _) in known.items()}
        init = [self.init[k] for k in rest]
        slices = (before, self.xs, self._nodes())
        ends, stacks = jax.lax.scan(step, init, slices, **self.options)
        known.update(zip(rest, zip(stacks, ends, strict=True), strict=True))
        return True
