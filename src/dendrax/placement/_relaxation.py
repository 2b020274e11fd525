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
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp

from dendrax.graph import Flow, Graph, Port, flow_of
from dendrax.inference import (
    Clamp,
    Network,
    Values,
    Wiring,
    course_to,
    evaluate,
    value_change,
    wire,
)
from dendrax.placement._blocks import Block, Partition
from dendrax.placement._wave import Learn, Traveller, add_up, hand_down, hand_up, share_parameters
from dendrax.placement._wires import Wires
from dendrax.rules import IL
from dendrax.rules._descent import divided, errors_at, start_values, weighted
from dendrax.rules._precision import is_shared, precisions
from dendrax.support import complain
from dendrax.vertices import moving_vertices


@dataclass(frozen=True, eq=False)
class BlockWiring(Wiring):
    """The value nodes of a block; ``restless`` are the leaves that change when others' do."""

    restless: frozenset[int] = frozenset()

    @functools.cached_property
    def moving(self) -> frozenset[int]:
        return frozenset(moving_vertices(self.graph, self.nodes, self.restless))


class Sweep:
    """One way of messages through a block: to the value nodes, or to the parameters.

    ``told`` are the ports of the whole graph at which messages from blocks behind are waiting;
    ``reached`` are those of the block's leaves at which there are any when it is done. Of ``told``
    only what is ``passing`` goes on to a leaf; the rest ends at value nodes of the block.
    """

    def __init__(self, block: Block, wiring: Wiring, targets: Iterable[Port], told: set[Port]):
        self.block, self.wiring = block, wiring
        self.told = {port: block.at[port] for port in {*block.leaves, *block.outputs} & told}
        self.flow = self._flow(frozenset(targets))
        leaves = {
            Port(leaf): port for leaf, port in zip(block.graph.leaves, block.leaves, strict=True)
        }
        sent = {v.inputs[k] for v in block.graph for k in self.flow.received[v.index]}
        self.reached = {leaves[port] for port in leaves.keys() & (sent | {*self.told.values()})}
        self.passing = self._passing({*leaves})

    def _passing(self, leaves: set[Port]) -> set[Port]:
        """The told ports from which messages go on to a leaf, past no value node."""
        graph, nodes = self.block.graph, self.wiring.nodes
        leads = set(leaves)
        for v in graph:
            ends = (v.inputs[k] for k in self.flow.received[v.index])
            if any(port in leads and port not in nodes for port in ends):
                leads.update(Port(v.index, o) for o in self.flow.emitted[v.index])
        return {port for port, own in self.told.items() if own in leads and own not in nodes}

    def _flow(self, targets: frozenset[Port]) -> Flow:
        graph, waiting = self.block.graph, {*self.told.values()}
        pairs = zip(graph.outputs, graph.roots, strict=True)
        seeded = tuple(root or port in waiting for port, root in pairs)
        preset = tuple(Port(leaf) in waiting for leaf in graph.leaves)
        course = course_to(graph, frozenset(self.wiring.nodes), targets)
        return flow_of(graph, seeded, preset, course=course)

    def waiting(self, errors: Mapping[Port, Any]) -> Values:
        """The messages from behind, by the block's own ports."""
        return {own: errors[port] for port, own in self.told.items()}

    def passing_only(self, waiting: Values) -> Values:
        """Those on which the messages to the leaves depend."""
        return {self.told[port]: waiting[self.told[port]] for port in self.passing}

    def filled(self, passing: Values) -> Values:
        """With nothing in the place of the others."""
        avals = {
            own: self.block.graph[own.vertex].outputs[own.output] for own in self.told.values()
        }
        return {
            own: passing.get(own, jnp.zeros(aval.shape, aval.dtype)) for own, aval in avals.items()
        }

    def arrived(self, sums: Values) -> Values:
        """The messages at the block's leaves, by port of the whole graph."""
        return {port: sums[self.block.at[port]] for port in self.reached}


class RelaxingStage:
    """The compiled programs of one block."""

    def __init__(
        self,
        rule: IL,
        block: Block,
        wiring: BlockWiring,
        precision: Mapping[Port, float],
        sweeps: tuple[Sweep, Sweep],
        weight: float,
    ):
        self.block, self.wiring = block, wiring
        self.rule, self.precision = rule, precision
        self.relaxing, self.learning = sweeps
        self.clamp = Clamp(errors=[weight if root else None for root in block.graph.roots])
        self.begin = jax.jit(self._begin)
        self.predict = {sweep: jax.jit(functools.partial(self._predict, sweep)) for sweep in sweeps}
        self.tell = {sweep: jax.jit(functools.partial(self._tell, sweep)) for sweep in sweeps}
        self.relax = jax.jit(self._relax)

    def _begin(self, leaves: list[Any]) -> Any:
        """What does not change over time, the value nodes at their start, and the outputs."""
        graph, wiring = self.block.graph, self.wiring
        forward = evaluate(graph, leaves)
        fixed = {*graph.leaves} - wiring.restless
        still = {v.index for v in graph if v.function is not None} - wiring.moving
        kept = {port: value for port, value in forward.items() if port.vertex in fixed | still}
        x = start_values(Network(wiring, forward, self.clamp), self.rule.init)
        optimizer = self.rule.optimizer.init(x) if self.rule.optimizer is not None else None
        return kept, (x, optimizer), [forward[port] for port in graph.outputs]

    def _predict(self, sweep: Sweep, kept: Values, incoming: Values, state: Any) -> Any:
        """μ of the value nodes and of what the next block needs, and the local pullbacks."""
        net = Network(self.wiring, {**kept, **incoming}, self.clamp)
        net.prepare(sweep.flow)
        return net.predict(sweep.flow, lambda port, _: state[0][port])

    def _tell(
        self, sweep: Sweep, mu: Values, pullbacks: Any, state: Any, passing: Values
    ) -> Values:
        """The messages at the block's leaves: its gradients, and what the block before gets."""
        waiting = sweep.filled(passing)
        return sweep.arrived(self._send(sweep, mu, pullbacks, state[0], waiting))

    def _relax(self, mu: Values, pullbacks: Any, state: Any, waiting: Values) -> Any:
        """The value nodes after the step."""
        x, optimizer = state
        sums = self._send(self.relaxing, mu, pullbacks, x, waiting)
        slope = {
            port: value_change(1, e, divided(sums.get(port), self.precision[port]))
            for port, e in errors_at(mu, x).items()
        }
        return self.rule.moved(x, optimizer, slope)

    def _send(self, sweep: Sweep, mu: Values, pullbacks: Any, x: Values, waiting: Values) -> Values:
        net = Network(self.wiring, {}, self.clamp)
        errors = weighted(net, mu, errors_at(mu, x), self.precision)
        return net.send(sweep.flow, pullbacks, errors, waiting)


class Relaxing:
    """IL over devices."""

    def __init__(self, partition: Partition, rule: IL, shown: Graph, micro_batches: int):
        self.partition, self.rule, self.micro_batches = partition, rule, micro_batches
        whole = wire(shown)
        self.nodes = set(whole.nodes)
        self.restless = {
            port for port in partition.home if port in self.nodes or port.vertex in whole.moving
        }
        self.stages = self._stages(whole)

    def _stages(self, whole: Wiring) -> tuple[RelaxingStage, ...]:
        forward: Any = jax.eval_shape(
            functools.partial(evaluate, whole.graph),
            [whole.graph[leaf].outputs[0] for leaf in whole.graph.leaves],
        )
        net, rule = Network(whole, forward, Clamp()), self.rule
        if self.micro_batches > 1:
            _check_separate(net)
        pi = precisions("IL", rule.precision, rule.batch, net, self.micro_batches)
        told: tuple[set[Port], set[Port]] = set(), set()
        stages = []
        for block in reversed(self.partition.blocks):
            wiring = self._wiring(block, whole)
            sweeps = self._sweeps(block, wiring, told)
            own = {block.at[port]: pi[port] for port in self._own_nodes(block)}
            stages.append(RelaxingStage(rule, block, wiring, own, sweeps, 1 / self.micro_batches))
            told = (told[0] | sweeps[0].reached, told[1] | sweeps[1].reached)
        return tuple(reversed(stages))

    def _own_nodes(self, block: Block) -> list[Port]:
        return [port for port in sorted(self.nodes) if self.partition.home[port] == block.number]

    def _wiring(self, block: Block, whole: Wiring) -> BlockWiring:
        at = block.at
        nodes = {at[port]: whole.nodes[port] for port in self._own_nodes(block)}
        ends = [port for port in block.outputs if port not in self.nodes]
        roots = {at[port]: port for port in ends}
        restless = frozenset(at[port].vertex for port in block.leaves if port in self.restless)
        return BlockWiring(block.graph, whole.shown, dict(sorted(nodes.items())), roots, restless)

    def _sweeps(
        self, block: Block, wiring: BlockWiring, told: tuple[set[Port], set[Port]]
    ) -> tuple[Sweep, Sweep]:
        is_parameter = self.partition.is_parameter
        received = [port for port in block.leaves if self.partition.graph.carries(port)]
        below = [block.at[port] for port in received if not is_parameter(port)]
        learns = [
            block.at[port] for port in received if is_parameter(port) or port not in self.nodes
        ]
        return (
            Sweep(block, wiring, [*wiring.nodes, *below], told[0]),
            Sweep(block, wiring, learns, told[1]),
        )

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


def _check_separate(net: Network) -> None:
    """Micro-batches must not share a value node: each would move its own copy of it."""
    for node in net.wiring.nodes:
        vertex = net.wiring.vertex(node)
        if is_shared(net, vertex):
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
        self.kept: list[Values] = []
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
        predictions = [self._predict(b, stage.relaxing) for b, stage in enumerate(self.stages)]
        for b in reversed(range(len(self.stages))):
            stage = self.stages[b]
            waiting, _ = self._tell(b, stage.relaxing, predictions[b])
            with self.wires.on(b):
                self.states[b] = stage.relax(*predictions[b], self.states[b], waiting)

    def learn(self) -> Iterable[tuple[int, Values]]:
        """The gradients of each block's parameters, from the output down."""
        predictions = [self._predict(b, stage.learning) for b, stage in enumerate(self.stages)]
        for b in reversed(range(len(self.stages))):
            yield b, self._tell(b, self.stages[b].learning, predictions[b])[1]

    def _tell(self, b: int, sweep: Sweep, prediction: tuple[Any, Any]) -> tuple[Values, Values]:
        """Send a block's messages on; returns what came from behind, and the block's gradients."""
        stage, told = self.stages[b], self.traveller.errors[b]
        waiting = sweep.waiting(told)
        with self.wires.on(b):
            passing = sweep.passing_only(waiting)
            arrived = stage.tell[sweep](*prediction, self.states[b], passing)
        errors = {**told, **arrived}
        return waiting, hand_down(self.whole.partition, self.wires, b, errors, self.traveller)

    def _predict(self, b: int, sweep: Sweep) -> Any:
        """The prediction of a block; what of it the next one needs is sent there."""
        stage, values = self.stages[b], self.traveller.values[b]
        block, at = stage.block, stage.block.at
        restless = [port for port in block.leaves if port in self.whole.restless]
        incoming = {at[port]: values[port] for port in restless}
        with self.wires.on(b):
            mu, pullbacks = stage.predict[sweep](self.kept[b], incoming, self.states[b])
        x = self.states[b][0]
        made = {port: x[at[port]] if at[port] in x else mu[at[port]] for port in block.outputs}
        hand_up(
            self.whole.partition,
            self.wires,
            b,
            {**values, **made},
            self.traveller,
            self.whole.restless,
        )
        return mu, pullbacks
