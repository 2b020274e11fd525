"""IL, inference learning: predictive coding as it is usually meant."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import jax

from dendrax._equations import prediction_error, value_change
from dendrax._errors import complain, one_of
from dendrax._graph import Graph, Port, Vertex
from dendrax._network import Network, Values
from dendrax._relax import Relaxation, Step, View
from dendrax.rules._base import Rule, check_gamma, check_num_steps, check_positive
from dendrax.rules._precision import Precision, check_precision, precisions
from dendrax.rules._start import check_init, start_at


class _State(NamedTuple):
    x: Values
    optimizer: Any


@dataclass(frozen=True)
class IL(Relaxation, Rule):
    r"""Inference learning (Rao and Ballard 1999; Whittington and Bogacz 2017; the paper's IL).

    With the output clamped, the value nodes descend the energy
    $F = L + \tfrac12 \sum_i \pi_i \varepsilon_i^2$, $\varepsilon_i = \mu_i - x_i$, all at once:

    $$\Delta x_i = -\frac{\gamma}{\pi_i} \frac{\partial F}{\partial x_i}
    = \gamma \Big(\varepsilon_i - \frac{1}{\pi_i} \sum_{j \in \mathrm{users}(i)}
    \pi_j \varepsilon_j \frac{\partial \mu_j}{\partial x_i}\Big).$$

    After `num_steps` steps the parameters get $\partial F / \partial \zeta$, which reads only the
    errors of the vertices that use them. It is *not* the gradient of the loss, and it depends on
    the choice of vertices.

    **Arguments:**

    - `num_steps`: how many steps (at most, with `tol`).
    - `gamma`: the integration step $\gamma$.
    - `precision`: $\pi$, one number for all value nodes or a function `vertex -> number`. It weighs
      the internal errors against the loss and does not change the speed of inference. As it goes
      to infinity, converged IL tends to backpropagation.
    - `init`: where value nodes start: `"forward"`, `"zeros"`, `"noise"` (the forward pass plus
      standard normal noise from a fixed seed), or a function `(vertex, mu) -> x`.
    - `optimizer`: any optax optimizer for the value nodes, in place of the step of size `gamma`.
      It is given $\tfrac{1}{\pi_i} \partial F / \partial x_i$.
    - `tol`: stop once no $\tfrac{1}{\pi_i} |\partial F / \partial x_i|$ is larger.
    - `batch`: `"mean"` says that the loss is a mean over a batch of $B$ samples. That makes the
      output's error $1/B$ of what a single sample would have, and IL look more like
      backpropagation than it is; $\pi / B$ in place of $\pi$ makes the result the mean of what IL
      gives for each sample.
    - `levelled`: whether errors are kept in step by delays, as in Z-IL. Each identity vertex then
      has a value node and an error too.

    !!! example

        ```python
        import dendrax, jax.numpy as jnp


        def loss(w, x, y):
            return jnp.sum((jnp.tanh(x @ w[0]) @ w[1] - y) ** 2) / 2


        args = [jnp.ones((3, 4)), jnp.ones((4, 2))], jnp.ones((5, 3)), jnp.zeros((5, 2))
        value, gradient = dendrax.value_and_grad(loss, rule=dendrax.IL(num_steps=50))(*args)
        ```
    """

    num_steps: int = 20
    gamma: float = 0.1
    precision: Precision = 1.0
    init: str | Callable[[Vertex, Any], Any] = "forward"
    optimizer: Any = None
    tol: float | None = None
    batch: str | None = None
    levelled: bool = False

    def __post_init__(self) -> None:
        check_num_steps("IL", self.num_steps, "20 is enough for small networks, 100 for deep ones.")
        check_gamma("IL", self.gamma)
        check_precision("IL", self.precision, self.batch)
        check_init("IL", self.init)
        check_optimizer("IL", self.optimizer)
        if self.tol is not None:
            check_positive("IL: tol", self.tol, "Leave it out to run all steps.")
        one_of("IL: levelled", self.levelled, (True, False))

    def steps(self, graph: Graph) -> int:
        return self.num_steps

    def precisions(self, net: Network) -> Mapping[Port, float]:
        return precisions("IL", self.precision, self.batch, net)

    def start(self, net: Network) -> tuple[None, _State]:
        net.prepare(net.wiring.to_nodes)
        x = start_values(net, self.init)
        return None, _State(x, None if self.optimizer is None else self.optimizer.init(x))

    def step(self, net: Network, fixed: None, state: _State) -> Step:
        flow, x, precision = net.wiring.to_nodes, state.x, self.precisions(net)
        mu, pullbacks = net.predict(flow, lambda port, _: x[port])
        epsilon = {port: prediction_error(mu[port], x[port]) for port in x}
        arrived = net.send(flow, pullbacks, weighted(net, mu, epsilon, precision))
        slope = {
            port: value_change(1, e, divided(arrived.get(port), precision[port]))
            for port, e in epsilon.items()
        }
        if self.optimizer is None:
            return Step(_State(moved(x, self.gamma, slope), None), slope)
        gradient = jax.tree.map(lambda value: -value, slope)
        change, optimizer = self.optimizer.update(gradient, state.optimizer, x)
        return Step(_State(jax.tree.map(jax.lax.add, x, change), optimizer), slope)

    def learn(self, net: Network, fixed: None, state: _State) -> Values:
        flow, x = net.wiring.to_parameters, state.x
        mu, pullbacks = net.predict(flow, lambda port, _: x[port])
        epsilon = {port: prediction_error(mu[port], x[port]) for port in x}
        return net.send(flow, pullbacks, weighted(net, mu, epsilon, self.precisions(net)))

    def view(self, net: Network, fixed: None, state: _State) -> View:
        x = state.x
        mu, _ = net.predict(net.wiring.nothing, lambda port, _: x[port])
        return View(x, mu, {port: prediction_error(mu[port], x[port]) for port in x})


def start_values(net: Network, init: str | Callable[[Vertex, Any], Any]) -> Values:
    """The value nodes at their start."""
    begin = start_at(init)
    if begin is None:
        return net.values
    return {port: begin(net.wiring.vertex(port), value) for port, value in net.values.items()}


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


def check_optimizer(rule: str, optimizer: Any) -> None:
    """An optimizer has ``init`` and ``update``, as those of optax."""
    if optimizer is not None and not (hasattr(optimizer, "init") and hasattr(optimizer, "update")):
        raise complain(
            TypeError,
            f"{rule}: optimizer={optimizer!r} is not an optax optimizer.",
            remedy="For instance optimizer=optax.adam(0.1).",
        )
