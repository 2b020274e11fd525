"""Z-IL on blocks: values go up from device to device, the wave comes down, parameters learn.

A block runs the wavefront (`dendrax.walk._wave`) on its own graph. What the wave leaves at its
leaves is either the gradient of a parameter that lives there, or is sent to the block before, where
it is the error of an output or is waiting for more messages. So there is no backward pass over the
whole: a device sees its own vertices, and what its neighbours hand to it.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Container, Mapping, Sequence
from typing import Any, Protocol

import jax

from dendrax.graph import Port
from dendrax.inference import Values, record_graph
from dendrax.placement._blocks import Block, Partition
from dendrax.placement._turns import take_turns
from dendrax.placement._wires import Wires
from dendrax.walk import Local, Tape, send_back

Learn = Callable[[int, Values], None]


class Runner(Protocol):
    """How a rule runs on blocks: `Wave`, or `Relaxing` of `dendrax.placement._relaxation`."""

    def run(
        self,
        wires: Wires,
        parameters: Sequence[Values],
        data: Sequence[Sequence[Values]],
        learn: Learn,
    ) -> list[Values]: ...


class Traveller:
    """What a micro-batch has on each device: values on the way up, errors on the way down."""

    def __init__(self, num_blocks: int):
        self.values: list[Values] = [{} for _ in range(num_blocks)]
        self.errors: list[Values] = [{} for _ in range(num_blocks)]
        self.kept: list[Any] = [None] * num_blocks


class Stage:
    """The compiled programs of one block; ``weight`` is the error of the loss."""

    def __init__(self, block: Block, weight: float, local: Local):
        graph = block.graph
        self.block = block

        def forward(leaves: list[Any]) -> Any:
            return record_graph(graph, leaves, local)

        def wave(tape: Tape, errors: list[Any], sums: list[Any]) -> list[Any]:
            errors = [
                jax.lax.full(aval.shape, weight, aval.dtype) if root else error
                for aval, root, error in zip(avals, graph.roots, errors, strict=True)
            ]
            return send_back(tape, errors, sums)

        avals = [graph[port.vertex].outputs[port.output] for port in graph.outputs]
        self.forward, self.wave = jax.jit(forward), jax.jit(wave)


class Wave:
    """Z-IL over devices."""

    def __init__(self, partition: Partition, micro_batches: int, local: Local):
        self.partition, self.micro_batches = partition, micro_batches
        self.stages = [Stage(block, 1 / micro_batches, local) for block in partition.blocks]
        self.turns = take_turns(len(self.stages), micro_batches)

    def run(
        self,
        wires: Wires,
        parameters: Sequence[Values],
        data: Sequence[Sequence[Values]],
        learn: Learn,
    ) -> list[Values]:
        """Run an update. ``parameters`` are by block, ``data`` by micro-batch and block.

        ``learn(block, gradients)`` is called as soon as the last wave has passed a block.
        **Returns:** the results of the function, for each micro-batch.
        """
        travellers = [Traveller(len(self.stages)) for _ in range(self.micro_batches)]
        results: list[Values] = [{} for _ in range(self.micro_batches)]
        gradients: list[Values] = [{} for _ in self.stages]
        known = share_parameters(self.partition, wires, parameters)
        for _, b, m, is_wave in self.turns:
            traveller = travellers[m]
            with wires.on(b):
                if not is_wave:
                    given = {**known[b], **data[m][b], **traveller.values[b]}
                    results[m].update(self._go_up(wires, b, given, traveller))
                    continue
                add_up(gradients[b], self._go_down(wires, b, traveller))
                if m == self.micro_batches - 1:
                    learn(b, gradients[b])
        return results

    def _go_up(self, wires: Wires, b: int, given: Values, traveller: Traveller) -> Values:
        """The forward pass of a block; returns what of it is a result of the function."""
        stage = self.stages[b]
        outputs, traveller.kept[b] = stage.forward([given[port] for port in stage.block.leaves])
        made = dict(zip(stage.block.outputs, outputs, strict=True))
        hand_up(self.partition, wires, b, {**given, **made}, traveller)
        traveller.values[b].clear()
        return {port: made[port] for port in self.partition.graph.outputs if port in made}

    def _go_down(self, wires: Wires, b: int, traveller: Traveller) -> Values:
        """The wave through a block; returns the gradients of the parameters that live there."""
        stage, told = self.stages[b], traveller.errors[b]
        leaves, outputs = stage.block.leaves, stage.block.outputs
        errors = [told.get(port) for port in outputs]
        sums = [told.get(port) for port in leaves]
        found = stage.wave(traveller.kept[b], errors, sums)
        traveller.kept[b] = None
        arrived = {port: e for port, e in zip(leaves, found, strict=True) if e is not None}
        return hand_down(self.partition, wires, b, {**told, **arrived}, traveller)


# ---- between neighbours --------------------------------------------------------------------------


def share_parameters(
    partition: Partition, wires: Wires, parameters: Sequence[Values]
) -> list[Values]:
    """Send parameters that several blocks use up to those that they do not live in."""
    known = [dict(own) for own in parameters]
    for b, ports in enumerate(partition.upward):
        for port in filter(partition.is_parameter, ports):
            known[b + 1][port] = wires.send(known[b][port], b, b + 1, "value")
    return known


def hand_up(
    partition: Partition,
    wires: Wires,
    b: int,
    known: Mapping[Port, Any],
    traveller: Traveller,
    chosen: Container[Port] | None = None,
) -> None:
    """Send the next block what it, or one behind it, needs; of that only the ``chosen``, if any."""
    for port in partition.upward[b] if b < len(partition.upward) else ():
        if not partition.is_parameter(port) and (chosen is None or port in chosen):
            traveller.values[b + 1][port] = wires.send(known[port], b, b + 1, "value")


def hand_down(
    partition: Partition, wires: Wires, b: int, errors: Mapping[Port, Any], traveller: Traveller
) -> Values:
    """Send the errors of what came from below back; returns those of the block's parameters."""
    own: Values = {}
    for port, error in errors.items():
        if partition.home[port] < b:
            traveller.errors[b - 1][port] = wires.send(error, b, b - 1, "error")
        elif partition.is_parameter(port):
            own[port] = error
    traveller.errors[b].clear()
    return own


def add_up(sums: Values, more: Mapping[Port, Any]) -> None:
    """Add the gradients of one more micro-batch."""
    for port, value in more.items():
        sums[port] = _add(sums[port], value) if port in sums else value


@functools.partial(jax.jit, donate_argnums=0)
def _add(total: Any, value: Any) -> Any:
    return total + value
