"""GPT-2 in plain JAX, with the sizes of its smallest version, and a novel to learn from.

The model is that of Radford et al. (2019), without dropout: normalisation before each block,
learned positions, GELU, biases everywhere, and one table for the embedding and for the head. It is
written with JAX alone, so that nothing in it was made to suit dendrax.
"""

import collections
import functools
import math
import re
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from dendrax.data import moby_dick

_MASKED = -1e9


@dataclass(frozen=True)
class Sizes:
    """What the model measures; by default GPT-2 small, 124 M parameters."""

    num_layers: int = 12
    d_model: int = 768
    num_heads: int = 12
    hidden_size: int = 3072
    vocab_size: int = 50257
    num_positions: int = 1024


def initial(sizes: Sizes, key: jax.Array) -> Any:
    """Weights as GPT-2 starts: normal, and smaller where a block adds to the residual stream."""
    embed_key, position_key, *keys = jax.random.split(key, sizes.num_layers + 2)
    return {
        "embedding": _normal(embed_key, (sizes.vocab_size, sizes.d_model), 0.02),
        "positions": _normal(position_key, (sizes.num_positions, sizes.d_model), 0.01),
        "blocks": [_initial_block(sizes, k) for k in keys],
        "norm": _initial_norm(sizes.d_model),
    }


def loss(weights: Any, tokens: jax.Array, *, num_heads: int, remat: bool = False) -> jax.Array:
    """The mean cross-entropy of each token given those before it; ``(batch, time + 1)`` enters."""
    logits = _logits(weights, tokens[:, :-1], num_heads, remat)
    chosen = jnp.take_along_axis(jax.nn.log_softmax(logits), tokens[:, 1:, None], axis=-1)
    return -chosen.mean()


def novel(vocab_size: int) -> np.ndarray:
    """Moby Dick as tokens: words and punctuation marks, the most frequent first.

    These are not GPT-2's byte pairs. What is too rare for ``vocab_size`` shares the last token.
    """
    text = moby_dick()
    characters = np.concatenate([text.train, text.test])
    content = np.array(list(text.alphabet))[characters]
    pieces = re.findall(r"\w+|[^\w\s]", "".join(content))
    ranked = collections.Counter(pieces).most_common()
    number = {piece: min(rank, vocab_size - 1) for rank, (piece, _) in enumerate(ranked)}
    return np.array([number[piece] for piece in pieces], np.int32)


def _logits(weights: Any, tokens: jax.Array, num_heads: int, remat: bool) -> jax.Array:
    y = weights["embedding"][tokens] + weights["positions"][: tokens.shape[1]]
    block = functools.partial(_block, num_heads=num_heads)
    block = jax.checkpoint(block) if remat else block
    for block_weights in weights["blocks"]:
        y = block(block_weights, y)
    return _norm(weights["norm"], y) @ weights["embedding"].T


def _block(weights: Any, y: jax.Array, num_heads: int) -> jax.Array:
    y = y + _attention(weights, _norm(weights["attention_norm"], y), num_heads)
    hidden = _dense(weights["expand"], _norm(weights["forward_norm"], y))
    return y + _dense(weights["contract"], jax.nn.gelu(hidden))


def _attention(weights: Any, y: jax.Array, num_heads: int) -> jax.Array:
    batch, time, d_model = y.shape
    split = _dense(weights["attend"], y).reshape(batch, time, 3, num_heads, d_model // num_heads)
    query, key, value = split[:, :, 0], split[:, :, 1], split[:, :, 2]
    scores = jnp.einsum("bqhd,bkhd->bhqk", query, key) / math.sqrt(d_model // num_heads)
    past = np.tril(np.ones((time, time), bool))
    attention = jax.nn.softmax(jnp.where(past, scores, _MASKED))
    mixed = jnp.einsum("bhqk,bkhd->bqhd", attention, value)
    return _dense(weights["mix"], mixed.reshape(y.shape))


def _dense(weights: Any, y: jax.Array) -> jax.Array:
    return y @ weights["weight"] + weights["bias"]


def _norm(weights: Any, y: jax.Array) -> jax.Array:
    centred = y - y.mean(axis=-1, keepdims=True)
    variance = jnp.square(centred).mean(axis=-1, keepdims=True)
    return centred * jax.lax.rsqrt(variance + 1e-5) * weights["scale"] + weights["bias"]


def _initial_block(sizes: Sizes, key: jax.Array) -> Any:
    d_model, hidden_size = sizes.d_model, sizes.hidden_size
    residual = 0.02 / math.sqrt(2 * sizes.num_layers)
    keys = jax.random.split(key, 4)
    return {
        "attention_norm": _initial_norm(d_model),
        "attend": _initial_dense(keys[0], d_model, 3 * d_model, 0.02),
        "mix": _initial_dense(keys[1], d_model, d_model, residual),
        "forward_norm": _initial_norm(d_model),
        "expand": _initial_dense(keys[2], d_model, hidden_size, 0.02),
        "contract": _initial_dense(keys[3], hidden_size, d_model, residual),
    }


def _initial_dense(key: jax.Array, in_size: int, out_size: int, scale: float) -> Any:
    bias = jnp.zeros(out_size, jnp.float32)
    return {"weight": _normal(key, (in_size, out_size), scale), "bias": bias}


def _initial_norm(d_model: int) -> Any:
    return {"scale": jnp.ones(d_model, jnp.float32), "bias": jnp.zeros(d_model, jnp.float32)}


def _normal(key: jax.Array, shape: tuple[int, ...], scale: float) -> jax.Array:
    return scale * jax.random.normal(key, shape, jnp.float32)
