"""The graph as predictive coding sees it: value nodes, and the operations between them.

Value nodes cut the graph of operations. Forwards, an operation that ends a vertex makes a
prediction μ, and its users read the value node x instead. Backwards, the messages of all users
arrive at x and stop there, and the vertex's own error goes on in their stead. So one time step
costs one walk forwards and one backwards over the operations, whatever the vertices are, and a
value that several vertices compute on the way (the sum of a residual stream) is computed once.

What no value node reaches (the first layer's prediction, anything made of weights or data alone)
does not change while weights and data are clamped: it is computed once, before the first step.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from dendrax.graph import Course, Flow, Graph, Port, Vertex, flow_of, identity
from dendrax.inference._equations import energy, prediction_error
from dendrax.local import (
    KERNEL,
    Contraction,
    Convolution,
    is_contraction,
    is_convolution,
    is_inexact,
    linearise,
)
from dendrax.vertices import moving_vertices

Array = Any
Values = dict[Port, Array]
Pullbacks = dict[int, Any]


class Clamp(NamedTuple):
    """What holds the outputs: a constant error (a loss or cotangent), targets, or nothing."""

    errors: Sequence[Any] | None = None
    targets: Sequence[Any] | None = None


@dataclass(frozen=True, eq=False)
class Wiring:
    """What is known before there are numbers. Ports are those of the graph of operations.

    - ``shown``: the graph that the user sees.
    - ``nodes``: the value nodes, each with its port in that graph.
    - ``roots``: the outputs that are clamped, likewise.
    """

    graph: Graph
    shown: Graph
    nodes: Mapping[Port, Port]
    roots: Mapping[Port, Port]

    def vertex(self, node: Port) -> Vertex:
        """The vertex of a value node as the user sees it."""
        return self.shown[self.nodes[node].vertex]

    @functools.cached_property
    def to_nodes(self) -> Flow:
        """Errors at the value nodes and at the output; messages to value nodes."""
        return self._flow(self.nodes, self.nodes)

    @functools.cached_property
    def between_nodes(self) -> Flow:
        """Errors at the value nodes alone; messages to value nodes."""
        return self._flow(self.nodes, self.nodes, seeded=False)

    @functools.cached_property
    def outputs_to_nodes(self) -> Flow:
        """Errors at the output alone; messages to value nodes, and no further."""
        return self._flow((), self.nodes, silent=self.nodes)

    @functools.cached_property
    def to_parameters(self) -> Flow:
        """Errors at the value nodes and at the output; messages to parameters."""
        return self._flow(self.nodes, self._parameters)

    @functools.cached_property
    def to_both(self) -> Flow:
        """Errors at the value nodes and at the output; messages to value nodes and parameters."""
        return self._flow(self.nodes, [*self.nodes, *self._parameters])

    @functools.cached_property
    def nothing(self) -> Flow:
        """No messages at all: for looking at the predictions."""
        return self._flow((), ())

    @functools.cached_property
    def through_nodes(self) -> Flow:
        """Errors at the output alone; messages to all value nodes, *through* the nearer ones."""
        return self._flow((), self.nodes)

    @functools.cached_property
    def through_to_parameters(self) -> Flow:
        """Errors at the output alone; messages to parameters: backpropagation."""
        return self._flow((), self._parameters)

    @property
    def _parameters(self) -> list[Port]:
        return [Port(leaf.index) for leaf in self.graph.parameters]

    def _flow(
        self,
        cuts: Iterable[Port],
        targets: Iterable[Port],
        *,
        seeded: bool = True,
        silent: Iterable[Port] = (),
    ) -> Flow:
        """Errors at the ``cuts`` and, if ``seeded``, the outputs; none leaves the ``silent``."""
        course = course_to(self.graph, frozenset(cuts), frozenset(targets), frozenset(silent))
        seeds = tuple(seeded and port in self.roots for port in self.graph.outputs)
        return flow_of(self.graph, seeds, course=course)

    @functools.cached_property
    def moving(self) -> frozenset[int]:
        """The vertices that change when the value nodes do."""
        return frozenset(moving_vertices(self.graph, self.nodes))

    @functools.cached_property
    def learning(self) -> frozenset[int]:
        """The vertices that change when the value nodes or the parameters do."""
        leaves = [leaf.index for leaf in self.graph.parameters]
        return frozenset(moving_vertices(self.graph, self.nodes, leaves))


def wire(graph: Graph, *, clamped: bool = True) -> Wiring:
    """The value nodes of a graph. An output that nothing clamps is a value node too."""
    key = ("wiring", clamped)
    if key not in graph.memo:
        graph.memo[key] = _wire(graph, clamped)
    return graph.memo[key]


def _wire(graph: Graph, clamped: bool) -> Wiring:
    operations = graph if graph.detail is None else graph.detail.graph
    seen = zip(operations.outputs, graph.outputs, graph.roots, strict=True)
    roots = {port: shown for port, shown, root in seen if root and _is_float(operations, port)}
    if graph.detail is None:
        emitted = graph.flow.emitted
        ports = [Port(v.index, o) for v in graph.nodes for o in emitted[v.index]]
        nodes = dict(zip(ports, ports, strict=True))
    else:
        nodes = dict(graph.detail.nodes)
    if not clamped:
        nodes, roots = {**nodes, **roots}, {}
    return Wiring(operations, graph, dict(sorted(nodes.items())), roots)


def _is_float(graph: Graph, port: Port) -> bool:
    return is_inexact(graph[port.vertex].outputs[port.output])


def course_to(
    graph: Graph,
    cuts: frozenset[Port],
    targets: frozenset[Port],
    silent: frozenset[Port] = frozenset(),
) -> Course:
    """The way of errors to the ``targets``; see `Course`. None leaves the ``silent`` ports."""
    leads: set[Port] = set()

    def accepts(port: Port) -> bool:
        return port in targets or (port not in cuts and port in leads)

    for v in graph.vertices:
        for o, mask in enumerate(v.depends):
            reached = any(mask >> k & 1 and accepts(port) for k, port in enumerate(v.inputs))
            if reached and (v.index, o) not in silent:
                leads.add(Port(v.index, o))
    return Course(cuts, leads.__contains__, accepts)


class Network:
    """A wiring with numbers: leaves are clamped, the rest follows from the value nodes.

    - ``forward``: every value of the forward pass (`evaluate`).
    """

    def __init__(self, wiring: Wiring, forward: Values, clamp: Clamp):
        self.wiring, self.forward, self.clamp = wiring, forward, clamp
        self._prepared: Flow | None = None
        self._ready: dict[int, Contraction | Convolution | None] = {}  # `None`: the kernel moves

    # ---- what a rule starts from -----------------------------------------------------------------

    @property
    def values(self) -> Values:
        """The value nodes at the forward pass."""
        return {port: self.forward[port] for port in self.wiring.nodes}

    @property
    def parameters(self) -> Values:
        """The parameters."""
        leaves = (Port(leaf.index) for leaf in self.wiring.graph.parameters)
        return {port: self.forward[port] for port in leaves}

    @property
    def outputs(self) -> list[Array]:
        """The function's results by the forward pass."""
        return [self.forward[port] for port in self.wiring.graph.outputs]

    def prepare(self, flow: Flow, *, learns: bool = False) -> None:
        """Do now what need not be done in each step of a loop along this flow.

        Weights and the kernels of convolutions are put in place, unless they move (or learn).
        """
        self._prepared, wiring = flow, self.wiring
        moving = wiring.learning if learns else wiring.moving
        parameters = wiring.graph.parameters if learns else ()
        restless = {*wiring.nodes, *(Port(leaf.index) for leaf in parameters)}

        def clamped(port: Port) -> bool:
            return port not in restless and port.vertex not in moving

        for v in wiring.graph.vertices:
            received = flow.received[v.index]
            if received and is_convolution(v.function):
                kernel = v.inputs[KERNEL]
                ready = None
                if clamped(kernel):
                    ready = Convolution.prepare(v.function, self.forward[kernel])
                self._ready[v.index] = ready
            elif len(received) == 1 and is_contraction(v.function):
                other = v.inputs[1 - received[0]]
                if clamped(other):
                    value = self.forward[other]
                    self._ready[v.index] = Contraction.prepare(v.function, received[0], value)

    # ---- one walk each way -----------------------------------------------------------------------

    def predict(
        self,
        flow: Flow,
        value: Callable[[Port, Array], Array],
        parameters: Values | None = None,
    ) -> tuple[Values, Pullbacks]:
        """μ of every value node and output, and the local pullbacks that the flow needs.

        ``value(port, mu)`` is the value node ``x``. New ``parameters`` make the rest follow them.
        """
        graph, ends = self.wiring.graph, {*self.wiring.nodes, *self.wiring.roots}
        moving = self.wiring.moving if parameters is None else self.wiring.learning
        env = {**self.forward, **(parameters or {})}
        mu, pullbacks = {}, {}
        for v in graph.vertices:
            ports = [Port(v.index, o) for o in range(len(v.outputs))]
            if flow.received[v.index]:
                inputs = [env[port] for port in v.inputs]
                outputs, pullbacks[v.index] = self._linearise(v, flow, inputs)
                env.update(zip(ports, outputs, strict=True))
            elif v.index in moving:
                assert v.function is not None
                outputs = v.function(*(env[port] for port in v.inputs))
                env.update(zip(ports, outputs, strict=True))
            for port in ends.intersection(ports):
                mu[port] = env[port]
                if port in self.wiring.nodes:
                    env[port] = value(port, env[port])
        return mu, pullbacks

    def _linearise(self, v: Vertex, flow: Flow, inputs: Sequence[Any]) -> Any:
        emitted, received = flow.emitted[v.index], flow.received[v.index]
        summed, function = flow.summed[v.index], v.function
        if flow is self._prepared and v.index in self._ready:
            ready = self._ready[v.index]
            if ready is None:
                assert is_convolution(function)
                ready = Convolution.prepare(function, inputs[KERNEL])
            return ready.linearise(inputs, received, summed)
        assert function is not None
        return linearise(function, inputs, emitted, received, summed)

    def send(
        self, flow: Flow, pullbacks: Pullbacks, errors: Values, waiting: Values | None = None
    ) -> Values:
        """Σ_j ε_j ∂μ_j/∂x_i at every port that the flow reaches, given the errors.

        ``waiting`` are messages that have come from elsewhere.
        """
        sums: Values = dict(waiting or {})
        for v in reversed(self.wiring.graph.vertices):
            if v.index not in pullbacks:
                continue
            ports = [Port(v.index, o) for o in flow.emitted[v.index]]
            arrived = tuple(errors[port] if port in errors else sums[port] for port in ports)
            before = tuple(sums[v.inputs[k]] for k in flow.summed[v.index])
            targets = [v.inputs[k] for k in flow.received[v.index]]
            sums.update(zip(targets, pullbacks[v.index]((before, arrived)), strict=True))
        return sums

    # ---- errors, energies, gradients -------------------------------------------------------------

    def output_errors(self, mu: Values) -> Values:
        """The error at each clamped output: constant, or the distance to the target."""
        graph = self.wiring.graph
        errors = {}
        for o, port in enumerate(graph.outputs):
            if port not in self.wiring.roots:
                continue
            if self.clamp.targets is not None:
                errors[port] = prediction_error(mu[port], self.clamp.targets[o])
            elif self.clamp.errors is not None and self.clamp.errors[o] is not None:
                errors[port] = constant_error(mu[port], self.clamp.errors[o])
        return errors

    def gradients(self, sums: Values) -> list[Array | None]:
        """What arrived at each leaf; ``None`` where nothing did."""
        leaves = self.wiring.graph.leaves
        return [sums.get(Port(leaf)) for leaf in leaves]

    def energies(self, mu: Values, epsilon: Values, precision: Mapping[Port, float]) -> Values:
        """1/2 π ε² of each value node, and the loss (or the quadratic energy) of each output."""
        found = {port: precision[port] * energy(e) for port, e in epsilon.items()}
        for port, error in self.output_errors(mu).items():
            if self.clamp.targets is not None:
                found[port] = energy(error)
            else:  # the loss is linear in what its vertex predicts
                found[port] = jnp.sum((error * mu[port]).real)
        return found


def constant_error(mu: Array, value: Any) -> Array:
    """The error of a clamped output; a Python number stands for an array of the output's type."""
    return jax.lax.full_like(mu, value) if isinstance(value, float) else value.astype(mu.dtype)


def evaluate(
    graph: Graph, leaves: Sequence[Any], hand_on: Callable[[Any], Any] = lambda value: value
) -> Values:
    """The forward pass: every value of the graph. Delays and ports ``hand_on`` their input."""
    env = {Port(leaf): value for leaf, value in zip(graph.leaves, leaves, strict=True)}
    for v in graph.vertices:
        if v.function is not None:
            inputs = [env[port] for port in v.inputs]
            hands_on = v.function is identity
            outputs = map(hand_on, inputs) if hands_on else v.function(*inputs)
            env.update((Port(v.index, o), value) for o, value in enumerate(outputs))
    return env
