"""What a loop body computes from constants alone, told apart from what changes at each step.

A jaxpr enters; two lists of `Piece` leave: ``once`` runs before the loop, ``each`` in it. A ``jit``
inside the body is split in two if part of it is constant, so that a weight that it transposes is
transposed once, and a residual that does not change is not stacked.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import jax

from dendrax import _compat

Env = dict[Hashable, Any]


@dataclass(frozen=True, eq=False)
class Piece:
    """A function from some names of an environment to others."""

    function: Callable[..., Sequence[Any]]
    inputs: tuple[Hashable, ...]
    outputs: tuple[Hashable, ...]

    def run(self, env: Env) -> None:
        """Read the inputs from ``env`` and write the outputs there."""
        values = self.function(*(env[name] for name in self.inputs))
        env.update(zip(self.outputs, values, strict=True))


@dataclass(frozen=True, eq=False)
class Split:
    """The pieces of a jaxpr, and the names that are constant."""

    once: list[Piece]
    each: list[Piece]
    constant: set[Hashable]


def split_constant(jaxpr: _compat.Jaxpr, constant: Iterable[Hashable]) -> Split:
    """Split a jaxpr's equations, given which of its arguments are constant."""
    split = Split([], [], set(constant))
    for eqn in jaxpr.eqns:
        piece = _piece(jaxpr, eqn)
        if not eqn.effects and split.constant.issuperset(piece.inputs):
            split.once.append(piece)
            split.constant.update(piece.outputs)
        elif eqn.primitive.name not in _compat.JIT_PRIMITIVES or not _split_jit(eqn, split):
            split.each.append(piece)
    return split


def _piece(jaxpr: _compat.Jaxpr, eqn: _compat.JaxprEqn) -> Piece:
    alone = _compat.one_equation(jaxpr, eqn)
    return Piece(_compat.as_function(alone), tuple(alone.jaxpr.invars), tuple(eqn.outvars))


def _split_jit(eqn: _compat.JaxprEqn, outer: Split) -> bool:
    """Split a jit into a constant and a changing one; False if it has no constant part."""
    closed = _compat.called_jaxpr(eqn.params)
    if closed.consts or not all(isinstance(atom, _compat.Var) for atom in eqn.invars):
        return False
    inner = closed.jaxpr
    known = [v for v, atom in zip(inner.invars, eqn.invars, strict=True) if atom in outer.constant]
    split = split_constant(inner, known)
    if not split.once:
        return False
    results = _compat.unique_vars(inner.outvars)
    used = {name for piece in split.each for name in piece.inputs} | set(results)
    made = dict.fromkeys(name for piece in split.once for name in piece.outputs)
    shared = [name for name in made if name in used]
    call = object()  # the same jaxpr may be called again: its names are this call's
    names = {name: (call, name) for name in shared}
    sources = dict(zip(inner.invars, eqn.invars, strict=True))
    outer.once.append(_jitted(split.once, {v: sources[v] for v in known}, names))
    outer.constant.update(names.values())
    changing = [v for v in results if v not in split.constant]
    targets = {v: (call, "result", k) for k, v in enumerate(changing)}
    outer.each.append(_jitted(split.each, {**names, **sources}, targets))
    _rename_results(eqn, inner, {**sources, **names, **targets}, outer)
    return True


def _jitted(
    pieces: Sequence[Piece], inputs: Mapping[Any, Hashable], outputs: Mapping[Any, Hashable]
) -> Piece:
    """Several pieces as one compiled piece; keys are names inside, values names outside."""

    def run(*values: Any) -> list[Any]:
        env: Env = dict(zip(inputs, values, strict=True))
        for piece in pieces:
            piece.run(env)
        return [env[name] for name in outputs]

    return Piece(jax.jit(run), tuple(inputs.values()), tuple(outputs.values()))


def _rename_results(
    eqn: _compat.JaxprEqn, inner: _compat.Jaxpr, names: dict[Any, Hashable], outer: Split
) -> None:
    """Give the results of a split jit the names that the equations after it use."""
    for var, atom in zip(eqn.outvars, inner.outvars, strict=True):
        if isinstance(atom, _compat.Literal):
            outer.once.append(Piece(lambda value=atom.val: [value], (), (var,)))
            outer.constant.add(var)
        else:
            source = names[atom]
            same = Piece(lambda value: [value], (source,), (var,))
            constant = source in outer.constant
            (outer.once if constant else outer.each).append(same)
            if constant:
                outer.constant.add(var)
