"""IL on blocks: each device moves its own value nodes, and tells its neighbours.

In every time step values go up (``μ`` is predicted from the ``x`` of the vertices below, wherever
they are), messages come down, and the value nodes move. A device does not wait for messages before
it sends its own, unless these depend on them: in an MLP they do not, for there is a value node on
every way through a block, and all devices work at once. The stream of a ResNet lies inside the
functions of the vertices that read it; it is handed on from device to device within the step.

Micro-batches do not see each other: their energies are parts of one sum.
"""

from __future__ import annotations

import functools
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import jax

from dendrax.graph import Graph, Port, moving_vertices
from dendrax.inference import (
    Look,
    Network,
    Pull,
    Values,
    View,
    energies_of,
    evaluate,
    is_shared,
    view_of,
)
from dendrax.placement._blocks import Block, Partition
from dendrax.placement._wave import Learn, Traveller, add_up, hand_down, hand_up, share_parameters
from dendrax.placement._wires import Wires
from dendrax.support import complain
from dendrax.walk import Hoisted, Tape, reached


class RelaxingStage:
    """The compiled programs of one block. Values and errors are by port of the block's own graph.

    ``restless`` are the leaves that change when others' value nodes do.
    """

    def __init__(self, rule: Any, block: Block, net: Network, restless: Sequence[Port]):
        self.rule, self.block, self._net, self.restless = rule, block, net, restless
        graph = block.graph
        self.leaves = list(map(Port, graph.leaves))
        self.still = [port for port in self.leaves if port not in restless]
        aval = net.view.aval
        constant = {port: aval(port) for port in self.still}
        changing = ({p: aval(p) for p in restless}, {p: aval(p) for p in net.view.nodes})
        self._hoisted = Hoisted(self._look, constant, changing)
        self.begin = jax.jit(self._begin)
        self.predict = jax.jit(self._hoisted.each)
        self.tell = jax.jit(self._tell, static_argnums=0)
        self.relax = jax.jit(self._relax)

    @functools.cached_property
    def passing(self) -> frozenset[Port]:
        """The outputs from which messages of blocks behind go on to a leaf, past no value node."""
        tape: Tape = self._hoisted.types[2]
        graph, nodes = self.block.graph, self._net.view.nodes
        found: set[Port] = set()
        for o, port in enumerate(graph.outputs):
            flags = [place == o for place in range(len(tape.layout.outputs))]
            seeded = port in self._net.view.roots
            if port not in nodes and not seeded and any(reached(tape, flags)[: len(self.leaves)]):
                found.add(port)
        return frozenset(found)

    def _look(self, still: Values, changing: tuple[Values, Values]) -> Any:
        incoming, x = changing
        given = {**still, **incoming}
        net = replace(self._net, leaves=[given[port] for port in self.leaves])
        look = net.look(x)
        return look.outputs, look.mu, look.tape

    def _begin(self, leaves: list[Any]) -> Any:
        """What does not change over time, the state at the start, and the outputs."""
        forward = evaluate(self.block.graph, leaves)
        outputs = [forward[port] for port in self.block.graph.outputs]
        values = {port: forward[port] for port in self._net.view.nodes}
        start = self.rule.start(replace(self._net, leaves=leaves, values=values, outputs=outputs))
        kept = self._hoisted.once({port: forward[port] for port in self.still})
        return kept, start, outputs

    def _seen(self, prediction: Any, state: Any) -> Look:
        outputs, mu, tape = prediction
        return Look(self._net, state.x, mu, outputs, tape)

    def _tell(
        self, wanted: frozenset[Port], prediction: Any, state: Any, passing: Values
    ) -> Values:
        """The messages at the ``wanted`` leaves, given those that pass through the block."""
        look = self._seen(prediction, state)
        return {p: m for p, m in look.send(look.errors, passing).leaves.items() if p in wanted}

    def _relax(self, prediction: Any, state: Any, waiting: Values) -> Any:
        """The state after the step."""
        look = self._seen(prediction, state)
        slope = look.slope_under(look.send(look.errors, waiting).nodes)
        return self.rule.moved(self._net, state, slope)


class Relaxing:
    """IL over devices."""

    def __init__(self, partition: Partition, rule: Any, shown: Graph, micro_batches: int):
        self.partition, self.rule, self.micro_batches = partition, rule, micro_batches
        whole = view_of(shown)
        if micro_batches > 1:
            _check_separate(whole)
        self.nodes = whole.nodes
        moving = moving_vertices(whole.graph, whole.nodes)
        self.restless = {p for p in partition.home if p in self.nodes or p.vertex in moving}
        energies = energies_of(rule, whole, micro_batches)
        self.stages = [self._stage(block, whole, energies) for block in partition.blocks]

    def _stage(self, block: Block, whole: View, energies: Mapping[Port, Any]) -> RelaxingStage:
        own = [port for port in self.nodes if self.partition.home[port] == block.number]
        at, graph = block.at, block.graph
        nodes = {at[port]: self.nodes[port] for port in own}
        roots = {p: p for p, root in zip(graph.outputs, graph.roots, strict=True) if root}
        view = View(graph, whole.shown, dict(sorted(nodes.items())), roots)
        clamp = Pull([1 / self.micro_batches if root else None for root in graph.roots])
        own_energies = {at[port]: energies[port] for port in own}
        net = Network(view, (), clamp, own_energies, self.rule.local, {}, [])
        restless = [at[port] for port in block.leaves if port in self.restless]
        return RelaxingStage(self.rule, block, net, restless)

    def wanted(self, block: Block, *, learns: bool) -> frozenset[Port]:
        """The leaves of a block whose messages are asked for: those on the way to value nodes, or
        those on the way to parameters."""
        is_parameter = self.partition.is_parameter
        received = [port for port in block.leaves if self.partition.graph.carries(port)]
        if learns:
            ports = [port for port in received if is_parameter(port) or port not in self.nodes]
        else:
            ports = [port for port in received if not is_parameter(port)]
        return frozenset(block.at[port] for port in ports)

    # ---- an update -------------------------------------------------------------------------------

    def run(
        self,
        wires: Wires,
        parameters: Sequence[Values],
        data: Sequence[Sequence[Values]],
        learn: Learn,
    ) -> list[Values]:
        """As `dendrax.placement._wave.Wave.run`."""
        known = share_parameters(self.partition, wires, parameters)
        runs = [_Run(self, wires, known, data[m]) for m in range(self.micro_batches)]
        for _ in range(self.rule.num_steps):
            for run in runs:
                run.step()
        gradients: list[Values] = [{} for _ in self.stages]
        for m, run in enumerate(runs):
            for b, found in run.learn():
                add_up(gradients[b], found)
                if m == self.micro_batches - 1:
                    with wires.on(b):
                        learn(b, gradients[b])
        return [run.results for run in runs]


def _check_separate(view: View) -> None:
    """Micro-batches must not share a value node: each would move its own copy of it."""
    for node in view.nodes:
        vertex = view.vertex(node)
        if is_shared(view, vertex):
            raise complain(
                ValueError,
                f"the value node {vertex.name} is made of parameters alone, so that all samples "
                "share it, and micro-batches cannot.",
                source=vertex.source,
                remedy="Use micro_batches=1, or other vertices.",
            )


class _Run:
    """One micro-batch at work."""

    def __init__(
        self, whole: Relaxing, wires: Wires, known: Sequence[Values], data: Sequence[Values]
    ):
        self.whole, self.wires, self.stages = whole, wires, whole.stages
        self.traveller = Traveller(len(self.stages))
        self.kept: list[Any] = []
        self.states: list[Any] = []
        self.results: Values = {}
        for b, stage in enumerate(self.stages):
            given = {**known[b], **data[b], **self.traveller.values[b]}
            with wires.on(b):
                kept, state, outputs = stage.begin([given[port] for port in stage.block.leaves])
            made = dict(zip(stage.block.outputs, outputs, strict=True))
            hand_up(whole.partition, wires, b, {**given, **made}, self.traveller)
            self.results |= {p: made[p] for p in whole.partition.graph.outputs if p in made}
            self.kept.append(kept)
            self.states.append(state)

    def step(self) -> None:
        """One time step of all blocks."""
        predictions = [self._predict(b) for b in range(len(self.stages))]
        for b in reversed(range(len(self.stages))):
            waiting, _ = self._tell(b, predictions[b], learns=False)
            with self.wires.on(b):
                self.states[b] = self.stages[b].relax(predictions[b], self.states[b], waiting)

    def learn(self) -> Iterable[tuple[int, Values]]:
        """The gradients of each block's parameters, from the output down."""
        predictions = [self._predict(b) for b in range(len(self.stages))]
        for b in reversed(range(len(self.stages))):
            yield b, self._tell(b, predictions[b], learns=True)[1]

    def _tell(self, b: int, prediction: Any, *, learns: bool) -> tuple[Values, Values]:
        """Send a block's messages on; returns what came from behind, and the block's gradients."""
        stage, told = self.stages[b], self.traveller.errors[b]
        block, at = stage.block, stage.block.at
        ports = {*block.leaves, *block.outputs}
        waiting = {at[port]: told[port] for port in told if port in ports}
        passes = {*stage.passing, *stage.leaves}
        passing = {port: message for port, message in waiting.items() if port in passes}
        wanted = self.whole.wanted(block, learns=learns)
        with self.wires.on(b):
            arrived = stage.tell(wanted, prediction, self.states[b], passing)
        leaves = {at[port]: port for port in block.leaves}
        errors = {**told, **{leaves[own]: message for own, message in arrived.items()}}
        return waiting, hand_down(self.whole.partition, self.wires, b, errors, self.traveller)

    def _predict(self, b: int) -> Any:
        """The prediction of a block; what of it the next one needs is sent there."""
        stage, values = self.stages[b], self.traveller.values[b]
        block, at, x = stage.block, stage.block.at, self.states[b].x
        restless = [port for port in block.leaves if port in self.whole.restless]
        incoming = {at[port]: values[port] for port in restless}
        with self.wires.on(b):
            prediction = stage.predict(self.kept[b], (incoming, x))
        outputs = dict(zip(block.outputs, prediction[0], strict=True))
        made = {port: x.get(at[port], value) for port, value in outputs.items()}
        chosen = self.whole.restless
        known = {**values, **made}
        hand_up(self.whole.partition, self.wires, b, known, self.traveller, chosen)
        return prediction
