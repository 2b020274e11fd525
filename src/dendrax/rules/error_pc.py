"""Error-based predictive coding: the errors are the free variables."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import jax.numpy as jnp

from dendrax.graph import Flow, Graph, Port
from dendrax.inference import Network, Pullbacks, Relaxation, Step, Values, View
from dendrax.rules._base import (
    as_floats,
    check_gamma,
    check_num_steps,
    check_positive,
    smaller_gamma,
)
from dendrax.rules._descent import divided, weighted
from dendrax.rules._precision import Precision, check_precision, precisions
from dendrax.support import BatchLoss


@dataclass(frozen=True)
class ErrorPC(Relaxation):
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

    **Arguments:** `num_steps`, `gamma`, `precision`, `tol`, `batch`: as for `dendrax.IL`.

    !!! example

        ```python
        import dendrax, jax.numpy as jnp


        def loss(w, x, y):
            return jnp.sum((jnp.tanh(x @ w[0]) @ w[1] - y) ** 2) / 2


        w = [jnp.full((3, 4), 0.2), jnp.full((4, 2), 0.2)]
        x, y = jnp.ones((5, 3)), jnp.ones((5, 2))


        def gradient(rule):
            return dendrax.grad(loss, rule=rule)(w, x, y)[0][0, 0]


        gradient(dendrax.ErrorPC(num_steps=5, gamma=0.8))  # -> -0.6215
        gradient(dendrax.IL(num_steps=100))  # -> -0.6215
        ```
    """

    num_steps: int = 20
    gamma: float = 0.1
    precision: Precision = 1.0
    tol: float | None = None
    batch: BatchLoss | int | None = None

    def __post_init__(self) -> None:
        check_num_steps("ErrorPC", self.num_steps, "5 to 20 are enough.")
        check_gamma("ErrorPC", self.gamma)
        check_precision("ErrorPC", self.precision, self.batch)
        if self.tol is not None:
            check_positive("ErrorPC: tol", self.tol, "Leave it out to run all steps.")
        as_floats(self, "gamma", "precision", "tol")

    def steps(self, graph: Graph) -> int:
        return self.num_steps

    def precisions(self, net: Network) -> Mapping[Port, float]:
        return precisions("ErrorPC", self.precision, self.batch, net)

    def start(self, net: Network) -> tuple[None, Values]:
        net.prepare(net.wiring.through_nodes)
        return None, {port: jnp.zeros_like(value) for port, value in net.values.items()}

    def step(self, net: Network, fixed: None, state: Values) -> Step:
        flow, precision = net.wiring.through_nodes, self.precisions(net)
        mu, pullbacks = self._predict(net, flow, state)
        delta = net.send(flow, pullbacks, net.output_errors(mu))
        slope = {
            port: -e if port not in delta else divided(delta[port], precision[port]) - e
            for port, e in state.items()
        }
        return Step({port: e + self.gamma * slope[port] for port, e in state.items()}, slope)

    def _predict(self, net: Network, flow: Flow, epsilon: Values) -> tuple[Values, Pullbacks]:
        return net.predict(flow, lambda port, mu: _value(mu, epsilon[port]))

    def learn(self, net: Network, fixed: None, state: Values) -> Values:
        flow = net.wiring.to_parameters
        mu, pullbacks = self._predict(net, flow, state)
        return net.send(flow, pullbacks, weighted(net, mu, state, self.precisions(net)))

    def view(self, net: Network, fixed: None, state: Values) -> View:
        mu, _ = self._predict(net, net.wiring.nothing, state)
        return View({port: _value(mu[port], e) for port, e in state.items()}, mu, state)

    def remedy(self) -> str:
        return smaller_gamma(self.gamma)


def _value(mu: Any, epsilon: Any) -> Any:
    return mu - jnp.conj(epsilon)
