"""A graph -> blocks of levels, each a graph of its own that one device runs.

Block 0 is next to the input, the last one holds the output. A block's leaves are the parameters and
data that it uses, and what it gets from the block before; its outputs are what the blocks behind it
need. Values go up from block to block, and errors the same way down: nothing skips a block.

A parameter lives in the first block that uses it. If others use it too, it is sent up to them as
any value is, and their messages come back down.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from dendrax.graph import Graph, Port, Vertex
from dendrax.placement._cut import choose_cuts, placement_levels
from dendrax.support import complain


@dataclass(frozen=True, eq=False)
class Block:
    """What one device holds. Ports are those of the whole graph, unless it says otherwise.

    - ``graph``: the block as a graph of its own.
    - ``leaves``, ``outputs``: for each leaf and output of it the port that it stands for.
    - ``at``: for each port of the whole graph that is in the block, its port there.
    - ``levels``: the highest and the lowest level.
    """

    number: int
    graph: Graph
    leaves: tuple[Port, ...]
    outputs: tuple[Port, ...]
    at: Mapping[Port, Port]
    levels: tuple[int, int]


@dataclass(frozen=True, eq=False)
class Partition:
    """A graph in blocks.

    - ``home``: the block that makes each port that more than data goes into; of a parameter, the
      block that it lives in.
    - ``reach``: the last block that uses each of them.
    """

    graph: Graph
    blocks: tuple[Block, ...]
    home: Mapping[Port, int]
    reach: Mapping[Port, int]

    @functools.cached_property
    def upward(self) -> tuple[tuple[Port, ...], ...]:
        """For each block but the last the ports whose values it hands to the next."""
        ports = sorted(self.home)
        return tuple(
            tuple(port for port in ports if self.home[port] <= b < self.reach[port])
            for b in range(len(self.blocks) - 1)
        )

    def is_parameter(self, port: Port) -> bool:
        """Whether a port is a parameter of the function."""
        return self.graph[port.vertex].kind == "parameter"

    def parameters(self, block: int) -> tuple[Port, ...]:
        """The parameters that live in a block."""
        return tuple(
            port
            for port, home in sorted(self.home.items())
            if home == block and self.is_parameter(port)
        )


def partition(
    graph: Graph, num_blocks: int, *, shares_sums: bool, cuts: Sequence[int] | None = None
) -> Partition:
    """Cut a graph into blocks of levels.

    ``shares_sums`` says that a vertex and its aliases have one sum, as in the wavefront: an alias
    is then not sent, but computed where it is used. ``cuts`` are the lowest levels of all blocks
    but the last.
    """
    origin = graph.origin if shares_sums else _itself
    level_of = placement_levels(graph, origin)
    highest = max(level_of.values(), default=-1)
    if cuts and max(cuts) > highest:
        raise complain(
            ValueError,
            f"cuts={list(cuts)}, but the highest level of the function is {highest}.",
        )
    cuts = choose_cuts(graph, level_of, num_blocks) if cuts is None else tuple(cuts)
    block_of = {index: sum(level < cut for cut in cuts) for index, level in level_of.items()}
    return _Partitioning(graph, block_of, level_of, len(cuts) + 1, shares_sums).build()


def _itself(port: Port) -> Port:
    return port


class _Partitioning:
    def __init__(
        self,
        graph: Graph,
        block_of: Mapping[int, int],
        level_of: Mapping[int, int],
        count: int,
        shares_sums: bool,
    ):
        self.graph, self.block_of, self.level_of = graph, block_of, level_of
        self.count, self.shares_sums = count, shares_sums

    def build(self) -> Partition:
        members = [self._members(b) for b in range(self.count)]
        home = self._homes(members)
        reach = dict(home)
        for b, vertices in enumerate(members):
            for port in self._used(b, vertices):
                if port in home:
                    reach[port] = max(reach[port], b)
        blocks = tuple(self._block(b, vertices, home, reach) for b, vertices in enumerate(members))
        return Partition(self.graph, blocks, home, reach)

    def _members(self, block: int) -> list[Vertex]:
        """The vertices that a block computes, in program order."""
        found = {index for index, b in self.block_of.items() if b == block}
        todo = [port for index in found for port in self.graph[index].inputs]
        todo += [port for port in self.graph.outputs if self._block_of_result(port) == block]
        while todo:
            v = self.graph[todo.pop().vertex]
            if v.function is not None and v.index not in found and self._is_copied(v):
                found.add(v.index)
                todo += v.inputs
        return [self.graph[index] for index in sorted(found)]

    def _block_of_result(self, port: Port) -> int:
        """A result that no parameter goes into is made where the loss is."""
        return self.block_of.get(port.vertex, self.count - 1)

    def _is_copied(self, v: Vertex) -> bool:
        """Whether each block that needs a vertex computes it."""
        is_alias = any(k is not None and v.carries[o] for o, k in enumerate(v.alias))
        return v.index not in self.block_of or (self.shares_sums and is_alias)

    def _used(self, block: int, members: Sequence[Vertex]) -> set[Port]:
        """The ports that a block reads and does not make."""
        inside = {v.index for v in members}
        used = {port for v in members for port in v.inputs}
        used.update(port for port in self.graph.outputs if self._block_of_result(port) == block)
        return {port for port in used if port.vertex not in inside}

    def _homes(self, members: Sequence[Sequence[Vertex]]) -> dict[Port, int]:
        homes: dict[Port, int] = {}
        for index, block in self.block_of.items():
            for o in range(len(self.graph[index].outputs)):
                homes[Port(index, o)] = block
        parameters = {leaf.index for leaf in self.graph.parameters}
        for block in reversed(range(self.count)):
            for port in self._used(block, members[block]):
                if port.vertex in parameters:
                    homes[port] = block
        for leaf in parameters:  # one that nobody uses has to live somewhere, too
            homes.setdefault(Port(leaf), 0)
        return homes

    def _block(
        self,
        block: int,
        members: Sequence[Vertex],
        home: Mapping[Port, int],
        reach: Mapping[Port, int],
    ) -> Block:
        at: dict[Port, Port] = {}
        vertices: list[Vertex] = []
        leaves = sorted(self._used(block, members))
        for port in leaves:
            at[port] = Port(len(vertices))
            vertices.append(self._leaf(len(vertices), port))
        for v in members:
            index = len(vertices)
            inputs = tuple(at[port] for port in v.inputs)
            vertices.append(replace(v, index=index, inputs=inputs))
            at.update((Port(v.index, o), Port(index, o)) for o in range(len(v.outputs)))
        results = [port for port in self.graph.outputs if self._block_of_result(port) == block]
        own = [port for port, b in sorted(home.items()) if b == block and reach[port] > block]
        sent = [port for port in own if self.graph[port.vertex].function is not None]
        outputs = tuple(dict.fromkeys([*results, *sent]))
        pairs = zip(self.graph.outputs, self.graph.roots, strict=True)
        roots = {port for port, root in pairs if root}
        flags = tuple(port in roots for port in outputs)
        graph = Graph(
            tuple(vertices), tuple(range(len(leaves))), tuple(at[p] for p in outputs), flags
        )
        inside = [self.level_of[index] for index, b in self.block_of.items() if b == block]
        return Block(block, graph, tuple(leaves), outputs, at, (max(inside), min(inside)))

    def _leaf(self, index: int, port: Port) -> Vertex:
        source, carries = self.graph[port.vertex], self.graph.carries(port)
        kind = "parameter" if carries else "data"
        aval = (source.outputs[port.output],)
        return Vertex(index, kind, source.name, aval, depends=(0,), carries=(carries,))
