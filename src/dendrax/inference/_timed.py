"""Rules whose parameters learn when an error reaches them."""

from __future__ import annotations

import abc
from collections.abc import Mapping
from typing import ClassVar

from dendrax.graph import Edge, LevelledGraph
from dendrax.inference._dynamics import Schedule
from dendrax.inference._rule import Rule
from dendrax.support import Vertices


class Timed(Rule, abc.ABC):
    """A rule whose parameters learn when an error reaches them.

    It is either a *wave*, run once over the graph (`dendrax.walk._wave`), or *dynamics*, run over
    time (`dendrax.inference._dynamics`) with the delays and the schedule that it gives.
    """

    vertices: ClassVar[Vertices] = "primitive"

    @property
    def has_time(self) -> bool:
        """Whether there are dynamics at all."""
        return True

    @property
    @abc.abstractmethod
    def is_wave(self) -> bool:
        """Whether one pass over the levels gives this rule's result exactly."""

    @abc.abstractmethod
    def delays(self, levelled: LevelledGraph) -> Mapping[Edge, int]:
        """The delay of each edge in the dynamics."""

    @abc.abstractmethod
    def schedule(self, levelled: LevelledGraph) -> Schedule:
        """Integration step, number of steps, start, and when each leaf learns."""
