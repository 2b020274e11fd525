"""How an agent's score grows."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np


class Curve(NamedTuple):
    """The scores of an agent, measured from time to time.

    **Attributes:**

    - `steps`: `(points,)`, int64: after how many actions.
    - `scores`: `(points, episodes)`, float64: the scores of whole games then.
    - `weights`: `(points,)`, strings: the `dendrax.models.digest` of the model then.
    """

    steps: np.ndarray
    scores: np.ndarray
    weights: np.ndarray

    @property
    def means(self) -> np.ndarray:
        """The mean score of each point."""
        return self.scores.mean(axis=1)

    def extended(self, step: int, scores: np.ndarray, weights: str) -> Curve:
        """The curve with one more point."""
        return Curve(
            np.append(self.steps, step),
            np.vstack([self.scores, scores]),
            np.append(self.weights, weights),
        )


def empty_curve(episodes: int) -> Curve:
    """A curve without a point."""
    return Curve(np.zeros(0, np.int64), np.zeros((0, episodes), np.float64), np.zeros(0, "U64"))
