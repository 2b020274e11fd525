"""A user's function and its arguments -> `Graph`, and the way back to the user's trees.

What is differentiated is traced. For `dendrax.value_and_grad` and its kin everything else is handed
to the function as it is, as `jax.grad` does: numbers may decide Python branches, strings may choose
a mode. For `dendrax.trace` the other arrays are traced too, so that `dendrax.run` can be given new
data.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from dendrax import _compat
from dendrax.graph import Graph
from dendrax.local import is_inexact
from dendrax.support import Vertices, complain
from dendrax.tracing._arguments import Arguments, flatten_models
from dendrax.tracing._free import mark_free
from dendrax.tracing._modules import check_called, naming
from dendrax.tracing._open import open_graph
from dendrax.tracing._stage import stage
from dendrax.tracing._tie import ties_of


@dataclass(frozen=True, eq=False)
class Call:
    """A call that was traced or recorded: its arguments, and the trees of its results.

    ``aux`` makes a tree of the values of the auxiliary results. ``ties`` say which output predicts
    which of the graph's leaves; both are counted. ``fun`` is the function, to be traced again.
    """

    arguments: Arguments
    constants: tuple[Any, ...]
    out_tree: Any
    aux: Any
    argnums: int | tuple[int, ...]
    ties: Mapping[int, int] = field(default_factory=dict)
    fun: Callable[..., Any] | None = None
    has_aux: bool = False

    def leaves(self, arguments: Arguments | None = None) -> list[Any]:
        """The values of the graph's leaves."""
        arguments = arguments or self.arguments
        return [*self.constants, *map(jnp.asarray, arguments.traced_leaves())]

    def without_values(self) -> Call:
        """The same, with types in place of arrays: what a pullback may keep."""
        pairs = zip(self.arguments.leaves, self.arguments.parameter, strict=True)
        avals = [_compat.aval_of(leaf) if parameter else None for leaf, parameter in pairs]
        arguments = replace(self.arguments, leaves=avals)
        constants = (None,) * len(self.constants)
        return replace(self, arguments=arguments, constants=constants, fun=None)

    def gradient(self, errors: Sequence[Any]) -> Any:
        """The errors at the graph's leaves as a tree like the differentiated arguments."""
        arguments, found = self.arguments, iter(errors[len(self.constants) :])
        leaves = []
        for leaf, parameter, traced in zip(
            arguments.leaves, arguments.parameter, arguments.traced, strict=True
        ):
            error = next(found) if traced else None
            leaves.append(_absent_error(leaf) if error is None and parameter else error)
        args, _ = jax.tree.unflatten(arguments.tree, leaves)
        if isinstance(self.argnums, int):
            return args[self.argnums]
        return tuple(args[i] for i in self.argnums)


def _absent_error(leaf: Any) -> Any:
    aval = leaf if _compat.is_aval(leaf) else _compat.aval_of(leaf)
    if is_inexact(aval):
        return _compat.zeros(aval)
    return np.zeros(aval.shape, jax.dtypes.float0)


@dataclass
class Results:
    """Filled in while the function runs: the trees of its results, and what JAX cannot trace."""

    out_tree: Any = None
    aux_tree: Any = None
    static: Sequence[tuple[int, Any]] = ()

    def traced(self, aux: Sequence[Any]) -> list[Any]:
        """Those auxiliary results that are arrays. The others are noted."""
        dynamic = [isinstance(leaf, (jax.Array, np.ndarray, np.generic)) for leaf in aux]
        self.static = [(i, leaf) for i, leaf in enumerate(aux) if not dynamic[i]]
        return [leaf for leaf, flag in zip(aux, dynamic, strict=True) if flag]

    def aux(self, values: Sequence[Any]) -> Any:
        """The auxiliary results, from those that were traced."""
        leaves: list[Any] = list(values)
        for position, value in self.static:
            leaves.insert(position, value)
        return jax.tree.unflatten(self.aux_tree, leaves)


NOT_KNOWN = (
    jax.errors.ConcretizationTypeError,
    jax.errors.TracerArrayConversionError,
    jax.errors.NonConcreteBooleanIndexError,
)


def trace_call(
    fun: Callable[..., Any],
    arguments: Arguments,
    argnums: int | tuple[int, ...],
    *,
    has_aux: bool = False,
    vertices: Vertices | None = None,
) -> tuple[Graph, Call]:
    """Trace a call. The graph's first outputs are the function's results, all of them roots.

    What modules among the ``vertices`` return has their name (`is_named`).
    """
    results = Results()

    def flat(*traced: Any) -> list[Any]:
        outputs, aux = flatten_results(arguments.call(fun, traced), has_aux, results)
        return [*outputs, *results.traced(aux)]

    values = list(map(_value, arguments.traced_leaves()))
    try:
        with naming(vertices):
            jaxpr = stage(flat, *values)
        check_called(vertices, jaxpr.jaxpr, lambda: stage(flat, *values))
    except NOT_KNOWN as error:
        error.add_note(
            "dendrax traces the function, as jax.jit does, to run it at other values as well: what "
            "is differentiated cannot decide Python branches or become a Python number. Use "
            "jnp.where or jax.lax.cond."
        )
        raise
    rows = zip(arguments.names, arguments.parameter, arguments.free, arguments.traced, strict=True)
    traced = [(name, parameter, free) for name, parameter, free, flag in rows if flag]
    count = len(jaxpr.consts)
    names = [f"constant_{i}" for i in range(count)] + [name for name, _, _ in traced]
    active = [
        (parameter or free) and is_inexact(var.aval)
        for (_, parameter, free), var in zip(traced, jaxpr.jaxpr.invars, strict=True)
    ]
    num_outputs = results.out_tree.num_leaves
    roots = [True] * num_outputs + [False] * (len(jaxpr.jaxpr.outvars) - num_outputs)
    graph = open_graph(jaxpr, active, names, roots)
    graph = mark_free(graph, [False] * count + [free for _, _, free in traced])
    ties = ties_of(arguments, results.out_tree, graph)
    constants = tuple(jaxpr.consts)
    call = Call(
        arguments, constants, results.out_tree, results.aux, argnums, ties, fun, has_aux=has_aux
    )
    return graph, call


def _value(leaf: Any) -> Any:
    """A leaf to trace with: an array, or a type alone."""
    return leaf if _compat.is_aval(leaf) else jnp.asarray(leaf)


def trace_models(
    fun: Callable[..., Any],
    args: tuple[Any, ...],
    argnums: Any,
    *,
    has_aux: bool = False,
    free: Any = (),
    tie: Any = None,
    must_learn: bool = True,
    vertices: Vertices | None = None,
) -> tuple[Graph, Call]:
    """Trace a function of models as they are, all of whose arrays are traced; the graph knows its
    call."""
    arguments = flatten_models(fun, args, argnums, free, tie, must_learn=must_learn)
    assert arguments.opened is not None
    alone = without_aux(fun, has_aux)
    graph, call = trace_call(alone, arguments, arguments.opened.argnums, vertices=vertices)
    return replace(graph, call=call), call


def flatten_results(results: Any, has_aux: bool, notes: Results) -> tuple[list[Any], list[Any]]:
    results, aux = as_pair(results) if has_aux else (results, ())
    outputs, notes.out_tree = jax.tree.flatten(results)
    for value in outputs:
        if not _compat.is_typed(value):
            raise complain(
                TypeError,
                f"the function returned {value!r}, of type {type(value).__name__}, which is not "
                "a valid JAX type.",
                remedy="Return arrays and numbers; other results can go into aux (has_aux=True).",
            )
    leaves, notes.aux_tree = jax.tree.flatten(aux)
    return outputs, leaves


def without_aux(fun: Callable[..., Any], has_aux: bool) -> Callable[..., Any]:
    """The function without its auxiliary results, if it has any."""
    if not has_aux:
        return fun

    @functools.wraps(fun)
    def first(*args: Any, **kwargs: Any) -> Any:
        return as_pair(fun(*args, **kwargs))[0]

    return first


def as_pair(results: Any) -> tuple[Any, Any]:
    """What a function with ``has_aux=True`` returned: its result, and all else."""
    if not isinstance(results, (tuple, list)) or len(results) != 2:
        raise complain(
            TypeError,
            "with has_aux=True the function must return a pair (result, aux), but it "
            f"returned {_kind_of(results)}.",
            remedy="Return both, or leave has_aux out.",
        )
    result, aux = results
    return result, aux


def _kind_of(results: Any) -> str:
    """What a function returned, in a few words; values that are traced are arrays to the user."""
    if isinstance(results, (tuple, list)):
        return f"{type(results).__name__} of length {len(results)}"
    return "one array" if _compat.is_typed(results) else type(results).__name__


def check_scalar(avals: Sequence[Any], call: Call, source: str) -> None:
    """A loss must be a real scalar. ``avals`` are the types of the results, aux left out."""
    if call.out_tree != jax.tree.structure(0):
        raise complain(
            TypeError,
            "the gradient is only defined for functions with one scalar output, but this one "
            f"returned {call.out_tree}.",
            remedy="Return the loss alone, or (loss, aux) with has_aux=True.",
        )
    (aval,) = avals
    if aval.shape != ():
        raise complain(
            TypeError,
            "the gradient is only defined for scalar-output functions; the output had shape "
            f"{aval.shape}.",
            source=source,
            remedy="Reduce the loss, for instance with jnp.mean, or use dendrax.vjp.",
        )
    if not jnp.issubdtype(aval.dtype, jnp.floating):
        raise complain(
            TypeError,
            "requires real-valued outputs (a sub-dtype of np.floating), but the output is "
            f"{aval.dtype}.",
            source=source,
            remedy="For complex outputs use dendrax.vjp, or take a real part or absolute value.",
        )
