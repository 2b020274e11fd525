"""The loop over time of the rules that relax: IL and its relatives.

A rule says where it starts, how it moves in one time step, and what the parameters learn at the
end. Everything else is here: the compiled loop, stopping when converged, the records.

Time: ``t = 0`` is the start, and a record has one entry for each of ``t = 0 ... num_steps``; the
parameters learn from the last.
"""

from __future__ import annotations

import abc
from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar, NamedTuple

import jax
import jax.numpy as jnp

from dendrax.graph import Edge, Graph, Port
from dendrax.inference._equations import energy, summaries
from dendrax.inference._network import Clamp, Network, Values, evaluate, wire
from dendrax.inference._rule import Rule
from dendrax.support import check_records

Array = Any
State = Any


class View(NamedTuple):
    """The value nodes, predictions and errors ``ε = μ - x`` at one time."""

    x: Values
    mu: Values
    epsilon: Values


class Step(NamedTuple):
    """The state after a step, and the slope ``-∂F/∂x / π`` (by node) that made it move."""

    state: State
    slope: Values


class Relaxation(Rule, abc.ABC):
    """What a rule must say about itself to be run by `run_relaxation`.

    ``fixed`` is what does not change over time (for instance frozen derivatives).
    """

    tol: float | None = None
    levelled: bool = False
    descends: ClassVar[bool] = True  # whether the energy goes down when all is well

    @abc.abstractmethod
    def steps(self, graph: Graph) -> int:
        """How many time steps (at most, if there is a ``tol``)."""

    @abc.abstractmethod
    def start(self, net: Network) -> tuple[Any, State]:
        """What is fixed, and the state at the start."""

    @abc.abstractmethod
    def step(self, net: Network, fixed: Any, state: State) -> Step:
        """One time step."""

    @abc.abstractmethod
    def learn(self, net: Network, fixed: Any, state: State) -> Values:
        """∂F/∂ζ at the end, by leaf."""

    @abc.abstractmethod
    def view(self, net: Network, fixed: Any, state: State) -> View:
        """What there is to see."""

    @abc.abstractmethod
    def remedy(self) -> str:
        """What to try when inference diverges."""

    @abc.abstractmethod
    def precisions(self, net: Network) -> Mapping[Port, float]:
        """π of each value node, for the energy."""


class Snapshot(NamedTuple):
    """The quantities at one time, by port of the graph that the user sees."""

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
    def waiting(self) -> dict[Edge, Array]:
        """Nothing: here delays are vertices like others."""
        return {}


class Outcome(NamedTuple):
    """What is left at the end.

    ``gradients`` by leaf (``None``: no error); ``outputs`` of the forward pass; ``settled``, where
    the value nodes of the outputs have arrived; the ``records``; ``num_steps`` used; ``slope``,
    the largest at the end (``None`` without a tol); ``energies()``, those at the start and at the
    end, and that of the predictions themselves for comparison, if somebody wants to know.
    """

    gradients: list[Any]
    outputs: list[Any]
    settled: list[Any]
    records: dict[str, Any]
    num_steps: Any
    slope: Array | None
    energies: Callable[[], tuple[Array, Array, Array]]


def run_relaxation(
    rule: Relaxation,
    graph: Graph,
    leaves: Sequence[Any],
    clamp: Clamp,
    record: Sequence[str] = (),
) -> Outcome:
    """Relax the value nodes of a graph, then let the parameters learn."""
    clamped = clamp.errors is not None or clamp.targets is not None
    wiring = wire(graph, clamped=clamped)
    net = Network(wiring, evaluate(wiring.graph, leaves), clamp)
    fixed, start = rule.start(net)
    num_steps = rule.steps(graph)

    def look(state: State) -> dict[str, Any]:
        snapshot = take_snapshot(rule, net, fixed, state) if record else None
        return {name: getattr(snapshot, name) for name in record}

    if record:
        check_records(jax.eval_shape(look, start), num_steps + 1, copies=2)  # with the last
    if rule.tol is None:
        end, records = _run_all(rule, net, fixed, start, num_steps, look)
        used, slope = num_steps, None
    else:
        end, records, used, slope = _run_until(rule, net, fixed, start, num_steps, look)
    gradients = net.gradients(rule.learn(net, fixed, end))

    def energies() -> tuple[Array, Array, Array]:
        first, last = (take_snapshot(rule, net, fixed, state) for state in (start, end))
        sizes = [energy(mu).astype(float) for mu in first.mu.values()]
        return first.energy, last.energy, jnp.sum(jnp.asarray(sizes, float))

    x = rule.view(net, fixed, end).x if not clamped else {}
    settled = [x.get(port, net.forward[port]) for port in wiring.graph.outputs]
    return Outcome(gradients, net.outputs, settled, records, used, slope, energies)


def _run_all(
    rule: Relaxation, net: Network, fixed: Any, start: State, num_steps: int, look: Any
) -> tuple[State, Any]:
    def body(state: State, _: None) -> tuple[State, Any]:
        return rule.step(net, fixed, state).state, look(state)

    end, records = jax.lax.scan(body, start, length=num_steps)
    last = look(end)
    return end, jax.tree.map(lambda past, now: jnp.concatenate([past, now[None]]), records, last)


def _run_until(
    rule: Relaxation, net: Network, fixed: Any, start: State, num_steps: int, look: Any
) -> tuple[State, Any, Array, Array]:
    """Stop as soon as no slope is larger than ``tol``. Records wait in full-length buffers."""
    tol = rule.tol
    assert tol is not None
    buffers = jax.tree.map(
        lambda aval: jnp.zeros((num_steps + 1, *aval.shape), aval.dtype),
        jax.eval_shape(look, start),
    )

    def write(buffers: Any, t: Array, state: State) -> Any:
        return jax.tree.map(lambda past, now: past.at[t].set(now), buffers, look(state))

    def moves(carry: Any) -> Array:
        _, _, t, slope = carry
        return (t < num_steps) & ~(slope <= tol)

    def body(carry: Any) -> Any:
        state, buffers, t, _ = carry
        buffers = write(buffers, t, state)
        state, slope = rule.step(net, fixed, state)
        return state, buffers, t + 1, largest(slope)

    infinite = jnp.full_like(largest(net.values), jnp.inf)
    end, buffers, used, slope = jax.lax.while_loop(
        moves, body, (start, buffers, jnp.asarray(0), infinite)
    )
    return end, _last_repeated(write(buffers, used, end), used), used, slope


def _last_repeated(buffers: Any, used: Array) -> Any:
    """Records with the last entry in all places after it."""

    def repeat(values: Array) -> Array:
        past = jnp.arange(len(values)) > used
        return jnp.where(past.reshape(-1, *[1] * (values.ndim - 1)), values[used], values)

    return jax.tree.map(repeat, buffers)


def largest(values: Values) -> Array:
    """The largest absolute value."""
    found = [jnp.max(jnp.abs(value)).astype(float) for value in values.values() if value.size]
    return jnp.max(jnp.stack(found)) if found else jnp.zeros(())


def take_snapshot(rule: Relaxation, net: Network, fixed: Any, state: State) -> Snapshot:
    """Everything there is to record about a state."""
    shown = {**net.wiring.nodes, **net.wiring.roots}
    view = rule.view(net, fixed, state)
    energies = net.energies(view.mu, view.epsilon, rule.precisions(net))
    total = sum(e.astype(jnp.result_type(float)) for e in energies.values())
    errors = net.output_errors(view.mu)
    held = {port: view.mu[port] - jnp.conj(error) for port, error in errors.items()}
    parts = (energies, {**view.x, **held}, view.mu, {**view.epsilon, **errors})
    return Snapshot(
        jnp.asarray(total, jnp.result_type(float)),
        *({shown[port]: value for port, value in part.items()} for part in parts),
    )
