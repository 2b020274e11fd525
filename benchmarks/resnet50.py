"""ResNet50 in Equinox, with bottleneck blocks, and a batch of random images to learn from.

The network is that of He et al. (2016), with the stride on the 3x3 convolution, as torchvision has
it: 25,557,032 parameters. It is written with JAX and Equinox alone, so that nothing in it was made
to suit dendrax. NumPy draws the weights, so that JAX compiles nothing before the first call.
"""

import itertools
import math

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from dendrax.models import Problem, cross_entropy_loss

_NHWC = ("NHWC", "HWIO", "NHWC")
_BLOCKS = (3, 4, 6, 3)  # in each of the four stages


class ResNet50(eqx.Module):
    """Images ``(batch, height, width, 3)`` to logits, normalised with the batch's statistics."""

    stem: "ConvNorm"
    blocks: tuple["Bottleneck", ...]
    weight: jax.Array
    bias: jax.Array

    def __init__(self, generator: np.random.Generator, *, width: int, num_classes: int):
        self.stem = ConvNorm(generator, 3, width, 7, stride=2)
        self.blocks = _blocks(generator, width)
        features = 32 * width
        self.weight = _normal(generator, (features, num_classes), 1 / math.sqrt(features))
        self.bias = jnp.zeros(num_classes, jnp.float32)

    def __call__(self, x: jax.Array) -> jax.Array:
        x = _max_pool(jax.nn.relu(self.stem(x)))
        for block in self.blocks:
            x = block(x)
        return jnp.mean(x, axis=(1, 2)) @ self.weight + self.bias


class Bottleneck(eqx.Module):
    """1x1, 3x3 and 1x1 convolutions beside a shortcut, projected only where the shape changes."""

    reduce: "ConvNorm"
    middle: "ConvNorm"
    expand: "ConvNorm"
    shortcut: "ConvNorm | None"

    def __init__(
        self, generator: np.random.Generator, in_channels: int, channels: int, stride: int
    ):
        out_channels = 4 * channels
        self.reduce = ConvNorm(generator, in_channels, channels, 1)
        self.middle = ConvNorm(generator, channels, channels, 3, stride=stride)
        self.expand = ConvNorm(generator, channels, out_channels, 1)
        self.shortcut = None
        if in_channels != out_channels:
            self.shortcut = ConvNorm(generator, in_channels, out_channels, 1, stride=stride)

    def __call__(self, x: jax.Array) -> jax.Array:
        narrow = jax.nn.relu(self.middle(jax.nn.relu(self.reduce(x))))
        skip = x if self.shortcut is None else self.shortcut(x)
        return jax.nn.relu(skip + self.expand(narrow))


class ConvNorm(eqx.Module):
    """A convolution without bias, then batch normalisation with a scale and a shift."""

    kernel: jax.Array
    scale: jax.Array
    shift: jax.Array
    stride: int = eqx.field(static=True)

    def __init__(
        self,
        generator: np.random.Generator,
        in_channels: int,
        out_channels: int,
        size: int,
        *,
        stride: int = 1,
    ):
        shape = (size, size, in_channels, out_channels)
        self.kernel = _normal(generator, shape, math.sqrt(2 / (in_channels * size * size)))
        self.scale = jnp.ones(out_channels, jnp.float32)
        self.shift = jnp.zeros(out_channels, jnp.float32)
        self.stride = stride

    def __call__(self, x: jax.Array) -> jax.Array:
        pad = self.kernel.shape[0] // 2
        y = lax.conv_general_dilated(
            x, self.kernel, (self.stride,) * 2, ((pad, pad),) * 2, dimension_numbers=_NHWC
        )
        centred = y - jnp.mean(y, (0, 1, 2))
        variance = jnp.mean(jnp.square(centred), (0, 1, 2))
        return centred * lax.rsqrt(variance + 1e-5) * self.scale + self.shift


def problem(
    *, width: int = 64, num_classes: int = 1000, pixels: int = 64, batch: int = 2
) -> Problem:
    """ResNet50 with a random batch. Sizes other than the network's own are for tests."""
    generator = np.random.default_rng(0)
    model = ResNet50(generator, width=width, num_classes=num_classes)
    inputs = _normal(generator, (batch, pixels, pixels, 3), 1.0)
    labels = generator.integers(num_classes, size=batch)
    target = jnp.asarray(np.eye(num_classes, dtype=np.float32)[labels])
    return Problem("resnet50", model, inputs, target, cross_entropy_loss)


def _blocks(generator: np.random.Generator, width: int) -> tuple[Bottleneck, ...]:
    """Sixteen; from the second stage on, the first block of a stage halves the image."""
    stages = [stage for stage, count in enumerate(_BLOCKS) for _ in range(count)]
    channels = [width << stage for stage in stages]
    before = [width, *(4 * n for n in channels)]
    strides = [1, *(1 + (b > a) for a, b in itertools.pairwise(stages))]
    return tuple(
        Bottleneck(generator, m, n, stride)
        for m, n, stride in zip(before[:-1], channels, strides, strict=True)
    )


def _max_pool(x: jax.Array) -> jax.Array:
    pads = ((0, 0), (1, 1), (1, 1), (0, 0))
    return lax.reduce_window(x, -jnp.inf, lax.max, (1, 3, 3, 1), (1, 2, 2, 1), pads)


def _normal(generator: np.random.Generator, shape: tuple[int, ...], scale: float) -> jax.Array:
    return jnp.asarray(np.float32(scale) * generator.standard_normal(shape, np.float32))
