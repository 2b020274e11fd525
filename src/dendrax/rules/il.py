"""IL, inference learning: predictive coding as it is usually meant."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import jax

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
from dendrax.support import BatchLoss, Start, complain, one_of


class _State(NamedTuple):
    x: Values
    optimizer: Any


@dataclass(frozen=True)
class IL(Relaxation):
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
    - `optimizer`: any optax optimizer that needs no more than gradients, for the value nodes, in
      place of the step of size `gamma`. It is given $\tfrac{1}{\pi_i} \partial F / \partial x_i$.
    - `tol`: stop once no $\tfrac{1}{\pi_i} |\partial F / \partial x_i|$ is larger. Somebody has to
      look at all value nodes for that, and the result cannot be differentiated again.
    - `batch`: `"mean"`, or the number of samples $B$ where it cannot be told from the shapes, says
      that the loss is a mean over a batch. That makes the
      output's error $1/B$ of what a single sample would have, and IL look more like
      backpropagation than it is; $\pi / B$ in place of $\pi$ makes the result the mean of what IL
      gives for each sample. (What the samples share, such as a parameter that waits in the delays
      of a levelled graph, keeps its $\pi$.)
    - `levelled`: whether errors are kept in step by delays, as in Z-IL. Each identity vertex then
      has a value node and an error too.

    !!! example

        ```python
        import dendrax, jax.numpy as jnp


        def loss(w, x, y):
            return jnp.sum((jnp.tanh(x @ w[0]) @ w[1] - y) ** 2) / 2


        w = [jnp.full((3, 4), 0.2), jnp.full((4, 2), 0.2)]
        x, y = jnp.ones((5, 3)), jnp.ones((5, 2))


        def gradient(rule):
            return dendrax.grad(loss, rule=rule)(w, x, y)[0][0, 0]


        gradient(dendrax.IL(num_steps=100))  # -> -0.6215
        gradient(dendrax.IL(num_steps=100, precision=100.0))  # -> -0.8089
        gradient(dendrax.BP())  # -> -0.8117
        ```
    """

    num_steps: int = 20
    gamma: float = 0.1
    precision: Precision = 1.0
    init: Start | Callable[[Vertex, Any], Any] = "forward"
    optimizer: Any = None
    tol: float | None = None
    batch: BatchLoss | int | None = None
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
        as_floats(self, "gamma", "precision", "tol")

    def steps(self, graph: Graph) -> int:
        return self.num_steps

    def precisions(self, net: Network) -> Mapping[Port, float]:
        return precisions("IL", self.precision, self.batch, net)

    def start(self, net: Network) -> tuple[None, _State]:
        net.prepare(net.wiring.to_nodes)
        x = start_values(net, self.init)
        return None, _State(x, None if self.optimizer is None else self.optimizer.init(x))

    def step(self, net: Network, fixed: None, state: _State) -> Step:
        slope = descend(net, net.wiring.to_nodes, state.x, self.precisions(net)).slope
        return Step(_State(*self.moved(state.x, state.optimizer, slope)), slope)

    def moved(self, x: Values, optimizer: Any, slope: Values) -> tuple[Values, Any]:
        """The value nodes and the optimizer's state, if there is one, after a step."""
        if self.optimizer is None:
            return moved(x, self.gamma, slope), None
        gradient = jax.tree.map(lambda value: -value, slope)
        change, optimizer = self.optimizer.update(gradient, optimizer, x)
        return jax.tree.map(lambda value, dx: value + dx.astype(value.dtype), x, change), optimizer

    def learn(self, net: Network, fixed: None, state: _State) -> Values:
        return descend(net, net.wiring.to_parameters, state.x, self.precisions(net)).arrived

    def view(self, net: Network, fixed: None, state: _State) -> View:
        return look(net, state.x)

    def remedy(self) -> str:
        if self.optimizer is None:
            return f"{smaller_gamma(self.gamma)}, or optimizer=optax.adam(0.01)"
        return "an optimizer with a smaller learning rate"


def check_optimizer(rule: str, optimizer: Any) -> None:
    """An optimizer has ``init`` and ``update``, as those of optax."""
    if optimizer is not None and not (hasattr(optimizer, "init") and hasattr(optimizer, "update")):
        raise complain(
            TypeError,
            f"{rule}: optimizer={optimizer!r} is not an optax optimizer.",
            remedy="For instance optimizer=optax.adam(0.1).",
        )
