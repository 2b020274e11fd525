"""Flax linen: its layers and models of its examples; `dendrax.value_and_grad` is all it needs."""

import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from flax import linen as nn
from flax.training import train_state

import dendrax
from dendrax import train
from tests.compare import same
from tests.integrations.both import check_learns, check_same, cross_entropy, images, repeat


class CNN(nn.Module):
    """After Flax' MNIST example, narrower."""

    @nn.compact
    def __call__(self, x):
        for features in (4, 6):
            x = nn.relu(nn.Conv(features, kernel_size=(3, 3))(x))
            x = nn.avg_pool(x, window_shape=(2, 2), strides=(2, 2))
        x = nn.relu(nn.Dense(12)(x.reshape((x.shape[0], -1))))
        return nn.Dense(10)(x)


class ResidualBlock(nn.Module):
    filters: int
    strides: tuple[int, int]
    norm: Any

    @nn.compact
    def __call__(self, x):
        y = nn.Conv(self.filters, (3, 3), self.strides, use_bias=False)(x)
        y = nn.Conv(self.filters, (3, 3), use_bias=False)(nn.relu(self.norm()(y)))
        y = self.norm(scale_init=nn.initializers.constant(0.5))(y)
        if x.shape != y.shape:
            x = nn.Conv(self.filters, (1, 1), self.strides, use_bias=False, name="proj")(x)
            x = self.norm(name="norm_proj")(x)
        return nn.relu(x + y)


class ResNet(nn.Module):
    """After Flax' ImageNet example, narrower: batch statistics in a mutable collection."""

    @nn.compact
    def __call__(self, x, train=True):
        norm = functools.partial(nn.BatchNorm, use_running_average=not train, momentum=0.9)
        x = nn.relu(norm()(nn.Conv(4, (3, 3), use_bias=False)(x)))
        for filters, strides in ((4, (1, 1)), (8, (2, 2))):
            x = ResidualBlock(filters, strides, norm)(x)
        return nn.Dense(10)(jnp.mean(x, axis=(1, 2)))


class VAE(nn.Module):
    """After Flax' VAE example, smaller: a sample is drawn inside the model."""

    @nn.compact
    def __call__(self, x, key):
        h = nn.relu(nn.Dense(16)(x))
        mean, logvar = nn.Dense(3)(h), nn.Dense(3)(h)
        z = mean + jnp.exp(0.5 * logvar) * jax.random.normal(key, mean.shape)
        return nn.Dense(x.shape[-1])(z), mean, logvar


class Sequences(nn.Module):
    """An LSTM over embedded tokens, with dropout, by the package's own recurrent layer."""

    @nn.compact
    def __call__(self, x):
        h = nn.RNN(nn.OptimizedLSTMCell(6))(nn.Embed(12, 4)(x))
        return nn.Dense(3)(nn.Dropout(0.3, deterministic=False)(h[:, -1]))


class BatchState(train_state.TrainState):
    batch_stats: Any


def trained_cnn(value_and_grad):
    """`TrainState`, as the MNIST example uses it."""
    x, y = images(8, 12, 12, 1)
    params = jax.jit(CNN().init)(jax.random.key(0), x)["params"]
    state = train_state.TrainState.create(
        apply_fn=CNN().apply, params=params, tx=optax.sgd(0.1, momentum=0.9)
    )

    @jax.jit
    def step(state, x, y):
        def loss_fn(params):
            logits = state.apply_fn({"params": params}, x)
            return cross_entropy(logits, y), logits

        grad_fn = value_and_grad(loss_fn, has_aux=True)  # <- the line
        (loss, _), grads = grad_fn(state.params)
        return state.apply_gradients(grads=grads), loss, grads

    run = repeat(step, state, x, y)
    return run._replace(final=(run.final.params, run.final.opt_state))


def trained_resnet(value_and_grad):
    """A mutable collection, as the ImageNet example uses it."""
    x, y = images(8, 8, 8, 3)
    variables = jax.jit(ResNet().init)(jax.random.key(0), x)
    state = BatchState.create(apply_fn=ResNet().apply, tx=optax.sgd(3e-2), **variables)

    @jax.jit
    def step(state, x, y):
        def loss_fn(params):
            variables = {"params": params, "batch_stats": state.batch_stats}
            logits, changed = state.apply_fn(variables, x, mutable=["batch_stats"])
            return cross_entropy(logits, y), changed

        grad_fn = value_and_grad(loss_fn, has_aux=True)  # <- the line
        (loss, changed), grads = grad_fn(state.params)
        state = state.apply_gradients(grads=grads, batch_stats=changed["batch_stats"])
        return state, loss, grads

    run = repeat(step, state, x, y)
    assert not same(run.final.batch_stats, variables["batch_stats"])
    return run._replace(final=(run.final.params, run.final.opt_state, run.final.batch_stats))


def trained_vae(value_and_grad):
    x, _ = images(8, 6)
    optimizer = optax.sgd(3e-2)
    params = jax.jit(VAE().init)(jax.random.key(0), x, jax.random.key(1))

    def loss_fn(params, x, key):
        decoded, mean, logvar = VAE().apply(params, x, key)
        divergence = -0.5 * jnp.mean(1 + logvar - mean**2 - jnp.exp(logvar))
        return jnp.mean((decoded - x) ** 2) + divergence

    @jax.jit
    def step(carry, x):
        params, opt_state, key = carry
        key, now = jax.random.split(key)
        loss, grads = value_and_grad(loss_fn)(params, x, now)  # <- the line
        updates, opt_state = optimizer.update(grads, opt_state)
        return (optax.apply_updates(params, updates), opt_state, key), loss, grads

    return repeat(step, (params, optimizer.init(params), jax.random.key(2)), x)


def trained_sequences(value_and_grad, seed=2):
    x = np.random.default_rng(0).integers(12, size=(8, 5))
    y = images(8, 1, classes=3)[1]
    optimizer = optax.sgd(3e-2)
    params = jax.jit(Sequences().init)(jax.random.key(0), x)

    def loss_fn(params, key):
        return cross_entropy(Sequences().apply(params, x, rngs={"dropout": key}), y)

    @jax.jit
    def step(carry):
        params, opt_state, key = carry
        key, now = jax.random.split(key)
        loss, grads = value_and_grad(loss_fn)(params, now)  # <- the line
        updates, opt_state = optimizer.update(grads, opt_state)
        return (optax.apply_updates(params, updates), opt_state, key), loss, grads

    return repeat(step, (params, optimizer.init(params), jax.random.key(seed)))


@pytest.mark.parametrize(
    "train",
    [
        trained_vae,
        pytest.param(trained_cnn, marks=pytest.mark.slow),
        pytest.param(trained_resnet, marks=pytest.mark.slow),
        pytest.param(trained_sequences, marks=pytest.mark.slow),
    ],
)
def test_one_line_changes(train):
    check_same(train)


@pytest.mark.slow
@pytest.mark.parametrize("train", [trained_vae, trained_cnn, trained_resnet])
def test_inference_learning(train):
    check_learns(train)


def dropped(params, x, key):
    h = nn.Dropout(0.5, deterministic=False).apply({}, x @ params, rngs={"dropout": key})
    return jnp.sum(h**2), h == 0


def test_dropout_masks_are_the_same():
    """And another key is noticed."""

    ours = jax.jit(dendrax.value_and_grad(dropped, has_aux=True))
    theirs = jax.jit(jax.value_and_grad(dropped, has_aux=True))
    params, x = jnp.ones((6, 16)), jnp.ones((4, 6))
    key, other = jax.random.split(jax.random.key(0))
    assert same(ours(params, x, key), theirs(params, x, key))
    assert not same(ours(params, x, other), theirs(params, x, key))


def test_lifted_transformations():
    """`nn.remat`, and `nn.scan` over layers with stacked parameters."""

    class Layer(nn.Module):
        @nn.compact
        def __call__(self, x, _):
            return x + jnp.tanh(nn.Dense(6)(x)), None

    class Deep(nn.Module):
        @nn.compact
        def __call__(self, x):
            split = {"params": True}
            layers = nn.scan(
                nn.remat(Layer), variable_axes={"params": 0}, split_rngs=split, length=3
            )
            return layers()(x, None)[0]

    x, _ = images(8, 6)
    params = jax.jit(Deep().init)(jax.random.key(0), x)
    loss = lambda params: jnp.mean(Deep().apply(params, x) ** 2)
    assert same(
        jax.jit(dendrax.value_and_grad(loss))(params), jax.jit(jax.value_and_grad(loss))(params)
    )


def test_fit():
    model = nn.Sequential([nn.Dense(16), nn.tanh, nn.Dense(3)])
    x, y = images(32, 6, classes=3)
    found = train.fit(
        jax.jit(model.init)(jax.random.key(0), x[:1]),
        lambda params, x, y: cross_entropy(model.apply(params, x), y),
        (x, y),
        optimizer=optax.adam(1e-2),
        settings=train.Settings(epochs=4, batch_size=8),
    )
    assert set(found.model["params"]) == {"layers_0", "layers_2"}
    assert found.history[-1]["loss"] < found.history[0]["loss"]
