"""Z-IL's one pass over the levels.

The lemmas say that before time ``level(i)`` vertex ``i`` has not moved, and that what happens
behind the wave reaches no later update of a leaf. So at time `t` only the vertices of level `t` do
work, at the values of the forward pass, and the whole update costs one pullback per vertex:

    ε_i = Σ_{j in users(i)} ε_j ∂μ_j/∂x_i      at t = level(i)

Any topological order executes the same wave. We take reverse program order, because it adds the
messages of a vertex's users up in the order in which JAX's own backward pass does, and that decides
the last bit. Time is the level, a label (`dendrax.level`).

A function enters. While it runs, `record` notes each vertex that a parameter reaches, with its own
pullback, on a `Tape`; everything else is simply computed. `send_back` runs the wave over the tape:
errors at the outputs enter, errors at the inputs leave. Regions (`dendrax.walk._regions`) do the
same with their body.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

import jax

from dendrax import _compat
from dendrax.local import Applied, differentiate, explaining
from dendrax.support import complain
from dendrax.tracing import FollowedValue, Follower

Function = Callable[..., Sequence[Any]]

# An input is active (1), or, from here on, the parameter of a number; 0: it has no error.
PARAMETER = 2
# A parameter is still that one after these.
_STRUCTURAL = ("transpose", "reshape", "squeeze", "expand_dims", "convert_element_type", "copy")


class Sender(Protocol):
    """The way back through one vertex: `dendrax.local._linear.Pullback`, or that of a region."""

    def send(self, errors: Sequence[Any], sums: Sequence[_compat.Sum]) -> None:
        """Add its messages to the sums at its inputs; an error may be absent (``None``)."""
        ...

    def reach(self, errors: Sequence[bool]) -> Sequence[bool]:
        """Which inputs get a message, if these outputs have an error."""
        ...


class Step(NamedTuple):
    """One vertex on the tape: where its messages are added up, and where its errors are.

    ``operation`` is a primitive one, ``None`` where functions of the user's run.
    """

    operation: Applied | None
    source: Any
    inputs: tuple[int, ...] = ()
    outputs: tuple[int, ...] = ()


@dataclass(frozen=True, eq=False)
class Layout:
    """What of a tape is not an array.

    A *slot* is a place where messages are added up: one for each value that has an error, shared by
    a value and its aliases. ``avals`` are their types; ``inputs`` and ``outputs`` are the slots of
    the function's own inputs and outputs, ``None`` for those without an error.
    """

    steps: tuple[Step, ...]
    avals: tuple[Any, ...]
    inputs: tuple[int | None, ...]
    outputs: tuple[int | None, ...]

    @property
    def carries(self) -> tuple[bool, ...]:
        """Which outputs have an error."""
        return tuple(slot is not None for slot in self.outputs)

    def source_of_output(self) -> str:
        """The user's source line of the first output's vertex; empty if it has no error."""
        made = [step for step in self.steps if self.outputs and self.outputs[0] in step.outputs]
        return _compat.source_line(made[0].source) if made else ""


@jax.tree_util.register_pytree_node_class
class Tape:
    """The vertices that errors pass through, in program order, each with its way back.

    An array that several vertices keep is one leaf of the tape, as it is with JAX: XLA must see
    that it is the same.
    """

    def __init__(self, layout: Layout, senders: Sequence[Sender]):
        leaves, tree = jax.tree.flatten(list(senders))
        unique = {id(leaf): leaf for leaf in leaves}
        index = {key: i for i, key in enumerate(unique)}
        self._leaves = list(unique.values())
        self._static = _TapeStatic(layout, tree, tuple(index[id(leaf)] for leaf in leaves))

    @property
    def layout(self) -> Layout:
        return self._static.layout

    @property
    def senders(self) -> Sequence[Sender]:
        leaves = [self._leaves[place] for place in self._static.places]
        return jax.tree.unflatten(self._static.tree, leaves)

    def tree_flatten(self) -> tuple[list[Any], _TapeStatic]:
        return self._leaves, self._static

    @classmethod
    def tree_unflatten(cls, static: _TapeStatic, leaves: Sequence[Any]) -> Tape:
        self = object.__new__(cls)
        self._leaves, self._static = list(leaves), static
        return self


@dataclass(frozen=True, eq=False)
class _TapeStatic:
    """What of a tape is not an array; ``places`` are those of the senders' leaves in the tape's."""

    layout: Layout
    tree: Any
    places: tuple[int, ...]


def record(
    function: Function, values: Sequence[Any], active: Sequence[int], local: Local
) -> tuple[list[Any], Tape]:
    """Call a function, and note the vertices that its ``active`` inputs reach.

    ``active`` may say which parameter an input is: ``PARAMETER + k``. ``local`` says how each
    vertex is run and linearised.

    **Returns:** the function's results, and the tape.
    """
    with _compat.take_current_trace() as parent:
        recorder = Recorder(parent, local)
        pairs = zip(values, active, strict=True)
        inputs = [recorder.new(value, which) if which else value for value, which in pairs]
        starts = tuple(recorder.split(value)[1] for value in inputs)
        with _compat.set_current_trace(recorder):
            results = [recorder.split(result) for result in function(*inputs)]
    recorder.invalidate()
    ends = tuple(slot for _, slot in results)
    steps, senders = _leading_to(ends, recorder.steps, recorder.senders)
    tape = Tape(Layout(steps, tuple(recorder.avals), starts, ends), senders)
    return [value for value, _ in results], tape


def _leading_to(
    outputs: Sequence[int | None], steps: Sequence[Step], senders: Sequence[Sender]
) -> tuple[tuple[Step, ...], tuple[Sender, ...]]:
    """Of the vertices of a tape those that lead to an output; no error comes to the others."""
    live = set(outputs)
    kept = []
    for step, sender in zip(reversed(steps), reversed(senders), strict=True):
        if not live.isdisjoint(step.outputs):
            kept.append((step, sender))
            live.update(step.inputs)
    kept.reverse()
    return tuple(step for step, _ in kept), tuple(sender for _, sender in kept)


def send_back(tape: Tape, errors: Sequence[Any], sums: Sequence[Any] = ()) -> list[Any]:
    """The wave: from an error at each output to the error at each input; ``None`` means absent.

    ``sums`` are what the inputs already hold (``None``: nothing).
    """
    layout = tape.layout
    held = {slot: _compat.new_sum(layout.avals[slot]) for slot in layout.inputs if slot is not None}
    for slot, value in zip(layout.inputs, sums, strict=False):
        if slot is not None and value is not None:
            held[slot].accum(value)
    _send(tape, errors, held)
    return [None if slot is None else _compat.summed(held[slot]) for slot in layout.inputs]


def send_terms(tape: Tape, errors: Sequence[Any]) -> list[tuple[Any, ...]]:
    """As `send_back`, with the terms that are added up at each input apart, in their order."""
    layout = tape.layout
    held = {slot: _compat.Terms(layout.avals[slot]) for slot in layout.inputs if slot is not None}
    _send(tape, errors, held)
    return [() if slot is None else tuple(held[slot].terms) for slot in layout.inputs]


def _send(tape: Tape, errors: Sequence[Any], held: Mapping[int, _compat.Sum]) -> None:
    """Add what arrives at the inputs to the sums that they hold, by slot."""
    layout = tape.layout
    waiting: dict[int | None, _compat.Sum] = {}

    def sum_at(slot: int) -> _compat.Sum:
        if slot in held:
            return held[slot]
        if slot not in waiting:
            waiting[slot] = _compat.new_sum(layout.avals[slot])
        return waiting[slot]

    for slot, error in zip(layout.outputs, errors, strict=True):
        if slot is not None and error is not None:
            sum_at(slot).accum(error)
    for step, sender in zip(reversed(layout.steps), reversed(tape.senders), strict=True):
        arrived = [waiting.pop(slot, None) for slot in step.outputs]
        if any(total is not None for total in arrived):
            with explaining(step.operation, step.source):
                targets = [sum_at(slot) for slot in step.inputs]
                sender.send([_compat.summed(total) for total in arrived], targets)


def reached(tape: Tape, errors: Sequence[bool]) -> list[bool]:
    """Which inputs get an error, if these outputs have one."""
    layout = tape.layout
    live = {slot for slot, error in zip(layout.outputs, errors, strict=True) if error} - {None}
    for step, sender in zip(reversed(layout.steps), reversed(tape.senders), strict=True):
        if not live.isdisjoint(step.outputs):
            hit = sender.reach([slot in live for slot in step.outputs])
            live.update(slot for slot, flag in zip(step.inputs, hit, strict=True) if flag)
    return [slot in live for slot in layout.inputs]


class Run(NamedTuple):
    """One vertex that has been run: its outputs, and the way back.

    ``ties`` says where the error of each output is, as in `dendrax.local.Linear`. ``operation`` is
    a primitive one, ``None`` where functions of the user's ran.
    """

    outputs: Sequence[Any]
    ties: Sequence[int | None]
    sender: Sender | Tape
    operation: Applied | None = None


class Local(Protocol):
    """How one vertex is run and linearised; `dendrax.walk.exact` is what JAX does."""

    def __call__(
        self, operation: Applied, source: Any, values: Sequence[Any], active: Sequence[int]
    ) -> Run: ...


@jax.tree_util.register_static
class Handing:
    """The way back through a vertex that hands its input on; ``seen`` is told of the error."""

    def __init__(self, seen: Callable[[Any], None] = lambda error: None):
        self.seen = seen

    def send(self, errors: Sequence[Any], sums: Sequence[_compat.Sum]) -> None:
        self.seen(errors[0])
        sums[0].accum(errors[0])

    def reach(self, errors: Sequence[bool]) -> Sequence[bool]:
        return errors


def plain(value: Any) -> Any:
    """What the trace around knows of a value."""
    return value.value if isinstance(value, FollowedValue) else value


def port(value: Any) -> Any:
    """``value``, whose messages from here on are added up apart (where an inner ``jit`` did)."""
    return handed_on(value, plain(value), Handing())


def watched(value: Any, seen: Callable[[Any], None]) -> Any:
    """``value``, of whose error, added up from here on, ``seen`` is told."""
    return handed_on(value, plain(value), Handing(seen))


def handed_on(value: Any, seen_as: Any, way: Sender | None = None) -> Any:
    """``seen_as``, whose errors go on to ``value``."""
    follower = getattr(value, "_trace", None)
    if not isinstance(follower, Recorder):
        return seen_as
    step = Step(None, None)
    (result,) = follower.write(step, [seen_as], [1], [value.slot], way or Handing())
    return result


class Recorder(Follower):
    """Follows the values that carry errors, and notes the vertices on the way."""

    def __init__(self, parent: Any, local: Local):
        super().__init__(parent)
        self.local = local
        self.steps: list[Step] = []
        self.senders: list[Sender] = []
        self.avals: list[Any] = []
        self.parameters: dict[int, int] = {}  # the slots that hold one: which

    def new(self, value: Any, which: int = 1) -> FollowedValue:
        """A value that has a slot of its own."""
        followed = FollowedValue(self, value, len(self.avals))
        self.avals.append(followed.aval)
        if which >= PARAMETER:
            self.parameters[followed.slot] = which
        return followed

    def split(self, value: Any) -> tuple[Any, int | None]:
        """A value and its slot."""
        return (value.value, value.slot) if self.follows(value) else (value, None)

    def split_all(self, args: Sequence[Any]) -> tuple[list[Any], list[int | None]]:
        """Values and their slots."""
        pairs = list(map(self.split, args))
        return [value for value, _ in pairs], [slot for _, slot in pairs]

    def primitive(self, primitive: Any, args: Sequence[Any], params: dict[str, Any]) -> Any:
        _refuse_references(primitive, args)
        values, slots = self.split_all(args)
        active = [0 if slot is None else self.parameters.get(slot, 1) for slot in slots]
        source = _compat.current_source()
        with _compat.set_current_trace(self.parent):
            run = self.local(Applied(primitive, params), source, values, active)
        step = Step(run.operation, source)
        if isinstance(run.sender, Tape):
            return self.splice(step, run.outputs, run.sender, slots)
        found = self.write(step, run.outputs, run.ties, slots, run.sender)
        if primitive.name in _STRUCTURAL and active[0] >= PARAMETER and self.follows(found[0]):
            self.parameters[found[0].slot] = active[0]
        return found if primitive.multiple_results else found[0]

    def splice(
        self, step: Step, outputs: Sequence[Any], tape: Tape, slots: Sequence[int | None]
    ) -> list[Any]:
        """Note the vertices of another tape, whose inputs have these slots here."""
        layout = tape.layout
        pairs = zip(layout.inputs, slots, strict=True)
        places = {slot: here for slot, here in pairs if slot is not None and here is not None}
        for slot, aval in enumerate(layout.avals):
            if slot not in places:
                places[slot] = len(self.avals)
                self.avals.append(aval)
        for inner in layout.steps:
            inputs = tuple(places[slot] for slot in inner.inputs)
            own = tuple(places[slot] for slot in inner.outputs)
            self.steps.append(Step(inner.operation, step.source, inputs, own))
        self.senders.extend(tape.senders)
        return [
            value if slot is None else FollowedValue(self, value, places[slot])
            for value, slot in zip(outputs, layout.outputs, strict=True)
        ]

    def rule(self, call: Callable[..., Any], args: Sequence[Any]) -> Any:
        values, slots = self.split_all(args)
        return self.vertex(lambda *inputs: self.call_now(call, inputs), values, slots)

    def function(self, call: Callable[..., Any], args: Sequence[Any]) -> Any:
        closed, rebuild = self.stage_call(call, args)
        values, slots = self.split_all([*closed.consts, *args])
        return rebuild(self.vertex(_compat.as_open_function(closed.jaxpr), values, slots))

    def vertex(
        self, function: Function, values: Sequence[Any], slots: Sequence[int | None]
    ) -> list[Any]:
        """Call a function that is one vertex."""
        active = [slot is not None for slot in slots]
        with _compat.set_current_trace(self.parent):
            if not any(active):
                return list(function(*values))
            outputs, sender = differentiate(function, values, active)
        step = Step(None, _compat.current_source())
        return self.write(step, outputs, sender.linear.ties, slots, sender)

    def write(
        self,
        step: Step,
        outputs: Sequence[Any],
        ties: Sequence[int | None],
        slots: Sequence[int | None],
        sender: Sender,
    ) -> list[Any]:
        """Note a vertex, and hand its results on."""
        inputs = tuple(slot for slot in slots if slot is not None)
        places = dict(enumerate(inputs))
        results = []
        for value, tie in zip(outputs, ties, strict=True):
            if tie is None:
                results.append(value)
            elif tie in places:
                results.append(FollowedValue(self, value, places[tie]))
            else:
                results.append(self.new(value))
                places[tie] = results[-1].slot
        own = tuple(places[place] for place in sorted(places)[len(inputs) :])
        if own:
            self.steps.append(step._replace(inputs=inputs, outputs=own))
            self.senders.append(sender)
        return results


def _refuse_references(primitive: Any, values: Sequence[Any]) -> None:
    if _compat.has_references(primitive, [jax.typeof(value) for value in values]):
        raise complain(
            NotImplementedError,
            f"'{primitive.name}' works on a mutable array reference (jax.new_ref), and a graph "
            "has no place for values that change.",
            source=_compat.source_line(_compat.current_source()),
            remedy="Write the update as x.at[...].set(...) on an ordinary array.",
        )
