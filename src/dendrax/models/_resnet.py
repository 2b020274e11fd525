"""Residual networks: fully connected, as the paper's appendix has it, and ResNet18."""

import equinox as eqx
import jax
import jax.numpy as jnp

from dendrax.support import STEMS, Stem

from ._layers import Activation, BatchNorm, Conv, Linear, max_pool
from ._sizes import checked_sizes


class FCResNet(eqx.Module):
    """Fully connected layers of equal width, with a residual connection at every layer:

    `y_k = y_{k-1} + f(W_k y_{k-1} + b_k)`, between an input projection and an output head.

    !!! Example

        ```python
        import jax, jax.numpy as jnp
        from dendrax.models import FCResNet

        model = FCResNet(4, 8, 2, key=jax.random.key(0))
        model(jnp.ones((5, 4))).shape  # -> (5, 2)
        ```
    """

    project: Linear
    layers: tuple[Linear, ...]
    head: Linear
    activation: Activation = eqx.field(static=True)

    def __init__(
        self,
        in_size: int = 784,
        hidden_size: int = 256,
        out_size: int = 10,
        num_layers: int = 5,
        *,
        activation: Activation = jnp.tanh,
        key: jax.Array,
    ):
        """**Arguments:**

        - `in_size`, `hidden_size`, `out_size`: the number of units.
        - `num_layers`: the number of residual layers.
        - `activation`: the function `f`.
        - `key`: the PRNG key for the initial parameters.
        """
        in_size, hidden_size, out_size, num_layers = checked_sizes(
            "FCResNet",
            in_size=in_size,
            hidden_size=hidden_size,
            out_size=out_size,
            num_layers=num_layers,
        )
        project_key, head_key, *keys = jax.random.split(key, num_layers + 2)
        self.project = Linear(in_size, hidden_size, key=project_key)
        self.layers = tuple(Linear(hidden_size, hidden_size, key=k) for k in keys)
        self.head = Linear(hidden_size, out_size, key=head_key)
        self.activation = activation

    def __call__(self, x: jax.Array) -> jax.Array:
        """**Arguments:**

        - `x`: shape `(batch, in_size)`.

        **Returns:**

        Predictions of shape `(batch, out_size)`.
        """
        y = self.project(x)
        for layer in self.layers:
            y = y + self.activation(layer(y))
        return self.head(y)


class ResNet18(eqx.Module):
    """ResNet18 for CIFAR- or ImageNet-sized images, normalised with the statistics of the batch.

    !!! Example

        ```python
        import equinox as eqx, jax, jax.numpy as jnp
        from dendrax.models import ResNet18

        model = ResNet18(width=4, key=jax.random.key(0))
        eqx.filter_eval_shape(model, jnp.ones((2, 16, 16, 3))).shape  # -> (2, 10)
        ```
    """

    stem: "_ConvNorm"
    blocks: tuple["_Block", ...]
    head: Linear
    pool: bool = eqx.field(static=True)

    def __init__(
        self,
        in_channels: int = 3,
        out_size: int = 10,
        *,
        width: int = 64,
        stem: Stem = "cifar",
        key: jax.Array,
    ):
        """**Arguments:**

        - `in_channels`: the channels of one image.
        - `out_size`: the number of classes.
        - `width`: the channels of the first stage; each further stage doubles them.
        - `stem`: `"cifar"` starts with a 3x3 convolution of stride 1; `"imagenet"` with a 7x7
            one of stride 2 and a max pooling.
        - `key`: the PRNG key for the initial parameters.
        """
        if stem not in STEMS:
            raise ValueError(
                f'dendrax.models.ResNet18: stem must be "cifar" or "imagenet", got {stem!r}.'
            )
        in_channels, out_size, width = checked_sizes(
            "ResNet18", in_channels=in_channels, out_size=out_size, width=width
        )
        stem_key, head_key, *keys = jax.random.split(key, 10)
        size, stride = (3, 1) if stem == "cifar" else (7, 2)
        self.stem = _ConvNorm(in_channels, width, size, stride, key=stem_key)
        self.blocks = _blocks(width, keys)
        self.head = Linear(8 * width, out_size, key=head_key)
        self.pool = stem == "imagenet"

    def __call__(self, x: jax.Array) -> jax.Array:
        """**Arguments:**

        - `x`: images of shape `(batch, height, width, channels)`.

        **Returns:**

        Logits of shape `(batch, out_size)`. They depend on the batch, as the normalisation does.
        """
        return self.head(jnp.mean(self._features(x), axis=(1, 2)))

    def _features(self, x: jax.Array) -> jax.Array:
        x = jax.nn.relu(self.stem(x))
        if self.pool:
            x = max_pool(x, 3, 2, ((1, 1), (1, 1)))
        for block in self.blocks:
            x = block(x)
        return x


class _Block(eqx.Module):
    """Two 3x3 convolutions beside a shortcut, projected only where the shape changes."""

    first: "_ConvNorm"
    second: "_ConvNorm"
    shortcut: "_ConvNorm | None"

    def __init__(self, in_channels: int, out_channels: int, stride: int, *, key: jax.Array):
        first_key, second_key, shortcut_key = jax.random.split(key, 3)
        self.first = _ConvNorm(in_channels, out_channels, 3, stride, key=first_key)
        self.second = _ConvNorm(out_channels, out_channels, 3, 1, key=second_key)
        self.shortcut = None
        if stride != 1 or in_channels != out_channels:
            self.shortcut = _ConvNorm(in_channels, out_channels, 1, stride, key=shortcut_key)

    def __call__(self, x: jax.Array) -> jax.Array:
        residual = self.second(jax.nn.relu(self.first(x)))
        skip = x if self.shortcut is None else self.shortcut(x)
        return jax.nn.relu(skip + residual)


class _ConvNorm(eqx.Module):
    """A convolution, without the bias that the batch normalisation after it would cancel."""

    conv: Conv
    norm: BatchNorm

    def __init__(
        self, in_channels: int, out_channels: int, size: int, stride: int, *, key: jax.Array
    ):
        # Padded as torch does: with a stride, "SAME" would look at other pixels.
        pad = (size // 2, size // 2)
        self.conv = Conv(
            in_channels,
            out_channels,
            size,
            stride=stride,
            padding=(pad, pad),
            use_bias=False,
            key=key,
        )
        self.norm = BatchNorm(out_channels)

    def __call__(self, x: jax.Array) -> jax.Array:
        return self.norm(self.conv(x))


def _blocks(width: int, keys: list[jax.Array]) -> tuple[_Block, ...]:
    """Four stages of two blocks; from the second stage on, the first block halves the image."""
    stages = (1, 1, 2, 2, 4, 4, 8, 8)
    before = (1, *stages[:-1])
    return tuple(
        _Block(m * width, n * width, n // m, key=key)
        for m, n, key in zip(before, stages, keys, strict=True)
    )
