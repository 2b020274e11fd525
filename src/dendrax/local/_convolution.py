"""A convolution inside a loop, in the one layout that XLA likes on a CPU.

In a ``while`` loop XLA keeps whatever layout the kernel happens to have, and its gradient with
respect to the input (for channels-first images also the convolution itself) is then 5 to 30 times
slower than outside. So the kernel is brought into place, once before the loop if it is clamped:

- for the prediction: spatial axes first, then the input and the output channels;
- for the message, which is a convolution with the strides as dilation of its input: the same with
  the spatial axes flipped and the channels swapped.

Where the kernel learns in the loop its own message has the same trouble, and the same cure.

The operation enters, with its image and its kernel; the result and the way back leave. On other
platforms than a CPU the operation runs as it is: see `dendrax.local._platform`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax

from dendrax.local._contraction import moved_back
from dendrax.local._linear import Applied
from dendrax.local._platform import laid_out

IMAGE, KERNEL = 0, 1


def is_convolution(operation: Applied) -> bool:
    """Whether an operation is a convolution that `Convolution` can take over.

    Groups over the batch occur only in derivatives of convolutions.
    """
    if operation.primitive.name != "conv_general_dilated":
        return False
    return operation.params["batch_group_count"] == 1


@dataclass(frozen=True, eq=False)
class _Settings:
    """What of a convolution is not an array: its parameters."""

    params: dict[str, Any]
    image: Any  # its type

    def turn(self, kernel: Any) -> list[Any]:
        """The kernel in place for the prediction, and for the message."""
        out, into, *spatial = self.params["dimension_numbers"].rhs_spec
        placed = jnp.transpose(kernel, (*spatial, into, out))
        flipped = _swap_channels(placed, self.params["feature_group_count"])
        return [placed, jnp.flip(flipped, tuple(range(len(spatial))))]


@dataclass(frozen=True, eq=False)
class Convolution:
    """A convolution, its kernel in place for the prediction and ``flipped`` for the message.

    ``image`` is what the message to the kernel needs to know of it.
    """

    settings: _Settings
    kernel: Any
    flipped: Any
    image: Any = None

    @classmethod
    def prepare(
        cls, operation: Applied, inputs: Sequence[Any], received: tuple[int, ...]
    ) -> Convolution:
        """Bring the kernel into place, for both directions."""
        params, kernel = operation.params, inputs[KERNEL]
        settings = _Settings(params, jax.typeof(inputs[IMAGE]))
        placed, flipped = laid_out(settings.turn, kernel)
        return cls(settings, placed, flipped, inputs[IMAGE] if KERNEL in received else None)

    def message(self, k: int, error: Any) -> Any:
        """ε ∂μ/∂x for the image or the kernel, in the layout of the user."""
        return self.image_message(error) if k == IMAGE else self.kernel_message(error)

    @property
    def params(self) -> dict[str, Any]:
        """The settings of the operation."""
        return self.settings.params

    def __call__(self, image: Any) -> Any:
        """μ, from the image in the layout of the user."""
        p, specs = self.params, self.params["dimension_numbers"]
        result = self._convolve(
            _channels_last(image, specs.lhs_spec),
            self.kernel,
            window_strides=p["window_strides"],
            padding=p["padding"],
            lhs_dilation=p["lhs_dilation"],
            preferred_element_type=p["preferred_element_type"],
        )
        return _channels_back(result, specs.out_spec)

    def image_message(self, error: Any) -> Any:
        """ε ∂μ/∂image."""
        p, specs = self.params, self.params["dimension_numbers"]
        message = self._convolve(
            _channels_last(error, specs.out_spec),
            self.flipped,
            window_strides=p["lhs_dilation"],
            padding=self._message_padding(error),
            lhs_dilation=p["window_strides"],
            preferred_element_type=self.settings.image.dtype,
        )
        return _channels_back(message, specs.lhs_spec)

    def kernel_message(self, error: Any) -> Any:
        """ε ∂μ/∂kernel: a convolution of the image with the error."""
        p, specs = self.params, self.params["dimension_numbers"]
        image = jnp.swapaxes(_channels_last(self.image, specs.lhs_spec), 0, -1)
        message = _convolve(
            image,
            jnp.moveaxis(_channels_last(error, specs.out_spec), 0, -2),
            window_strides=p["rhs_dilation"],
            padding=self._kernel_padding(error),
            lhs_dilation=p["lhs_dilation"],
            rhs_dilation=p["window_strides"],
            batch_group_count=p["feature_group_count"],
            precision=p["precision"],
            preferred_element_type=self.kernel.dtype,
        )
        out, into, *spatial = specs.rhs_spec
        return moved_back(message, (into, *spatial, out))

    def _convolve(self, image: Any, kernel: Any, **settings: Any) -> Any:
        return _convolve(
            image,
            kernel,
            **settings,
            rhs_dilation=self.params["rhs_dilation"],
            feature_group_count=self.params["feature_group_count"],
            precision=self.params["precision"],
        )

    def _sizes(self, error: Any) -> list[tuple[int, int, int, int]]:
        """By spatial axis: image, result and window with their dilations, and the first padding."""
        p, specs = self.params, self.params["dimension_numbers"]
        image, result = self.settings.image, jax.typeof(error)
        return [
            (
                _dilated(image.shape[specs.lhs_spec[axis + 2]], p["lhs_dilation"][axis]),
                _dilated(result.shape[specs.out_spec[axis + 2]], p["window_strides"][axis]),
                _dilated(self.kernel.shape[axis], p["rhs_dilation"][axis]),
                before,
            )
            for axis, (before, _) in enumerate(p["padding"])
        ]

    def _message_padding(self, error: Any) -> list[tuple[int, int]]:
        return [
            (window - 1 - before, image - result + before)
            for image, result, window, before in self._sizes(error)
        ]

    def _kernel_padding(self, error: Any) -> list[tuple[int, int]]:
        return [
            (before, result - image + window - 1 - before)
            for image, result, window, before in self._sizes(error)
        ]


jax.tree_util.register_dataclass(
    Convolution, data_fields=["kernel", "flipped", "image"], meta_fields=["settings"]
)


def _convolve(image: Any, kernel: Any, **settings: Any) -> Any:
    """A convolution with the channels last."""
    n = kernel.ndim - 2
    axes = (0, n + 1, *range(1, n + 1))
    layout = lax.ConvDimensionNumbers(axes, (n + 1, n, *range(n)), axes)
    return lax.conv_general_dilated(image, kernel, **settings, dimension_numbers=layout)


def _dilated(size: int, dilation: int) -> int:
    return 0 if size == 0 else 1 + dilation * (size - 1)


def _channels_last(value: Any, spec: Sequence[int]) -> Any:
    batch, channels, *spatial = spec
    return jnp.transpose(value, (batch, *spatial, channels))


def _channels_back(value: Any, spec: Sequence[int]) -> Any:
    batch, channels, *spatial = spec
    return moved_back(value, (batch, *spatial, channels))


def _swap_channels(kernel: Any, groups: int) -> Any:
    """Input for output channels, group by group."""
    *spatial, into, out = kernel.shape
    split = kernel.reshape(*spatial, into, groups, out // groups)
    return jnp.swapaxes(split, -1, -3).reshape(*spatial, out // groups, groups * into)
