"""The one file that touches JAX's jaxprs and internals: a new JAX version breaks at most here.

Everything here comes from ``jax.extend`` where that offers it. Nothing else in dendrax imports
``jax.extend`` or ``jax._src``; a test enforces that.
"""

from __future__ import annotations

import contextlib
import functools
import os
from collections.abc import Callable, Sequence
from typing import Any

import jax
import numpy as np
from jax._src import config
from jax._src.ad_util import Zero, zeros_like_aval
from jax._src.clusters import ClusterEnv as ClusterEnv
from jax._src.core import EvalTrace, is_literalable, trace_state_clean, unmapped_aval
from jax._src.core import Trace as Trace
from jax._src.core import set_current_trace as set_current_trace
from jax._src.core import take_current_trace as take_current_trace
from jax._src.core import to_concrete_value as to_concrete_value
from jax._src.interpreters import ad
from jax.core import Tracer
from jax.extend import core as jex_core
from jax.extend import source_info_util

ClosedJaxpr = jex_core.ClosedJaxpr
Jaxpr = jex_core.Jaxpr
JaxprEqn = jex_core.JaxprEqn
Var = jex_core.Var
Literal = jex_core.Literal
Atom = Var | Literal

# Primitives have been renamed over time; both spellings stand for the same thing.
JIT_PRIMITIVES = ("jit", "pjit", "closed_call", "core_call")
REMAT_PRIMITIVES = ("remat2", "checkpoint", "remat")
SUM_PRIMITIVE = "add_any"

# What a user wants to see is the line of the model, not of the machinery around it: not our own
# files (except dendrax.models), and not those of the libraries that models are written in.
_HERE = os.path.dirname(os.path.abspath(__file__))
_CORE = ("graph", "local", "tracing", "vertices", "walk", "inference", "rules", "certify")
for _path in ("_", "equinox.py", "nnx.py", *(folder + os.sep for folder in ("support", *_CORE))):
    source_info_util.register_exclusion(os.path.join(_HERE, _path))
_LIBRARIES = tuple(f"{os.sep}{name}{os.sep}" for name in ("equinox", "flax", "haiku"))


def is_tracer(value: Any) -> bool:
    """Whether ``value`` is being traced by JAX rather than concrete."""
    return isinstance(value, Tracer)


def choose(condition: Any, new: Any, old: Any) -> Any:
    """The tree ``new`` if the condition holds, else ``old``; at once if nothing is compiled."""
    if is_tracer(condition):
        return jax.tree.map(functools.partial(jax.numpy.where, condition), new, old)
    return new if condition else old


def varying_axes(value: Any) -> frozenset[Any]:
    """Inside `jax.shard_map`: the axes over which a value differs from device to device."""
    aval = value if is_aval(value) else jax.typeof(value)
    kind = getattr(aval, "manual_axis_type", None)  # JAX before 0.10 calls it otherwise
    return frozenset(getattr(aval, "vma", ())) if kind is None else frozenset(kind.varying)


def varying_as(value: Any, like: Any) -> Any:
    """The same value, that counts as one that differs over the axes over which ``like`` does."""
    axes = tuple(varying_axes(like) - varying_axes(value))
    if not axes:
        return value
    if hasattr(jax.lax, "pcast"):
        return jax.lax.pcast(value, axes, to="varying")
    return jax.lax.pvary(value, axes)  # pyright: ignore[reportAttributeAccessIssue]


def on_all_devices(flag: Any, like: Any) -> Any:
    """Whether a flag holds on all devices between which ``like`` does not differ."""
    axes = tuple(varying_axes(flag) - varying_axes(like))
    return jax.lax.psum((~flag).astype(int), axes) == 0 if axes else flag


def is_left_over(value: Any) -> bool:
    """Whether a value is a tracer of a trace that is over, as far as can be told from here."""
    if not isinstance(value, Tracer):
        return False
    with take_current_trace() as trace:
        while trace is not None and trace is not value._trace:
            if isinstance(trace, EvalTrace):
                return True
            trace = getattr(trace, "parent_trace", None) or getattr(trace, "parent", None)
    return False


def is_tracing() -> bool:
    """Whether JAX is tracing some function right now."""
    return not trace_state_clean()


_make_context = getattr(jax, "make_user_context", None)  # some JAX before 0.10 has none
_apart = contextlib.nullcontext if _make_context is None else _make_context(None)


def apart(value: Any) -> Any:
    """While this is open, JAX keeps what it traces under ``jit`` for those with an equal value."""
    return _apart(value)


def is_typed(value: Any) -> bool:
    """Whether JAX accepts ``value`` as an array or scalar."""
    try:
        jax.typeof(value)
    except TypeError:
        return False
    return True


def aval_of(value: Any) -> Any:
    """The abstract value (shape, dtype, weak type, sharding) of an array, scalar or tracer."""
    return jax.typeof(value)


def is_aval(value: Any) -> bool:
    """Whether ``value`` is an abstract value rather than an array."""
    return hasattr(value, "to_tangent_aval")


def stacked_aval(aval: Any, length: int) -> Any:
    """The type of so many values of type ``aval``, stacked along a new first axis."""
    return unmapped_aval(length, 0, aval)


def called_jaxpr(params: dict[str, Any]) -> ClosedJaxpr:
    """The jaxpr that a ``jit`` (or another call) carries."""
    return closed(params["jaxpr" if "jaxpr" in params else "call_jaxpr"])


def closed(jaxpr: Any) -> ClosedJaxpr:
    """``jaxpr`` as a closed jaxpr; some primitives keep an open one without constants."""
    return jaxpr if isinstance(jaxpr, ClosedJaxpr) else ClosedJaxpr(jaxpr, ())


def as_function(jaxpr: ClosedJaxpr) -> Callable[..., list[Any]]:
    """The function that a closed jaxpr describes: flat arguments in, list of results out."""
    return jex_core.jaxpr_as_fun(jaxpr)


def as_open_function(jaxpr: Jaxpr) -> Callable[..., list[Any]]:
    """The function that a jaxpr describes, with its constants for first arguments."""
    inputs = [*jaxpr.constvars, *jaxpr.invars]
    return as_function(with_equations(jaxpr, jaxpr.eqns, inputs, jaxpr.outvars))


def copied(jaxpr: Jaxpr) -> Jaxpr:
    """The same jaxpr, as another object."""
    return jaxpr.replace()


def unique_vars(atoms: Sequence[Atom]) -> list[Var]:
    """The variables among ``atoms``, each once, in order of first appearance."""
    return list(dict.fromkeys(atom for atom in atoms if isinstance(atom, Var)))


def with_equations(
    jaxpr: Jaxpr, eqns: Sequence[JaxprEqn], invars: Sequence[Var], outvars: Sequence[Atom]
) -> ClosedJaxpr:
    """A closed jaxpr of only these equations, from ``invars`` to ``outvars``."""
    effects = frozenset().union(*(eqn.effects for eqn in eqns))
    return ClosedJaxpr(
        jaxpr.replace(
            constvars=[],
            invars=list(invars),
            outvars=list(outvars),
            eqns=list(eqns),
            effects=effects,
            debug_info=_unknown_names(jaxpr.debug_info),
        ),
        (),
    )


def _unknown_names(debug_info: Any) -> Any:
    return debug_info.with_unknown_names() if hasattr(debug_info, "with_unknown_names") else None


def one_equation(jaxpr: Jaxpr, eqn: JaxprEqn) -> ClosedJaxpr:
    """The equation alone as a jaxpr. A variable that it uses twice becomes one argument."""
    return with_equations(jaxpr, [eqn], unique_vars(eqn.invars), eqn.outvars)


def live_equations(eqns: Sequence[JaxprEqn], outvars: Sequence[Atom]) -> list[JaxprEqn]:
    """The equations that ``outvars`` depend on, in program order."""
    live = set(unique_vars(outvars))
    kept = []
    for eqn in reversed(eqns):
        if not live.isdisjoint(eqn.outvars) or eqn.effects:
            kept.append(eqn)
            live.update(unique_vars(eqn.invars))
    return kept[::-1]


def dependencies(
    jaxpr: Jaxpr, given: Sequence[int] | None = None, *, into_branches: bool = False
) -> list[int]:
    """For each result, a bit mask of the arguments that it depends on. Looks into inner jits, and
    if asked into the branches of a ``cond``.

    ``given`` are the masks of the constants and the arguments; by default argument ``i`` has bit
    ``i``, and constants have none.
    """
    if given is None:
        given = [0] * len(jaxpr.constvars) + [1 << i for i in range(len(jaxpr.invars))]
    masks: dict[Any, int] = dict(zip([*jaxpr.constvars, *jaxpr.invars], given, strict=True))

    def read(atom: Any) -> int:
        return masks.get(atom, 0) if isinstance(atom, Var) else 0

    for eqn in jaxpr.eqns:
        sources = list(map(read, eqn.invars))
        if eqn.primitive.name in JIT_PRIMITIVES:
            inner = called_jaxpr(eqn.params).jaxpr
            found = dependencies(inner, _inside(inner, sources), into_branches=into_branches)
        elif eqn.primitive.name == "cond" and into_branches:
            index, *rest = sources
            branches = [closed.jaxpr for closed in eqn.params["branches"]]
            each = [dependencies(b, _inside(b, rest), into_branches=True) for b in branches]
            found = [
                functools.reduce(int.__or__, masks, index) for masks in zip(*each, strict=True)
            ]
        else:
            found = [functools.reduce(int.__or__, sources, 0)] * len(eqn.outvars)
        masks.update(zip(eqn.outvars, found, strict=True))
    return [read(atom) for atom in jaxpr.outvars]


def _inside(jaxpr: Jaxpr, masks: Sequence[int]) -> list[int]:
    """The masks of the constants and the arguments of an inner program."""
    return [*[0] * len(jaxpr.constvars), *masks]


def inner_programs(params: dict[str, Any]) -> list[Jaxpr]:
    """The programs among the parameters of an equation."""
    given = [item for v in params.values() for item in (v if isinstance(v, tuple) else (v,))]
    found = [item for item in given if isinstance(item, (Jaxpr, ClosedJaxpr))]
    return [item.jaxpr if isinstance(item, ClosedJaxpr) else item for item in found]


def carries_function(params: dict[str, Any]) -> bool:
    """Whether the parameters of an equation hold a function: a jaxpr, or something to call.

    How a ``scatter`` combines numbers does not count: that function is JAX's own.
    """
    given = [value for name, value in params.items() if name != "update_jaxpr"]
    values = [item for v in given for item in (v if isinstance(v, tuple) else (v,))]
    return any(
        isinstance(item, (Jaxpr, ClosedJaxpr)) or (callable(item) and not isinstance(item, type))
        for item in values
    )


def current_source() -> Any:
    """Where in the user's program we are, for `source_line`."""
    return source_info_util.current()


def source_line(source_info: Any) -> str:
    """The user's source line behind some ``source_info``, as ``file.py:12 (function)``."""
    frames = source_info_util.summarize(source_info, num_frames=16).split("\n")[::-1]
    own = [frame for frame in frames if not any(name in frame for name in _LIBRARIES)]
    return (own or frames)[0]


def is_debugging(eqn: JaxprEqn) -> bool:
    """Whether an equation only watches (``jax.debug.print`` and friends)."""
    return eqn.primitive.name in ("debug_callback", "debug_print")


def has_effects(primitive: Any, params: dict[str, Any]) -> bool:
    """Whether an operation does more than to compute its results."""
    watches = primitive.name in ("io_callback", "debug_callback", "debug_print")
    return watches or any(jaxpr.effects for jaxpr in inner_programs(params))


def has_references(primitive: Any, avals: Sequence[Any]) -> bool:
    """Whether an operation reads, writes or makes a mutable array reference."""
    return primitive.ref_primitive or any(hasattr(aval, "inner_aval") for aval in avals)


def zeros(aval: Any) -> Any:
    """An error of zero for a value of type ``aval``."""
    return zeros_like_aval(aval.to_tangent_aval())


def saves(policy: Callable[..., Any], eqn: JaxprEqn) -> bool:
    """Whether a `jax.checkpoint` policy keeps the results of an equation.

    A policy that would offload them to the host counts as keeping them.
    """
    verdict = policy(eqn.primitive, *(atom.aval for atom in eqn.invars), **eqn.params)
    return bool(verdict) and type(verdict).__name__ != "RecomputeType"


def round_to_own_precision(value: Any) -> Any:
    """Undo the excess precision that XLA may keep, so that saved and recomputed values agree."""
    dtype = jax.typeof(value).dtype
    if not jax.numpy.issubdtype(dtype, np.floating):
        return value
    info = jax.numpy.finfo(dtype)
    return jax.lax.reduce_precision(value, exponent_bits=info.nexp, mantissa_bits=info.nmant)


# ---- what is remembered of a vertex --------------------------------------------------------------


def trace_context() -> Any:
    """The settings of JAX that tracing depends on (float64, meshes, precision), as a key."""
    return config.trace_context()


def is_literal(value: Any) -> bool:
    """Whether JAX writes a value into a program as a number of it, rather than handing it in."""
    return np.ndim(value) == 0 and not is_tracer(value) and is_literalable(value)


def linear_program(pullback: Any) -> tuple[Jaxpr, list[bool], list[Any]]:
    """What a pullback of `jax.vjp` is made of.

    **Returns:** the linear map from tangents at the inputs to tangents at the outputs, whose
    constants are the residuals; which outputs have a tangent at all; and the residuals.
    """
    if hasattr(pullback, "opaque_residuals"):
        spec, known, jaxpr, _ = pullback.fun.args
        given = jax.tree.leaves(pullback.args_res, is_leaf=_is_not_needed)
        sources = (pullback.opaque_residuals, given)
        residuals = [sources[place.primal][place.idx] for place in spec]
        return jaxpr, [not flag for flag in known], residuals
    (inner,) = pullback.args  # JAX before 0.9
    values, jaxpr = inner.func.args
    return jaxpr, [not value.is_known() for value in values], list(inner.args[0])


def _is_not_needed(value: Any) -> bool:
    return type(value).__name__ == "NotNeeded"


Sum = ad.ValAccum  # `accum(message)` adds a message, `freeze()` gives the sum


def new_sum(aval: Any) -> Sum:
    """An empty sum of messages to a value of type ``aval``."""
    tangent = aval.to_tangent_aval()
    return Sum(tangent.to_ct_aval() if hasattr(tangent, "to_ct_aval") else tangent)


class Terms(Sum):
    """Messages as the terms that JAX would add up, in that order, and not added up."""

    def __init__(self, aval: Any):
        super().__init__(new_sum(aval).aval)
        self.terms: list[Any] = []

    def accum(self, x: Any) -> None:
        if x is not None and type(x) is not Zero:
            self.terms.append(x)


def summed(messages: Sum | None) -> Any:
    """What has been added up so far; ``None`` if nothing was."""
    value = None if messages is None else messages.freeze()
    return None if type(value) is Zero else value


def transpose(
    jaxpr: Jaxpr, residuals: Sequence[Any], errors: Sequence[Any], sums: Sequence[Sum]
) -> None:
    """Send errors (``None``: absent) back through a linear map, adding term by term to ``sums``."""
    pairs = zip(jaxpr.outvars, errors, strict=True)
    given = [new_sum(var.aval).freeze() if error is None else error for var, error in pairs]
    if all(error is None for error in errors) and _has_rule(jaxpr):
        # A rule of the user's is asked even if no error has come; JAX would stop here.
        one = np.float32(1)
        jaxpr = with_outputs(jaxpr, [*jaxpr.outvars, Literal(one, jax.typeof(one))])
        given.append(one)
    ad.backward_pass3(jaxpr, True, residuals, sums, given)


def _has_rule(jaxpr: Jaxpr) -> bool:
    return any(eqn.primitive is ad.custom_lin_p for eqn in jaxpr.eqns)


def with_outputs(jaxpr: Jaxpr, outvars: Sequence[Atom]) -> Jaxpr:
    """The same jaxpr with other results."""
    return jaxpr.replace(outvars=list(outvars), debug_info=_unknown_names(jaxpr.debug_info))


def program_of(jaxpr: ClosedJaxpr) -> Callable[..., list[Any]]:
    """As `as_function`, quicker where the equations are plain operations.

    The operations count as the user's at the line that is running now, not at the line that was
    running when the jaxpr was made.
    """
    if any("get_bind_params" in vars(type(eqn.primitive)) for eqn in jaxpr.eqns):
        return as_function(jaxpr)
    inputs = [*jaxpr.jaxpr.constvars, *jaxpr.jaxpr.invars]

    def run(*values: Any) -> list[Any]:
        env = dict(zip(inputs, (*jaxpr.consts, *values), strict=True))

        def read(atom: Atom) -> Any:
            return env[atom] if isinstance(atom, Var) else atom.val

        for eqn in jaxpr.eqns:
            found = eqn.primitive.bind(*map(read, eqn.invars), **eqn.params)
            found = found if eqn.primitive.multiple_results else [found]
            env.update(zip(eqn.outvars, found, strict=True))
        return [read(atom) for atom in jaxpr.jaxpr.outvars]

    return run
