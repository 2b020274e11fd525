"""The graph as predictive coding sees it: value nodes, and the operations between them.

Value nodes cut the graph of operations. Forwards, an operation that ends a vertex makes a
prediction μ, and its users read the value node x instead. Backwards, the messages of all users
arrive at x and stop there, and the vertex's own error goes on in their stead. So the cut graph is a
function like any other,

    leaves, x  ->  outputs, μ

and one look at the network is that function, recorded by `dendrax.walk`: errors at the outputs and
at μ enter, and what arrives at x and at the parameters leaves. Whatever the vertices are, a value
that several of them compute on the way (the sum of a residual stream) is computed once.

A free argument is a value node, too: a leaf whose value is x. Nothing predicts it, but for a prior,
or an output that it is tied to: then that output is its μ, and the graph has a cycle.

What no value node reaches (the first layer's prediction, anything made of weights or data alone) is
computed in each look, too. A loop takes it out of its body (`dendrax.walk.hoisted`).
"""

from __future__ import annotations

import contextlib
import functools
import itertools
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from dendrax._compat import aval_of, zeros
from dendrax.graph import (
    Graph,
    Port,
)
from dendrax.inference._clamp import Clamp
from dendrax.inference._energy import Energy, sum_of, total
from dendrax.inference._equations import add_messages, prediction_error, summaries
from dendrax.inference._evaluate import Cuts, Values, evaluate, where_live
from dendrax.inference._given import check_parameters, check_values
from dendrax.inference._held import Held
from dendrax.inference._view import View
from dendrax.walk import PARAMETER, Local, Tape, record, send_back

Array = Any


class Node(NamedTuple):
    """What a rule may know of a value node; ``level`` is its distance from the output, ``batch``
    the axis that counts the samples (``None``: all samples share it, or there is one)."""

    name: str
    level: int
    parity: int
    shape: tuple[int, ...]
    dtype: Any
    batch: int | None = None


class Arrived(NamedTuple):
    """The sums of messages: at the value nodes, and at the leaves that learn (∂F/∂ζ)."""

    nodes: Values
    leaves: Values


@dataclass(frozen=True, eq=False)
class Network:
    """A view with numbers: what a rule sees. Leaves are clamped, the rest follows from the nodes.

    - ``values``: the value nodes at the forward pass, by node.
    - ``parameters``: the parameters, by leaf.
    - ``outputs``: the function's results by the forward pass.
    - ``nodes``: name, level, parity, shape, dtype and batch axis of each value node.
    - ``held``: what holds some of them at a value, wholly or in part.
    - ``is_started``: whether somebody has put value nodes elsewhere than at the forward pass.
    - ``prior_means``: the predictions of free arguments that have a prior.
    - ``resting``: the forward pass of the nodes in loops that are not live at all steps.
    - ``find_axes``: finds the axis of each value node that counts the samples.
    - ``look(x)``: predictions, errors, messages and energies with the value nodes at ``x``.
    """

    view: View
    leaves: Sequence[Array]
    clamp: Clamp
    energies: Mapping[Port, Energy]
    local: Local
    values: Values
    outputs: list[Array]
    held: Mapping[Port, Held] = field(default_factory=dict)
    prior_means: Values = field(default_factory=dict)
    is_started: bool = False
    resting: Values = field(default_factory=dict)
    find_axes: Callable[[], Mapping[Port, int | None]] = dict
    _known: dict[str, Any] = field(default_factory=dict)

    @functools.cached_property
    def parameters(self) -> Values:
        pairs = zip(self.view.graph.leaves, self.leaves, strict=True)
        given = {Port(leaf): value for leaf, value in pairs}
        return {port: given[port] for port in self.view.parameters}

    @functools.cached_property
    def nodes(self) -> Mapping[Port, Node]:
        view, level_of, axes = self.view, self.view.level_of, self.find_axes()
        found = {}
        for port in view.nodes:
            vertex, aval = view.vertex(port), view.aval(port)
            level = level_of[vertex.index]
            found[port] = Node(
                vertex.name, level, level % 2, aval.shape, aval.dtype, axes.get(port)
            )
        return found

    @property
    def depth(self) -> int:
        """How many steps it takes an error to come from the output to the last value node, at the
        most. In a loop it may go through each step of all vertices that are stacked."""
        view = self.view
        vertices = {view.nodes[node].vertex: view.loops(node) for node in view.nodes}
        inside = sum(math.prod(loops) - 1 for loops in vertices.values())
        return max(1, max(view.level_of.values(), default=1) - 1 + inside)

    def first_errors(self) -> Values:
        """The errors at the start: none, but for value nodes that somebody has put elsewhere."""
        if not self.is_started:
            return self.zeros()
        epsilon = self.look(self.values).epsilon
        return {p: epsilon[p] if p in self.view.cuts else e for p, e in self.zeros().items()}

    def zeros(self) -> Values:
        """Nothing, of the form of the value nodes."""
        return {port: jnp.zeros_like(value) for port, value in self.values.items()}

    def look(self, x: Values, parameters: Values | None = None) -> Look:
        """The network with its value nodes at ``x``; new ``parameters`` take the place of its own.

        Messages arrive at the value nodes and stop there.
        """
        check_values(self, x)
        check_parameters(self, parameters or {})
        return self._looked("look", x, parameters)

    def look_through(self, epsilon: Values, parameters: Values | None = None) -> Look:
        """The network with each value node ``epsilon`` away from its prediction, ``x = μ - ε``.

        The errors of the output go through the value nodes, down to the last: what arrives at one
        is ``dL/dx`` of the whole network.
        """
        check_values(self, epsilon)
        check_parameters(self, parameters or {})
        return self._looked("look_through", epsilon, parameters)

    @contextlib.contextmanager
    def remembering(self) -> Iterator[None]:
        """While a time step is traced: whoever looks at the same is shown the same look."""
        self._known["look"] = None
        try:
            yield
        finally:
            self._known.clear()

    def _looked(self, how: str, given: Values, parameters: Values | None) -> Look:
        key = (how, given, parameters or {})
        last = self._known.get("look")
        if last is not None and _is_same(last[0], key):
            return last[1]
        look = self._look(given, parameters, through=how == "look_through")
        if how == "look_through":
            look = look.with_errors(given, through=True)
        if "look" in self._known:
            self._known["look"] = key, look
        return look

    def _look(self, given: Values, parameters: Values | None, *, through: bool = False) -> Look:
        graph, nodes, free = self.view.graph, self.view.cuts, self.view.free
        leaves = dict(zip(map(Port, graph.leaves), self.leaves, strict=True))
        leaves.update(parameters or {})
        for port in free:
            value = self.values[port] - jnp.conj(given[port]) if through else given[port]
            leaves[port] = self.placed(port, value)

        def function(*inputs: Any) -> list[Any]:
            x = dict(zip(nodes, inputs[len(leaves) :], strict=True))
            where = self.view.liveness
            cuts = Cuts(self._bound(x), _away, where) if through else Cuts(x, live=where)
            env = evaluate(graph, inputs[: len(leaves)], cuts=cuts)
            outputs = [env[port] for port in graph.outputs]
            return [*outputs, *map(cuts.mu.__getitem__, nodes), *map(cuts.x.__getitem__, nodes)]

        active = [*which_leaves(graph), *[True] * len(nodes)]
        starts = given if through else {port: self.placed(port, given[port]) for port in nodes}
        inputs = [*leaves.values(), *map(starts.__getitem__, nodes)]
        results, tape = record(function, inputs, active, self.local)
        first, second = len(graph.outputs), len(graph.outputs) + len(nodes)
        mu = {**{port: leaves[port] for port in free}, **self.prior_means}
        mu.update((port, results[o]) for port, o in self.view.ties.items())
        mu.update(zip(nodes, results[first:second], strict=True))
        x = {port: leaves[port] for port in free}
        x.update(zip(nodes, results[second:], strict=True))
        return Look(self, x, mu, results[:first], tape)

    def placed(self, port: Port, x: Array) -> Array:
        """The value of a value node, where nothing else holds it. Where it is not live, it rests:
        there it may be made of data alone, and is read before it is predicted."""
        x = self.held[port].placed(x) if port in self.held else x
        resting = self.resting.get(port)
        return x if resting is None else where_live(self.view.liveness.live[port], x, resting)

    def _bound(self, errors: Values) -> dict[Port, Any]:
        """Errors, and with them what holds the value nodes."""
        return {p: (e, self.held[p].at) if p in self.held else e for p, e in errors.items()}


def _is_same(one: Any, other: Any) -> bool:
    """Whether two trees hold the same arrays."""
    first, second = jax.tree.flatten(one), jax.tree.flatten(other)
    pairs = zip(first[0], second[0], strict=False)
    return first[1] == second[1] and all(a is b for a, b in pairs)


def _away(mu: Array, given: Any) -> Array:
    """The value of a node that is this far from its prediction, where nothing holds it."""
    if not isinstance(given, tuple):
        return mu - jnp.conj(given)
    epsilon, held = given
    return held.placed(mu - jnp.conj(epsilon))


class Look:
    """One look at a network. What nobody asks for is not computed.

    - ``x``, ``mu``, ``epsilon``: value nodes, predictions, and errors ``ε = μ - x``.
    - ``errors``: ``∂E/∂μ`` of each value node, which is what it sends.
    - ``slope``: what each value node moves along, ``-∂F/∂x`` in units of its energy.
    - ``gradient``: ``∂F/∂ζ`` of each parameter; zeros where no error reaches it.
    - ``energies``, ``energy``: of each value node and clamped output, and their sum.
    """

    def __init__(
        self,
        net: Network,
        x: Values,
        mu: Values,
        outputs: Sequence[Array],
        tape: Tape,
        epsilon: Values | None = None,
        *,
        through: bool = False,
    ):
        self.net, self.x, self.mu, self.outputs = net, x, mu, outputs
        self.tape, self._epsilon, self._through = tape, epsilon, through

    def with_errors(self, epsilon: Values, *, through: bool = False) -> Look:
        """The same with other errors than ``μ - x``; the value nodes are that far from ``μ``."""
        check_values(self.net, epsilon)
        x = {
            p: x if self._is_apart(p) else self.mu[p] - jnp.conj(epsilon[p])
            for p, x in self.x.items()
        }
        return Look(self.net, x, self.mu, self.outputs, self.tape, epsilon, through=through)

    @functools.cached_property
    def epsilon(self) -> Values:
        given = self._epsilon or {}
        return {
            port: prediction_error(mu, self.x[port])
            if port not in given or self._is_apart(port)
            else given[port]
            for port, mu in self.mu.items()
        }

    def _is_apart(self, port: Port) -> bool:
        """Whether a value is its own, and not what prediction and error say."""
        return port in self.net.view.free or port in self.net.held

    def _pair(self, port: Port) -> tuple[Array, Array]:
        """Prediction and value; errors that are given are not computed again, with fewer digits."""
        of_error = self.net.energies[port].of_error and not self._is_apart(port)
        if self._epsilon is None or not of_error:
            return self.mu[port], self.x[port]
        epsilon = jnp.conj(self._epsilon[port])
        return epsilon, jnp.zeros_like(epsilon)

    @functools.cached_property
    def errors(self) -> Values:
        energies = self.net.energies
        return {port: energies[port].error(*self._pair(port)) for port in self.mu}

    def send(
        self,
        errors: Mapping[Port, Array],
        waiting: Mapping[Port, Array] | None = None,
        pulls: Mapping[Port, Array] | None = None,
    ) -> Arrived:
        """Send the errors of value nodes, and those of the clamped outputs, to where they go.

        ``waiting`` are messages that have come from elsewhere: to outputs, leaves, value nodes.
        ``pulls`` enter at the value nodes themselves, where these follow from their errors.
        """
        view, waiting = self.net.view, waiting or {}
        leaves, nodes = list(map(Port, view.graph.leaves)), view.cuts
        pairs = zip(view.graph.outputs, self.output_errors, strict=True)
        ends = [waiting.get(p) if error is None and p not in nodes else error for p, error in pairs]
        for o in dict.fromkeys(view.ties.values()):
            tied = [errors[port] for port, at in view.ties.items() if at == o and port in errors]
            ends[o] = add_messages(tied)
        given = [*ends, *map(errors.get, nodes), *map((pulls or {}).get, nodes)]
        found = send_back(self.tape, given, [waiting.get(port) for port in (*leaves, *nodes)])
        at_leaves = {p: m for p, m in zip(leaves, found, strict=False) if m is not None}
        pairs = zip(nodes, found[len(leaves) :], strict=True)
        arrived = {port: message for port, message in pairs if message is not None}
        if self._through:  # x = μ - ε: what arrives at ε has the other sign
            arrived = {port: -jnp.conj(message) for port, message in arrived.items()}
        at_free = {port: at_leaves.pop(port) for port in view.free if port in at_leaves}
        return Arrived({**at_free, **arrived}, at_leaves)

    @functools.cached_property
    def output_errors(self) -> list[Array | None]:
        """The error of each output, ``None`` if it has none."""
        view, clamp = self.net.view, self.net.clamp
        pairs = enumerate(zip(view.graph.outputs, self.outputs, strict=True))
        return [clamp.error(o, mu) if port in view.roots else None for o, (port, mu) in pairs]

    @functools.cached_property
    def arrived(self) -> Arrived:
        """What arrives when every vertex sends its own error."""
        return self._arrived_through() if self._through else self.send(self.errors)

    def _arrived_through(self) -> Arrived:
        """The same where value nodes follow from their errors: of an energy that depends on these
        alone nothing is sent, since prediction and value move together."""
        net, pulls = self.net, {}
        own = [p for p in self.mu if self._is_apart(p) or not net.energies[p].of_error]
        for port in own:
            if port not in net.view.free:
                pulls[port] = net.energies[port].pull(*self._pair(port))
        arrived = self.send({port: self.errors[port] for port in own}, pulls=pulls)
        nodes = {p: m - pulls[p] if p in pulls else m for p, m in arrived.nodes.items()}
        return Arrived(nodes, arrived.leaves)

    @property
    def slope(self) -> Values:
        return self.slope_under(self.arrived.nodes)

    def slope_under(self, messages: Values) -> Values:
        """The slope if these are the messages that have arrived."""
        energies = self.net.energies
        return {p: energies[p].slope(*self._pair(p), messages.get(p)) for p in self.mu}

    @property
    def gradient(self) -> Values:
        found, parameters = self.arrived.leaves, self.net.parameters
        return {p: found[p] if p in found else zeros(aval_of(w)) for p, w in parameters.items()}

    @functools.cached_property
    def energies(self) -> Values:
        net = self.net
        found = {port: total(net.energies[port].energy(*self._pair(port))) for port in self.mu}
        for o, (port, mu) in enumerate(zip(net.view.graph.outputs, self.outputs, strict=True)):
            if self.output_errors[o] is not None:
                found[port] = net.clamp.energy(o, mu)
        return found

    @property
    def energy(self) -> Array:
        return sum_of(self.energies.values())


class Quantities(NamedTuple):
    """What there is to record of a look, by port of the graph that the user sees."""

    energy: Array
    energies: Values
    x: Values
    mu: Values
    epsilon: Values

    @property
    def statistics(self) -> Values:
        """How large error, value and prediction are."""
        return summaries(self.epsilon, self.x, self.mu)

    @property
    def waiting(self) -> dict[Any, Array]:
        """Nothing: here delays are vertices like others."""
        return {}


def quantities(look: Look) -> Quantities:
    """Everything there is to record, clamped outputs included."""
    view = look.net.view
    shown = {**view.nodes, **view.roots}
    pairs = zip(view.graph.outputs, look.outputs, look.output_errors, strict=True)
    ends = {port: (mu, error) for port, mu, error in pairs if error is not None}
    parts = (
        look.energies,
        {**look.x, **{port: mu - jnp.conj(error) for port, (mu, error) in ends.items()}},
        {**look.mu, **{port: mu for port, (mu, _) in ends.items()}},
        {**look.epsilon, **{port: error for port, (_, error) in ends.items()}},
    )
    by_shown = ({shown[port]: value for port, value in part.items()} for part in parts)
    return Quantities(look.energy, *by_shown)


def which_leaves(graph: Graph) -> list[int]:
    """For the walk: which of the leaves are which parameters."""
    numbers = itertools.count(PARAMETER)

    def which(leaf: int) -> int:
        if not graph.carries(Port(leaf)):
            return 0
        return 1 if graph[leaf].kind == "free" else next(numbers)

    return list(map(which, graph.leaves))
