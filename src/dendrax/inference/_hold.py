"""What a user holds, by name: which value nodes and outputs of a network that is."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import jax
import jax.numpy as jnp

from dendrax.graph import Port
from dendrax.inference._clamp import Clamp, Hold
from dendrax.inference._held import HeldValue, checked_mapping, held_value, meant_by
from dendrax.inference._view import View
from dendrax.support import complain

Array = Any


def resolved_holds(clamp: Clamp, view: View) -> tuple[Clamp, dict[Port, HeldValue]]:
    """What holds the outputs, and what value nodes are held at."""
    outputs = _output_names(view)
    held_nodes: dict[Port, HeldValue] = {}
    held_outputs: dict[int, HeldValue] = {}
    steps = {name: step for name in clamp.hold if (step := _step_of(view, name)) is not None}
    for pattern, given in clamp.hold.items():
        if pattern in steps:
            continue
        for name in meant_by("hold", pattern, {**view.names, **outputs}):
            if name in outputs:
                held_outputs[outputs[name]] = _held_output(name, given, clamp, view, outputs[name])
            else:
                port = view.names[name]
                held_nodes[port] = held_value(name, given, view.aval(port))
                if port in view.free and held_nodes[port].mask is None:
                    raise complain(
                        ValueError,
                        f"{name} is both free and held.",
                        remedy="Leave it out of one of the two, or hold a part of it: hold={"
                        f"{name!r}: (value, mask)}}.",
                    )
    for name, (port, place) in steps.items():
        at = _of_step(view, port, place, name, clamp.hold[name])
        held_nodes[port] = at.joined(held_nodes[port]) if port in held_nodes else at
    return (_with_outputs(clamp, view, held_outputs) if held_outputs else clamp), held_nodes


def _step_of(view: View, name: Any) -> tuple[Port, tuple[int | slice, ...]] | None:
    """The value node in a loop and which step of it a name means, if any."""
    try:
        return view.step(name) if isinstance(name, str) else None
    except KeyError as problem:
        raise complain(
            KeyError, f"hold: {problem.args[0]}.", remedy="Steps are counted from 0."
        ) from None


def _of_step(
    view: View, port: Port, place: tuple[int | slice, ...], name: str, given: Any
) -> HeldValue:
    """What holds one step of a value node that is stacked over time."""
    aval = view.aval(port)
    nowhere = jnp.zeros(aval.shape, bool)
    one = jax.eval_shape(lambda x: x[place], jax.ShapeDtypeStruct(aval.shape, aval.dtype))
    at = held_value(name, given, one)
    mask = nowhere.at[place].set(True if at.mask is None else at.mask)
    return HeldValue(jnp.zeros(aval.shape, aval.dtype).at[place].set(at.value), mask)


def _output_names(view: View) -> dict[str, int]:
    """The outputs that can be held, by name."""
    places = enumerate(view.graph.outputs)
    return {view.shown[view.roots[p].vertex].name: o for o, p in places if p in view.roots}


def _held_output(name: str, given: Any, clamp: Clamp, view: View, o: int) -> HeldValue:
    is_target = isinstance(clamp, Hold) and clamp.targets[o] is not None
    if is_target or (not isinstance(clamp, Hold) and type(clamp) is not Clamp):
        what = "has a target" if is_target else "is a loss, or has a cotangent"
        raise complain(
            ValueError,
            f"hold names {name}, which {what} already.",
            remedy="Hold the output by one of them.",
        )
    return held_value(name, given, view.aval(view.graph.outputs[o]))


def _with_outputs(clamp: Clamp, view: View, held: Mapping[int, HeldValue]) -> Hold:
    """The same with other outputs held, too."""
    count = len(view.graph.outputs)
    targets: list[Any] = list(clamp.targets) if isinstance(clamp, Hold) else [None] * count
    masks: list[Any] = (
        list(clamp.masks) if isinstance(clamp, Hold) and clamp.masks else [None] * count
    )
    for o, at in held.items():
        targets[o], masks[o] = at.value, at.mask
    return Hold(targets, masks, hold=clamp.hold, prior=clamp.prior)


def started(view: View, start: Mapping[str, Any]) -> dict[Port, Array]:
    """Where value nodes start, by node."""
    found = {}
    for pattern, given in checked_mapping("start", start).items():
        names = [pattern] if pattern in view.names else meant_by("start", pattern, view.names)
        for name in names:
            aval, value = view.aval(view.names[name]), jnp.asarray(given)
            if value.shape != aval.shape:
                raise complain(
                    ValueError,
                    f"start has shape {value.shape} for {name}, whose shape is {aval.shape}.",
                    remedy="Give what settled before, of the same function and shapes.",
                )
            found[view.names[name]] = value.astype(aval.dtype)
    return found
