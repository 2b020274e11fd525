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


class Hoisted:
    """A function ``(constant, changing) -> results`` in two parts, for use in a loop.

    ``once`` computes what depends on the constant arguments alone; ``each`` does the rest, given
    that. What is made of numbers of the program alone (an array of zeros) is made in both.
    ``types`` are those of the results.
    """

    def __init__(self, function: Callable[[Any, Any], Any], constant: Any, changing: Any):
        closed, shapes = jax.make_jaxpr(function, return_shape=True)(constant, changing)
        self.types = jax.tree.unflatten(jax.tree.structure(shapes), closed.out_avals)
        if any(map(_compat.is_left_over, closed.consts)):
            raise jax.errors.UnexpectedTracerError("a value of an earlier trace was kept")
        jaxpr = self._jaxpr = closed.jaxpr
        self._consts = closed.consts
        count = jax.tree.structure(constant).num_leaves
        self._known = [*jaxpr.constvars, *jaxpr.invars[:count]]
        self._given = jaxpr.invars[count:]
        made, rest = _parted(_compat.live_equations(jaxpr.eqns, jaxpr.outvars))
        self._made = [_piece(jaxpr, eqn) for eqn in made.values()]
        split = self._split = split_constant(jaxpr.replace(eqns=rest), [*self._known, *made])
        used = [name for piece in (*self._made, *split.each) for name in piece.inputs]
        used += _compat.unique_vars(jaxpr.outvars)
        own = split.constant.difference(made)
        self._kept = [name for name in dict.fromkeys(used) if name in own]

    def once(self, constant: Any) -> list[Any]:
        """What of it does not change, for `each`."""
        values = [*self._consts, *jax.tree.leaves(constant)]
        env: Env = dict(zip(self._known, values, strict=True))
        for piece in (*self._made, *self._split.once):
            piece.run(env)
        return [env[name] for name in self._kept]

    def each(self, kept: Sequence[Any], changing: Any) -> Any:
        """The results."""
        env: Env = dict(zip(self._kept, kept, strict=True))
        env.update(zip(self._given, jax.tree.leaves(changing), strict=True))
        for piece in (*self._made, *self._split.each):
            piece.run(env)
        results = [env[a] if isinstance(a, _compat.Var) else a.val for a in self._jaxpr.outvars]
        return jax.tree.unflatten(jax.tree.structure(self.types), results)


def hoisted(function: Callable[..., Any], *args: Any) -> tuple[Callable[..., Any], Any]:
    """A function for use in a loop: what does not depend on its arguments is computed now.

    **Returns:** the function of arguments like these, and the types of its results.
    """
    parts = Hoisted(lambda _, changing: function(*changing), (), args)
    kept = parts.once(())
    return lambda *args: parts.each(kept, args), parts.types


def carried_as(start: Any, after: Any) -> tuple[Any, bool]:
    """The start of a loop's carry, of the type that it has ``after`` a step, and whether that is
    another: inside `jax.shard_map` what differs between devices is so from the start."""
    leaves, tree = jax.tree.flatten(start)
    pairs = list(zip(leaves, jax.tree.leaves(after), strict=True))
    if not any(_compat.varying_axes(new) - _compat.varying_axes(old) for old, new in pairs):
        return start, False
    return jax.tree.unflatten(tree, [_compat.varying_as(*pair) for pair in pairs]), True


def _parted(
    eqns: Sequence[_compat.JaxprEqn],
) -> tuple[dict[Any, _compat.JaxprEqn], list[_compat.JaxprEqn]]:
    """The equations that read numbers of the program alone, by their result; and all others."""
    made: dict[Any, _compat.JaxprEqn] = {}
    rest = []
    for eqn in eqns:
        alone = all(var in made for var in _compat.unique_vars(eqn.invars))
        if alone and len(eqn.outvars) == 1 and not eqn.effects:
            made[eqn.outvars[0]] = eqn
        else:
            rest.append(eqn)
    return made, rest


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
