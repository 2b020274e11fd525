"""The agent plays: it chooses, remembers and learns, one step of the game after the other."""

from __future__ import annotations

import jax
import numpy as np

import dendrax
from dendrax.models import RNN
from dendrax.paper._atari import MEMORY
from dendrax.paper.agent._curve import empty_curve
from dendrax.paper.agent._policy import choose, evaluate, first_window, make_game, next_window
from dendrax.paper.agent._q_learning import Learner, QState, Rule
from dendrax.paper.agent._replay import Replay
from dendrax.paper.agent._settings import QSettings, epsilon_at
from dendrax.support import integer, seed_number, speaking_as


class Agent:
    """A recurrent network that learns a game by Q-learning. Everything follows from one seed.

    !!! example

        ```python
        from dendrax.paper.agent import Agent, QSettings, save

        agent = Agent(QSettings("Seaquest"), seed=0)
        agent.play(200)  # of the 5_000 steps before it learns
        save(agent, "runs/seaquest")
        ```
    """

    def __init__(self, settings: QSettings, *, rule: Rule = dendrax.ZIL(), seed: int = 0):
        """**Arguments:**

        - `settings`: a `QSettings`.
        - `rule`: how the network learns: any dendrax rule but `IncrementalPC`, or None for
            `jax.value_and_grad`.
        - `seed`: of weights, game, exploration and replay, below 2**32.
        """
        with speaking_as("dendrax.paper.agent.Agent"):
            self.settings, self.rule, self.seed = settings, rule, seed_number(seed)
        game, explore, draw, evaluation = np.random.SeedSequence(self.seed).generate_state(4)
        self.game = make_game(settings, int(game))
        self.explorer = np.random.default_rng(explore)
        self.drawer = np.random.default_rng(draw)
        self.evaluation_seed = int(evaluation)
        self.replay = Replay(
            settings.capacity,
            window=settings.window,
            size=MEMORY,
            horizon=settings.horizon,
            discount=settings.discount,
        )
        self.learner = Learner(settings, self.game.num_actions, rule)
        self.state: QState = self.learner.init(jax.random.key(self.seed))
        self.window = first_window(self.game.reset(), settings.window)
        self.curve = empty_curve(settings.evaluate_episodes)
        self.step = 0

    @property
    def model(self) -> RNN:
        """The network; output `a` is the value of action `a`."""
        return self.state.model

    def play(self, steps: int) -> None:
        """Plays on, and learns."""
        with speaking_as("dendrax.paper.agent.Agent.play"):
            steps = integer("steps", steps, 0)
        for _ in range(steps):
            self._act()
            self.step += 1
            if self.step >= self.settings.warmup and self.step % self.settings.learn_every == 0:
                self._learn()

    def evaluate(self, episodes: int | None = None) -> np.ndarray:
        """The scores of whole games by the target network, apart from the one it learns in.

        After other steps these are other games: their scores are independent.
        """
        seed = np.random.SeedSequence([self.evaluation_seed, self.step]).generate_state(1)[0]
        return evaluate(self.state.target, self.settings, episodes=episodes, seed=int(seed))

    def _act(self) -> None:
        epsilon, lives = epsilon_at(self.settings, self.step), self.game.lives
        action = choose(self.model, self.window, self.game.num_actions, epsilon, self.explorer)
        observation, reward, over = self.game.step(action)
        ends = over or (self.settings.life_ends and self.game.lives < lives)
        self.replay.add(self.window[-1], action, self._learned(reward), ends)
        self._see(self.game.reset() if over else observation, ends)

    def _see(self, observation: np.ndarray, starts: bool) -> None:
        if starts:
            self.window = first_window(observation, self.settings.window)
        else:
            self.window = next_window(self.window, observation)

    def _learned(self, reward: float) -> float:
        return min(max(reward, -1.0), 1.0) if self.settings.clip_reward else reward

    def _learn(self) -> None:
        batch = self.replay.sample(self.drawer, self.settings.batch_size)
        self.state, _ = self.learner.update(self.state, batch)
