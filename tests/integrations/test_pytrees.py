"""Models that are plain pytrees, as in JAX' own documentation and examples."""

import functools

import jax
import jax.numpy as jnp
import pytest
from jax.example_libraries import optimizers, stax

import dendrax
from tests.integrations.both import IL, check_learns, check_same, cross_entropy, images, repeat


@functools.partial(jax.jit, static_argnums=0)
def layers(sizes, key):
    keys = jax.random.split(key, len(sizes))
    pairs = zip(keys, sizes[:-1], sizes[1:], strict=False)
    return [(jax.random.normal(k, (n, m)) / m**0.5, jnp.zeros(n)) for k, m, n in pairs]


def predict(params, image):
    """After JAX' tutorial on simple neural networks: one image, batched by `vmap`."""
    for w, b in params[:-1]:
        image = jax.nn.relu(w @ image + b)
    w, b = params[-1]
    logits = w @ image + b
    return logits - jax.nn.logsumexp(logits)


def trained_mlp(value_and_grad):
    def loss(params, x, y):
        scores = jax.vmap(predict, in_axes=(None, 0))(params, x)
        return -jnp.mean(scores * jax.nn.one_hot(y, 10))

    @jax.jit
    def step(params, x, y):
        value, grads = value_and_grad(loss)(params, x, y)  # <- the line
        return (
            [(w - dw, b - db) for (w, b), (dw, db) in zip(params, grads, strict=True)],
            value,
            grads,
        )

    return repeat(step, layers((16, 12, 12, 10), jax.random.key(0)), *images(8, 16))


def residual(channels, strides=(1, 1)):
    """After the ResNet of JAX' examples, with stax, which ships with JAX."""
    main = stax.serial(
        stax.Conv(channels, (3, 3), strides, padding="SAME"),
        stax.BatchNorm(),
        stax.Relu,
        stax.Conv(channels, (3, 3), padding="SAME"),
        stax.BatchNorm(),
    )
    shortcut = stax.serial(stax.Conv(channels, (1, 1), strides), stax.BatchNorm())
    both = stax.parallel(main, shortcut)
    return stax.serial(stax.FanOut(2), both, stax.FanInSum, stax.Relu)


CLASSIFIER = stax.serial(  # after the classifier of JAX' examples
    stax.Flatten, stax.Dense(16), stax.Relu, stax.Dense(16), stax.Relu, stax.Dense(10)
)
RESNET = stax.serial(residual(4), residual(8, (2, 2)), stax.Flatten, stax.Dense(10))


def trained_stax(network, value_and_grad):
    init, apply = network
    x, y = images(8, 8, 8, 1)
    _, params = init(jax.random.key(0), (-1, 8, 8, 1))
    start, update, get_params = optimizers.momentum(0.01, mass=0.9)

    @jax.jit
    def step(carry, x, y):
        i, state = carry
        loss = lambda params: cross_entropy(apply(params, x), y)
        value, grads = value_and_grad(loss)(get_params(state))  # <- the line
        return (i + 1, update(i, grads, state)), value, grads

    return repeat(step, (0, start(params)), x, y)


TRAININGS = {
    "mlp": trained_mlp,
    "stax classifier": functools.partial(trained_stax, CLASSIFIER),
    "stax resnet": functools.partial(trained_stax, RESNET),
}


SLOW = {"stax classifier", "stax resnet"}
NAMES = [pytest.param(name, marks=[pytest.mark.slow] * (name in SLOW)) for name in TRAININGS]


@pytest.mark.parametrize("name", NAMES)
def test_one_line_changes(name):
    check_same(TRAININGS[name])


@pytest.mark.parametrize("name", ["mlp"])
def test_inference_learning(name):
    check_learns(TRAININGS[name])


def test_the_comparison_can_fail():
    """Another gradient than that of backpropagation is noticed."""
    ours = functools.partial(dendrax.value_and_grad, rule=IL)
    with pytest.raises(AssertionError):
        check_same(TRAININGS["mlp"], ours=ours)
