"""The layers against their definitions, written out in NumPy."""

import math

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from dendrax.models import astype
from dendrax.models._layers import BatchNorm, Conv, LayerNorm, Linear, max_pool

KEY = jax.random.key(0)


def normal(*shape: int, seed: int = 1) -> jax.Array:
    return jnp.asarray(np.random.default_rng(seed).normal(size=shape))


def test_linear_is_drawn_like_torch():
    layer = Linear(400, 300, key=KEY)
    assert layer.bias is not None
    for leaf in (layer.weight, layer.bias):
        assert leaf.dtype == jnp.float32
        assert jnp.max(jnp.abs(leaf)) <= 1 / 20
        assert jnp.std(leaf) == pytest.approx(1 / 20 / math.sqrt(3), rel=0.1)


def test_conv_is_drawn_after_he():
    conv = Conv(16, 64, 5, key=KEY)
    assert jnp.std(conv.kernel) == pytest.approx(math.sqrt(2 / (16 * 25)), rel=0.05)


@pytest.mark.parametrize("stride", [1, 2])
def test_conv_is_a_sum_over_windows(stride: int):
    conv = astype(Conv(3, 4, 3, stride=stride, padding=((1, 1), (1, 1)), key=KEY), jnp.float64)
    conv = eqx.tree_at(lambda c: c.bias, conv, normal(4))
    x = normal(2, 6, 5, 3)
    padded = np.pad(x, ((0, 0), (1, 1), (1, 1), (0, 0)))
    y = np.stack(
        [
            np.stack(
                [
                    np.einsum("bijc,ijco->bo", padded[:, i : i + 3, j : j + 3], conv.kernel)
                    for j in range(0, 5, stride)
                ],
                axis=1,
            )
            for i in range(0, 6, stride)
        ],
        axis=1,
    )
    np.testing.assert_allclose(conv(x), y + np.asarray(conv.bias), atol=1e-12)


def test_max_pool_takes_the_largest_of_each_window():
    x = normal(2, 7, 7, 3)
    y = max_pool(x, 3, 2)
    assert y.shape == (2, 3, 3, 3)
    for i in range(3):
        for j in range(3):
            window = x[:, 2 * i : 2 * i + 3, 2 * j : 2 * j + 3]
            assert (y[:, i, j] == window.max(axis=(1, 2))).all()


def test_max_pool_never_chooses_the_padding():
    x = -1 - jnp.square(normal(1, 4, 4, 2))
    assert (max_pool(x, 3, 2, ((1, 1), (1, 1))) <= -1).all()


@pytest.mark.parametrize(
    ("layer", "axes"), [(BatchNorm(6), (0, 1, 2)), (LayerNorm(6), (3,))], ids=["batch", "layer"]
)
def test_norms_give_mean_zero_and_variance_one(layer: BatchNorm | LayerNorm, axes: tuple[int]):
    x = 3 + 5 * normal(4, 8, 7, 6)
    y = astype(layer, jnp.float64)(x)
    np.testing.assert_allclose(y.mean(axis=axes), 0, atol=1e-12)
    np.testing.assert_allclose(y.var(axis=axes), 1, atol=1e-4)
    expected = (x - x.mean(axes, keepdims=True)) / x.std(axes, keepdims=True)
    np.testing.assert_allclose(y, expected, atol=1e-4)


@pytest.mark.parametrize("norm", [BatchNorm, LayerNorm])
def test_norms_then_scale_and_shift(norm: type[BatchNorm] | type[LayerNorm]):
    layer = astype(norm(6), jnp.float64)
    x, scale, shift = normal(4, 5, 6), normal(6, seed=2), normal(6, seed=3)
    scaled = eqx.tree_at(lambda n: (n.scale, n.shift), layer, (scale, shift))
    np.testing.assert_allclose(scaled(x), layer(x) * scale + shift, atol=1e-12)


def test_batch_norm_looks_at_the_batch_and_layer_norm_does_not():
    x = normal(4, 6)
    batch, layer = astype((BatchNorm(6), LayerNorm(6)), jnp.float64)
    assert not jnp.allclose(batch(x)[:2], batch(x[:2]))
    assert jnp.allclose(layer(x)[:2], layer(x[:2]))
