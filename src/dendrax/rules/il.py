"""IL, inference learning: predictive coding as it is usually meant."""

# What a rule says of itself may be a setting of it, or follow from its settings.
# pyright: reportIncompatibleVariableOverride=false

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import jax.numpy as jnp

from dendrax.graph import Vertex
from dendrax.inference import Energies, Look, Network, Rule, Values, largest
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
from dendrax.support import BatchLoss, OnDivergence, Start, complain, one_of


class _State(NamedTuple):
    """``slope`` is the largest of the last step; ``None`` without a tol."""

    x: Values
    optimizer: Any
    slope: Any


@dataclass(frozen=True)
class IL(Rule):
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
    - `gamma`: the integration step $\gamma$, one number for all value nodes or a function
      `vertex -> number`.
    - `precision`: $\pi$, one number for all value nodes or a function `vertex -> number`. It weighs
      the internal errors against the loss and does not change the speed of inference. As it goes
      to infinity, converged IL tends to backpropagation.
    - `init`: where value nodes start: `"forward"`, `"zeros"`, `"noise"` (the forward pass plus
      standard normal noise from a fixed seed), or a function `(vertex, mu) -> x`.
    - `optimizer`: any optax optimizer that needs no more than gradients, for the value nodes, in
      place of the step of size `gamma`. It is given $\tfrac{1}{\pi_i} \partial F / \partial x_i$
      in a dictionary by the names of the value nodes, which `optax.multi_transform` may tell apart.
    - `tol`: stop once no $\tfrac{1}{\pi_i} |\partial F / \partial x_i|$ is larger. Somebody has to
      look at all value nodes for that, and the result cannot be differentiated again.
    - `batch`: `"mean"`, the default, takes a scalar loss for a mean over $B$ samples. Each sample
      then has its own full energy: $\pi / B$ stands in place of $\pi$, and the result is the mean
      of what IL gives for each sample alone. (Else the output's error is $1/B$ of what a single
      sample has, and IL is backpropagation, but for its name.) The axis of the samples is found, by
      tracing the function once more with a sample more; where there is none, there is one sample.
      `"sum"` says that the loss is a sum over samples, so that nothing is to be divided; a number,
      how many samples a mean is over. What the samples share (a value node made of parameters
      alone) keeps its $\pi$. It matters for a loss only: not with a `target`, or a cotangent.
    - `levelled`: whether errors are kept in step by delays, as in Z-IL. Each identity vertex then
      has a value node and an error too.
    - `energies`: what holds value nodes to their predictions, in place of a `precision`: an energy
      such as `dendrax.Huber()`; or a dictionary from names of vertices (`"*"` stands for anything)
      to energies; or a function `vertex -> energy`. One energy is for all value nodes that move.
      Only a dictionary or a function speaks of outputs that a target holds, which else are
      Gaussian: `{"output": dendrax.Categorical()}`.
    - `on_divergence`: what `dendrax.value_and_grad` does when inference ends with more energy than
      it began with. `"nan"`: outside of `jax.jit` a warning says so; and if inference has run
      away, the gradient is NaN, inside and outside: if the energy is not finite, or has risen by
      ten times what it was, and what errors of 1 everywhere would cost. `"warn"` and `"raise"`
      speak inside, too, by a call to the host (such programs start about 40 μs later, and JAX
      neither caches nor exports them). `"ignore"`: nothing.

    !!! example

        ```python
        import dendrax, jax.numpy as jnp


        def loss(w, x, y):
            return jnp.sum((jnp.tanh(x @ w[0]) @ w[1] - y) ** 2) / 2


        w = [jnp.full((3, 4), 0.2), jnp.full((4, 2), 0.2)]
        x, y = jnp.ones((5, 3)), jnp.ones((5, 2))


        def gradient(rule):
            return dendrax.grad(loss, rule=rule)(w, x, y)[0][0, 0]


        gradient(dendrax.IL(num_steps=100, batch="sum"))  # -> -0.6215
        gradient(dendrax.IL(num_steps=100, precision=100.0, batch="sum"))  # -> -0.8089
        gradient(dendrax.BP())  # -> -0.8117
        ```
    """

    num_steps: int = 20
    gamma: Gamma = 0.1
    precision: Precision = 1.0
    init: Start | Callable[[Vertex, Any], Any] = "forward"
    optimizer: Any = None
    tol: float | None = None
    batch: BatchLoss | int = "mean"
    levelled: bool = False
    energies: Energies | None = None
    on_divergence: OnDivergence = "nan"

    __repr__ = shown

    def __post_init__(self) -> None:
        check_num_steps("IL", self.num_steps, "20 is enough for small networks, 100 for deep ones.")
        check_gammas("IL", self.gamma)
        check_energies(self)
        check_init("IL", self.init)
        check_optimizer("IL", self.optimizer)
        if self.tol is not None:
            check_positive("IL: tol", self.tol, "Leave it out to run all steps.")
        one_of("IL: levelled", self.levelled, (True, False))
        as_floats(self, "gamma", "precision", "tol")

    @property
    def is_placeable(self) -> bool:
        """A subclass that does something else in a step is not IL any more."""
        methods = ("step", "look", "gradient", "memory", "steps")
        own = any(getattr(type(self), name) is not getattr(IL, name) for name in methods)
        return not own and self.local == IL.local

    def start(self, net: Network, memory: Any = None) -> _State:
        x = start_values(net, self.init)
        slope = None if self.tol is None else jnp.asarray(jnp.inf, float)
        optimizer = None if self.optimizer is None else self.optimizer.init(_by_name(net, x))
        return _State(x, optimizer, slope)

    def look(self, net: Network, state: _State) -> Look:
        return net.look(state.x)

    def step(self, net: Network, state: _State) -> _State:
        slope = self.look(net, state).slope
        size = None if self.tol is None else largest(slope)
        return self.moved(net, state, slope)._replace(slope=size)

    def moved(self, net: Network, state: _State, slope: Values) -> _State:
        """The state after a step along the slope."""
        if self.optimizer is None:
            gamma = gammas(self, net, state.x)
            moved = {port: x + gamma[port] * slope[port] for port, x in state.x.items()}
            return state._replace(x=moved)
        downhill = {port: -slope[port] for port in state.x}
        change, optimizer = self.optimizer.update(
            _by_name(net, downhill), state.optimizer, _by_name(net, state.x)
        )
        ports = net.view.names
        moved = {ports[name]: dx for name, dx in change.items()}
        moved = {port: x + moved[port].astype(x.dtype) for port, x in state.x.items()}
        return _State(moved, optimizer, state.slope)

    def done(self, net: Network, state: _State) -> Any:
        return state.slope <= self.tol

    def remedy(self) -> str:
        if self.optimizer is None:
            return f"{super().remedy()}, or optimizer=optax.adam(0.01)"
        return "an optimizer with a smaller learning rate"


def _by_name(net: Network, values: Values) -> dict[str, Any]:
    """Value nodes as an optimizer is shown them: by name."""
    return {name: values[port] for name, port in net.view.names.items() if port in values}


def check_optimizer(rule: str, optimizer: Any) -> None:
    """An optimizer has ``init`` and ``update``, as those of optax."""
    if optimizer is not None and not (hasattr(optimizer, "init") and hasattr(optimizer, "update")):
        raise complain(
            TypeError,
            f"{rule}: optimizer={optimizer!r} is not an optax optimizer.",
            remedy="For instance optimizer=optax.adam(0.1).",
        )
