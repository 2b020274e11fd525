"""Rules are frozen sets of settings: how these are checked."""

from __future__ import annotations

import dataclasses
import math
import numbers
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from dendrax.graph import Edge, LevelledGraph, Port, Vertex
from dendrax.inference import Network
from dendrax.support import complain

Gamma = float | Callable[[Vertex], Any]
GAMMA_REMEDY = "The paper uses gamma=1 for Z-IL and a small gamma, such as 0.1, for IL."
MAX_STEPS = 2**31 - 1  # what a loop of XLA can count


def learning_edges(levelled: LevelledGraph) -> list[Edge]:
    """The edges on which a parameter learns."""
    graph = levelled.graph
    return [edge for edge in graph.edges if graph[edge.source.vertex].kind == "parameter"]


def check_positive(setting: str, value: Any, remedy: str) -> None:
    """A setting that is a positive number."""
    if (
        isinstance(value, bool)
        or not isinstance(value, numbers.Real)
        or not math.isfinite(value)
        or value <= 0
    ):
        raise complain(
            ValueError, f"{setting}={value!r} is not a positive Python number.", remedy=remedy
        )


def check_gamma(rule: str, gamma: Any) -> None:
    """An integration step is a positive number."""
    check_positive(f"{rule}: gamma", gamma, GAMMA_REMEDY)


def check_gammas(rule: str, gamma: Any) -> None:
    """An integration step is a positive number, or a function of the vertex that returns one."""
    if not callable(gamma) or isinstance(gamma, type):
        check_gamma(rule, gamma)


def gammas(rule: Any, net: Network, nodes: Iterable[Port]) -> Mapping[Port, float]:
    """The integration step of each of some value nodes."""
    gamma: Any = rule.gamma
    if not callable(gamma):
        return dict.fromkeys(nodes, float(gamma))
    found: dict[Port, float] = {}
    for port in nodes:
        vertex = net.view.vertex(port)
        value: Any = gamma(vertex)
        name = f"{type(rule).__name__}: gamma of {vertex.name}"
        check_positive(name, value, GAMMA_REMEDY)
        found[port] = float(value)
    return found


def check_num_steps(rule: str, num_steps: Any, remedy: str) -> None:
    """A number of steps is a positive integer, and one that a loop can count."""
    if not isinstance(num_steps, int) or isinstance(num_steps, bool) or num_steps < 1:
        raise complain(
            ValueError, f"{rule}: num_steps={num_steps!r} is not a positive integer.", remedy=remedy
        )
    if num_steps > MAX_STEPS:
        # Python does not print integers of more than 4300 digits.
        given = f"={num_steps}" if num_steps < 10**30 else ""
        raise complain(
            ValueError, f"{rule}: num_steps{given} is more than {MAX_STEPS:,}.", remedy=remedy
        )


def shown(self: Any) -> str:
    """A rule as Python writes it, ``energies`` and ``on_divergence`` only where they are set."""
    rare = ("energies", "on_divergence")
    pairs = [(field, getattr(self, field.name)) for field in dataclasses.fields(self)]
    shown = [f"{f.name}={v!r}" for f, v in pairs if f.name not in rare or v != f.default]
    return f"{type(self).__name__}({', '.join(shown)})"


def as_floats(rule: Any, *settings: str) -> None:
    """Numbers of NumPy become Python's, which take on the dtype of whatever they meet."""
    for name in settings:
        value = getattr(rule, name)
        if isinstance(value, numbers.Real):
            object.__setattr__(rule, name, float(value))
