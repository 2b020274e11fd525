"""Inference learning written by hand in plain JAX: what dendrax and its peers are measured against.

What enters: a workload (three networks of fixed size), its parameters, inputs and one-hot target.
What leaves: functions ``(params, inputs, target) -> (loss, gradient)``, for backpropagation (`bp`),
inference learning (`il`) and its fixed-prediction variant (`fixed_prediction`).

With value nodes x_k (pre-activations of the hidden layers, x = μ at the start) the equations are

    μ_1 = W_1 · data + b_1,   μ_k = W_k · f(x_{k-1}) + b_k,   ε_k = μ_k - x_k,   ε_out = μ_out - y
    Δx_k = γ (ε_k - f'(x_k) ⊙ W_{k+1}ᵀ ε_{k+1})        all k at once, T times
    ∂F/∂W_k = ε_k ⊗ f(x_{k-1}),   ∂F/∂b_k = ε_k,       F = 1/2 Σ ε²

They are written as one compiled loop with what a JAX programmer would know: μ_1 and everything
that only the weights decide are computed once, before the loop; nothing is differentiated with
respect to data or weights inside it; and the pullback of a convolution is itself a convolution.
"""

import itertools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import lax

Params = list[tuple[jax.Array, jax.Array]]  # (weight, bias) of each layer
Update = Callable[[Params, jax.Array, jax.Array], tuple[jax.Array, Params]]

GAMMA = 0.1
NHWC = ("NHWC", "HWIO", "NHWC")


@dataclass(frozen=True)
class Dense:
    """``x -> x @ w + b``, where ``x`` of any rank is flattened first."""

    in_shape: tuple[int, ...]
    out_shape: tuple[int]

    @property
    def weight_shape(self) -> tuple[int, ...]:
        return math.prod(self.in_shape), *self.out_shape

    def linear(self, w: jax.Array, x: jax.Array) -> jax.Array:
        return x.reshape(len(x), -1) @ w

    def transposed(self, w: jax.Array) -> jax.Array:
        return w.T

    def pullback(self, transposed: jax.Array, epsilon: jax.Array) -> jax.Array:
        return (epsilon @ transposed).reshape(len(epsilon), *self.in_shape)

    def weight_gradient(self, x: jax.Array, epsilon: jax.Array) -> jax.Array:
        return x.reshape(len(x), -1).T @ epsilon


@dataclass(frozen=True)
class Conv:
    """A convolution with padding SAME, channels last."""

    in_shape: tuple[int, int, int]
    out_channels: int
    kernel: int = 5
    stride: int = 2

    @property
    def out_shape(self) -> tuple[int, int, int]:
        height, width, _ = self.in_shape
        return -(-height // self.stride), -(-width // self.stride), self.out_channels

    @property
    def weight_shape(self) -> tuple[int, ...]:
        return self.kernel, self.kernel, self.in_shape[-1], self.out_channels

    def linear(self, w: jax.Array, x: jax.Array) -> jax.Array:
        strides = (self.stride, self.stride)
        return lax.conv_general_dilated(x, w, strides, "SAME", dimension_numbers=NHWC)

    def transposed(self, w: jax.Array) -> jax.Array:
        """The kernel of the pullback: flipped in space, its in and out channels swapped."""
        # The barrier makes it a copy, made once. XLA may fold a mere view into the convolution, and
        # a kernel that a loop reads in its old layout is slow on CPU (2 to 30 times).
        return lax.optimization_barrier(jnp.flip(w, (0, 1)).swapaxes(2, 3))

    def pullback(self, transposed: jax.Array, epsilon: jax.Array) -> jax.Array:
        padding = [self._pullback_padding(axis) for axis in (0, 1)]
        dilation = (self.stride, self.stride)
        return lax.conv_general_dilated(
            epsilon, transposed, (1, 1), padding, lhs_dilation=dilation, dimension_numbers=NHWC
        )

    def _pullback_padding(self, axis: int) -> tuple[int, int]:
        size, out = self.in_shape[axis], self.out_shape[axis]
        dilated = (out - 1) * self.stride + 1
        low = max(dilated - 1 + self.kernel - size, 0) // 2  # of SAME, forwards
        before = self.kernel - 1 - low
        return before, size + self.kernel - 1 - dilated - before

    def weight_gradient(self, x: jax.Array, epsilon: jax.Array) -> jax.Array:
        w = jax.ShapeDtypeStruct(self.weight_shape, x.dtype)
        (gradient,) = jax.linear_transpose(lambda w: self.linear(w, x), w)(epsilon)
        return gradient


Layer = Dense | Conv


@dataclass(frozen=True)
class Workload:
    """A network, tanh between its layers, and the size of its batch."""

    name: str
    batch: int
    layers: tuple[Layer, ...]

    def data(self, seed: int = 0) -> tuple[Params, jax.Array, jax.Array]:
        """Random parameters, inputs and one-hot targets, float32."""
        keys = iter(jax.random.split(jax.random.key(seed), 2 * len(self.layers) + 2))
        params = [_init(layer, next(keys), next(keys)) for layer in self.layers]
        inputs = jax.random.normal(next(keys), (self.batch, *self.layers[0].in_shape))
        classes = self.layers[-1].out_shape[-1]
        labels = jax.random.randint(next(keys), (self.batch,), 0, classes)
        return params, inputs, jax.nn.one_hot(labels, classes)


def _init(layer: Layer, w_key: jax.Array, b_key: jax.Array) -> tuple[jax.Array, jax.Array]:
    scale = 1 / math.sqrt(math.prod(layer.weight_shape[:-1]))
    w = scale * jax.random.normal(w_key, layer.weight_shape)
    return w, 0.1 * jax.random.normal(b_key, layer.weight_shape[-1:])


def _mlp(name: str, batch: int, sizes: Sequence[int]) -> Workload:
    pairs = itertools.pairwise(sizes)
    return Workload(name, batch, tuple(Dense((n,), (m,)) for n, m in pairs))


def _cnn() -> Workload:
    first = Conv((28, 28, 1), 32)
    second = Conv(first.out_shape, 64)
    return Workload(
        "cnn", 32, (first, second, Dense(second.out_shape, (128,)), Dense((128,), (10,)))
    )


WORKLOADS = {
    workload.name: workload
    for workload in (
        _mlp("mlp", 20, (784, 128, 128, 10)),
        _mlp("mlp_wide", 128, (784, 1024, 1024, 1024, 10)),
        _cnn(),
    )
}


def loss_function(workload: Workload) -> Callable[[Params, jax.Array, jax.Array], jax.Array]:
    """``loss(params, inputs, target)``: 1/2 Σ (output - target)², for BP and for dendrax."""

    def loss(params: Params, inputs: jax.Array, target: jax.Array) -> jax.Array:
        (w, b), *rest = params
        x = workload.layers[0].linear(w, inputs) + b
        for layer, (w, b) in zip(workload.layers[1:], rest, strict=True):
            x = layer.linear(w, jnp.tanh(x)) + b
        return 0.5 * jnp.sum((x - target) ** 2)

    return loss


def bp(workload: Workload) -> Update:
    """Backpropagation: the unit in which everything else is measured."""
    return jax.jit(jax.value_and_grad(loss_function(workload)))


def il(workload: Workload, num_steps: int, gamma: float = GAMMA) -> Update:
    """Inference learning: ``num_steps`` simultaneous steps, then the local weight gradients.

    A step moves x by the errors it is given and hands the new errors on: the forward pass gives the
    first errors, and the last ones are the gradient's, so that no prediction is made twice.
    """
    layers = workload.layers

    @jax.jit
    def update(params: Params, inputs: jax.Array, target: jax.Array) -> tuple[jax.Array, Params]:
        x, output = _forward(layers, params, inputs)
        first, backward = x[0], _transposed(layers, params)  # what no step changes

        def step(_: Any, state: State) -> State:
            messages = _messages(layers, backward, state.epsilon)
            terms = zip(state.x, state.f, state.epsilon, messages, strict=False)
            x = [x + gamma * (e - (1 - f**2) * message) for x, f, e, message in terms]
            f = [jnp.tanh(x_k) for x_k in x]
            return State(x, f, _errors(layers, params, first, x, f, target))

        epsilon = [*(jnp.zeros_like(x_k) for x_k in x), output - target]
        state = State(x, [jnp.tanh(x_k) for x_k in x], epsilon)
        state = lax.fori_loop(0, num_steps, step, state)
        return _loss(output, target), _gradient(layers, [inputs, *state.f], state.epsilon)

    return update


class State(NamedTuple):
    """x and f(x) of the hidden layers; ε of these and, last, of the output."""

    x: list[jax.Array]
    f: list[jax.Array]
    epsilon: list[jax.Array]


def fixed_prediction(workload: Workload, num_steps: int, gamma: float = GAMMA) -> Update:
    """As `il`, with predictions and local derivatives frozen at the forward pass.

    The errors are then all that moves: Δε_k = -γ (ε_k - f'(μ_k) ⊙ W_{k+1}ᵀ ε_{k+1}).
    """
    layers = workload.layers

    @jax.jit
    def update(params: Params, inputs: jax.Array, target: jax.Array) -> tuple[jax.Array, Params]:
        mu, output = _forward(layers, params, inputs)
        backward = _transposed(layers, params)
        f = [jnp.tanh(mu_k) for mu_k in mu]
        slope = [1 - f_k**2 for f_k in f]
        top = output - target
        last = slope[-1] * layers[-1].pullback(backward[-1], top)  # never changes: outside the loop

        def step(_: Any, epsilon: list[jax.Array]) -> list[jax.Array]:
            messages = _messages(layers[:-1], backward[:-1], epsilon)
            arriving = [s * m for s, m in zip(slope, messages, strict=False)] + [last]
            return [e - gamma * (e - a) for e, a in zip(epsilon, arriving, strict=True)]

        epsilon = lax.fori_loop(0, num_steps, step, [jnp.zeros_like(mu_k) for mu_k in mu])
        return _loss(output, target), _gradient(layers, [inputs, *f], [*epsilon, top])

    return update


def _forward(
    layers: Sequence[Layer], params: Params, inputs: jax.Array
) -> tuple[list[jax.Array], jax.Array]:
    """The pre-activations of the hidden layers, and the output."""
    w, b = params[0]
    x = [layers[0].linear(w, inputs) + b]
    for layer, (w, b) in zip(layers[1:], params[1:], strict=True):
        x.append(layer.linear(w, jnp.tanh(x[-1])) + b)
    return x[:-1], x[-1]


def _transposed(layers: Sequence[Layer], params: Params) -> list[jax.Array]:
    """The weights with which errors travel back, of every layer but the first."""
    return [layer.transposed(w) for layer, (w, _) in zip(layers[1:], params[1:], strict=True)]


def _errors(
    layers: Sequence[Layer],
    params: Params,
    first: jax.Array,
    x: list[jax.Array],
    f: list[jax.Array],
    target: jax.Array,
) -> list[jax.Array]:
    """ε of the hidden layers and of the output; ``first`` is μ_1 and ``f`` is f(x)."""
    above = zip(layers[1:], params[1:], f, strict=True)
    mu = [first] + [layer.linear(w, f_k) + b for layer, (w, b), f_k in above]
    return [mu_k - x_k for mu_k, x_k in zip(mu, [*x, target], strict=True)]


def _messages(
    layers: Sequence[Layer], backward: list[jax.Array], epsilon: list[jax.Array]
) -> list[jax.Array]:
    """W_{k+1}ᵀ ε_{k+1} for each hidden layer k that has a layer above it in ``layers``."""
    above = zip(layers[1:], backward, epsilon[1:], strict=True)
    return [layer.pullback(w, e) for layer, w, e in above]


def _gradient(layers: Sequence[Layer], inputs: list[jax.Array], epsilon: list[jax.Array]) -> Params:
    """ε_k ⊗ (what layer k read) and ε_k, summed over the batch (and space, for a convolution)."""
    return [
        (layer.weight_gradient(x, e), e.sum(tuple(range(e.ndim - 1))))
        for layer, x, e in zip(layers, inputs, epsilon, strict=True)
    ]


def _loss(output: jax.Array, target: jax.Array) -> jax.Array:
    return 0.5 * jnp.sum((output - target) ** 2)
