r"""Q-learning by any dendrax rule: the output is clamped, and its error is the TD error.

For a transition $(s, a, r, s')$ and the model's values $Q(s)$, the target is $Q(s)$ itself, except

$$target_a = Q_a(s) + clip(r + \gamma^n \max_b Q^{target}_b(s') - Q_a(s)),$$

with the discounted rewards $r$ of $n$ steps,

so that under the squared error of `dendrax.models` only the taken action's output has an error.
With double Q-learning (van Hasselt et al. 2016) the model itself chooses $b$. (Under IL the other
outputs are held where they were: they get an error as soon as the hidden value nodes move.)
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache, partial
from typing import Any, NamedTuple, TypeAlias

import jax
import jax.numpy as jnp
import optax
from jax.typing import DTypeLike

import dendrax
from dendrax.models import RNN, astype, squared_error_loss
from dendrax.paper._atari import MEMORY
from dendrax.paper.agent._replay import Batch
from dendrax.paper.agent._settings import QSettings
from dendrax.support import complain, speaking_as

Rule: TypeAlias = Any  # any of `dendrax.rules`; None is JAX's own reverse mode


class QState(NamedTuple):
    """What learning changes: the model, the target network, Adam's averages, updates so far."""

    model: RNN
    target: RNN
    optimizer: optax.OptState
    updates: int


class Learner:
    """Updates the values of a game's actions from batches of transitions."""

    def __init__(self, settings: QSettings, num_actions: int, rule: Rule):
        """**Arguments:**

        - `settings`: the sizes and rates.
        - `num_actions`: how many of the outputs are values.
        - `rule`: any dendrax rule but `IncrementalPC`, or None for `jax.value_and_grad`.
        """
        self.settings, self.num_actions = settings, num_actions
        self._update = compiled_update(settings, num_actions, rule)

    def init(self, key: jax.Array) -> QState:
        """A new model, its copy, and an optimizer that has seen nothing."""
        sizes = (MEMORY, self.settings.hidden_size, self.settings.out_size)
        model: Any = astype(RNN(*sizes, key=key), self.settings.dtype)
        return QState(model, model, adam(self.settings).init(model), 0)

    def update(self, state: QState, batch: Batch) -> tuple[QState, jax.Array]:
        """One step of Adam, and a small step of the target network towards the model."""
        model, target, averages, loss = self._update(
            state.model, state.target, state.optimizer, batch
        )
        return QState(model, target, averages, state.updates + 1), loss


def compiled_update(settings: QSettings, num_actions: int, rule: Rule) -> Callable[..., Any]:
    """The compiled update; the same one for equal settings and rules."""
    try:
        return _cached_update(settings, num_actions, rule)
    except TypeError:  # a rule that holds a dictionary cannot be looked up
        return _cached_update.__wrapped__(settings, num_actions, rule)


@lru_cache(maxsize=32)
def _cached_update(settings: QSettings, num_actions: int, rule: Rule) -> Callable[..., Any]:
    differentiate, optimizer = differentiator(rule), adam(settings)

    def update(
        model: Any, target_model: RNN, averages: optax.OptState, batch: Batch
    ) -> tuple[Any, RNN, optax.OptState, jax.Array]:
        inputs, target = clamp(settings, num_actions, model, target_model, batch)
        loss, gradient = differentiate(squared_error_loss)(model, inputs, target)
        with jax.numpy_dtype_promotion("standard"):  # Adam raises a float to its integer count
            change, averages = optimizer.update(gradient, averages)
        model = optax.apply_updates(model, change)
        return model, _nearer(target_model, model, settings.target_rate), averages, loss

    return jax.jit(update)


def _nearer(slow: RNN, fast: RNN, rate: float) -> RNN:
    return jax.tree.map(lambda a, b: a + rate * (b - a), slow, fast)


def adam(settings: QSettings) -> optax.GradientTransformation:
    """The optimizer of the settings."""
    return optax.adam(settings.learning_rate, eps=settings.adam_epsilon)


@partial(jax.jit, static_argnums=2)
def best_action(model: RNN, window: Any, num_actions: int) -> jax.Array:
    """The action of the highest value after one window of observations (uint8)."""
    values = model(scaled(window[None], model.head.weight.dtype))
    return jnp.argmax(values[0, :num_actions])


def clamp(
    settings: QSettings, num_actions: int, model: RNN, target_model: RNN, batch: Batch
) -> tuple[jax.Array, jax.Array]:
    """What the network's ends are clamped to."""
    inputs = scaled(batch.windows, settings.dtype)
    values = model(inputs)
    following = _following(settings, num_actions, model, target_model, batch)
    alive = 1 - jnp.asarray(batch.over, values.dtype)
    weight = settings.discount**settings.horizon
    wanted = jnp.asarray(batch.rewards, values.dtype) + weight * alive * following
    rows = jnp.arange(values.shape[0])
    error = jnp.clip(wanted - values[rows, batch.actions], -settings.max_error, settings.max_error)
    return inputs, values.at[rows, batch.actions].add(error)


def _following(
    settings: QSettings, num_actions: int, model: RNN, target_model: RNN, batch: Batch
) -> jax.Array:
    """The value of the next step's best action."""
    inputs = scaled(batch.next_windows, settings.dtype)
    values = target_model(inputs)[:, :num_actions]
    if not settings.double:
        return jnp.max(values, axis=1)
    best = jnp.argmax(model(inputs)[:, :num_actions], axis=1)
    return jnp.take_along_axis(values, best[:, None], axis=1)[:, 0]


def scaled(windows: Any, dtype: DTypeLike) -> jax.Array:
    """Bytes as numbers from -1 to 1."""
    return (jnp.asarray(windows, dtype) - 127.5) / 127.5


def differentiator(rule: Rule) -> Callable[..., Callable[..., tuple[jax.Array, Any]]]:
    """`jax.value_and_grad`, or dendrax's with the given rule."""
    if rule is None:
        return jax.value_and_grad
    if rule.moves_parameters:
        problem = (
            f"{type(rule).__name__} moves the weights itself, with a learning rate of its own."
        )
        with speaking_as("dendrax.paper.agent"):
            raise complain(ValueError, problem, remedy="Use ZIL, IL or another rule with Adam.")
    return partial(dendrax.value_and_grad, rule=rule)
