"""What the rules that descend the energy ``F = L + 1/2 Σ π ε²`` have in common."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from dendrax.graph import Flow, Port, Vertex
from dendrax.inference import Network, Values, View, prediction_error, value_change
from dendrax.rules._start import start_at
from dendrax.support import Start


class Descent(NamedTuple):
    """What arrives at every port, and the slope ``-∂F/∂x / π`` of each value node."""

    arrived: Values
    slope: Values


def descend(
    net: Network,
    flow: Flow,
    x: Values,
    precision: Mapping[Port, float],
    parameters: Values | None = None,
) -> Descent:
    """One look at the energy at the value nodes ``x``: predict, take errors, send messages."""
    mu, pullbacks = net.predict(flow, lambda port, _: x[port], parameters)
    epsilon = errors_at(mu, x)
    arrived = net.send(flow, pullbacks, weighted(net, mu, epsilon, precision))
    slope = {
        port: value_change(1, e, divided(arrived.get(port), precision[port]))
        for port, e in epsilon.items()
    }
    return Descent(arrived, slope)


def look(net: Network, x: Values, parameters: Values | None = None) -> View:
    """The value nodes, their predictions and errors."""
    mu, _ = net.predict(net.wiring.nothing, lambda port, _: x[port], parameters)
    return View(x, mu, errors_at(mu, x))


def errors_at(mu: Values, x: Values) -> Values:
    """ε = μ - x of each value node."""
    return {port: prediction_error(mu[port], value) for port, value in x.items()}


def weighted(net: Network, mu: Values, epsilon: Values, precision: Mapping[Port, float]) -> Values:
    """π ε of the value nodes, and the errors of the outputs."""
    inner = {
        port: e if precision[port] == 1 else precision[port] * e for port, e in epsilon.items()
    }
    return {**inner, **net.output_errors(mu)}


def divided(message: Any, precision: float) -> Any:
    """A sum of messages in units of the internal energy; ``None`` if there is none."""
    return message if message is None or precision == 1 else message / precision


def moved(x: Values, gamma: float, slope: Values) -> Values:
    """x + γ slope."""
    return {port: value + gamma * slope[port] for port, value in x.items()}


def start_values(net: Network, init: Start | Callable[[Vertex, Any], Any]) -> Values:
    """The value nodes at their start."""
    begin = start_at(init)
    if begin is None:
        return net.values
    return {port: begin(net.wiring.vertex(port), value) for port, value in net.values.items()}
