"""The layers that the models share: batched, and never mixing dtypes.

Images are `(batch, height, width, channels)`, the layout XLA likes best on a CPU. Weights are
stored as they are used, `(in, out)`, so that a dense layer is one `dot_general` and one `add`.
"""

import math
from collections.abc import Callable
from typing import TypeAlias

import equinox as eqx
import jax
import jax.numpy as jnp
from jax import lax
from jax.core import Tracer

from dendrax.support import check_memory

Activation: TypeAlias = Callable[[jax.Array], jax.Array]
Padding: TypeAlias = str | tuple[tuple[int, int], tuple[int, int]]


class Linear(eqx.Module):
    """`x @ weight + bias` on the last axis, drawn uniformly within `gain / sqrt(in_size)`."""

    weight: jax.Array
    bias: jax.Array | None

    def __init__(
        self,
        in_size: int,
        out_size: int,
        *,
        use_bias: bool = True,
        gain: float = 1.0,
        key: jax.Array,
    ):
        weight_key, bias_key = jax.random.split(key)
        limit = 1 / math.sqrt(in_size)
        self.weight = uniform(weight_key, (in_size, out_size), gain * limit)
        self.bias = uniform(bias_key, (out_size,), limit) if use_bias else None

    def __call__(self, x: jax.Array) -> jax.Array:
        y = x @ self.weight
        return y if self.bias is None else y + self.bias


class Conv(eqx.Module):
    """Two-dimensional convolution on a batch of images, with He's normal initialisation."""

    kernel: jax.Array
    bias: jax.Array | None
    stride: int = eqx.field(static=True)
    padding: Padding = eqx.field(static=True)

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        size: int,
        *,
        stride: int = 1,
        padding: Padding = "SAME",
        use_bias: bool = True,
        key: jax.Array,
    ):
        scale = math.sqrt(2 / (in_channels * size * size))
        shape = (size, size, in_channels, out_channels)
        self.kernel = normal(key, shape, scale)
        self.bias = jnp.zeros((out_channels,), jnp.float32) if use_bias else None
        self.stride = stride
        self.padding = padding

    def __call__(self, x: jax.Array) -> jax.Array:
        strides = (self.stride, self.stride)
        layout = ("NHWC", "HWIO", "NHWC")
        y = lax.conv_general_dilated(
            x, self.kernel, strides, self.padding, dimension_numbers=layout
        )
        return y if self.bias is None else y + self.bias


class BatchNorm(eqx.Module):
    """Normalises each channel over the batch at hand and over space; keeps no running average."""

    scale: jax.Array
    shift: jax.Array
    epsilon: float = eqx.field(static=True)

    def __init__(self, channels: int, *, epsilon: float = 1e-5):
        self.scale = jnp.ones((channels,), jnp.float32)
        self.shift = jnp.zeros((channels,), jnp.float32)
        self.epsilon = epsilon

    def __call__(self, x: jax.Array) -> jax.Array:
        axes = tuple(range(x.ndim - 1))
        return standardise(x, axes, self.epsilon) * self.scale + self.shift


class LayerNorm(eqx.Module):
    """Normalises each position over its features."""

    scale: jax.Array
    shift: jax.Array
    epsilon: float = eqx.field(static=True)

    def __init__(self, size: int, *, epsilon: float = 1e-5):
        self.scale = jnp.ones((size,), jnp.float32)
        self.shift = jnp.zeros((size,), jnp.float32)
        self.epsilon = epsilon

    def __call__(self, x: jax.Array) -> jax.Array:
        return standardise(x, (-1,), self.epsilon) * self.scale + self.shift


def standardise(x: jax.Array, axes: tuple[int, ...], epsilon: float) -> jax.Array:
    """Shifts and scales `x` to mean 0 and variance 1 over `axes`."""
    centred = x - jnp.mean(x, axes, keepdims=True)
    variance = jnp.mean(jnp.square(centred), axes, keepdims=True)
    return centred * lax.rsqrt(variance + epsilon)


def max_pool(x: jax.Array, size: int, stride: int, padding: Padding = "VALID") -> jax.Array:
    """The largest value of each spatial window."""
    window, strides = (1, size, size, 1), (1, stride, stride, 1)
    pads = padding if isinstance(padding, str) else ((0, 0), *padding, (0, 0))
    return lax.reduce_window(x, -jnp.inf, lax.max, window, strides, pads)


def uniform(key: jax.Array, shape: tuple[int, ...], limit: float) -> jax.Array:
    """Float32 numbers within `[-limit, limit)`, whatever JAX's default dtype."""
    flat = jax.random.uniform(key, _drawn_shape(shape), jnp.float32, -limit, limit)
    return flat[: math.prod(shape)].reshape(shape)


def normal(key: jax.Array, shape: tuple[int, ...], scale: float = 1.0) -> jax.Array:
    """Float32 numbers of mean 0 and standard deviation `scale`."""
    flat = scale * jax.random.normal(key, _drawn_shape(shape), jnp.float32)
    return flat[: math.prod(shape)].reshape(shape)


def _drawn_shape(shape: tuple[int, ...]) -> tuple[int]:
    # JAX compiles its generator anew for each shape, half a second on a CPU. Lengths rounded up
    # to a power of two share the compiled code: building a small ResNet18 is ten times faster.
    length = max(1024, 1 << (math.prod(shape) - 1).bit_length())
    if not isinstance(jnp.zeros(()), Tracer):  # jax.eval_shape takes no memory
        size = 4 * (length + math.prod(shape))  # all that is drawn, and what is kept of it
        check_memory(f"an array of weights, {shape},", size, remedy="Make the model smaller.")
    return (length,)
