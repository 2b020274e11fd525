"""What a learning rule is: what it starts from, one time step, and what the parameters learn."""

from __future__ import annotations

from typing import Any

from dendrax.graph import LevelledGraph
from dendrax.inference._dynamics import Schedule
from dendrax.inference._energies import Energies
from dendrax.inference._energy import Gaussian
from dendrax.inference._equations import largest
from dendrax.inference._evaluate import Values
from dendrax.inference._network import Look, Network
from dendrax.inference._trust import looked
from dendrax.support import OnDivergence, Vertices, complain
from dendrax.walk import Local, fast

State = Any


class Rule:
    r"""A learning rule. Subclass it, as a frozen dataclass of settings.

    A rule has a state, any pytree: by default the value nodes $x$ by node. It starts at `start`,
    moves by `step`, `num_steps` times, and then the parameters learn `gradient`. What it does is
    traced and compiled, so it may branch on its settings, but not on numbers of the state.

    `net`, the network, knows the forward pass (`net.values`, `net.parameters`, `net.outputs`), what
    there is to know of each value node (`net.nodes`), and `net.look(x)`: predictions `.mu`, errors
    `.epsilon`, the `.slope` $-\partial F / \partial x$, the `.gradient` $\partial F / \partial
    \zeta$ and energies with the value nodes at `x`, each computed only if it is used.

    What a rule says of itself, each with a default:

    - `vertices`: the choice of vertices that it is meant for.
    - `num_steps`: how many time steps; with a `tol`, at most, and the rule is `done` before.
    - `energies`: one for all value nodes that move; or a dictionary from names of vertices, also of
      the output, to energies; or a method `energies(self, vertex)` that returns one for each.
    - `batch`: whether a loss is a mean over samples (the default) or a sum, as for `dendrax.IL`.
    - `levelled`: whether errors are kept in step by delays.
    - `local`: how one vertex is linearised.
    - `descends`: whether the energy goes down when all is well.
    - `moves_parameters`: whether parameters move during inference, by steps of `learning_rate`.
    - `is_wave`: whether one pass over the graph, without value nodes, gives its gradient.
    - `keeps_time`: whether parameters learn at times of their own; then `schedule` says when.
    - `settles`: whether its value nodes settle, so that arguments can be free and nodes held.
    - `on_divergence`: what `dendrax.value_and_grad` does when inference ends with more energy than
      it began with, or with none that is finite, see `dendrax.IL`.
    - `is_placeable`: whether its levels can lie on several devices (`dendrax.placement`).

    !!! example

        ```python
        import dataclasses, dendrax, jax, jax.numpy as jnp


        @dataclasses.dataclass(frozen=True)
        class Momentum(dendrax.Rule):
            num_steps: int = 20
            gamma: float = 0.1
            beta: float = 0.5
            batch: str = "sum"

            def start(self, net, memory=None):
                return net.values, net.zeros()

            def look(self, net, state):
                return net.look(state[0])

            def step(self, net, state):
                slope = self.look(net, state).slope
                velocity = jax.tree.map(lambda v, s: self.beta * v + s, state[1], slope)
                return jax.tree.map(lambda x, v: x + self.gamma * v, state[0], velocity), velocity


        def loss(w, x):
            return jnp.sum((jnp.tanh(x @ w[0]) @ w[1]) ** 2)


        args = [jnp.full((3, 4), 0.2), jnp.full((4, 2), 0.2)], jnp.ones((5, 3))
        dendrax.grad(loss, rule=Momentum())(*args)[0][0, 0]  # -> 1.0316
        ```
    """

    vertices: Vertices = "layer"
    num_steps: int | None = 20
    tol: float | None = None
    energies: Energies | None = Gaussian()
    batch: Any = "mean"
    levelled: bool = False
    local: Local = fast
    descends: bool = True
    moves_parameters: bool = False
    learning_rate: Any = None
    is_wave: bool = False
    keeps_time: bool = False
    is_placeable: bool = False
    settles: bool = True
    on_divergence: OnDivergence = "nan"

    @property
    def remembers(self) -> bool:
        """Whether an update leaves anything that the next one starts from."""
        return type(self).memory is not Rule.memory

    @property
    def relaxes(self) -> bool:
        """Whether value nodes move over time, all at once, by `step`."""
        return not (self.is_wave or self.keeps_time)

    def start(self, net: Network, memory: Any = None) -> State:
        """The state at the start; ``memory`` is what the last update left, if it left any."""
        return net.values

    def step(self, net: Network, state: State) -> State:
        """The state one time step later."""
        name = type(self).__name__
        if self.is_wave:
            raise complain(
                ValueError,
                f"{name} has no value nodes that move over time: there is nothing to record, and "
                "no prediction by inference.",
                remedy="Give a scalar loss or a target, and record a predictive-coding rule such "
                "as dendrax.IL().",
            )
        raise complain(
            NotImplementedError,
            f"{name} does not say what happens in a time step.",
            remedy="Define step(self, net, state), which returns the state after it.",
        )

    def done(self, net: Network, state: State) -> Any:
        """Whether to stop here. Asked only if there is a ``tol``."""
        return largest(looked(self, net, state).slope) <= self.tol

    def look(self, net: Network, state: State) -> Look:
        """What records, energies and the explorer show of a state."""
        return net.look(state)

    def gradient(self, net: Network, state: State) -> Values:
        """∂F/∂ζ of each parameter, from the state at the end."""
        return looked(self, net, state).gradient

    def memory(self, net: Network, state: State) -> Any:
        """What the next update is to start from (any pytree); ``None``: nothing."""
        return None

    def steps(self, net: Network) -> int:
        """How many time steps on this network."""
        count: Any = self.num_steps  # a rule that can do without says how many in its own way
        return count

    def remedy(self) -> str:
        """What to try when inference diverges."""
        gamma = getattr(self, "gamma", None)
        if not isinstance(gamma, (int, float)):
            return "smaller steps"
        return f"a smaller gamma than {gamma:g}, for instance {gamma / 4:.3g}"

    def schedule(self, levelled: LevelledGraph) -> Schedule:
        """When each parameter learns, and how long each edge waits; for rules that keep time."""
        raise NotImplementedError
