"""Choosing actions and measuring what they are worth, without learning."""

from __future__ import annotations

import numpy as np

from dendrax.models import RNN
from dendrax.paper._atari import Atari
from dendrax.paper.agent._q_learning import best_action
from dendrax.paper.agent._settings import QSettings
from dendrax.support import integer, public, seed_number


def choose(
    model: RNN | None,
    window: np.ndarray,
    num_actions: int,
    epsilon: float,
    generator: np.random.Generator,
) -> int:
    """The best action or, with probability `epsilon` (and without a model), any."""
    if generator.random() < epsilon or model is None:
        return int(generator.integers(num_actions))
    return int(best_action(model, window, num_actions))


def first_window(observation: np.ndarray, length: int) -> np.ndarray:
    """What an agent that has seen one observation reads: that one, repeated."""
    return np.repeat(observation[None], length, axis=0)


def next_window(window: np.ndarray, observation: np.ndarray) -> np.ndarray:
    """The window moves on by one observation."""
    return np.concatenate([window[1:], observation[None]])


def make_game(settings: QSettings, seed: int) -> Atari:
    """The game that the settings speak of."""
    return Atari(
        settings.game,
        seed=seed,
        frame_skip=settings.frame_skip,
        sticky=settings.sticky,
        max_steps=settings.max_steps,
    )


@public("dendrax.paper.agent.evaluate")
def evaluate(
    model: RNN | None,
    settings: QSettings,
    *,
    episodes: int | None = None,
    seed: int = 0,
) -> np.ndarray:
    """Plays whole games without learning, on a console of its own; without a model, at random."""
    episodes = settings.evaluate_episodes if episodes is None else integer("episodes", episodes)
    console, actions = np.random.SeedSequence(seed_number(seed)).generate_state(2)
    game, generator = make_game(settings, int(console)), np.random.default_rng(actions)
    return np.asarray([_play_one(model, settings, game, generator) for _ in range(episodes)])


@public("dendrax.paper.agent.random_score")
def random_score(
    game: str, episodes: int = 20, seed: int = 0, *, max_steps: int = QSettings.max_steps
) -> np.ndarray:
    """What random play gives: the measure of any agent."""
    settings = QSettings(game, max_steps=max_steps)
    return evaluate(None, settings, episodes=episodes, seed=seed)


def _play_one(
    model: RNN | None, settings: QSettings, game: Atari, generator: np.random.Generator
) -> float:
    window, score, over = first_window(game.reset(), settings.window), 0.0, False
    epsilon = settings.evaluate_epsilon
    while not over:
        action = choose(model, window, game.num_actions, epsilon, generator)
        observation, reward, over = game.step(action)
        window, score = next_window(window, observation), score + reward
    return score
