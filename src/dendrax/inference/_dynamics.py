"""The full dynamics: every value node moves at every time step, exactly as the equations say.

A graph with delays and a `Schedule` enter; the leaves' gradients, and records if asked for, leave.
Time is one compiled loop (under `jax.disable_jit` it runs operation by operation).

A delay of ``m`` on an edge *is* a chain of ``m`` identity vertices, whose value nodes and errors
follow the same equations. The chain is kept as one array with a leading axis of length ``m``: place
0 is next to the source, place ``m - 1`` next to the user. It holds the terms of a message apart, so
that its end adds them up in the same order as without a delay.

The messages are those of the wave's own walks. Every vertex reads each of its inputs at an edge of
its own, so the prediction of all vertices is one function ``values at edges -> μ``: recorded once,
it sends the errors at μ back to the edges.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from dendrax import _compat
from dendrax.graph import Edge, Graph, Port, Vertex
from dendrax.inference._clamp import Clamp
from dendrax.inference._equations import (
    add_messages,
    carried_error,
    energy,
    prediction_error,
    root_mean_square,
    summaries,
    updated_error,
    value_change,
)
from dendrax.inference._evaluate import evaluate
from dendrax.support import check_records
from dendrax.walk import Tape, carried_as, exact, record, send_terms

Array = Any
Init = Callable[[Vertex, Any], Any]


@dataclass(frozen=True, eq=False)
class Schedule:
    """How a rule wants the dynamics run.

    - ``gamma``: the integration step γ.
    - ``num_steps``: how many time steps.
    - ``learn_at[edge]``: when the leaf at the start of an edge learns from the vertex at its end.
    - ``arrival[v]``: when the wave reaches vertex ``v``; before that it has no error.
    - ``init``: where a value node starts, given its vertex and its forward value; ``None`` is the
      forward value itself, with an error of exactly zero.
    - ``delays``: for how many time steps an edge waits.
    """

    gamma: float
    num_steps: int
    learn_at: Mapping[Edge, int]
    arrival: Mapping[int, int]
    init: Init | None = None
    delays: Mapping[Edge, int] = field(default_factory=dict)


class State(NamedTuple):
    """Everything that changes over time. ``mu`` and the errors lag one prediction behind."""

    x: dict[Port, Array]
    error: dict[Port, Array]
    mu: dict[Port, Array]
    line_x: dict[Edge, Array]
    line_error: dict[Edge, tuple[Array, ...]]
    line_mu: dict[Edge, Array]
    learned: dict[Edge, tuple[Array, ...]]


class End(NamedTuple):
    """What is left at the end.

    ``gradients`` by leaf (``None``: no error); ``outputs`` of the forward pass; ``settled``, where
    the value nodes of the outputs have arrived; the ``records``.
    """

    gradients: list[Any]
    outputs: list[Any]
    settled: list[Any]
    records: dict[str, Any]


def run_dynamics(
    graph: Graph,
    schedule: Schedule,
    leaves: Sequence[Any],
    clamp: Clamp,
    recorded: Sequence[str] = (),
) -> End:
    """Run the dynamics. ``recorded`` are the quantities to keep at every time step."""
    dynamics = Dynamics(graph, schedule, evaluate(graph, leaves), clamp)

    def step(state: State, t: Array) -> tuple[State, dict[str, Any]]:
        state, snapshot = dynamics.step(state, t if _compat.is_tracer(t) else int(t))
        return state, {name: getattr(snapshot, name) for name in recorded}

    start, time = dynamics.start(), jnp.asarray(0)
    records = jax.eval_shape(step, start, time)[1] if recorded else {}
    check_records((records, time), schedule.num_steps)
    changed = any(map(_compat.varying_axes, jax.tree.leaves(start)))
    while changed:
        after = jax.make_jaxpr(lambda state: jax.tree.leaves(step(state, time)[0]))(start)
        start, changed = carried_as(start, after.out_avals)
    state, records = jax.lax.scan(step, start, jnp.arange(schedule.num_steps))
    outputs = [dynamics.forward[port] for port in graph.outputs]
    settled = [state.x.get(port, dynamics.forward[port]) for port in graph.outputs]
    return End(dynamics.gradients(state), outputs, settled, records)


class Dynamics:
    """The graph prepared for the loop: edges, delay lines, what is clamped."""

    def __init__(
        self,
        graph: Graph,
        schedule: Schedule,
        forward: Mapping[Port, Any],
        clamp: Clamp,
    ):
        self.graph, self.schedule, self.clamp, self.forward = graph, schedule, clamp, forward
        self.flow = graph.flow
        self.lines = {edge: delay for edge, delay in schedule.delays.items() if delay}
        self.reads = [Edge(port, v.index) for v in graph.active for port in v.inputs]
        self.errors = [Port(v.index, o) for v in graph.active for o in self.flow.emitted[v.index]]
        self.roots = self._clamped_roots()
        self.free = [port for port in self.errors if port not in self.roots]
        self.edges_to: dict[Port, list[Edge]] = {}
        for edge in reversed(graph.edges):  # reverse program order, as JAX adds
            self.edges_to.setdefault(edge.source, []).append(edge)

    def _clamped_roots(self) -> dict[Port, int]:
        """The clamped outputs, each with its place among the outputs."""
        pairs = enumerate(zip(self.graph.outputs, self.graph.roots, strict=True))
        ports = {port: o for o, (port, root) in pairs if root and port in self.errors}
        return {p: o for p, o in ports.items() if self.clamp.error(o, self.forward[p]) is not None}

    # ---- the start -------------------------------------------------------------------------------

    def start(self) -> State:
        """Value nodes at their start, errors ``μ - x`` (exactly zero at the forward pass)."""
        init = self.schedule.init
        x = {port: self.forward[port] for port in self.free}
        if init is not None:
            x = {port: init(self.graph[port.vertex], value) for port, value in x.items()}
        line_x = {
            edge: jnp.stack([x.get(edge.source, self.forward[edge.source])] * delay)
            for edge, delay in self.lines.items()
        }
        mu, tape = self._predict(x, line_x)
        if init is None:
            mu = {port: self.forward[port] for port in self.errors}
        error = {port: self._first_error(port, mu[port], x) for port in self.errors}
        found = jax.eval_shape(lambda: self._messages(tape, error, False))
        terms = {
            edge: (jnp.zeros_like(self.forward[edge.source]),) * len(found[edge])
            for edge in self.graph.edges
        }
        line_error = {
            edge: tuple(jnp.stack([zero] * delay) for zero in terms[edge])
            for edge, delay in self.lines.items()
        }
        learned = {edge: terms[edge] for edge in self.schedule.learn_at}
        return State(x, error, mu, line_x, line_error, line_x, learned)

    def _first_error(self, port: Port, mu: Array, x: dict[Port, Array]) -> Array:
        if port in self.roots:
            return self.clamp.error(self.roots[port], mu)
        return jnp.zeros_like(mu) if self.schedule.init is None else prediction_error(mu, x[port])

    # ---- one time step ---------------------------------------------------------------------------

    def step(self, state: State, t: Array) -> tuple[State, Snapshot]:
        """Predict, take errors and messages, learn what is due, then move every value node."""
        mu, tape = self._predict(state.x, state.line_x)
        before = _compat.choose(t == 0, mu, state.mu)
        error = {
            port: self._error_now(port, state.error[port], mu[port], before[port])
            for port in self.errors
        }
        lines = self._lines_now(state, t)
        messages = self._messages(tape, error, t)
        arriving = {
            edge: tuple(term[0] for term in lines[edge][0]) if edge in lines else messages[edge]
            for edge in self.graph.edges
        }
        learned = {
            edge: _compat.choose(t == self.schedule.learn_at[edge], arriving[edge], terms)
            for edge, terms in state.learned.items()
        }
        snapshot = Snapshot(self, state, mu, error, lines)
        dx = {port: self._change(port, error[port], arriving) for port in self.free}
        x = {port: state.x[port] + dx[port] for port in self.free}
        carried = {
            port: carried_error(value, dx[port]) if port in dx else value
            for port, value in error.items()
        }
        line_x, line_error = self._move_lines(state, lines, messages)
        line_mu = {edge: line[1] for edge, line in lines.items()}
        return State(x, carried, mu, line_x, line_error, line_mu, learned), snapshot

    def _predict(self, x: dict[Port, Array], line_x: dict[Edge, Array]) -> tuple[Any, Tape]:
        """μ of every vertex from the value nodes of its inputs, seen through the delays."""

        def function(*seen: Any) -> list[Any]:
            values, mu = iter(seen), {}
            for v in self.graph.active:
                assert v.function is not None
                outputs = v.function(*(next(values) for _ in v.inputs))
                mu.update((Port(v.index, o), value) for o, value in enumerate(outputs))
            return [mu[port] for port in self.errors]

        carrying = set(self.graph.edges)

        def seen(edge: Edge) -> Array:
            if edge in line_x:
                return line_x[edge][-1]
            # What is read without an error in return has no delay, and no moment to be read at.
            moving = x if edge in carrying else self.forward
            return moving.get(edge.source, self.forward[edge.source])

        active = [edge in carrying for edge in self.reads]
        predictions, tape = record(function, list(map(seen, self.reads)), active, exact)
        return dict(zip(self.errors, predictions, strict=True)), tape

    def _error_now(self, port: Port, carried: Array, mu: Array, before: Array) -> Array:
        if port in self.roots and not self.clamp.moves:
            return carried
        return updated_error(carried, mu, before)

    def _lines_now(self, state: State, t: Array) -> dict[Edge, tuple[tuple[Array, ...], Array]]:
        """The errors (in terms) and predictions of the identity vertices of each delay line."""
        lines = {}
        for edge, x in state.line_x.items():
            source = state.x.get(edge.source, self.forward[edge.source])
            mu = jnp.concatenate([source[None], x[:-1]])
            before = _compat.choose(t == 0, mu, state.line_mu[edge])
            first, *rest = state.line_error[edge]
            lines[edge] = ((updated_error(first, mu, before), *rest), mu)
        return lines

    def _messages(
        self, tape: Tape, error: dict[Port, Array], t: Array
    ) -> dict[Edge, tuple[Array, ...]]:
        """ε_j ∂μ_j/∂x_i for every edge, in terms, in the order in which they are added."""
        found = send_terms(tape, [error[port] for port in self.errors])
        messages = dict(zip(self.reads, found, strict=True))
        for v in self.graph.active:
            errors = [error[Port(v.index, o)] for o in self.flow.emitted[v.index]]
            edges = [Edge(v.inputs[k], v.index) for k in self.flow.received[v.index]]
            silent = _silent(errors, t < self.schedule.arrival[v.index])
            messages.update((edge, _hushed(messages[edge], silent)) for edge in edges)
        return messages

    def _change(self, port: Port, error: Array, arriving: dict[Edge, tuple[Array, ...]]) -> Array:
        terms = [term for edge in self.edges_to.get(port, ()) for term in arriving[edge]]
        return value_change(self.schedule.gamma, error, add_messages(terms))

    def _move_lines(
        self, state: State, lines: dict[Edge, Any], messages: dict[Edge, tuple[Array, ...]]
    ) -> tuple[dict[Edge, Array], dict[Edge, tuple[Array, ...]]]:
        """Identity vertices move too; each hands its message, in terms, to the one before it."""
        line_x, line_error = {}, {}
        for edge, (terms, _) in lines.items():
            incoming = [
                jnp.concatenate([term[1:], message[None]])
                for term, message in zip(terms, messages[edge], strict=True)
            ]
            changes = [
                value_change(self.schedule.gamma, term, message)
                for term, message in zip(terms, incoming, strict=True)
            ]
            line_x[edge] = state.line_x[edge] + add_messages(changes)
            line_error[edge] = tuple(map(carried_error, terms, changes))
        return line_x, line_error

    # ---- the end ---------------------------------------------------------------------------------

    def gradients(self, state: State) -> list[Any]:
        """∂F/∂ζ of each leaf: what it learned from its users, added in reverse program order."""
        return [
            add_messages(
                term for edge in self.edges_to.get(Port(leaf), ()) for term in state.learned[edge]
            )
            for leaf in self.graph.leaves
        ]


def _silent(errors: Sequence[Array], early: Any) -> Any:
    """Whether the wave is yet to come to a vertex, and its errors are all zero."""
    if early is False:
        return False
    return functools.reduce(jnp.logical_and, [(e == 0).all() for e in errors], early)


def _hushed(terms: Sequence[Array], silent: Any) -> tuple[Array, ...]:
    """No message of a silent vertex. Its pullback is linear, so there is none; but where the
    derivative is infinite, multiplying would give 0 * inf = NaN instead."""

    def choose(term: Array) -> Array:
        flag = _compat.on_all_devices(silent, term) if _compat.is_tracer(silent) else silent
        return _compat.choose(flag, jax.lax.full_like(term, 0), term)

    return tuple(map(choose, terms))


@dataclass(frozen=True)
class Snapshot:
    """The quantities at one time, for the records; those that nobody records are not computed."""

    dynamics: Dynamics
    state: State
    mu: dict[Port, Array]
    epsilon: dict[Port, Array]
    lines: dict[Edge, tuple[tuple[Array, ...], Array]]

    @functools.cached_property
    def energies(self) -> dict[Port, Array]:
        """F by vertex: that of a constant clamp, and the energies of the errors."""
        roots, clamp = self.dynamics.roots, self.dynamics.clamp
        constant = {} if clamp.moves else roots
        return {
            port: clamp.energy(constant[port], self.mu[port]) if port in constant else energy(value)
            for port, value in self.epsilon.items()
        }

    @property
    def energy(self) -> Array:
        """F, with what is in the delay lines."""
        waiting = (energy(add_messages(terms)) for terms, _ in self.lines.values())
        parts = (*self.energies.values(), *waiting)
        return jnp.asarray(sum(part.astype(jnp.result_type(float)) for part in parts))

    @property
    def x(self) -> dict[Port, Array]:
        """The value nodes; a clamped output is at its target, or ``error`` away from its μ."""
        free = self.state.x
        return {
            port: free[port] if port in free else carried_error(self.mu[port], error)
            for port, error in self.epsilon.items()
        }

    @property
    def statistics(self) -> dict[Port, Array]:
        """How large error, value and prediction are, by vertex."""
        return summaries(self.epsilon, self.x, self.mu)

    @property
    def waiting(self) -> dict[Edge, Array]:
        """How large the errors are at each place of each delay line."""
        return {
            edge: root_mean_square(add_messages(terms), tuple(range(1, terms[0].ndim)))
            for edge, (terms, _) in self.lines.items()
        }
