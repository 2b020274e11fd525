"""Incremental predictive coding: the weights move at every step."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import jax.numpy as jnp

from dendrax._equations import prediction_error, value_change
from dendrax._errors import one_of
from dendrax._graph import Graph, Port, Vertex
from dendrax._network import Network, Values
from dendrax._relax import Relaxation, Step, View
from dendrax.rules._base import Rule, check_gamma, check_num_steps, check_positive
from dendrax.rules._precision import Precision, check_precision, precisions
from dendrax.rules._start import check_init
from dendrax.rules.il import divided, moved, start_values, weighted


class _State(NamedTuple):
    x: Values
    parameters: Values


@dataclass(frozen=True)
class IncrementalPC(Relaxation, Rule):
    r"""Incremental predictive coding (Salvatori et al. 2022, arXiv:2212.00720).

    As `dendrax.IL`, but value nodes and parameters descend the energy at the same time:

    $$\Delta x_i = -\frac{\gamma}{\pi_i} \frac{\partial F}{\partial x_i}, \qquad
    \Delta \zeta = -\alpha \frac{\partial F}{\partial \zeta} \qquad \text{at every step.}$$

    The gradient handed back is $(\zeta_0 - \zeta_T) / \alpha$, the sum over the steps: plain
    gradient descent with step size $\alpha$ then lands where the rule has moved the parameters to.

    **Arguments:**

    - `learning_rate`: $\alpha$, the step of the parameters.
    - `num_steps`, `gamma`, `precision`, `init`, `batch`, `levelled`: as for `dendrax.IL`.

    !!! example

        ```python
        import dendrax, jax, jax.numpy as jnp


        def loss(w, x, y):
            return jnp.sum((jnp.tanh(x @ w[0]) @ w[1] - y) ** 2) / 2


        rule = dendrax.IncrementalPC(num_steps=20, learning_rate=0.01)
        w, x, y = [jnp.ones((3, 4)), jnp.ones((4, 2))], jnp.ones((5, 3)), jnp.zeros((5, 2))
        gradient = dendrax.grad(loss, rule=rule)(w, x, y)
        w = jax.tree.map(lambda w, g: w - 0.01 * g, w, gradient)
        ```
    """

    num_steps: int = 20
    gamma: float = 0.1
    learning_rate: float = 0.001
    precision: Precision = 1.0
    init: str | Callable[[Vertex, Any], Any] = "forward"
    batch: str | None = None
    levelled: bool = False

    def __post_init__(self) -> None:
        check_num_steps("IncrementalPC", self.num_steps, "20 is enough for small networks.")
        check_gamma("IncrementalPC", self.gamma)
        remedy = "Give the step size of the gradient descent that uses the gradient."
        check_positive("IncrementalPC: learning_rate", self.learning_rate, remedy)
        check_precision("IncrementalPC", self.precision, self.batch)
        check_init("IncrementalPC", self.init)
        one_of("IncrementalPC: levelled", self.levelled, (True, False))

    def steps(self, graph: Graph) -> int:
        return self.num_steps

    def precisions(self, net: Network) -> Mapping[Port, float]:
        return precisions("IncrementalPC", self.precision, self.batch, net)

    def start(self, net: Network) -> tuple[None, _State]:
        net.prepare(net.wiring.to_both, learns=True)
        return None, _State(start_values(net, self.init), net.parameters)

    def step(self, net: Network, fixed: None, state: _State) -> Step:
        flow, x, precision = net.wiring.to_both, state.x, self.precisions(net)
        mu, pullbacks = net.predict(flow, lambda port, _: x[port], state.parameters)
        epsilon = {port: prediction_error(mu[port], x[port]) for port in x}
        arrived = net.send(flow, pullbacks, weighted(net, mu, epsilon, precision))
        slope = {
            port: value_change(1, e, divided(arrived.get(port), precision[port]))
            for port, e in epsilon.items()
        }
        parameters = {
            port: value - self.learning_rate * jnp.conj(arrived[port]) if port in arrived else value
            for port, value in state.parameters.items()
        }
        return Step(_State(moved(x, self.gamma, slope), parameters), slope)

    def learn(self, net: Network, fixed: None, state: _State) -> Values:
        now, before = state.parameters, net.parameters
        return {port: jnp.conj(before[port] - now[port]) / self.learning_rate for port in now}

    def view(self, net: Network, fixed: None, state: _State) -> View:
        x = state.x
        mu, _ = net.predict(net.wiring.nothing, lambda port, _: x[port], state.parameters)
        return View(x, mu, {port: prediction_error(mu[port], x[port]) for port in x})
