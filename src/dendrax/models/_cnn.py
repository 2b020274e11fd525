"""Convolutional networks: `(batch, height, width, channels)` enters, `(batch, out_size)` leaves."""

from collections.abc import Callable

import equinox as eqx
import jax
import jax.numpy as jnp

from ._layers import Conv, Linear, max_pool
from ._sizes import checked_shape, checked_sizes


class CNN(eqx.Module):
    """A small network: two 5x5 convolutions of stride 2, then two dense layers, with relu.

    !!! Example

        ```python
        import jax, jax.numpy as jnp
        from dendrax.models import CNN

        model = CNN((8, 8, 1), (2, 4), 16, 10, key=jax.random.key(0))
        model(jnp.ones((5, 8, 8, 1))).shape  # -> (5, 10)
        ```
    """

    convs: tuple[Conv, Conv]
    hidden: Linear
    head: Linear

    def __init__(
        self,
        image_shape: tuple[int, int, int] = (28, 28, 1),
        channels: tuple[int, int] = (32, 64),
        hidden_size: int = 128,
        out_size: int = 10,
        *,
        key: jax.Array,
    ):
        """**Arguments:**

        - `image_shape`: height, width and channels of one image.
        - `channels`: the number of kernels of each convolution.
        - `hidden_size`: the units of the first dense layer.
        - `out_size`: the number of classes.
        - `key`: the PRNG key for the initial parameters.
        """
        height, width, colours = checked_shape("CNN", "image_shape", image_shape, 3)
        first, second = checked_shape("CNN", "channels", channels, 2)
        hidden_size, out_size = checked_sizes("CNN", hidden_size=hidden_size, out_size=out_size)
        first_key, second_key, hidden_key, head_key = jax.random.split(key, 4)
        self.convs = (
            Conv(colours, first, 5, stride=2, key=first_key),
            Conv(first, second, 5, stride=2, key=second_key),
        )
        num_features = _count(lambda x: _cnn_features(self.convs, x), (height, width, colours))
        self.hidden = Linear(num_features, hidden_size, key=hidden_key)
        self.head = Linear(hidden_size, out_size, key=head_key)

    def __call__(self, x: jax.Array) -> jax.Array:
        """**Arguments:**

        - `x`: images of shape `(batch, height, width, channels)`.

        **Returns:**

        Logits of shape `(batch, out_size)`.
        """
        features = _cnn_features(self.convs, x)
        return self.head(jax.nn.relu(self.hidden(features)))


class AlexNet(eqx.Module):
    """AlexNet in its single-tower form, without dropout, for large and for 28x28 images.

    !!! Example

        ```python
        import equinox as eqx, jax, jax.numpy as jnp
        from dendrax.models import AlexNet

        model = AlexNet((28, 28, 1), width=2, key=jax.random.key(0))
        eqx.filter_eval_shape(model, jnp.ones((5, 28, 28, 1))).shape  # -> (5, 10)
        ```
    """

    convs: tuple[Conv, ...]
    hidden: tuple[Linear, Linear]
    head: Linear

    def __init__(
        self,
        image_shape: tuple[int, int, int] = (28, 28, 1),
        out_size: int = 10,
        *,
        width: int = 64,
        key: jax.Array,
    ):
        """**Arguments:**

        - `image_shape`: height, width and channels of one image. Images of at least 64 pixels,
            such as `(224, 224, 3)`, get the original 11x11 first convolution of stride 4;
            smaller ones, such as `(28, 28, 1)`, a 3x3 one of stride 1.
        - `out_size`: the number of classes.
        - `width`: the kernels of the first convolution. The others, and the `64 * width` units
            of the dense layers, grow in proportion; 64 is the original.
        - `key`: the PRNG key for the initial parameters.
        """
        shape = checked_shape("AlexNet", "image_shape", image_shape, 3)
        out_size, width = checked_sizes("AlexNet", out_size=out_size, width=width)
        *conv_keys, first_key, second_key, head_key = jax.random.split(key, 8)
        self.convs = _alexnet_convs(shape, width, conv_keys)
        num_features = _count(lambda x: _alexnet_features(self.convs, x), shape)
        if num_features == 0:
            raise ValueError(
                f"dendrax.models.AlexNet: image_shape={image_shape} is too small for its poolings. "
                "Use larger ones: the smallest are of 15 x 15 pixels."
            )
        self.hidden = (
            Linear(num_features, 64 * width, key=first_key),
            Linear(64 * width, 64 * width, key=second_key),
        )
        self.head = Linear(64 * width, out_size, key=head_key)

    def __call__(self, x: jax.Array) -> jax.Array:
        """**Arguments:**

        - `x`: images of shape `(batch, height, width, channels)`.

        **Returns:**

        Logits of shape `(batch, out_size)`.
        """
        x = _alexnet_features(self.convs, x)
        for layer in self.hidden:
            x = jax.nn.relu(layer(x))
        return self.head(x)


def _alexnet_convs(
    image_shape: tuple[int, ...], width: int, keys: list[jax.Array]
) -> tuple[Conv, ...]:
    height, _, channels = image_shape
    first, *rest = keys
    if height >= 64:
        stem = Conv(channels, width, 11, stride=4, padding=((2, 2), (2, 2)), key=first)
    else:
        stem = Conv(channels, width, 3, key=first)
    # As torchvision's 64, 192, 384, 256, 256.
    sizes = ((width, 3 * width, 5), (3 * width, 6 * width, 3))
    sizes += ((6 * width, 4 * width, 3), (4 * width, 4 * width, 3))
    return (stem, *(Conv(*size, key=k) for size, k in zip(sizes, rest, strict=True)))


def _cnn_features(convs: tuple[Conv, Conv], x: jax.Array) -> jax.Array:
    for conv in convs:
        x = jax.nn.relu(conv(x))
    return _flatten(x)


def _alexnet_features(convs: tuple[Conv, ...], x: jax.Array) -> jax.Array:
    for index, conv in enumerate(convs):
        x = jax.nn.relu(conv(x))
        if index in (0, 1, 4):
            x = max_pool(x, 3, 2)
    return _flatten(x)


def _flatten(x: jax.Array) -> jax.Array:
    return x.reshape(x.shape[0], -1)


def _count(features: Callable[[jax.Array], jax.Array], image_shape: tuple[int, ...]) -> int:
    image = jax.ShapeDtypeStruct((1, *image_shape), jnp.float32)
    return jax.eval_shape(features, image).shape[-1]
