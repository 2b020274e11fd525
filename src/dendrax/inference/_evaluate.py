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

from dendrax.graph import Graph, Port, Scan, Vertex, identity, is_stacked

Array = Any
Values = dict[Port, Array]
Value = Callable[[Array, Array], Array]


class Cuts:
    """What the users of value nodes read in place of predictions.

    Enters: ``given`` by node. Leaves: the predictions ``mu``, and what users read, ``x``: what is
    given, or a function ``value`` of the prediction and that.
    """

    def __init__(self, given: Mapping[Port, Array], value: Value | None = None):
        self.given, self.value = given, value
        self.mu: Values = {}
        self.x: Values = {}

    def cut(self, port: Port, mu: Array) -> Array:
        """What users of a port read."""
        if port not in self.given:
            return mu
        given = self.given[port]
        self.mu[port] = mu
        self.x[port] = given if self.value is None else self.value(mu, given)
        return self.x[port]


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
        given = [cuts.given.get(port) for port in v.function.stacks(v)]
        return _Loop(v.function, inputs, given, cuts.value).run()
    if any(value is None for value in inputs):
        return [None] * len(v.outputs)
    assert v.function is not None
    return list(map(hand_on, inputs)) if v.function is identity else v.function(*inputs)


class _Loop:
    """A scan with value nodes inside: ``given`` are their stacks, or ``None``."""

    def __init__(self, region: Scan, inputs: Sequence[Any], given: list[Any], value: Value | None):
        self.region, self.given, self.value = region, given, value
        consts, self.init, self.xs = region.split(inputs)
        self.consts = [*region.constants, *consts]
        self.options = {"length": region.length, "reverse": region.reverse}

    def run(self) -> list[Any]:
        """The results, then the predictions of the value nodes (where none is given: values)."""
        if all(x is not None for x in self.given) and self.value is None:
            found = self.side_by_side()
            if found is not None:
                return found
        return self.in_turn()

    def step(self, carry: Sequence[Any], x: Sequence[Any], given: Sequence[Any]) -> list[Any]:
        """What the body makes of one time step."""
        body, cuts = self.region.body, self.region.cuts
        pairs = zip(cuts, given, strict=True)
        at = Cuts({port: here for port, here in pairs if here is not None}, self.value)
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

        carry, stacks = jax.lax.scan(step, self.init, (self.xs, self.given), **self.options)
        return [*carry, *stacks]

    def side_by_side(self) -> list[Any] | None:
        """All steps at once, if what carries errors from step to step is all held by value nodes.

        What a step hands on is found first, as far as it is made of what is known.
        """
        region = self.region
        known: dict[int, tuple[Any, Any]] = {}  # by carry: what each step reads, and the end
        while len(known) < region.num_carry:
            found = self._at_once(known)
            fresh = [k for k in range(region.num_carry) if k not in known and found[k] is not None]
            known.update((k, self._shifted(self.init[k], found[k])) for k in fresh)
            if not fresh and not self._count(known):
                return None
        carried = [known[k][1] for k in range(region.num_carry)]
        return [*carried, *self._at_once(known)[region.num_carry :]]

    def _at_once(self, known: Mapping[int, tuple[Any, Any]]) -> list[Any]:
        carry = [known[k][0] if k in known else None for k in range(self.region.num_carry)]
        return jax.vmap(self.step)(carry, self.xs, self.given)

    def _shifted(self, init: Any, after: Any) -> tuple[Any, Any]:
        """What each step reads, if these are the values ``after`` each; and the last of them."""
        if init is None:
            return None, after[0 if self.region.reverse else -1]
        if self.region.reverse:
            return jnp.concatenate([after[1:], init[None]]), after[0]
        return jnp.concatenate([init[None], after[:-1]]), after[-1]

    def _count(self, known: dict[int, tuple[Any, Any]]) -> bool:
        """Find what no error passes through (a counter, a key) one step after the other."""
        leaves = self.region.split(self.region.input_leaves)[1]
        rest = [k for k in range(self.region.num_carry) if k not in known]
        if any(self.region.body.carries(Port(leaves[k])) for k in rest):
            return False
        if any(self.init[k] is None for k in rest):
            return False

        def step(changing: list[Any], slices: Any) -> tuple[list[Any], list[Any]]:
            before, x, given = slices
            carry = [before.get(k) for k in range(self.region.num_carry)]
            for k, value in zip(rest, changing, strict=True):
                carry[k] = value
            found = self.step(carry, x, given)
            return [found[k] for k in rest], changing

        before = {k: stack for k, (stack, _) in known.items()}
        init = [self.init[k] for k in rest]
        slices = (before, self.xs, self.given)
        ends, stacks = jax.lax.scan(step, init, slices, **self.options)
        known.update(zip(rest, zip(stacks, ends, strict=True), strict=True))
        return True
