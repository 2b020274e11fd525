"""Optax: every transformation sees the same gradients, so it does the same."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import dendrax
from tests.compare import same
from tests.integrations.both import check_learns, check_same, images, repeat

OPTIMIZERS = {
    "MultiSteps": optax.MultiSteps(optax.adam(1e-2), every_k_schedule=2),
    "clipped": optax.chain(optax.clip_by_global_norm(0.1), optax.adamw(1e-2)),
    "apply_if_finite": optax.apply_if_finite(optax.sgd(0.1), max_consecutive_errors=5),
    "adaptive clipping": optax.chain(optax.adaptive_grad_clip(0.01), optax.sgd(0.1)),
    "masked, scheduled": optax.masked(
        optax.sgd(optax.cosine_decay_schedule(0.1, 10), momentum=0.9, nesterov=True),
        {"first": True, "second": False},
    ),
    "partitioned": optax.partition(
        {"slow": optax.sgd(0.01), "fast": optax.adam(0.1)}, {"first": "slow", "second": "fast"}
    ),
    "noisy": optax.noisy_sgd(0.1, key=0),
    "lbfgs": optax.scale_by_lbfgs(),
}


def start():
    first, second = jax.random.split(jax.random.key(0))
    return {
        "first": {"w": jax.random.normal(first, (6, 16)) / 3, "b": jnp.zeros(16)},
        "second": {"w": jax.random.normal(second, (16, 3)) / 4, "b": jnp.zeros(3)},
    }


def loss_fn(params, x, y):
    """After the networks of Optax' documentation; the loss is the package's own."""
    h = jax.nn.relu(x @ params["first"]["w"] + params["first"]["b"])
    logits = h @ params["second"]["w"] + params["second"]["b"]
    return optax.softmax_cross_entropy_with_integer_labels(logits, y).mean()


def training(optimizer, batches=None, loss_fn=loss_fn, start=start):
    """The loop of Optax' documentation, as a function of the line that is changed."""
    batch = batches or images(8, 6, classes=3)

    def trained(value_and_grad):
        params = start()

        @jax.jit
        def step(carry, *batch):
            params, opt_state = carry
            loss, grads = value_and_grad(loss_fn)(params, *batch)  # <- the line
            updates, opt_state = optimizer.update(grads, opt_state, params)
            return (optax.apply_updates(params, updates), opt_state), loss, grads

        return repeat(step, (params, optimizer.init(params)), *batch, updates=5)

    return trained


FAST = {"clipped"}
NAMES = [
    pytest.param(name, marks=[pytest.mark.slow] * (name not in FAST))
    for name in OPTIMIZERS
    if name != "MultiSteps"
]


@pytest.mark.parametrize("name", NAMES)
def test_one_line_changes(name):
    check_same(training(OPTIMIZERS[name]))


def test_gradients_that_are_accumulated():
    """Parameters wait for the second step; the comparison holds at each."""
    trained = training(OPTIMIZERS["MultiSteps"])
    expected, found = trained(jax.value_and_grad), trained(dendrax.value_and_grad)
    assert expected.losses[0] == expected.losses[1] != expected.losses[2]
    assert same(found, expected)


def polynomial(params, x, y):
    """After "getting started" of Optax' documentation: the fit of a curve."""
    powers = x[:, :1] ** jnp.arange(3)
    return jnp.mean(optax.l2_loss(powers @ params, y.astype(jnp.float32)))


def test_the_fit_of_a_curve():
    check_same(training(optax.adam(0.1), loss_fn=polynomial, start=lambda: jnp.ones(3)))


def test_updates_that_are_not_finite_are_left_out():
    """Infinite gradients pass through dendrax as they are, and Optax refuses them."""
    bad = lambda params, x: jnp.sum(jnp.log(x @ params["first"]["w"]) ** 2)
    x = np.zeros((8, 6), np.float32)
    optimizer = OPTIMIZERS["apply_if_finite"]
    for value_and_grad in (jax.value_and_grad, dendrax.value_and_grad):
        params = start()
        state = optimizer.init(params)
        _, grads = jax.jit(value_and_grad(bad))(params, x)
        updates, state = optimizer.update(grads, state, params)
        assert not np.all(np.isfinite(grads["first"]["w"]))
        assert state.total_notfinite == 1 and same(optax.apply_updates(params, updates), params)


@pytest.mark.slow
def test_inference_learning():
    check_learns(training(OPTIMIZERS["clipped"]))
