"""Networks as people write them, for what value nodes they have: three libraries, small sizes.

Each entry makes a loss, which is a mean over samples, and its arguments; ``modules`` are what a
user would name to have value nodes at modules.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import equinox as eqx
import haiku as hk
import jax
import jax.numpy as jnp
from flax import nnx

from dendrax.models import problem

BATCH, TOKENS, WIDTH, HEADS, CLASSES = 3, 4, 8, 2, 5


class Network(NamedTuple):
    make: Callable[[], tuple[Callable[..., Any], tuple[Any, ...]]]
    modules: tuple[str, ...]


def keys(count: int) -> Any:
    return jax.random.split(jax.random.key(0), count)


def images() -> Any:
    return jax.random.normal(jax.random.key(1), (BATCH, 8, 8, 3), jnp.float32)


def tokens() -> Any:
    return jax.random.normal(jax.random.key(1), (BATCH, TOKENS, WIDTH), jnp.float32)


def mean_square(y: Any) -> Any:
    return jnp.mean(jnp.sum(jnp.square(y).reshape(len(y), -1), axis=1))


def ours(name: str) -> Callable[[], Any]:
    def make() -> Any:
        p = problem(name, small=True)
        return p.loss, (p.model, p.inputs, p.target)

    return make


# ---- Equinox -------------------------------------------------------------------------------------


def of_equinox(model: Any, x: Any) -> Any:
    params, static = eqx.partition(model, eqx.is_inexact_array)

    def loss(params: Any, x: Any) -> Any:
        return mean_square(jax.vmap(eqx.combine(params, static))(x))

    return loss, (params, x)


def equinox_mlp() -> Any:
    return of_equinox(eqx.nn.MLP(WIDTH, CLASSES, 16, 3, key=keys(1)[0]), tokens()[:, 0])


class EquinoxLSTM(eqx.Module):
    cell: eqx.nn.LSTMCell
    head: eqx.nn.Linear

    def __call__(self, xs: Any) -> Any:
        zeros = jnp.zeros(WIDTH, xs.dtype), jnp.zeros(WIDTH, xs.dtype)
        (h, _), _ = jax.lax.scan(lambda hc, x: (self.cell(x, hc), None), zeros, xs)
        return self.head(h)


def equinox_lstm() -> Any:
    one, two = keys(2)
    cell = eqx.nn.LSTMCell(WIDTH, WIDTH, key=one)
    return of_equinox(EquinoxLSTM(cell, eqx.nn.Linear(WIDTH, CLASSES, key=two)), tokens())


class EquinoxBlock(eqx.Module):
    norm1: eqx.nn.LayerNorm
    attention: eqx.nn.MultiheadAttention
    norm2: eqx.nn.LayerNorm
    mlp: eqx.nn.MLP

    def __init__(self, key: Any):
        one, two = jax.random.split(key)
        self.norm1, self.norm2 = eqx.nn.LayerNorm(WIDTH), eqx.nn.LayerNorm(WIDTH)
        self.attention = eqx.nn.MultiheadAttention(HEADS, WIDTH, key=one)
        self.mlp = eqx.nn.MLP(WIDTH, WIDTH, 16, 1, activation=jax.nn.gelu, key=two)

    def __call__(self, x: Any) -> Any:
        y = jax.vmap(self.norm1)(x)
        x = x + self.attention(y, y, y)
        return x + jax.vmap(self.mlp)(jax.vmap(self.norm2)(x))


class EquinoxViT(eqx.Module):
    embed: eqx.nn.Conv2d
    token: Any
    positions: Any
    blocks: list[EquinoxBlock]
    norm: eqx.nn.LayerNorm
    head: eqx.nn.Linear

    def __call__(self, image: Any) -> Any:
        x = self.embed(jnp.moveaxis(image, -1, 0)).reshape(WIDTH, -1).T
        x = jnp.concatenate([self.token, x]) + self.positions
        for block in self.blocks:
            x = block(x)
        return self.head(self.norm(x[0]))


def equinox_vit() -> Any:
    many = keys(4)
    model = EquinoxViT(
        eqx.nn.Conv2d(3, WIDTH, 4, 4, key=many[0]),
        jnp.zeros((1, WIDTH), jnp.float32),
        jnp.zeros((5, WIDTH), jnp.float32),
        [EquinoxBlock(many[1]), EquinoxBlock(many[2])],
        eqx.nn.LayerNorm(WIDTH),
        eqx.nn.Linear(WIDTH, CLASSES, key=many[3]),
    )
    return of_equinox(model, images())


class ScannedBlocks(eqx.Module):
    blocks: EquinoxBlock
    head: eqx.nn.Linear

    def __call__(self, x: Any) -> Any:
        arrays, rest = eqx.partition(self.blocks, eqx.is_array)
        step = lambda x, arrays: (eqx.combine(arrays, rest)(x), None)
        return self.head(jnp.mean(jax.lax.scan(step, x, arrays)[0], axis=0))


def scanned_transformer(num_layers: int = 6) -> Any:
    one, two = keys(2)
    blocks = eqx.filter_vmap(EquinoxBlock)(jax.random.split(one, num_layers))
    model = ScannedBlocks(blocks, eqx.nn.Linear(WIDTH, CLASSES, key=two))
    return of_equinox(model, tokens())


# ---- Flax NNX ------------------------------------------------------------------------------------


def of_nnx(model: Any, x: Any) -> Any:
    return lambda model, x: mean_square(model(x)), (model, x)


class NNXBlock(nnx.Module):
    def __init__(self, rngs: nnx.Rngs):
        self.norm1, self.norm2 = nnx.LayerNorm(WIDTH, rngs=rngs), nnx.LayerNorm(WIDTH, rngs=rngs)
        self.attention = nnx.MultiHeadAttention(HEADS, WIDTH, decode=False, rngs=rngs)
        self.up = nnx.Linear(WIDTH, 16, rngs=rngs)
        self.down = nnx.Linear(16, WIDTH, rngs=rngs)

    def __call__(self, x: Any) -> Any:
        x = x + self.attention(self.norm1(x))
        return x + self.down(nnx.gelu(self.up(self.norm2(x))))


class NNXViT(nnx.Module):
    def __init__(self, rngs: nnx.Rngs):
        self.embed = nnx.Conv(3, WIDTH, (4, 4), strides=4, rngs=rngs)
        self.positions = nnx.Param(jnp.zeros((4, WIDTH), jnp.float32))
        self.blocks = nnx.List([NNXBlock(rngs), NNXBlock(rngs)])
        self.norm = nnx.LayerNorm(WIDTH, rngs=rngs)
        self.head = nnx.Linear(WIDTH, CLASSES, rngs=rngs)

    def __call__(self, x: Any) -> Any:
        x = self.embed(x).reshape(len(x), -1, WIDTH) + self.positions[...]
        for block in self.blocks:
            x = block(x)
        return self.head(jnp.mean(self.norm(x), axis=1))


class NNXCNN(nnx.Module):
    def __init__(self, rngs: nnx.Rngs):
        self.conv1 = nnx.Conv(3, 4, (3, 3), rngs=rngs)
        self.norm1 = nnx.BatchNorm(4, rngs=rngs)
        self.conv2 = nnx.Conv(4, 6, (3, 3), rngs=rngs)
        self.norm2 = nnx.BatchNorm(6, rngs=rngs)
        self.hidden = nnx.Linear(24, 7, rngs=rngs)
        self.head = nnx.Linear(7, CLASSES, rngs=rngs)

    def __call__(self, x: Any) -> Any:
        x = nnx.max_pool(nnx.relu(self.norm1(self.conv1(x))), (2, 2), (2, 2))
        x = nnx.max_pool(nnx.relu(self.norm2(self.conv2(x))), (2, 2), (2, 2))
        return self.head(nnx.relu(self.hidden(x.reshape(len(x), -1))))


class NNXLSTM(nnx.Module):
    def __init__(self, rngs: nnx.Rngs):
        self.rnn = nnx.RNN(nnx.LSTMCell(WIDTH, WIDTH, rngs=rngs))
        self.head = nnx.Linear(WIDTH, CLASSES, rngs=rngs)

    def __call__(self, x: Any) -> Any:
        return self.head(self.rnn(x)[:, -1])


# ---- Haiku ---------------------------------------------------------------------------------------


def of_haiku(function: Callable[..., Any], x: Any) -> Any:
    net = hk.without_apply_rng(hk.transform(function))
    return lambda params, x: mean_square(net.apply(params, x)), (net.init(keys(1)[0], x), x)


class HaikuBlock(hk.Module):
    def __call__(self, x: Any) -> Any:
        norm = lambda: hk.LayerNorm(-1, True, True)
        y = norm()(x)
        attend = hk.MultiHeadAttention(
            HEADS, WIDTH // HEADS, w_init=hk.initializers.VarianceScaling(1.0), model_size=WIDTH
        )
        x = x + attend(y, y, y)
        return x + hk.Linear(WIDTH)(jax.nn.gelu(hk.Linear(16)(norm()(x))))


def haiku_vit(x: Any) -> Any:
    x = hk.Conv2D(WIDTH, 4, 4)(x).reshape(len(x), -1, WIDTH)
    x = x + hk.get_parameter("positions", (4, WIDTH), x.dtype, hk.initializers.RandomNormal())
    for _ in range(2):
        x = HaikuBlock()(x)
    return hk.Linear(CLASSES)(jnp.mean(hk.LayerNorm(-1, True, True)(x), axis=1))


def haiku_lstm(x: Any) -> Any:
    core = hk.LSTM(WIDTH)
    hs, _ = hk.dynamic_unroll(core, jnp.swapaxes(x, 0, 1), core.initial_state(len(x)))
    return hk.Linear(CLASSES)(hs[-1])


NETWORKS = {
    "MLP, Equinox": Network(equinox_mlp, ("Linear",)),
    "CNN with BatchNorm and pooling, NNX": Network(
        lambda: of_nnx(NNXCNN(nnx.Rngs(0)), images()), ("Conv", "flax.nnx.Linear")
    ),
    "ResNet18, dendrax.models": Network(ours("resnet18"), ("*Block",)),
    "FC-ResNet, dendrax.models": Network(ours("fc_resnet"), ("*Linear",)),
    "Transformer, dendrax.models": Network(ours("transformer"), ("*Block",)),
    "LSTM, Equinox": Network(equinox_lstm, ("LSTMCell",)),
    "LSTM, NNX": Network(lambda: of_nnx(NNXLSTM(nnx.Rngs(0)), tokens()), ("flax.nnx.LSTMCell",)),
    "LSTM, Haiku": Network(lambda: of_haiku(haiku_lstm, tokens()), ("haiku.LSTM",)),
    "scanned Transformer, Equinox": Network(scanned_transformer, ("EquinoxBlock",)),
    "ViT, Equinox": Network(equinox_vit, ("EquinoxBlock",)),
    "ViT, NNX": Network(lambda: of_nnx(NNXViT(nnx.Rngs(0)), images()), ("NNXBlock",)),
    "ViT, Haiku": Network(lambda: of_haiku(haiku_vit, images()), ("HaikuBlock",)),
}
