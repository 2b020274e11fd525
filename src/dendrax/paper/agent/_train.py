"""A whole run: play, measure, save, and go on where a run was interrupted."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import NamedTuple

import jax
import numpy as np
from jax.typing import DTypeLike

import dendrax
from dendrax.models import RNN, digest
from dendrax.paper.agent._checkpoint import Path, identity, load, save
from dendrax.paper.agent._curve import Curve
from dendrax.paper.agent._play import Agent
from dendrax.paper.agent._q_learning import Rule, clamp
from dendrax.paper.agent._settings import QSettings, epsilon_at
from dendrax.support import complain, fraction, integer, public


class Point(NamedTuple):
    """What `progress` hears: the steps so far, the scores of the games, and the exploration."""

    step: int
    scores: np.ndarray
    epsilon: float


class Transitions(NamedTuple):
    """A model and a batch of real play: what `squared_error_loss(*transitions)` takes."""

    model: RNN
    inputs: jax.Array
    target: jax.Array


@public("dendrax.paper.agent.train")
def train(
    settings: QSettings,
    *,
    rule: Rule = dendrax.ZIL(),
    seed: int = 0,
    progress: Callable[[Point], None] | None = None,
    checkpoint: Path | None = None,
) -> Curve:
    """Trains an agent, and measures it before, after and on the way.

    **Arguments:**

    - `settings`: what and how long.
    - `rule`: any dendrax rule but `IncrementalPC`, or None for `jax.value_and_grad`.
    - `seed`: everything follows from it.
    - `progress`: is called after each measurement.
    - `checkpoint`: a folder that the agent is saved to after each measurement. If it exists, the
        run goes on from there (and may have more `steps` than it had, but not fewer than were
        played).

    **Returns:**

    A `Curve`, also of the part of the run before an interruption.

    !!! example

        ```python
        from dendrax.paper.agent import QSettings, random_score, train

        settings = QSettings("SpaceInvaders", steps=400, warmup=100, evaluate_episodes=1)
        curve = train(settings, progress=print)  # by default 120_000 steps
        curve.steps  # -> [0, 400]
        print(random_score("SpaceInvaders", episodes=2).mean(), curve.means)
        ```
    """
    agent = _agent(settings, rule, seed, checkpoint)
    while True:
        if agent.step not in agent.curve.steps:
            _measure(agent, progress, checkpoint)
        if agent.step >= settings.steps:
            return agent.curve
        every = settings.evaluate_every
        agent.play(min(every - agent.step % every, settings.steps - agent.step))


@public("dendrax.paper.agent.transitions")
def transitions(
    game: str,
    *,
    batch: int = 32,
    window: int = QSettings.window,
    seed: int = 0,
    steps: int = 500,
    epsilon: float = 0.1,
    dtype: DTypeLike = "float32",
) -> Transitions:
    """A batch of real play, as a new agent meets it.

    A freshly initialised agent plays, and the batch is drawn from what it remembers.
    """
    window, steps = integer("window", window), integer("steps", steps, 2)  # one has a successor
    epsilon = fraction("epsilon", epsilon)
    settings = QSettings(
        game,
        window=window,
        batch_size=integer("batch", batch),
        capacity=steps + window,
        warmup=steps + window,  # it only plays
        horizon=1,
        epsilon_start=epsilon,
        epsilon_end=epsilon,
        dtype=dtype,
    )
    agent = Agent(settings, rule=None, seed=seed)
    agent.play(steps)
    sample = agent.replay.sample(agent.drawer, settings.batch_size)
    fixed = jax.jit(clamp, static_argnums=(0, 1))
    ends = fixed(settings, agent.game.num_actions, agent.model, agent.model, sample)
    return Transitions(agent.model, *ends)


def _agent(settings: QSettings, rule: Rule, seed: int, checkpoint: Path | None) -> Agent:
    if checkpoint is None or not os.path.exists(checkpoint):
        return Agent(settings, rule=rule, seed=seed)
    agent = load(checkpoint, rule=rule, about=identity(settings, rule, seed))
    if agent.step > settings.steps:
        problem = f"{checkpoint} holds a run of {agent.step} steps, and steps={settings.steps}."
        raise complain(ValueError, problem, remedy="Ask for more, or give this run its own folder.")
    agent.settings = settings
    return agent


def _measure(
    agent: Agent,
    progress: Callable[[Point], None] | None,
    checkpoint: Path | None,
) -> None:
    scores = agent.evaluate()
    agent.curve = agent.curve.extended(agent.step, scores, digest(agent.model))
    if checkpoint is not None:
        save(agent, checkpoint)
    if progress is not None:
        progress(Point(agent.step, scores, epsilon_at(agent.settings, agent.step)))
