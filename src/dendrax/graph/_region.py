"""Vertex functions that have a graph inside: an inner ``jit``, a ``remat``, a ``scan``."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from dendrax.graph._graph import Flow, Graph, Port, Vertex, reaches


@dataclass(frozen=True, eq=False)
class Region:
    """A vertex function with a graph inside.

    ``body`` takes ``constants`` and then the inputs of the vertex. ``equation`` is the whole as one
    local function, for when no error passes through; ``positions`` says which inputs it takes.
    """

    body: Graph
    constants: tuple[Any, ...]
    equation: Callable[..., list[Any]]
    positions: tuple[int, ...]

    def __call__(self, *inputs: Any) -> list[Any]:
        return self.equation(*(inputs[k] for k in self.positions))

    def flow(self, emitted: Sequence[int]) -> Flow:
        """Where errors flow inside when the given outputs have one."""
        return self.body.flow_from(self.seeds(emitted), self.waiting(emitted))

    def waiting(self, emitted: Sequence[int]) -> tuple[bool, ...]:
        """Which leaves of the body already hold a sum when the wave comes."""
        return ()

    def reaches(self) -> tuple[int, ...]:
        """For each output a bit mask of the inputs that an error there sends a message to."""
        return tuple(mask >> len(self.constants) for mask in reaches(self.body))

    @property
    def input_leaves(self) -> tuple[int, ...]:
        """The body's leaves that are inputs of the vertex."""
        return self.body.leaves[len(self.constants) :]

    def seeds(self, emitted: Sequence[int]) -> tuple[bool, ...]:
        """Which outputs of the body have an error."""
        return tuple(o in emitted for o in range(len(self.body.outputs)))


@dataclass(frozen=True, eq=False)
class Jit(Region):
    """An inner ``jit``. Errors are summed inside first; the result is then added outside.

    ``mark`` is the name of the function if `dendrax.vertex` marked it: then it is one vertex.
    """

    mark: str | None = None


def is_marked(v: Vertex) -> bool:
    """Whether a vertex is a function that the user marked with `dendrax.vertex`."""
    return isinstance(v.function, Jit) and v.function.mark is not None


@dataclass(frozen=True, eq=False)
class Remat(Region):
    """A `jax.checkpoint` region: its values are computed again when the wave reaches it."""


@dataclass(frozen=True, eq=False)
class Scan(Region):
    """A ``scan``: inputs are ``num_consts`` constants, ``num_carry`` carries, then the xs.

    ``cuts`` are the value nodes in its body. The scan hands them out, stacked over time: they are
    the last of the body's outputs, behind the ``num_results`` that the scan has anyway.
    """

    num_consts: int
    num_carry: int
    length: int
    reverse: bool
    cuts: tuple[Port, ...] = ()

    @property
    def num_results(self) -> int:
        """The number of outputs without those stacks."""
        return len(self.body.outputs) - len(self.cuts)

    def stacks(self, v: Vertex) -> list[Port]:
        """Where the vertex whose function this is hands each of the cuts out."""
        return [Port(v.index, o) for o in range(self.num_results, len(self.body.outputs))]

    def split(self, values: Sequence[Any]) -> tuple[list[Any], list[Any], list[Any]]:
        """Constants, carries and xs of the inputs."""
        first, second = self.num_consts, self.num_consts + self.num_carry
        return list(values[:first]), list(values[first:second]), list(values[second:])

    def seeds(self, emitted: Sequence[int]) -> tuple[bool, ...]:
        """Which outputs of the body have an error at some time step: the carries feed back."""
        seeded = [o in emitted for o in range(len(self.body.outputs))]
        while True:
            flow = self.body.flow_from(tuple(seeded))
            carries = self.split(self.input_leaves)[1]
            grown = [seeded[k] or bool(flow.emitted[leaf]) for k, leaf in enumerate(carries)]
            if grown == seeded[: self.num_carry]:
                return tuple(seeded)
            seeded[: self.num_carry] = grown

    def waiting(self, emitted: Sequence[int]) -> tuple[bool, ...]:
        """Constants hold the sum of the later time steps."""
        reached = self.body.flow_from(self.seeds(emitted)).emitted
        consts = self.split(self.input_leaves)[0]
        return (False,) * len(self.constants) + tuple(bool(reached[leaf]) for leaf in consts)

    def reaches(self) -> tuple[int, ...]:
        """Through any number of time steps."""
        masks = list(super().reaches())
        carries = range(self.num_carry)
        for _ in carries:
            for o, mask in enumerate(masks):
                fed = [masks[k] for k in carries if mask >> (self.num_consts + k) & 1]
                masks[o] = functools.reduce(int.__or__, fed, mask)
        return tuple(masks)


def is_stacked(v: Vertex) -> bool:
    """Whether a vertex is a scan with value nodes inside."""
    return isinstance(v.function, Scan) and bool(v.function.cuts)
