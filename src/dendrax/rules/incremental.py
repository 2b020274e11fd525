"""Incremental predictive coding: the weights move at every step."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import jax.numpy as jnp

from dendrax.graph import Graph, Port, Vertex
from dendrax.inference import Network, Relaxation, Step, Values, View
from dendrax.rules._base import (
    as_floats,
    check_gamma,
    check_num_steps,
    check_positive,
    smaller_gamma,
)
from dendrax.rules._descent import descend, look, moved, start_values
from dendrax.rules._precision import Precision, check_precision, precisions
from dendrax.rules._start import check_init
from dendrax.support import BatchLoss, Start, one_of


class _State(NamedTuple):
    """``total`` is the sum of the gradients so far; a difference of weights would lose digits."""

    x: Values
    parameters: Values
    total: Values


@dataclass(frozen=True)
class IncrementalPC(Relaxation):
    r"""Incremental predictive coding (Salvatori et al. 2022, arXiv:2212.00720).

    As `dendrax.IL`, but value nodes and parameters descend the energy at the same time:

    $$\Delta x_i = -\frac{\gamma}{\pi_i} \frac{\partial F}{\partial x_i}, \qquad
    \Delta \zeta = -\alpha \frac{\partial F}{\partial \zeta} \qquad \text{at every step.}$$

    The gradient handed back is the sum over the steps, $(\zeta_0 - \zeta_T) / \alpha$: plain
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
        loss(w, x, y)  # -> 79.2
        w = jax.tree.map(lambda w, g: w - 0.01 * g, w, gradient)
        loss(w, x, y)  # -> 0.012
        ```
    """

    num_steps: int = 20
    gamma: float = 0.1
    learning_rate: float = 0.001
    precision: Precision = 1.0
    init: Start | Callable[[Vertex, Any], Any] = "forward"
    batch: BatchLoss | int | None = None
    levelled: bool = False

    def __post_init__(self) -> None:
        check_num_steps("IncrementalPC", self.num_steps, "20 is enough for small networks.")
        check_gamma("IncrementalPC", self.gamma)
        remedy = "Give the step size of the gradient descent that uses the gradient."
        check_positive("IncrementalPC: learning_rate", self.learning_rate, remedy)
        check_precision("IncrementalPC", self.precision, self.batch)
        check_init("IncrementalPC", self.init)
        one_of("IncrementalPC: levelled", self.levelled, (True, False))
        as_floats(self, "gamma", "learning_rate", "precision")

    def steps(self, graph: Graph) -> int:
        return self.num_steps

    def precisions(self, net: Network) -> Mapping[Port, float]:
        return precisions("IncrementalPC", self.precision, self.batch, net)

    def start(self, net: Network) -> tuple[None, _State]:
        net.prepare(net.wiring.to_both, learns=True)
        parameters = net.parameters
        nothing = {port: jnp.zeros_like(value) for port, value in parameters.items()}
        return None, _State(start_values(net, self.init), parameters, nothing)

    def step(self, net: Network, fixed: None, state: _State) -> Step:
        flow, precision = net.wiring.to_both, self.precisions(net)
        arrived, slope = descend(net, flow, state.x, precision, state.parameters)
        gradient = {port: arrived[port] for port in state.parameters if port in arrived}
        change = {port: -self.learning_rate * jnp.conj(g) for port, g in gradient.items()}
        after = _State(
            moved(state.x, self.gamma, slope),
            {
                port: w + change[port] if port in change else w
                for port, w in state.parameters.items()
            },
            {
                port: s + gradient[port] if port in gradient else s
                for port, s in state.total.items()
            },
        )
        return Step(after, slope)

    def learn(self, net: Network, fixed: None, state: _State) -> Values:
        return state.total

    def view(self, net: Network, fixed: None, state: _State) -> View:
        return look(net, state.x, state.parameters)

    def remedy(self) -> str:
        return f"{smaller_gamma(self.gamma)}, or a smaller learning_rate"
