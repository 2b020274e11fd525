"""Haiku: networks that ship with it; `dendrax.value_and_grad` is all it needs."""

import haiku as hk
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import dendrax
from dendrax import train
from tests.compare import same
from tests.integrations.both import check_learns, check_same, cross_entropy, images, repeat


def resnet(x):
    """`haiku.nets.ResNet`, of the package, narrow."""
    blocks, widths = (1, 1, 1, 1), (4, 4, 8, 8)
    net = hk.nets.ResNet(
        blocks, 10, bottleneck=False, channels_per_group=widths, use_projection=widths
    )
    return net(x, is_training=True)


def mobilenet(x):
    """`haiku.nets.MobileNetV1`, of the package, narrow."""
    net = hk.nets.MobileNetV1(strides=(2,), channels=(4,), num_classes=10, use_bn=True)
    return net(x, is_training=True)


def lenet(x):
    """`haiku.nets.MLP`, of the package, for LeNet-300-100 of Haiku's README, smaller."""
    return hk.nets.MLP((30, 10))(hk.Flatten()(x), dropout_rate=0.2, rng=hk.next_rng_key())


def autoencoder(x):
    """Vectors quantised by `haiku.nets.VectorQuantizerEMA`, whose code book is state."""
    quantiser = hk.nets.VectorQuantizerEMA(4, 8, commitment_cost=0.25, decay=0.9)
    found = quantiser(hk.Linear(4)(hk.Flatten()(x)), is_training=True)
    return found["loss"], hk.Linear(10)(found["quantize"])


def characters(x):
    """After Haiku's examples: an LSTM that is unrolled over embedded characters."""
    core = hk.DeepRNN([hk.Embed(12, 4), hk.LSTM(6), jax.nn.relu, hk.Linear(12)])
    out, _ = hk.dynamic_unroll(core, x, core.initial_state(x.shape[1]))
    return out


def training(network, x, y, loss=cross_entropy):
    """The training loop of Haiku's examples, as a function of the line that is changed."""
    network = hk.transform_with_state(network)
    optimizer = optax.adam(3e-3)

    def loss_fn(params, state, key, x, y):
        out, state = network.apply(params, state, key, x)
        return loss(out, y), state

    def trained(value_and_grad):
        params, state = jax.jit(network.init)(jax.random.key(0), x)

        @jax.jit
        def step(carry, x, y):
            params, state, opt_state, key = carry
            key, now = jax.random.split(key)
            grad_fn = value_and_grad(loss_fn, has_aux=True)  # <- the line
            (value, state), grads = grad_fn(params, state, now, x, y)
            updates, opt_state = optimizer.update(grads, opt_state)
            return (optax.apply_updates(params, updates), state, opt_state, key), value, grads

        return repeat(step, (params, state, optimizer.init(params), jax.random.key(1)), x, y)

    return trained


def next_character(out, y):
    return jnp.mean(optax.softmax_cross_entropy_with_integer_labels(out, y))


TOKENS = np.random.default_rng(0).integers(12, size=(6, 8))
TRAININGS = {
    "mobilenet": training(mobilenet, *images(8, 8, 8, 3)),
    "lenet": training(lenet, *images(8, 8, 8, 1)),
    "autoencoder": training(
        autoencoder, *images(8, 4, 4), loss=lambda out, y: out[0] + cross_entropy(out[1], y)
    ),
    "characters": training(characters, TOKENS[:-1], TOKENS[1:], loss=next_character),
    "resnet": training(resnet, *images(8, 32, 32, 3)),
}
SLOW = {"resnet", "mobilenet", "characters", "autoencoder"}
NAMES = [pytest.param(name, marks=[pytest.mark.slow] * (name in SLOW)) for name in TRAININGS]


@pytest.mark.parametrize("name", NAMES)
def test_one_line_changes(name):
    check_same(TRAININGS[name])


@pytest.mark.slow
@pytest.mark.parametrize("name", ["lenet", "mobilenet"])
def test_inference_learning(name):
    check_learns(TRAININGS[name])


def test_dropout_masks_are_the_same():
    """And another key is noticed."""

    @hk.transform
    def network(x):
        h = hk.dropout(hk.next_rng_key(), 0.5, hk.Linear(16)(x))
        return jnp.sum(h**2), h == 0

    x = jnp.ones((4, 6))
    params = jax.jit(network.init)(jax.random.key(0), x)

    ours = jax.jit(dendrax.value_and_grad(network.apply, has_aux=True))
    theirs = jax.jit(jax.value_and_grad(network.apply, has_aux=True))
    key, other = jax.random.split(jax.random.key(0))
    assert same(ours(params, key, x), theirs(params, key, x))
    assert not same(ours(params, other, x), theirs(params, key, x))


@pytest.mark.slow
def test_fit():
    x, y = images(32, 8, 8, 1)
    network = hk.transform(lenet)

    def loss(params, x, y, key):
        return cross_entropy(network.apply(params, key, x), y)

    found = train.fit(
        jax.jit(network.init)(jax.random.key(0), x[:1]),
        loss,
        (x, y),
        optimizer=optax.adam(1e-2),
        settings=train.Settings(epochs=4, batch_size=8),
    )
    assert set(found.model) == {f"mlp/~/linear_{i}" for i in range(2)}
    assert found.history[-1]["loss"] < found.history[0]["loss"]


@pytest.mark.slow
def test_fit_with_state():
    x, y = images(32, 8, 8, 3)
    network = hk.transform_with_state(mobilenet)
    params, state = jax.jit(network.init)(jax.random.key(0), x[:1])

    def loss(params, state, x, y):
        out, state = network.apply(params, state, None, x)
        return cross_entropy(out, y), state

    settings = train.Settings(epochs=10, batch_size=8, log_every=1)
    found = train.fit(
        params, loss, (x, y), state=state, optimizer=optax.sgd(0.01), settings=settings
    )
    losses = [line["loss"] for line in found.history if "loss" in line]
    assert np.mean(losses[-4:]) < np.mean(losses[:4]) and not same(found.state, state)
