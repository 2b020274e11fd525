"""Transformers: `(batch, time, in_size)` or tokens enter, `(batch, time, out_size)` leaves."""

import math

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from ._layers import Activation, LayerNorm, Linear, normal
from ._sizes import checked_sizes

# Not minus infinity: a value node of predictive coding may sit on a masked score, and its error
# `mu - x` would be `inf - inf`.
_MASKED = -1e9


class Transformer(eqx.Module):
    """A pre-norm transformer: residual attention and feed-forward blocks, a head per position.

    !!! Example

        ```python
        import jax, jax.numpy as jnp
        from dendrax.models import Transformer

        model = Transformer(4, 8, 3, num_heads=2, key=jax.random.key(0))
        model(jnp.ones((5, 6, 4))).shape  # -> (5, 6, 3)

        language = Transformer(None, 8, 11, num_heads=2, vocab_size=11, key=jax.random.key(0))
        language(jnp.ones((5, 6), int)).shape  # -> (5, 6, 11)
        ```
    """

    embed: "Linear | _Embedding"
    blocks: tuple["_Block", ...]
    norm: LayerNorm
    head: Linear
    causal: bool = eqx.field(static=True)

    def __init__(
        self,
        in_size: int | None = 128,
        d_model: int = 128,
        out_size: int = 128,
        *,
        num_layers: int = 1,
        num_heads: int = 8,
        hidden_size: int | None = None,
        vocab_size: int | None = None,
        activation: Activation = jax.nn.gelu,
        causal: bool = False,
        key: jax.Array,
    ):
        """**Arguments:**

        - `in_size`: the features of a continuous input at each time; ignored for tokens.
        - `d_model`: the width of the residual stream.
        - `out_size`: the outputs at each time.
        - `num_layers`, `num_heads`: how many blocks, and attention heads in each.
        - `hidden_size`: the width of the feed-forward layers, by default `4 * d_model`.
        - `vocab_size`: if given, the input is integer tokens below it.
        - `activation`: the feed-forward layers' nonlinearity.
        - `causal`: whether each position sees only itself and the past.
        - `key`: the PRNG key for the initial parameters.
        """
        d_model, out_size, num_layers, num_heads = checked_sizes(
            "Transformer",
            d_model=d_model,
            out_size=out_size,
            num_layers=num_layers,
            num_heads=num_heads,
        )
        hidden_size = 4 * d_model if hidden_size is None else hidden_size
        (hidden_size,) = checked_sizes("Transformer", hidden_size=hidden_size)
        if d_model % num_heads:
            raise ValueError(
                f"dendrax.models.Transformer: d_model={d_model} must be a multiple of "
                f"num_heads={num_heads}."
            )
        embed_key, head_key, *keys = jax.random.split(key, num_layers + 2)
        self.embed = _embedding(in_size, vocab_size, d_model, key=embed_key)
        self.blocks = tuple(
            _Block(d_model, num_heads, hidden_size, activation, key=k) for k in keys
        )
        self.norm = LayerNorm(d_model)
        self.head = Linear(d_model, out_size, key=head_key)
        self.causal = causal

    def __call__(self, x: jax.Array) -> jax.Array:
        """**Arguments:**

        - `x`: shape `(batch, time, in_size)`, or integers of shape `(batch, time)`.

        **Returns:**

        Predictions of shape `(batch, time, out_size)`.
        """
        y = self.embed(x)
        y = y + jnp.asarray(_positions(y.shape[-2], y.shape[-1]), y.dtype)
        for block in self.blocks:
            y = block(y, causal=self.causal)
        return self.head(self.norm(y))


class _Block(eqx.Module):
    """`y + attention(norm(y))`, then `y + feed_forward(norm(y))`."""

    attention_norm: LayerNorm
    attention: "_Attention"
    forward_norm: LayerNorm
    forward: "_FeedForward"

    def __init__(
        self,
        d_model: int,
        num_heads: int,
        hidden_size: int,
        activation: Activation,
        *,
        key: jax.Array,
    ):
        attention_key, forward_key = jax.random.split(key)
        self.attention_norm = LayerNorm(d_model)
        self.attention = _Attention(d_model, num_heads, key=attention_key)
        self.forward_norm = LayerNorm(d_model)
        self.forward = _FeedForward(d_model, hidden_size, activation, key=forward_key)

    def __call__(self, y: jax.Array, *, causal: bool) -> jax.Array:
        y = y + self.attention(self.attention_norm(y), causal=causal)
        return y + self.forward(self.forward_norm(y))


class _Attention(eqx.Module):
    """Multi-head self-attention. No biases: softmax cancels that of the keys exactly."""

    query: Linear
    key: Linear
    value: Linear
    output: Linear
    num_heads: int = eqx.field(static=True)

    def __init__(self, d_model: int, num_heads: int, *, key: jax.Array):
        linears = (
            Linear(d_model, d_model, use_bias=False, key=k) for k in jax.random.split(key, 4)
        )
        self.query, self.key, self.value, self.output = linears
        self.num_heads = num_heads

    def __call__(self, y: jax.Array, *, causal: bool) -> jax.Array:
        query, key, value = (self._split(f(y)) for f in (self.query, self.key, self.value))
        scores = jnp.einsum("bqhd,bkhd->bhqk", query, key) / math.sqrt(query.shape[-1])
        if causal:
            scores = jnp.where(_past(scores.shape[-1]), scores, _MASKED)
        mixed = jnp.einsum("bhqk,bkhd->bqhd", jax.nn.softmax(scores), value)
        return self.output(mixed.reshape(y.shape))

    def _split(self, y: jax.Array) -> jax.Array:
        batch, time, d_model = y.shape
        return y.reshape(batch, time, self.num_heads, d_model // self.num_heads)


class _FeedForward(eqx.Module):
    """Two dense layers, applied to each position by itself."""

    expand: Linear
    contract: Linear
    activation: Activation = eqx.field(static=True)

    def __init__(self, d_model: int, hidden_size: int, activation: Activation, *, key: jax.Array):
        expand_key, contract_key = jax.random.split(key)
        self.expand = Linear(d_model, hidden_size, key=expand_key)
        self.contract = Linear(hidden_size, d_model, key=contract_key)
        self.activation = activation

    def __call__(self, y: jax.Array) -> jax.Array:
        return self.contract(self.activation(self.expand(y)))


class _Embedding(eqx.Module):
    """One learned vector per token."""

    table: jax.Array

    def __init__(self, vocab_size: int, d_model: int, *, key: jax.Array):
        self.table = normal(key, (vocab_size, d_model))

    def __call__(self, tokens: jax.Array) -> jax.Array:
        return self.table[tokens]


def _embedding(
    in_size: int | None, vocab_size: int | None, d_model: int, *, key: jax.Array
) -> Linear | _Embedding:
    if vocab_size is not None:
        (vocab_size,) = checked_sizes("Transformer", vocab_size=vocab_size)
        return _Embedding(vocab_size, d_model, key=key)
    if in_size is None:
        raise ValueError("dendrax.models.Transformer: give either in_size or vocab_size.")
    (in_size,) = checked_sizes("Transformer", in_size=in_size)
    return Linear(in_size, d_model, key=key)


def _positions(time: int, d_model: int) -> np.ndarray:
    """Sine and cosine waves of geometrically growing length: the original position code."""
    wave = np.arange(d_model)
    angle = np.arange(time)[:, None] / 10_000 ** (2 * (wave // 2) / d_model)
    return np.where(wave % 2 == 0, np.sin(angle), np.cos(angle))


def _past(time: int) -> np.ndarray:
    return np.tril(np.ones((time, time), bool))
