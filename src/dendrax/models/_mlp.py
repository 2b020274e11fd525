"""Fully connected networks: `(batch, in_size)` enters, `(batch, out_size)` leaves."""

from collections.abc import Sequence
from itertools import pairwise

import equinox as eqx
import jax
import jax.numpy as jnp

from ._layers import Activation, Linear
from ._sizes import checked_shape, checked_sizes


class MLP(eqx.Module):
    """A multilayer perceptron, `y_k = W_k f(y_{k-1}) + b_k`; the paper's is 784-128-128-10.

    !!! Example

        ```python
        import jax, jax.numpy as jnp
        from dendrax.models import MLP

        model = MLP(4, (3, 3), 2, key=jax.random.key(0))
        model(jnp.ones((5, 4))).shape  # -> (5, 2)
        ```
    """

    layers: tuple[Linear, ...]
    activation: Activation = eqx.field(static=True)

    def __init__(
        self,
        in_size: int = 784,
        hidden_sizes: Sequence[int] = (128, 128),
        out_size: int = 10,
        *,
        activation: Activation = jnp.tanh,
        gain: float = 1.0,
        key: jax.Array,
    ):
        """**Arguments:**

        - `in_size`, `hidden_sizes`, `out_size`: the number of units of each layer.
        - `activation`: applied between layers, not after the last.
        - `gain`: multiplies the initial weights. `sqrt(3)` gives them variance `1 / in`, which
            lets a signal survive a hundred layers of tanh.
        - `key`: the PRNG key for the initial parameters.
        """
        in_size, out_size = checked_sizes("MLP", in_size=in_size, out_size=out_size)
        sizes = (in_size, *checked_shape("MLP", "hidden_sizes", hidden_sizes), out_size)
        keys = jax.random.split(key, len(sizes) - 1)
        self.layers = tuple(
            Linear(m, n, gain=gain, key=k) for (m, n), k in zip(pairwise(sizes), keys, strict=True)
        )
        self.activation = activation

    def __call__(self, x: jax.Array) -> jax.Array:
        """**Arguments:**

        - `x`: shape `(batch, in_size)`.

        **Returns:**

        Logits of shape `(batch, out_size)`.
        """
        first, *rest = self.layers
        y = first(x)
        for layer in rest:
            y = layer(self.activation(y))
        return y
