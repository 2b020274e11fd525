"""What a learning rule is: a frozen set of settings that says how the graph is to be run."""

from __future__ import annotations

import abc
from collections.abc import Mapping

from dendrax._dynamics import Schedule
from dendrax._graph import Edge
from dendrax._level import LevelledGraph


class Rule(abc.ABC):
    """A way to assign errors to the vertices of a graph and gradients to its leaves.

    A rule is either a *wave*, run once over the graph (`dendrax._wavefront`), or *dynamics*, run
    over time (`dendrax._dynamics`) with the delays and the schedule that it gives.
    """

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


def learning_edges(levelled: LevelledGraph) -> list[Edge]:
    """The edges on which a parameter learns."""
    graph = levelled.graph
    return [edge for edge in graph.edges if graph[edge.source.vertex].kind == "parameter"]
