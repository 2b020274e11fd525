"""A convolution inside a loop, in the one layout that XLA likes on a CPU.

In a ``while`` loop XLA keeps whatever layout the kernel happens to have, and its gradient with
respect to the input (for channels-first images also the convolution itself) is then 5 to 30 times
slower than outside. So the kernel is brought into place, once before the loop if it is clamped:

- for the prediction: spatial axes first, then the input and the output channels;
- for the message, which is a convolution with the strides as dilation of its input: the same with
  the spatial axes flipped and the channels swapped.

Where the kernel learns in the loop its own message has the same trouble, and the same cure.

An `Equation` enters, and the kernel; functions for the prediction and the messages leave.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, TypeGuard

import jax
import jax.numpy as jnp
from jax import lax

from dendrax.local._contraction import moved_back
from dendrax.local._function import Equation

IMAGE, KERNEL = 0, 1


def is_convolution(function: Any) -> TypeGuard[Equation]:
    """Whether a local function is a convolution that `Convolution` can take over.

    Groups over the batch occur only in derivatives of convolutions.
    """
    if not isinstance(function, Equation) or function.primitive != "conv_general_dilated":
        return False
    eqn = function.jaxpr.eqns[0]
    return eqn.params["batch_group_count"] == 1 and len(function.jaxpr.in_avals) == 2


@dataclass(frozen=True, eq=False)
class Convolution:
    """A convolution, its kernel in place for the prediction and ``flipped`` for the message."""

    equation: Equation
    kernel: Any
    flipped: Any

    @classmethod
    def prepare(cls, equation: Equation, kernel: Any) -> Convolution:
        """Bring the kernel into place, for both directions."""
        params = equation.jaxpr.eqns[0].params
        out, into, *spatial = params["dimension_numbers"].rhs_spec
        kernel = jnp.transpose(kernel, (*spatial, into, out))
        flipped = _swap_channels(kernel, params["feature_group_count"])
        flipped = jnp.flip(flipped, tuple(range(len(spatial))))
        return cls(equation, kernel, flipped)

    @property
    def params(self) -> dict[str, Any]:
        """The settings of the operation."""
        return self.equation.jaxpr.eqns[0].params

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

    def message(self, error: Any) -> Any:
        """ε ∂μ/∂image, in the layout of the user."""
        p, specs = self.params, self.params["dimension_numbers"]
        message = self._convolve(
            _channels_last(error, specs.out_spec),
            self.flipped,
            window_strides=p["lhs_dilation"],
            padding=self._message_padding(),
            lhs_dilation=p["window_strides"],
            preferred_element_type=self.equation.jaxpr.in_avals[IMAGE].dtype,
        )
        return _channels_back(message, specs.lhs_spec)

    def kernel_message(self, image: Any, error: Any) -> Any:
        """ε ∂μ/∂kernel, in the layout of the user: a convolution of the image with the error."""
        p, specs = self.params, self.params["dimension_numbers"]
        image = jnp.swapaxes(_channels_last(image, specs.lhs_spec), 0, -1)
        error = jnp.moveaxis(_channels_last(error, specs.out_spec), 0, -2)
        message = _convolve(
            image,
            error,
            window_strides=p["rhs_dilation"],
            padding=self._kernel_padding(),
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

    def _sizes(self) -> list[tuple[int, int, int, int]]:
        """By spatial axis: image, result and window with their dilations, and the first padding."""
        p, specs = self.params, self.params["dimension_numbers"]
        (image, _), (result,) = self.equation.jaxpr.in_avals, self.equation.jaxpr.out_avals
        return [
            (
                _dilated(image.shape[specs.lhs_spec[axis + 2]], p["lhs_dilation"][axis]),
                _dilated(result.shape[specs.out_spec[axis + 2]], p["window_strides"][axis]),
                _dilated(self.kernel.shape[axis], p["rhs_dilation"][axis]),
                before,
            )
            for axis, (before, _) in enumerate(p["padding"])
        ]

    def _message_padding(self) -> list[tuple[int, int]]:
        return [
            (window - 1 - before, image - result + before)
            for image, result, window, before in self._sizes()
        ]

    def _kernel_padding(self) -> list[tuple[int, int]]:
        return [
            (before, result - image + window - 1 - before)
            for image, result, window, before in self._sizes()
        ]

    def linearise(
        self, inputs: Sequence[Any], received: tuple[int, ...], summed: tuple[int, ...]
    ) -> tuple[list[Any], Any]:
        """As `dendrax.local._function.linearise`."""
        image = inputs[IMAGE] if KERNEL in received else None
        pull = jax.tree_util.Partial(functools.partial(_pull, received, summed), self, image)
        return [self(inputs[IMAGE])], pull


jax.tree_util.register_dataclass(
    Convolution, data_fields=["kernel", "flipped"], meta_fields=["equation"]
)


def _pull(
    received: tuple[int, ...],
    summed: tuple[int, ...],
    convolution: Convolution,
    image: Any,
    given: Any,
) -> tuple[Any, ...]:
    sums, (error,) = given
    waiting = dict(zip(summed, sums, strict=True))
    messages = {}
    if IMAGE in received:
        messages[IMAGE] = convolution.message(error)
    if KERNEL in received:
        messages[KERNEL] = convolution.kernel_message(image, error)
    return tuple(
        lax.add(waiting[k], messages[k]) if k in waiting else messages[k] for k in received
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
