"""Training the same model twice: with the library's own gradient, and with the one line changed.

A test writes its training as a function of that line, `train(value_and_grad) -> Trained`.
"""

import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

import dendrax
from tests.compare import distance, same

UPDATES = 3
IL = dendrax.IL(num_steps=4, gamma=0.05, batch=8)  # the size of every batch here


class Trained(NamedTuple):
    """All that a run computed: a loss and a gradient for each update, and what is left after it."""

    losses: list[Any]
    gradients: list[Any]
    final: Any


def repeat(step: Callable[..., Any], start: Any, *batch: Any, updates: int = UPDATES) -> Trained:
    """Some updates on one batch, by `step(carry, *batch) -> (carry, loss, gradient)`."""
    carry, losses, gradients = start, [], []
    for _ in range(updates):
        carry, loss, gradient = step(carry, *batch)
        losses.append(loss)
        gradients.append(gradient)
    return Trained(losses, gradients, carry)


@functools.cache  # compiling is most of the time of these tests
def _expected(train: Callable[[Any], Trained], theirs: Callable[..., Any]) -> Trained:
    return train(theirs)


def check_same(
    train: Callable[[Any], Trained],
    theirs: Callable[..., Any] = jax.value_and_grad,
    ours: Callable[..., Any] = dendrax.value_and_grad,
) -> None:
    """Z-IL gives what the library gives, bit for bit: losses, gradients, states and weights."""
    expected, found = _expected(train, theirs), train(ours)
    assert all(np.isfinite(loss) for loss in expected.losses)
    assert len(set(map(float, expected.losses))) == len(expected.losses), "nothing was learned"
    assert any(np.any(np.asarray(g) != 0) for g in jax.tree.leaves(expected.gradients))
    assert same(found, expected)


def check_learns(
    train: Callable[[Any], Trained],
    theirs: Callable[..., Any] = jax.value_and_grad,
    ours: Callable[..., Any] = dendrax.value_and_grad,
    rule: Any = IL,
) -> None:
    """Inference learning learns, and is not backpropagation."""
    expected, found = _expected(train, theirs), train(functools.partial(ours, rule=rule))
    assert all(np.isfinite(loss) for loss in found.losses)
    assert found.losses[-1] < found.losses[0]
    assert abs(found.losses[0] - expected.losses[0]) < 1e-4 * expected.losses[0]
    assert distance(found.gradients[0], expected.gradients[0]) > 0


def images(*shape: int, classes: int = 10, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Random images of a shape (the first axis counts them), and labels."""
    random = np.random.default_rng(seed)
    x = random.normal(size=shape).astype(np.float32)
    return x, random.integers(classes, size=shape[0]).astype(np.int32)


def cross_entropy(logits: Any, labels: Any) -> Any:
    """The mean over the batch."""
    picked = jnp.take_along_axis(jax.nn.log_softmax(logits), labels[:, None], axis=1)
    return -jnp.mean(picked)
