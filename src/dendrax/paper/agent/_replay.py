"""What the agent remembers: single observations in a ring, windows only when sampled.

A transition is 128 bytes of memory and 10 of the rest: a window is never stored, and neither is the
observation that follows, which is the next slot's.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from dendrax.support import complain, fraction, integer, speaking_as


class Batch(NamedTuple):
    """Transitions.

    **Attributes:**

    - `windows`: `(batch, window, size)`, uint8, the newest observation last.
    - `actions`: `(batch,)`, int32: what was done then.
    - `rewards`: `(batch,)`, float32: what that and the next steps gave, discounted.
    - `over`: `(batch,)`, bool: whether the episode ended in those steps.
    - `next_windows`: as `windows`, those steps later; without meaning where the episode was over.
    """

    windows: np.ndarray
    actions: np.ndarray
    rewards: np.ndarray
    over: np.ndarray
    next_windows: np.ndarray


class Replay:
    """A ring of the last `capacity` transitions.

    !!! example

        ```python
        import numpy as np
        from dendrax.paper.agent import Replay

        replay = Replay(1000, window=4, size=128)
        for step in range(10):
            replay.add(np.zeros(128, np.uint8), action=1, reward=0.0, over=step == 9)
        batch = replay.sample(np.random.default_rng(0), 32)
        len(replay)  # -> 10
        ```
    """

    def __init__(
        self,
        capacity: int,
        *,
        window: int,
        size: int = 128,
        horizon: int = 1,
        discount: float = 1.0,
    ):
        """**Arguments:**

        - `capacity`: how many transitions are kept.
        - `window`: how many observations a sampled window has.
        - `size`: the bytes of an observation.
        - `horizon`: how many steps' rewards are added up.
        - `discount`: of a reward one step later.
        """
        with speaking_as("dendrax.paper.agent.Replay"):
            self.capacity = integer("capacity", capacity)
            self.window = integer("window", window)
            self.horizon = integer("horizon", horizon)
            self.discount = fraction("discount", discount)
            check_capacity(self.capacity, self.window, self.horizon)
            size = integer("size", size)
        self.count = 0
        self._starts = True
        self._observations = np.zeros((self.capacity, size), np.uint8)
        self._actions = np.zeros(self.capacity, np.uint8)
        self._rewards = np.zeros(self.capacity, np.float32)
        self._over = np.zeros(self.capacity, np.bool_)
        # How many observations of the same episode lie before this one: where a window must stop.
        self._age = np.zeros(self.capacity, np.int32)

    def __len__(self) -> int:
        return min(self.count, self.capacity)

    def add(self, observation: np.ndarray, action: int, reward: float, over: bool) -> None:
        """Remembers what was seen, what was done then, and what came of it."""
        with speaking_as("dendrax.paper.agent.Replay.add"):
            action = integer("action", action, 0, np.iinfo(np.uint8).max)
            _check_seen(observation, reward, self._observations.shape[1])
        slot = self.count % self.capacity
        self._observations[slot] = observation
        self._actions[slot] = action
        self._rewards[slot] = reward
        self._over[slot] = over
        self._age[slot] = 0 if self._starts else self._age[slot - 1] + 1
        self._starts = over
        self.count += 1

    def sample(self, generator: np.random.Generator, batch_size: int) -> Batch:
        """Transitions, drawn uniformly, with replacement."""
        oldest, newest = self.sampled_range()
        with speaking_as("dendrax.paper.agent.Replay.sample"):
            batch_size = integer("batch_size", batch_size)
            if newest <= oldest:
                raise complain(ValueError, f"{self.count} transitions are too few to sample from.")
        return self.take(generator.integers(oldest, newest, batch_size))

    def sampled_range(self) -> tuple[int, int]:
        """The transitions, numbered since the first, that have a whole window and a successor."""
        overwritten = self.count - len(self)
        oldest = overwritten + self.window - 1 if overwritten else 0
        return oldest, self.count - self.horizon

    def take(self, indices: np.ndarray) -> Batch:
        """The transitions with the given numbers, counted since the first ever added."""
        with speaking_as("dendrax.paper.agent.Replay.take"):
            _check_within(indices, *self.sampled_range())
        rewards, over = self._returns(indices)
        return Batch(
            self._windows(indices),
            self._actions[indices % self.capacity].astype(np.int32),
            rewards,
            over,
            self._windows(indices + self.horizon),
        )

    def _returns(self, indices: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Discounted rewards up to the horizon or the end of the episode, and whether it ended."""
        rewards, over = np.zeros(len(indices), np.float32), np.zeros(len(indices), np.bool_)
        for step in range(self.horizon):
            slots = (indices + step) % self.capacity
            rewards += np.float32(self.discount**step) * np.where(over, 0, self._rewards[slots])
            over |= self._over[slots]
        return rewards, over

    def _windows(self, indices: np.ndarray) -> np.ndarray:
        # Before an episode's first observation there is nothing: the window repeats that one.
        back = np.arange(self.window - 1, -1, -1)
        age = self._age[indices % self.capacity]
        return self._observations[
            (indices[:, None] - np.minimum(back, age[:, None])) % self.capacity
        ]

    def arrays(self) -> dict[str, np.ndarray]:
        """The rings, for saving."""
        return {
            "observations": self._observations,
            "actions": self._actions,
            "rewards": self._rewards,
            "over": self._over,
            "age": self._age,
        }

    def restore(self, arrays: dict[str, np.ndarray]) -> None:
        """Takes what `arrays` gave, of a replay with the same capacity."""
        for name, ring in self.arrays().items():
            ring[:] = arrays[name]

    @property
    def progress(self) -> tuple[int, bool]:
        """How many transitions there were, and whether the next one starts an episode."""
        return self.count, self._starts

    @progress.setter
    def progress(self, progress: tuple[int, bool]) -> None:
        count, starts = progress
        self.count, self._starts = integer("count", count, 0), bool(starts)


def check_capacity(capacity: int, window: int, horizon: int) -> None:
    """Raise unless a full ring holds a transition with a whole window and a successor."""
    if capacity < window + horizon:
        problem = (
            f"capacity={capacity} holds no window={window} of observations and horizon={horizon} "
            "steps after it."
        )
        raise complain(ValueError, problem, remedy=f"Remember at least {window + horizon}.")


def _check_within(indices: np.ndarray, oldest: int, newest: int) -> None:
    outside = indices[(indices < oldest) | (indices >= newest)]
    if outside.size:
        problem = f"transition {outside[0]} is not among {oldest} to {newest - 1}."
        raise complain(IndexError, problem, remedy="Take those of sampled_range().")


def _check_seen(observation: np.ndarray, reward: float, size: int) -> None:
    seen = np.asarray(observation)
    if seen.shape != (size,) or seen.dtype != np.uint8:
        problem = f"an observation is {size} numbers of type uint8, got {seen.dtype}{seen.shape}."
        raise complain(ValueError, problem)
    if not np.isfinite(reward):
        raise complain(ValueError, f"reward={reward} is not finite.")
