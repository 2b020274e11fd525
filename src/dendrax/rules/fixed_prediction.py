"""Predictive coding with fixed predictions."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

import jax.numpy as jnp

from dendrax.graph import Graph, Port, level_graph
from dendrax.inference import (
    Network,
    Pullbacks,
    Relaxation,
    Step,
    Values,
    View,
    add_messages,
    value_change,
)
from dendrax.rules._base import as_floats, check_gamma, check_num_steps, smaller_gamma
from dendrax.support import complain


class _Frozen(NamedTuple):
    """Predictions, the messages of the outputs (which do not change), and local derivatives."""

    mu: Values
    from_outputs: Values
    between: Pullbacks
    to_parameters: Pullbacks


@dataclass(frozen=True)
class FixedPrediction(Relaxation):
    r"""The fixed prediction assumption (Millidge, Tschantz and Buckley 2020, arXiv:2006.04182).

    Predictions and local derivatives stay what they were at the forward pass, $\mu_j^0$; only
    errors move:

    $$\varepsilon_i \leftarrow \varepsilon_i - \gamma \Big(\varepsilon_i -
    \sum_{j \in \mathrm{users}(i)} \varepsilon_j \frac{\partial \mu_j^0}{\partial x_i}\Big).$$

    Backpropagation's errors are the fixed point. With $\gamma = 1$ an error is right as soon as
    those of its users are, *and stays right*, so after as many steps as the graph is deep all of
    them are, on any graph and without levels. Smaller $\gamma$ gets there geometrically.

    **Arguments:**

    - `num_steps`: how many steps; by default as many as it takes the error of the output to reach
      the last vertex.
    - `gamma`: the integration step $\gamma$.

    !!! example

        ```python
        import dendrax

        dendrax.grad(lambda w: w * w, rule=dendrax.FixedPrediction())(3.0)  # -> 6.0
        ```
    """

    num_steps: int | None = None
    gamma: float = 1.0

    descends: ClassVar[bool] = False

    def __post_init__(self) -> None:
        if self.num_steps is not None:
            remedy = "Leave it out to run as many steps as the graph is deep."
            check_num_steps("FixedPrediction", self.num_steps, remedy)
        check_gamma("FixedPrediction", self.gamma)
        if self.gamma >= 2:
            raise complain(
                ValueError,
                f"FixedPrediction: gamma={self.gamma} makes the errors grow without end.",
                remedy="They converge for gamma between 0 and 2, and fastest for gamma=1.",
            )
        as_floats(self, "gamma")

    def steps(self, graph: Graph) -> int:
        if self.num_steps is not None:
            return self.num_steps
        return max(1, max(level_graph(graph).level_of.values(), default=1) - 1)

    def precisions(self, net: Network) -> Mapping[Port, float]:
        return dict.fromkeys(net.wiring.nodes, 1.0)

    def start(self, net: Network) -> tuple[_Frozen, Values]:
        wiring, x = net.wiring, net.values

        def stays(port: Port, _: Any) -> Any:
            return x[port]

        mu, top = net.predict(wiring.outputs_to_nodes, stays)
        net.prepare(wiring.between_nodes)
        _, between = net.predict(wiring.between_nodes, stays)
        _, to_parameters = net.predict(wiring.to_parameters, stays)
        from_outputs = net.send(wiring.outputs_to_nodes, top, net.output_errors(mu))
        epsilon = {port: jnp.zeros_like(mu[port]) for port in wiring.nodes}
        return _Frozen(mu, from_outputs, between, to_parameters), epsilon

    def step(self, net: Network, fixed: _Frozen, state: Values) -> Step:
        arrived = net.send(net.wiring.between_nodes, fixed.between, state)
        messages = {
            port: add_messages(sums[port] for sums in (fixed.from_outputs, arrived) if port in sums)
            for port in state
        }
        slope = {port: value_change(1, e, messages[port]) for port, e in state.items()}
        return Step({port: self._mix(e, messages[port]) for port, e in state.items()}, slope)

    def _mix(self, epsilon: Any, arrived: Any) -> Any:
        """(1 - γ) ε + γ Σ, which at γ = 1 is the sum itself, to the last bit."""
        kept = (1 - self.gamma) * epsilon
        return kept if arrived is None else kept + self.gamma * arrived

    def learn(self, net: Network, fixed: _Frozen, state: Values) -> Values:
        errors = {**state, **net.output_errors(fixed.mu)}
        return net.send(net.wiring.to_parameters, fixed.to_parameters, errors)

    def view(self, net: Network, fixed: _Frozen, state: Values) -> View:
        x = {port: fixed.mu[port] - jnp.conj(e) for port, e in state.items()}
        return View(x, fixed.mu, state)

    def remedy(self) -> str:
        return smaller_gamma(self.gamma)
