"""Predictive coding with fixed predictions."""

# What a rule says of itself may be a setting of it, or follow from its settings.
# pyright: reportIncompatibleVariableOverride=false

from __future__ import annotations

import numbers
from dataclasses import dataclass
from typing import Any

from dendrax.inference import Look, Network, Rule, Values
from dendrax.rules._base import Gamma, as_floats, check_gammas, check_num_steps, gammas
from dendrax.support import complain


@dataclass(frozen=True)
class FixedPrediction(Rule):
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
    - `gamma`: the integration step $\gamma$; a number, or a function `vertex -> number`.

    !!! example

        ```python
        import dendrax

        dendrax.grad(lambda w: w * w, rule=dendrax.FixedPrediction())(3.0)  # -> 6.0
        ```
    """

    num_steps: int | None = None
    gamma: Gamma = 1.0

    batch = "sum"  # the same errors, whatever the loss is
    descends = False
    settles = False

    def __post_init__(self) -> None:
        if self.num_steps is not None:
            remedy = "Leave it out to run as many steps as the graph is deep."
            check_num_steps("FixedPrediction", self.num_steps, remedy)
        check_gammas("FixedPrediction", self.gamma)
        if isinstance(self.gamma, numbers.Real):
            _check_small(float(self.gamma))
        as_floats(self, "gamma")

    def steps(self, net: Network) -> int:
        return net.depth if self.num_steps is None else self.num_steps

    def start(self, net: Network, memory: object = None) -> Values:
        return net.zeros()

    def look(self, net: Network, state: Values) -> Look:
        return net.look(net.values).with_errors(state)

    def step(self, net: Network, state: Values) -> Values:
        messages, gamma = self.look(net, state).arrived.nodes, gammas(self, net, state)
        for port in state:
            _check_small(gamma[port], f" of {net.view.vertex(port).name}")
        return {port: _mixed(gamma[port], e, messages.get(port)) for port, e in state.items()}


def _mixed(gamma: float, epsilon: Any, message: Any) -> Any:
    """(1 - γ) ε + γ Σ, which at γ = 1 is the sum itself, to the last bit."""
    kept = (1 - gamma) * epsilon
    return kept if message is None else kept + gamma * message


def _check_small(gamma: float, whose: str = "") -> None:
    if gamma >= 2:
        raise complain(
            ValueError,
            f"FixedPrediction: gamma{whose}={gamma} makes the errors grow without end.",
            remedy="They converge for gamma between 0 and 2, and fastest for gamma=1.",
        )
