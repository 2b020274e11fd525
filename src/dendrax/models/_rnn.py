"""Recurrent networks: `(batch, time, in_size)` enters, `(batch, out_size)` leaves."""

import equinox as eqx
import jax
import jax.numpy as jnp
from jax import lax

from ._layers import Activation, Linear
from ._sizes import checked_sizes


class RNN(eqx.Module):
    """A many-to-one recurrent network, after the paper's appendix:

    `y_t = W_h f(y_{t-1}) + W_x s_t + b`, with `y_0 = 0`, and `out = W_y f(y_T) + c`.

    !!! Example

        ```python
        import jax, jax.numpy as jnp
        from dendrax.models import RNN

        model = RNN(4, 3, 2, key=jax.random.key(0))
        model(jnp.ones((5, 10, 4))).shape  # -> (5, 2)
        ```
    """

    input: Linear
    recurrent: Linear
    head: Linear
    activation: Activation = eqx.field(static=True)
    unroll: bool = eqx.field(static=True)

    def __init__(
        self,
        in_size: int = 128,
        hidden_size: int = 128,
        out_size: int = 128,
        *,
        activation: Activation = jnp.tanh,
        unroll: bool = True,
        key: jax.Array,
    ):
        """**Arguments:**

        - `in_size`, `hidden_size`, `out_size`: the number of units. The default input is the
            128 bytes of an Atari console's memory.
        - `activation`: the function `f`.
        - `unroll`: whether time is a Python loop, or a `jax.lax.scan`. The result is the same.
        - `key`: the PRNG key for the initial parameters.
        """
        in_size, hidden_size, out_size = checked_sizes(
            "RNN", in_size=in_size, hidden_size=hidden_size, out_size=out_size
        )
        input_key, recurrent_key, head_key = jax.random.split(key, 3)
        self.input = Linear(in_size, hidden_size, key=input_key)
        self.recurrent = Linear(hidden_size, hidden_size, use_bias=False, key=recurrent_key)
        self.head = Linear(hidden_size, out_size, key=head_key)
        self.activation = activation
        self.unroll = unroll

    def __call__(self, x: jax.Array) -> jax.Array:
        """**Arguments:**

        - `x`: sequences of shape `(batch, time, in_size)`.

        **Returns:**

        What the last state predicts, of shape `(batch, out_size)`.
        """
        run = self._loop if self.unroll else self._scan
        start = jnp.zeros((x.shape[0], self.head.weight.shape[0]), x.dtype)
        return self.head(self.activation(run(start, x)))

    def _step(self, y: jax.Array, x: jax.Array) -> jax.Array:
        return self.recurrent(self.activation(y)) + self.input(x)

    def _loop(self, y: jax.Array, x: jax.Array) -> jax.Array:
        for t in range(x.shape[1]):
            y = self._step(y, x[:, t])
        return y

    def _scan(self, y: jax.Array, x: jax.Array) -> jax.Array:
        y, _ = lax.scan(lambda y, x: (self._step(y, x), None), y, jnp.swapaxes(x, 0, 1))
        return y
