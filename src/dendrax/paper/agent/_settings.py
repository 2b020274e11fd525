"""What defines a run of the agent, and the schedule of its exploration."""

from __future__ import annotations

from dataclasses import Field, dataclass, fields
from typing import Any

import numpy as np
from jax.typing import DTypeLike

from dendrax.paper._atari import MAX_ACTIONS, canonical_game
from dendrax.paper.agent._replay import check_capacity
from dendrax.support import complain, fraction, integer, one_of, positive, speaking_as


@dataclass(frozen=True)
class QSettings:
    """The settings of a recurrent Q-learning agent. Batch, learning rate and sizes are the paper's.

    **Attributes:**

    - `game`: one of `dendrax.paper.GAMES`.
    - `steps`: actions in the whole run.
    - `window`: how many observations the recurrent network reads.
    - `hidden_size`, `out_size`: units. Output `a` is the value of action `a`; the rest are unused.
    - `batch_size`, `learning_rate`, `adam_epsilon`: of Adam.
    - `discount`: the weight of the next step's value.
    - `horizon`: how many steps of real reward come before the estimated value.
    - `max_error`: errors of the output are clipped to this size.
    - `double`: whether the model chooses the next action that the target network values.
    - `capacity`: the number of transitions that are remembered.
    - `warmup`: steps of random play before learning.
    - `learn_every`: steps per update.
    - `target_rate`: the part of its distance to the model that the target network moves at each
        update. The target network, a running mean of models, is also the one that is measured.
    - `epsilon_start`, `epsilon_end`, `epsilon_steps`: the probability of a random action falls
        linearly, in so many steps.
    - `evaluate_every`, `evaluate_episodes`, `evaluate_epsilon`: how the agent is measured.
    - `clip_reward`: whether to learn from rewards within [-1, 1].
    - `life_ends`: whether the loss of a life ends an episode, for learning.
    - `frame_skip`, `sticky`, `max_steps`: as for `dendrax.paper.Atari`.
    - `dtype`: the type of weights and inputs, kept as its name.
    """

    game: str = "Seaquest"
    steps: int = 120_000
    window: int = 4
    hidden_size: int = 128
    out_size: int = 128
    batch_size: int = 32
    learning_rate: float = 0.001
    adam_epsilon: float = 0.01
    discount: float = 0.97
    horizon: int = 3
    max_error: float = 1.0
    double: bool = True
    capacity: int = 100_000
    warmup: int = 5_000
    learn_every: int = 4
    target_rate: float = 0.005
    epsilon_start: float = 1.0
    epsilon_end: float = 0.05
    epsilon_steps: int = 50_000
    evaluate_every: int = 15_000
    evaluate_episodes: int = 10
    evaluate_epsilon: float = 0.05
    clip_reward: bool = True
    life_ends: bool = True
    frame_skip: int = 4
    sticky: float = 0.25
    max_steps: int = 4_500
    dtype: DTypeLike = "float32"

    def __post_init__(self) -> None:
        with speaking_as("dendrax.paper.agent.QSettings"):
            for field in fields(self):
                value = _checked(field, getattr(self, field.name))
                object.__setattr__(self, field.name, value)
            _check_replay(self)


def epsilon_at(settings: QSettings, step: int) -> float:
    """The probability of a random action at a step."""
    done = min(step / settings.epsilon_steps, 1.0)
    return settings.epsilon_start + done * (settings.epsilon_end - settings.epsilon_start)


def _checked(field: Field[Any], value: Any) -> Any:
    """A setting as a plain string, number or truth value: equal settings are saved alike."""
    if field.name == "game":
        return canonical_game(value)
    if field.name == "dtype":
        return _dtype_name(value)
    if field.type == "int":
        return integer(field.name, value)
    if field.type == "float":
        return _checked_float(field.name, value)
    one_of(field.name, value, (True, False))
    return bool(value)


def _checked_float(name: str, value: Any) -> float:
    if name in ("learning_rate", "adam_epsilon"):
        return positive(name, value)
    if name == "max_error":
        return positive(name, value, finite=False)
    return fraction(name, value, below_one=name == "sticky")


def _dtype_name(dtype: Any) -> str:
    try:
        name = None if dtype is None else np.dtype(dtype).name  # np.dtype(None) is float64
    except (TypeError, ValueError):
        name = dtype
    one_of("dtype", name, ("float32", "float64", "bfloat16", "float16"))
    return str(name)


def _check_replay(settings: QSettings) -> None:
    if settings.out_size < MAX_ACTIONS:
        problem = f"out_size={settings.out_size} is less than the {MAX_ACTIONS} actions of a game."
        raise complain(ValueError, problem)
    check_capacity(settings.capacity, settings.window, settings.horizon)
    if settings.warmup <= settings.window + settings.horizon:
        problem = (
            f"warmup={settings.warmup} is too short for a window of {settings.window} and a "
            f"horizon of {settings.horizon}."
        )
        raise complain(ValueError, problem, remedy="Play more before learning.")
