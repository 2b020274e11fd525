"""Three rules as a user would write them, outside the package."""

import dataclasses

import jax
import jax.numpy as jnp

import dendrax


@dataclasses.dataclass(frozen=True)
class Momentum(dendrax.Rule):
    num_steps: int = 20
    gamma: float = 0.1
    beta: float = 0.5
    batch = "sum"

    def start(self, net, memory=None):
        return net.values, net.zeros() if memory is None else memory

    def look(self, net, state):
        return net.look(state[0])

    def step(self, net, state):
        slope = self.look(net, state).slope
        velocity = jax.tree.map(lambda v, s: self.beta * v + s, state[1], slope)
        return jax.tree.map(lambda x, v: x + self.gamma * v, state[0], velocity), velocity

    def memory(self, net, state):
        return state[1]


@dataclasses.dataclass(frozen=True)
class Feedback(dendrax.IL):
    seed: int = 0
    batch: str = "sum"
    descends = False

    @property
    def local(self):
        return dendrax.feedback(self.draw)

    def draw(self, weight, k):
        key = jax.random.fold_in(jax.random.key(self.seed), k)
        return jax.random.normal(key, weight.shape, weight.dtype) / weight.shape[0] ** 0.5


@dataclasses.dataclass(frozen=True)
class EverySecond(dendrax.Rule):
    num_steps: int = 20
    gamma: float = 0.1
    batch = "sum"

    def start(self, net, memory=None):
        return net.values, jax.tree.map(jnp.zeros_like, net.parameters), False

    def look(self, net, state):
        return net.look(state[0])

    def step(self, net, state):
        (x, total, learns), look = state, self.look(net, state)
        x = {node: value + self.gamma * look.slope[node] for node, value in x.items()}
        total = jax.tree.map(lambda s, g: jnp.where(learns, s + g, s), total, look.gradient)
        return x, total, ~learns

    def gradient(self, net, state):
        return state[1]
