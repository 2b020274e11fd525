"""Every rule learns: XOR, and FashionMNIST."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import dendrax
from dendrax import BP, IL, ZIL, ErrorPC, FixedPrediction, IncrementalPC
from dendrax.data import fashion_mnist
from dendrax.models import MLP, cross_entropy_loss, squared_error_loss
from tests.compare import same
from tests.sampling import every

RULES = {
    "bp": BP(),
    "zil": ZIL(),
    "il": IL(num_steps=20, gamma=0.2, batch="mean"),
    "levelled": IL(num_steps=20, gamma=0.2, batch="mean", levelled=True),
    "fixed": FixedPrediction(),
    "incremental": IncrementalPC(num_steps=10, gamma=0.2, learning_rate=0.01, batch="mean"),
    "error": ErrorPC(num_steps=10, gamma=0.3, batch="mean"),
}


def train(rule, model, loss, batches, optimizer):
    @jax.jit
    def update(model, state, x, y):
        value, gradient = dendrax.value_and_grad(loss, rule=rule)(model, x, y)
        change, state = optimizer.update(gradient, state, model)
        return optax.apply_updates(model, change), state, value

    state = optimizer.init(model)
    for x, y in batches:
        model, state, _ = update(model, state, x, y)
    return model


@pytest.mark.parametrize("rule", RULES.values(), ids=RULES)
def test_xor(rule):
    x = jnp.asarray([[0, 0], [0, 1], [1, 0], [1, 1]], jnp.float32)
    y = jnp.asarray([[0], [1], [1], [0]], jnp.float32)
    model = MLP(2, (16,), 1, gain=2.0, key=jax.random.key(1))
    # Incremental PC hands back the sum over its steps: plain gradient descent with its own rate.
    optimizer = optax.sgd(0.01 if isinstance(rule, IncrementalPC) else 0.3)
    model = train(rule, model, squared_error_loss, [(x, y)] * 3000, optimizer)
    np.testing.assert_allclose(model(x), y, atol=0.1)


@pytest.fixture(scope="module")
def clothes():
    images = fashion_mnist()
    x = jnp.asarray(images.train_images.reshape(-1, 784) / 255.0, jnp.float32)
    y = jax.nn.one_hot(images.train_labels, 10, dtype=jnp.float32)
    test = jnp.asarray(images.test_images.reshape(-1, 784) / 255.0, jnp.float32)
    order = np.random.default_rng(0)
    batches = [np.array_split(order.permutation(len(x)), 100) for _ in range(4)]
    return [(x[i], y[i]) for epoch in batches for i in epoch], test, images.test_labels


LONGER = {name: RULES[name] for name in ("il", "bp", "fixed", "zil", "error", "levelled")}


@pytest.mark.parametrize("rule", every(3, {**LONGER, **RULES}))
def test_fashion_mnist(rule, clothes):
    batches, images, labels = clothes
    model = MLP(784, (64, 64), 10, key=jax.random.key(0))
    optimizer = optax.sgd(0.01) if isinstance(rule, IncrementalPC) else optax.sgd(0.1)
    model = train(rule, model, cross_entropy_loss, batches, optimizer)
    accuracy = np.mean(np.asarray(jnp.argmax(model(images), -1)) == labels)
    assert accuracy > 0.75


def test_zil_learns_what_bp_learns(clothes):
    """Every weight, to the last bit, after 200 updates."""
    batches, _, _ = clothes
    model = MLP(784, (64, 64), 10, key=jax.random.key(0))
    found = [
        train(rule, model, cross_entropy_loss, batches[:200], optax.sgd(0.1))
        for rule in (ZIL(), BP())
    ]
    assert same(*found)


def test_the_data():
    images = fashion_mnist()
    assert images.train_images.shape == (5000, 28, 28) and images.train_images.dtype == np.uint8
    assert images.test_images.shape == (1000, 28, 28)
    assert (np.bincount(images.train_labels) == 500).all()
    assert (np.bincount(images.test_labels) == 100).all()
