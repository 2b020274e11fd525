"""Which value node has which energy: what a rule or a user says, for the vertices of a network."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp

from dendrax.graph import Port, Vertex
from dendrax.inference._batch import over_samples
from dendrax.inference._energy import (
    Energy,
    FunctionEnergy,
    Gaussian,
    Prior,
    Unpredicted,
    check_precision,
)
from dendrax.inference._held import held_value, meant_by
from dendrax.inference._steps import OverSteps
from dendrax.inference._view import View
from dendrax.support import complain

# One for all value nodes, or by name, or by vertex. A function `(mu, x) -> energy` is an energy.
OneEnergy = Energy | Callable[[Any, Any], Any]
Energies = (
    OneEnergy
    | Callable[[Vertex], OneEnergy]
    | Mapping[str, OneEnergy]
    | tuple[tuple[str, OneEnergy], ...]
)
Choice = Callable[[Vertex], Energy]


def frozen_energies(rule: str, energies: Any) -> Any:
    """Energies as a setting of a frozen rule: checked, and a mapping as pairs."""
    if isinstance(energies, Mapping):
        energies = tuple(energies.items())
    if isinstance(energies, tuple):
        pairs = [pair for pair in energies if isinstance(pair, tuple) and len(pair) == 2]
        if len(pairs) < len(energies):
            raise _no_energies(f"{rule}: energies", energies)
        return tuple((name, as_energy(f"{rule}: energies[{name!r}]", e)) for name, e in pairs)
    if _is_of_vertex(energies):
        return energies
    return as_energy(f"{rule}: energies", energies)


def said_by(rule: Any) -> Any:
    """The energies of a rule: its setting, or what a subclass defines (which the setting hides)."""
    own = inspect.getattr_static(type(rule), "energies")
    if rule.energies is not None or own is None:
        return rule.energies
    return own.__get__(rule, type(rule)) if hasattr(own, "__get__") else own


def as_energy(setting: str, energy: Any) -> Energy:
    """What a user gave as an energy; a function of prediction and value is one."""
    try:
        hash(energy)
    except TypeError as problem:
        raise complain(
            TypeError,
            f"{setting} cannot be hashed: {problem}.",
            remedy="Write @dataclasses.dataclass(frozen=True) above class "
            f"{type(energy).__name__}, and give it settings that can be hashed.",
        ) from None
    if isinstance(energy, Energy):
        return energy
    if callable(energy) and not isinstance(energy, type) and _takes(energy) == 2:
        return FunctionEnergy(energy)
    raise _no_energies(setting, energy)


def _no_energies(setting: str, energies: Any) -> Exception:
    is_class = isinstance(energies, type)
    shown = f"the class {energies.__name__}" if is_class else repr(energies)
    meant = f"{energies.__name__}()" if is_class else "dendrax.Gaussian(precision=2.0)"
    return complain(
        TypeError,
        f"{setting} is {shown}, which is no energy.",
        remedy=f"Give one such as {meant}, a function (mu, x) -> energy, a dictionary from "
        "names of vertices to these, or a function of the vertex that returns one.",
    )


def _takes(function: Any) -> int:
    """How many arguments a function needs; a default of ``None``, as Optax has it, is none."""
    try:
        parameters = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):
        return 2  # a function of NumPy or so
    kinds = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    needed = [p for p in parameters if p.kind in kinds and p.default in (p.empty, None)]
    return min(len(needed), 2)


def _is_of_vertex(energies: Any) -> bool:
    is_function = callable(energies) and not isinstance(energies, (type, Energy))
    return is_function and _takes(energies) == 1


def energies_of(
    rule: Any,
    view: View,
    pieces: int = 1,
    priors: Mapping[Port, Energy] | None = None,
    *,
    is_mean: bool = True,
) -> Mapping[Port, Energy]:
    """The energy of each value node that a vertex or an output predicts. A free argument has that
    of its prior, if it has one. ``is_mean``: whether a loss may be a mean over samples; what is
    held at a target is a sum."""
    choice, known = _choice(rule, view), priors or {}
    chosen: dict[Port, Energy] = {}
    for port in view.nodes:
        vertex = view.vertex(port)
        alone = port in view.free and port not in view.ties
        chosen[port] = known.get(port, Unpredicted()) if alone else choice(vertex)
        check_energy(chosen[port], vertex, _own_aval(chosen[port], view, port))
    found = over_samples(rule, view, chosen, pieces) if is_mean else chosen
    return {port: _by_step(energy, view, port) for port, energy in found.items()}


def _own_aval(energy: Energy, view: View, port: Port) -> Any:
    """The type of what an energy is of: one step of a node in a loop. A Gaussian is of each neuron,
    so that its precision may be of all steps together."""
    aval = view.aval(port)
    shape = aval.shape if isinstance(energy, Gaussian) else aval.shape[len(view.loops(port)) :]
    return jax.ShapeDtypeStruct(shape, aval.dtype)


def _by_step(energy: Energy, view: View, port: Port) -> Energy:
    loops = len(view.loops(port))
    if not loops or isinstance(energy, Gaussian):
        return energy
    return OverSteps(energy, loops, view.liveness.live.get(port))


def output_energies_of(
    rule: Any, view: View, held: Sequence[int], masked: Sequence[int] = ()
) -> Mapping[int, Energy]:
    """The energies of the outputs that are ``held``, some of them ``masked``: Gaussian, unless the
    rule names them or asks for each vertex."""
    chosen = {}
    energies = said_by(rule)
    if isinstance(energies, (Mapping, tuple)) or _is_of_vertex(energies):
        choice = _choice(rule, view)
        for o in held:
            port = view.graph.outputs[o]
            vertex = view.shown[view.roots[port].vertex]
            chosen[o] = choice(vertex)
            check_energy(chosen[o], vertex, view.aval(port))
            if o in masked:
                check_mask(chosen[o], vertex.name, view.aval(port))
    return {o: energy for o, energy in chosen.items() if energy != Gaussian()}


def _choice(rule: Any, view: View) -> Choice:
    name = type(rule).__name__
    energies = said_by(rule)
    if energies is None and getattr(rule, "precision", None) is not None:
        return _by_precision(name, rule.precision)
    if isinstance(energies, (Mapping, tuple)):
        return _by_name(name, dict(energies), view)
    if not _is_of_vertex(energies):
        return lambda vertex: as_energy(f"{name}: the energy of {vertex.name}", energies)
    of_vertex: Any = energies
    return lambda vertex: as_energy(f"{name}: the energy of {vertex.name}", of_vertex(vertex))


def _by_precision(rule: str, precision: Any) -> Choice:
    """Gaussians, of a precision or of one for each vertex."""

    def choose(vertex: Vertex) -> Energy:
        if not callable(precision):
            return Gaussian(precision)
        value = precision(vertex)
        check_precision(f"{rule}: precision of {vertex.name}", value)
        return Gaussian(value)

    return choose


def _by_name(rule: str, energies: Mapping[str, Any], view: View) -> Choice:
    """The first pattern that fits decides; what none fits is Gaussian."""
    predicted = [p for p in view.nodes if p not in view.free or p in view.ties]
    ports = (*map(view.nodes.__getitem__, predicted), *view.roots.values())
    vertices = [view.shown[port.vertex] for port in ports]
    names = dict.fromkeys(vertex.name for vertex in vertices)
    found: dict[str, Energy] = {}
    for pattern, energy in energies.items():
        for name in meant_by(f"{rule}: energies", pattern, names):
            found.setdefault(name, as_energy(f"{rule}: energies[{pattern!r}]", energy))
    return lambda vertex: found.get(vertex.name, Gaussian())


def check_energy(energy: Energy, vertex: Vertex, aval: Any) -> None:
    """An energy fits the value node, and gives a number for each of its neurons, or one for all."""
    shown = _shown(energy)
    problem = energy.problem(aval)
    if problem:
        raise complain(
            ValueError,
            f"{shown} is no energy for {vertex.name}, which {problem}.",
            source=vertex.source,
            remedy="Choose another for it: energies={'" + vertex.name + "': ...}.",
        )
    if type(energy).__module__.startswith("dendrax.") and not isinstance(energy, FunctionEnergy):
        return
    # Of a function itself: as an energy, its None would be an error of JAX's.
    function = energy.function if isinstance(energy, FunctionEnergy) else energy.energy
    found = jax.eval_shape(function, aval, aval)
    shape, dtype = getattr(found, "shape", None), getattr(found, "dtype", None)
    real = dtype is not None and jnp.issubdtype(dtype, jnp.floating)
    if not real or shape not in (aval.shape, ()):
        told = (
            f"{dtype}[{','.join(map(str, shape))}]" if shape is not None else type(found).__name__
        )
        raise complain(
            ValueError,
            f"{shown} gives {told} for {vertex.name}, whose value is "
            f"{aval.dtype}[{','.join(map(str, aval.shape))}].",
            source=_line(energy),
            remedy="Return one real number for each neuron, or one for the whole value node.",
        )


def check_mask(energy: Energy, name: str, aval: Any) -> None:
    """An energy of which a mask is to leave out a part has parts."""
    if energy.of_error or jax.eval_shape(energy.energy, aval, aval).shape == aval.shape:
        return
    raise complain(
        ValueError,
        f"{_shown(energy)} gives one number for {name}, of which a mask cannot leave out a part.",
        source=_line(energy),
        remedy="Return one number for each neuron.",
    )


def _shown(energy: Energy) -> str:
    """How a user would call an energy."""
    if isinstance(energy, FunctionEnergy):
        return f"the energy {getattr(energy.function, '__name__', repr(energy.function))}"
    return repr(energy)


def _line(energy: Energy) -> str:
    """Where a user defined it."""
    function = energy.function if isinstance(energy, FunctionEnergy) else type(energy).energy
    code = getattr(inspect.unwrap(function), "__code__", None)
    return f"{code.co_filename}:{code.co_firstlineno} ({function.__name__})" if code else ""


def priors_of(prior: Any, view: View) -> tuple[dict[Port, Energy], dict[Port, Any]]:
    """The energies of the free arguments that have a prior, and what that predicts."""
    energies: dict[Port, Energy] = {}
    means: dict[Port, Any] = {}
    if prior is None:
        return energies, means
    alone = [port for port in view.free if port not in view.ties]
    names = {view.vertex(port).name: port for port in alone}
    for pattern, given in (prior if isinstance(prior, Mapping) else {"*": prior}).items():
        energy, mean = given if isinstance(given, tuple) and len(given) == 2 else (given, 0.0)
        energy = as_energy("prior", energy)
        for name in meant_by("prior, of a free argument without a tie", pattern, names):
            port = names[name]
            if port not in energies:
                check_energy(energy, view.vertex(port), view.aval(port))
                means[port] = held_value(
                    f"the prior of {name}", jnp.asarray(mean), view.aval(port)
                ).value
                energies[port] = Prior(energy)
    return energies, means
