"""A function whose levels are on several devices: gradients, updates, and what was sent."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from dendrax import _compat
from dendrax.graph import Port
from dendrax.inference import Values
from dendrax.placement._audit import PlacementAudit, audit_run
from dendrax.placement._blocks import Partition
from dendrax.placement._inputs import Inputs
from dendrax.placement._wave import Learn, Runner
from dendrax.placement._wires import Link, Wires, size_in_bytes
from dendrax.rules import Rule
from dendrax.support import complain, public

Arrays = dict[str, Any]


@dataclass(frozen=True, eq=False)
class Learner:
    """Parameters and optimizer on their devices, between updates. All by device.

    - ``parameters``: the arrays that live on the device, by name.
    - ``states``: the state of its optimizer.
    - ``optimizer``: the optimizer itself, the same for all.
    """

    parameters: tuple[Arrays, ...]
    states: tuple[Any, ...]
    optimizer: Any


class Placed:
    """What `dendrax.placement.place` made. Print it to see what is where.

    - ``devices``: one for each block of levels, from the input to the output.
    - ``levels``: the highest and the lowest level on each.
    - ``parameters``: the names of the parameters that live on each.
    - ``links``: what the last run sent from device to device.
    """

    def __init__(
        self,
        partition: Partition,
        runner: Runner,
        inputs: Inputs,
        rule: Rule,
        devices: Sequence[Any],
        *,
        has_aux: bool = False,
        grows: Sequence[int | None] | None = None,
    ):
        self.partition, self.rule, self.devices = partition, rule, tuple(devices)
        self.links: tuple[Link, ...] = ()
        self._runner, self._inputs, self._has_aux = runner, inputs, has_aux
        self._grows = grows or [None] * len(partition.graph.outputs)

    @property
    def levels(self) -> tuple[tuple[int, int], ...]:
        return tuple(block.levels for block in self.partition.blocks)

    @functools.cached_property
    def parameters(self) -> tuple[tuple[str, ...], ...]:
        return tuple(
            tuple(map(self._name, self.partition.parameters(b))) for b in range(len(self.devices))
        )

    # ---- gradients -------------------------------------------------------------------------------

    @public("dendrax.placement.Placed.value_and_grad")
    def value_and_grad(self, *args: Any) -> tuple[Any, Any]:
        """As the function that `dendrax.value_and_grad` returns.

        Parameters are brought to their devices if they are not there, and gradients stay there.
        """
        given = self._by_place(range(len(self._inputs.trees)), args)
        found: Values = {}
        value = self._run(
            self._put_parameters(given), self._put_data(given), lambda b, own: found.update(own)
        )
        return value, self._gradient(found)

    def _gradient(self, found: Values) -> Any:
        graph, home = self.partition.graph, self.partition.home
        errors = []
        for leaf in graph.leaves:
            port = Port(leaf)
            if port in home and port not in found:  # nothing that learns uses it
                found[port] = jax.device_put(_zeros(graph[leaf]), self.devices[home[port]])
            errors.append(found.get(port))
        return self._inputs.call.gradient(errors)

    # ---- updates ---------------------------------------------------------------------------------

    @public("dendrax.placement.Placed.init")
    def init(self, optimizer: Any, *args: Any) -> Learner:
        """Put the parameters on their devices, each with an optimizer of its own.

        **Arguments:**

        - `optimizer`: from Optax. Each device runs it on its own parameters, a dictionary by name;
          what looks at all parameters at once (a clip of the global norm) sees those alone.
        - `args`: the differentiated arguments.

        **Returns:** a `Learner`, for `update`.
        """
        _check_optimizer(optimizer)
        # A copy: what the caller does with its own arrays afterwards is its own business.
        named = jax.tree.map(jnp.copy, self.by_device(*args))
        states = map(jax.jit(optimizer.init), named)
        placed = map(jax.device_put, states, self.devices)  # also what no parameter goes into
        return Learner(named, tuple(placed), optimizer)

    @public("dendrax.placement.Placed.by_device")
    def by_device(self, *args: Any) -> tuple[Arrays, ...]:
        """The differentiated arguments on their devices: of each device the arrays by name."""
        values = self._put_parameters(self._by_place(self._inputs.argnums, args))
        return tuple({self._name(port): x for port, x in own.items()} for own in values)

    @public("dendrax.placement.Placed.update")
    def update(
        self,
        learner: Learner,
        *args: Any,
        watch: Callable[[int, Arrays], None] | None = None,
    ) -> tuple[Any, Learner]:
        """One update: every device's parameters learn as soon as the wave has passed it.

        **Arguments:**

        - `learner`: from `init`, or the update before.
        - `args`: the arguments that are not differentiated.
        - `watch`: is called with the number of a device and its gradients, by name, as soon as they
          are there.

        **Returns:** `(fun(...), learner)`.
        """
        self._check_learner(learner)
        data = self._put_data(self._by_place(self._inputs.others, args))
        ports = {self._name(p): p for p in self.partition.home if self.partition.is_parameter(p)}
        parameters = [{ports[name]: x for name, x in own.items()} for own in learner.parameters]
        after: list[Any] = [None] * len(self.devices)

        def learn(b: int, gradients: Values) -> None:
            own = learner.parameters[b]
            named = {self._name(port): gradient for port, gradient in gradients.items()}
            filled = {name: named.get(name, jnp.zeros_like(x)) for name, x in own.items()}
            if watch is not None:
                watch(b, filled)
            after[b] = _apply(learner.optimizer, own, learner.states[b], filled)

        value = self._run(parameters, data, learn)
        moved, states = zip(*after, strict=True)
        return value, Learner(moved, states, learner.optimizer)

    def _check_learner(self, learner: Any) -> None:
        known = isinstance(learner, Learner)
        if not known or tuple(map(tuple, learner.parameters)) != self.parameters:
            raise complain(
                TypeError,
                "the learner is not one of this placement.",
                remedy="Make it by init of the same Placed.",
            )

    def params(self, learner: Learner) -> Any:
        """The parameters as they were given to the function, each on its device."""
        self._check_learner(learner)
        named = {name: x for own in learner.parameters for name, x in own.items()}
        graph = self.partition.graph
        found = [named.get(graph[leaf].name) for leaf in graph.leaves]
        return self._inputs.call.gradient(found)

    # ---- to and from the user's trees ------------------------------------------------------------

    def _by_place(self, places: Sequence[int], args: tuple[Any, ...]) -> dict[int, Any]:
        """Arguments by their position in the function's signature."""
        if _compat.is_tracing() or any(map(_compat.is_tracer, jax.tree.leaves(args))):
            raise complain(
                TypeError,
                "a placed function hands arrays from device to device, and cannot be traced.",
                remedy="Call it outside of jax.jit, jax.vmap and jax.grad.",
            )
        if len(args) != len(places):
            raise complain(
                TypeError,
                f"takes {len(places)} arguments of the function ({list(places)}, counted from 0), "
                f"got {len(args)}.",
                remedy="value_and_grad takes all, init those that are differentiated, update the "
                "others.",
            )
        return dict(zip(places, args, strict=True))

    def _put_parameters(self, args: dict[int, Any]) -> list[Values]:
        values = self._inputs.parameters(args)
        return [
            {port: jax.device_put(values[port], device) for port in self.partition.parameters(b)}
            for b, device in enumerate(self.devices)
        ]

    def _put_data(self, args: dict[int, Any]) -> list[list[Values]]:
        """For each micro-batch and device the data that the device uses."""
        blocks = list(zip(self.partition.blocks, self.devices, strict=True))
        return [
            [
                {p: jax.device_put(values[p], device) for p in block.leaves if p in values}
                for block, device in blocks
            ]
            for values in self._inputs.data(args)
        ]

    def _name(self, port: Port) -> str:
        return self.partition.graph[port.vertex].name

    # ---- a run -----------------------------------------------------------------------------------

    def _run(
        self, parameters: Sequence[Values], data: Sequence[Sequence[Values]], learn: Learn
    ) -> Any:
        wires = Wires(self.devices)
        results = self._runner.run(wires, parameters, data, learn)
        self.links = wires.links
        return self._value(results)

    def _value(self, results: list[Values]) -> Any:
        """What the function returns, put together from several micro-batches."""
        call, outputs = self._inputs.call, self.partition.graph.outputs
        loss, *aux = [
            _together([found[port] for found in results], axis)
            for port, axis in zip(outputs, self._grows, strict=True)
        ]
        value = jax.tree.unflatten(call.out_tree, [loss])
        return (value, call.aux(aux)) if self._has_aux else value

    @public("dendrax.placement.Placed.audit")
    def audit(self) -> PlacementAudit:
        """Which device reads what, from the data flow of an update up to its gradients.

        **Returns:** a `PlacementAudit`, with `.local` and `.offenders`; it prints as a table.
        """
        return audit_run(self.partition, self._runner, self._inputs.micro_batches)

    def __repr__(self) -> str:
        graph = self.partition.graph
        head = f"{len(self.devices)} devices, {self.rule}"
        lines = [head, f"{'':>4}  {'device':<16} {'levels':>10} {'vertices':>9} {'parameters':>22}"]
        for b, (block, device) in enumerate(zip(self.partition.blocks, self.devices, strict=True)):
            own = self.partition.parameters(b)
            size = sum(size_in_bytes(graph[port.vertex].outputs[0]) for port in own)
            count = sum(v.function is not None for v in block.graph)
            span = "{}-{}".format(*block.levels)
            lines.append(
                f"{b:>4}  {device!s:<16} {span:>10} {count:>9} {len(own):>8} ({_human(size)})"
            )
        for link in self.links:
            lines.append(f"  {link}")
        return "\n".join(lines)


def _together(values: Sequence[Any], axis: int | None) -> Any:
    """A result of several micro-batches: side by side if it grows with the batch, or the mean."""
    if axis is not None:
        return jnp.concatenate(values, axis)
    if len(values) == 1 or not jnp.issubdtype(values[0].dtype, jnp.inexact):
        return values[0]
    return functools.reduce(jnp.add, values) / len(values)


def _zeros(leaf: Any) -> Any:
    return np.zeros(leaf.shape, leaf.dtype)


def _human(size: int) -> str:
    power = max(0, min(3, int(math.log10(max(size, 1)) // 3)))
    return f"{size / 1000**power:.3g} {('B', 'kB', 'MB', 'GB')[power]}"


@functools.partial(jax.jit, static_argnums=0)
def _apply(optimizer: Any, own: Arrays, state: Any, gradients: Arrays) -> tuple[Arrays, Any]:
    """One step of an optimizer."""
    change, state = optimizer.update(gradients, state, own)
    return jax.tree.map(lambda x, dx: (x + dx).astype(x.dtype), own, change), state


def _check_optimizer(optimizer: Any) -> None:
    if not (hasattr(optimizer, "init") and hasattr(optimizer, "update")):
        raise complain(
            TypeError,
            f"optimizer is {type(optimizer).__name__}, which has no init and update.",
            remedy="Pass one of Optax, for instance optax.adam(1e-3).",
        )
