"""Error-based predictive coding: the errors are the free variables."""

# What a rule says of itself may be a setting of it, or follow from its settings.
# pyright: reportIncompatibleVariableOverride=false

from __future__ import annotations

from dataclasses import dataclass

import jax.numpy as jnp

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
from dendrax.support import BatchLoss, OnDivergence


@dataclass(frozen=True)
class ErrorPC(Rule):
    r"""Error optimisation, "ePC" (Goemaere et al. 2025, arXiv:2505.20137).

    The same energy as `dendrax.IL`'s, but a value node is what its prediction and its error say,
    $x_i = \mu_i - \varepsilon_i$, and inference moves the errors. The loss then depends on every
    error through the whole network, and

    $$\Delta \varepsilon_i = -\frac{\gamma}{\pi_i} \frac{\mathrm{d} F}{\mathrm{d} \varepsilon_i}
    = \gamma \Big(\frac{\delta_i}{\pi_i} - \varepsilon_i\Big),$$

    with $\delta_i = \mathrm{d} L / \mathrm{d} x_i$, which is backpropagated. That is *not* local
    (`dendrax.audit` says so), but the signal does not decay with depth and the equilibrium is
    that of IL, which it reaches in far fewer steps. The parameters learn as in IL, from the
    errors of the vertices that use them.

    **Arguments:** `num_steps`, `gamma`, `precision`, `tol`, `batch`, `energies`, `on_divergence`:
    as for `dendrax.IL`.

    !!! example

        ```python
        import dendrax, jax.numpy as jnp


        def loss(w, x, y):
            return jnp.sum((jnp.tanh(x @ w[0]) @ w[1] - y) ** 2) / 2


        w = [jnp.full((3, 4), 0.2), jnp.full((4, 2), 0.2)]
        x, y = jnp.ones((5, 3)), jnp.ones((5, 2))


        def gradient(rule):
            return dendrax.grad(loss, rule=rule)(w, x, y)[0][0, 0]


        gradient(dendrax.ErrorPC(num_steps=5, gamma=0.8, batch="sum"))  # -> -0.6215
        gradient(dendrax.IL(num_steps=100, batch="sum"))  # -> -0.6215
        ```
    """

    num_steps: int = 20
    gamma: Gamma = 0.1
    precision: Precision = 1.0
    tol: float | None = None
    batch: BatchLoss | int = "mean"
    energies: Energies | None = None
    on_divergence: OnDivergence = "nan"

    __repr__ = shown

    def __post_init__(self) -> None:
        check_num_steps("ErrorPC", self.num_steps, "5 to 20 are enough.")
        check_gammas("ErrorPC", self.gamma)
        check_energies(self)
        if self.tol is not None:
            check_positive("ErrorPC: tol", self.tol, "Leave it out to run all steps.")
        as_floats(self, "gamma", "precision", "tol")

    def start(self, net: Network, memory: object = None) -> Values:
        return net.first_errors()

    def look(self, net: Network, state: Values) -> Look:
        return net.look_through(state)

    def step(self, net: Network, state: Values) -> Values:
        slope = self.look(net, state).slope  # of x = μ - ε
        gamma = gammas(self, net, state)
        return {port: e - gamma[port] * jnp.conj(slope[port]) for port, e in state.items()}

    def gradient(self, net: Network, state: Values) -> Values:
        return net.look(self.look(net, state).x).with_errors(state).gradient
