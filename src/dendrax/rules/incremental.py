"""Incremental predictive coding: the weights move at every step."""

# What a rule says of itself may be a setting of it, or follow from its settings.
# pyright: reportIncompatibleVariableOverride=false

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import jax.numpy as jnp

from dendrax.graph import Vertex
from dendrax.inference import Energies, Look, Network, Rule, Values
from dendrax.rules._base import (
    Gamma,
    as_floats,
    check_gammas,
    check_num_steps,
    check_positive,
    gammas,
    shown,
)
from dendrax.rules._precision import Precision, check_energies
from dendrax.rules._start import check_init, start_values
from dendrax.support import BatchLoss, OnDivergence, Start, one_of

USUAL_GAMMA = 0.1  # with which inference alone seldom diverges


class _State(NamedTuple):
    """``total`` is the sum of the gradients so far; a difference of weights would lose digits."""

    x: Values
    parameters: Values
    total: Values


@dataclass(frozen=True)
class IncrementalPC(Rule):
    r"""Incremental predictive coding (Salvatori et al. 2022, arXiv:2212.00720).

    As `dendrax.IL`, but value nodes and parameters descend the energy at the same time:

    $$\Delta x_i = -\frac{\gamma}{\pi_i} \frac{\partial F}{\partial x_i}, \qquad
    \Delta \zeta = -\alpha \frac{\partial F}{\partial \zeta} \qquad \text{at every step.}$$

    The gradient handed back is the sum over the steps, $(\zeta_0 - \zeta_T) / \alpha$: plain
    gradient descent with step size $\alpha$ then lands where the rule has moved the parameters to.

    **Arguments:**

    - `learning_rate`: $\alpha$, the step of the parameters. The default does not diverge on a
      CNN, whose weights add up the gradients of all positions; MLPs learn faster with 0.001 to
      0.005.
    - `num_steps`, `gamma`, `precision`, `init`, `batch`, `levelled`, `energies`, `on_divergence`:
      as for `dendrax.IL`.

    !!! example

        ```python
        import dendrax, jax, jax.numpy as jnp


        def loss(w, x, y):
            return jnp.sum((jnp.tanh(x @ w[0]) @ w[1] - y) ** 2) / 2


        rule = dendrax.IncrementalPC(num_steps=20, learning_rate=0.01, batch="sum")
        w, x, y = [jnp.ones((3, 4)), jnp.ones((4, 2))], jnp.ones((5, 3)), jnp.zeros((5, 2))
        gradient = dendrax.grad(loss, rule=rule)(w, x, y)
        loss(w, x, y)  # -> 79.2
        w = jax.tree.map(lambda w, g: w - 0.01 * g, w, gradient)
        loss(w, x, y)  # -> 0.012
        ```
    """

    num_steps: int = 20
    gamma: Gamma = USUAL_GAMMA
    learning_rate: float = 0.0001
    precision: Precision = 1.0
    init: Start | Callable[[Vertex, Any], Any] = "forward"
    batch: BatchLoss | int = "mean"
    levelled: bool = False
    energies: Energies | None = None
    on_divergence: OnDivergence = "nan"

    moves_parameters = True

    __repr__ = shown

    def __post_init__(self) -> None:
        check_num_steps("IncrementalPC", self.num_steps, "20 is enough for small networks.")
        check_gammas("IncrementalPC", self.gamma)
        remedy = "Give the step size of the gradient descent that uses the gradient."
        check_positive("IncrementalPC: learning_rate", self.learning_rate, remedy)
        check_energies(self)
        check_init("IncrementalPC", self.init)
        one_of("IncrementalPC: levelled", self.levelled, (True, False))
        as_floats(self, "gamma", "learning_rate", "precision")

    def start(self, net: Network, memory: object = None) -> _State:
        nothing = {port: jnp.zeros_like(value) for port, value in net.parameters.items()}
        return _State(start_values(net, self.init), net.parameters, nothing)

    def look(self, net: Network, state: _State) -> Look:
        return net.look(state.x, state.parameters)

    def step(self, net: Network, state: _State) -> _State:
        look = self.look(net, state)
        slope, gradient = look.slope, look.gradient
        change = {port: -self.learning_rate * jnp.conj(g) for port, g in gradient.items()}
        gamma = gammas(self, net, state.x)
        return _State(
            {port: x + gamma[port] * slope[port] for port, x in state.x.items()},
            {port: w + change[port] for port, w in state.parameters.items()},
            {port: total + gradient[port] for port, total in state.total.items()},
        )

    def gradient(self, net: Network, state: _State) -> Values:
        return state.total

    def remedy(self) -> str:
        """Weights that move too far are the usual cause; large steps of value nodes may be."""
        rate = self.learning_rate
        said = f"a smaller learning_rate than {rate:g}, for instance {rate / 10:.3g}"
        if callable(self.gamma):
            return f"{said}; or a smaller gamma"
        return f"{said}; or {super().remedy()}" if self.gamma > USUAL_GAMMA else said
