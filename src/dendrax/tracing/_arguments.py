"""The arguments of a user's function: flattened, named, and sorted into what is traced."""

from __future__ import annotations

import inspect
import operator
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from dendrax import _compat
from dendrax.local import is_inexact
from dendrax.support import complain, nobody_speaking
from dendrax.tracing._free import positions_of, relaxing, with_free
from dendrax.tracing._models import Opened, learning_leaves, open_arguments


@dataclass(frozen=True, eq=False)
class _AsItIs:
    """An argument that the function gets as the user gave it: the very same object."""

    value: Any


@dataclass(frozen=True, eq=False)
class Arguments:
    """The flattened arguments of a call, and which of their leaves are traced.

    ``parameter``, ``free`` and ``traced`` are flags by leaf; what is a parameter or free is traced.
    ``kwargs`` are handed on as they are, and so is an argument that is `_AsItIs`. ``ties`` say
    which output predicts which of the free ones.
    """

    leaves: list[Any]
    tree: Any
    names: list[str]
    positions: list[int | None]
    parameter: list[bool]
    traced: list[bool]
    kwargs: Mapping[str, Any] = field(default_factory=dict)
    opened: Opened | None = None
    free: list[bool] = field(default_factory=list)
    ties: Mapping[Any, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.free.extend([False] * (len(self.leaves) - len(self.free)))

    def names_of(self, position: int) -> list[str]:
        """The names of the leaves of one positional argument."""
        pairs = zip(self.names, self.positions, strict=True)
        return [name for name, place in pairs if place == position]

    def traced_leaves(self) -> list[Any]:
        """The leaves that the graph takes."""
        return [leaf for leaf, flag in zip(self.leaves, self.traced, strict=True) if flag]

    def learning(self) -> tuple[int, ...]:
        """The positions of what learns, in the order of ``argnums``."""
        assert self.opened is not None
        chosen = self.opened.argnums
        return (chosen,) if isinstance(chosen, int) else chosen

    def parted(self) -> tuple[dict[str, Any], list[Any]]:
        """The parameters by name, and the other leaves that the graph takes."""
        rows = zip(self.names, self.leaves, self.parameter, self.traced, strict=True)
        learned, others = {}, []
        for name, leaf, parameter, traced in rows:
            if parameter:
                learned[name] = leaf
            elif traced:
                others.append(leaf)
        return learned, others

    def joined(self, learned: Mapping[str, Any], others: Sequence[Any]) -> list[Any]:
        """The leaves that the graph takes, from what `parted` gave."""
        rest = iter(others)
        rows = zip(self.names, self.parameter, self.traced, strict=True)
        return [
            learned[name] if parameter else next(rest) for name, parameter, traced in rows if traced
        ]

    def filled(self, traced: Sequence[Any]) -> tuple[Sequence[Any], dict[str, Any]]:
        """The arguments with new values for the traced leaves, as the user gave them."""
        values = iter(traced)
        leaves = [
            next(values) if flag else leaf
            for leaf, flag in zip(self.leaves, self.traced, strict=True)
        ]
        args, kwargs = jax.tree.unflatten(self.tree, leaves)
        args = [arg.value if isinstance(arg, _AsItIs) else arg for arg in args]
        return (args if self.opened is None else self.opened.close(args)), kwargs

    def call(self, fun: Callable[..., Any], traced: Sequence[Any]) -> Any:
        """Call the function with new values for the traced leaves."""
        args, kwargs = self.filled(traced)
        with nobody_speaking():  # what goes wrong in the user's function is the user's
            return fun(*args, **kwargs, **self.kwargs)

    def replaced(self, args: tuple[Any, ...]) -> Arguments:
        """New arguments for the same graph: same tree, same shapes, same untraced values."""
        count = len(args)
        if self.opened is not None:
            args = self.opened.again(args)
        leaves, tree = jax.tree.flatten((args, {}))
        if tree != self.tree:
            raise complain(
                TypeError,
                f"the graph was traced with other arguments: {self._difference(args, count)}.",
                remedy="Give arguments of the same structure, or trace the function again.",
            )
        for new, old, name, traced in zip(
            leaves, self.leaves, self.names, self.traced, strict=True
        ):
            if not (_same_type(new, old) if traced else _same_value(new, old)):
                raise complain(
                    ValueError,
                    f"argument {name} does not fit the traced graph: it was "
                    f"{_described(old, traced)}, now it is {_described(new, traced)}.",
                    remedy="Trace the function again with the new arguments.",
                )
        return replace(self, leaves=leaves)

    def _difference(self, args: tuple[Any, ...], count: int) -> str:
        """Which leaves other arguments lack, and which they have instead, by name.

        Of the arguments the first ``count`` are the caller's; behind them is the state of modules.
        """
        spell = jax.tree_util.keystr if self.opened is None else self.opened.spell
        traced, _ = jax.tree.unflatten(self.tree, self.leaves)
        titles = {i: f"argument {i}" for i in range(count)}
        for name, (path, _) in zip(
            self.names, jax.tree_util.tree_leaves_with_path(traced), strict=True
        ):
            titles[path[0].idx] = name.removesuffix(spell(path[1:]))
        names = [
            titles.get(path[0].idx, "state") + spell(path[1:])
            for path, _ in jax.tree_util.tree_leaves_with_path(args)
        ]
        missing = [name for name in self.names if name not in names]
        new = [name for name in names if name not in self.names]
        found = [
            f"{_first(some)} {'is' if len(some) == 1 else 'are'} {how}"
            for some, how in ((missing, "missing"), (new, "new"))
            if some
        ]
        return " and ".join(found) or "what is no array (a field, a flag, a type) differs"


def _first(names: Sequence[str], most: int = 4) -> str:
    more = f" and {len(names) - most} more" * (len(names) > most)
    return ", ".join(names[:most]) + more


def _same_type(new: Any, old: Any) -> bool:
    a, b = _compat.aval_of(jnp.asarray(new)), _compat.aval_of(jnp.asarray(old))
    return a.shape == b.shape and a.dtype == b.dtype


def _same_value(new: Any, old: Any) -> bool:
    return new is old or (type(new) is type(old) and bool(np.all(new == old)))


def _described(value: Any, traced: bool) -> str:
    aval = _compat.aval_of(jnp.asarray(value)) if traced else None
    return repr(value) if aval is None else f"{aval.dtype}{list(aval.shape)}"


def flatten_arguments(
    fun: Callable[..., Any],
    args: tuple[Any, ...],
    kwargs: Mapping[str, Any],
    argnums: Sequence[int],
    trace_data: bool,
    free: Any = (),
    tie: Any = None,
) -> Arguments:
    """Flatten, name and sort out the arguments of a call.

    Without ``trace_data`` only what is differentiated, or free, is looked into.
    """
    titles = _argument_names(fun, len(args))
    relaxes = relaxing(free, tie, titles)
    inside = {*argnums, *positions_of(relaxes, titles)}
    given = tuple(a if trace_data or i in inside else _AsItIs(a) for i, a in enumerate(args))
    looked_into = dict(kwargs) if trace_data else {}
    paths, tree = jax.tree_util.tree_flatten_with_path((given, looked_into))
    names, positions, parameter, traced = [], [], [], []
    for path, leaf in paths:
        positional = path[0].idx == 0
        chosen = positional and path[1].idx in argnums
        title = titles[path[1].idx] if positional else str(path[1].key)
        names.append(title + jax.tree_util.keystr(path[2:]))
        positions.append(path[1].idx if positional else None)
        parameter.append(chosen)
        traced.append(chosen or (trace_data and _is_array(leaf)))
    leaves = [leaf for _, leaf in paths]
    rest = {} if trace_data else kwargs
    found = Arguments(leaves, tree, names, positions, parameter, traced, rest)
    return with_free(found, relaxes, differentiated=True)


def flatten_models(
    fun: Callable[..., Any],
    args: tuple[Any, ...],
    argnums: Any,
    free: Any = (),
    tie: Any = None,
    *,
    must_learn: bool = True,
) -> Arguments:
    """The same for those who look inside, and take models as they are: all arrays are traced.

    **Returns:** arguments that know by ``opened`` which of them learn.
    """
    opened = open_arguments(args, argnums)
    nothing = isinstance(opened.argnums, tuple) and not opened.argnums
    chosen = () if nothing else normalise_argnums(opened.argnums, len(opened.args))
    indices = (chosen,) if isinstance(chosen, int) else chosen
    titles = [*_argument_names(fun, len(args)), "state"]
    relaxes = relaxing(free, tie, titles[:-1])
    leaves, names, positions, parameter = [], [], [], []
    for i, argument in enumerate(opened.args):
        paths = jax.tree_util.tree_leaves_with_path(argument)
        leaves += [leaf for _, leaf in paths]
        names += [titles[i] + opened.spell(path) for path, _ in paths]
        positions += [i] * len(paths)
        learns = learning_leaves(argument) if i in indices else [False] * len(paths)
        if i in indices and must_learn and not any(learns):
            raise complain(
                TypeError,
                f"argument {titles[i]} has nothing that can learn: that needs real- or "
                f"complex-valued arrays, and it holds {_kinds_of(argument)}.",
                remedy="Convert what should learn to floats, or name other arguments by argnums.",
            )
        parameter += learns
    pairs = zip(leaves, parameter, strict=True)
    traced = [learns or _is_array(leaf) for leaf, learns in pairs]
    tree = jax.tree.structure((opened.args, {}))
    opened = opened._replace(argnums=chosen)
    found = Arguments(leaves, tree, names, positions, parameter, traced, opened=opened)
    return with_free(found, relaxes, differentiated=False)


def looked_into(arguments: Arguments) -> Arguments:
    """The same, with all data as leaves: also those that are handed on as they are."""
    if not arguments.kwargs and not any(isinstance(leaf, _AsItIs) for leaf in arguments.leaves):
        return arguments
    trees, rows = [], []
    columns = (arguments.leaves, arguments.names, arguments.positions)
    flags = (arguments.parameter, arguments.traced, arguments.free)
    for leaf, *row in zip(*columns, *flags, strict=True):
        tree = leaf.value if isinstance(leaf, _AsItIs) else leaf
        trees.append(tree)
        rows += [(part, *row) for part in (_parts(tree) if isinstance(leaf, _AsItIs) else [leaf])]
    args, kwargs = jax.tree.unflatten(arguments.tree, trees)
    for name, value in sorted(arguments.kwargs.items()):  # as JAX orders them
        rows += [(part, name, None, False, False, False) for part in _parts(value)]
    tree = jax.tree.structure((args, {**kwargs, **arguments.kwargs}))
    leaves, names, positions, parameter, traced, free = map(list, zip(*rows, strict=True))
    return replace(
        arguments,
        leaves=leaves,
        tree=tree,
        names=names,
        positions=positions,
        parameter=parameter,
        traced=traced,
        kwargs={},
        free=free,
    )


def _parts(tree: Any) -> list[Any]:
    return jax.tree.leaves(tree)


def _is_array(leaf: Any) -> bool:
    return isinstance(leaf, (jax.Array, np.ndarray, np.generic))


def _kinds_of(argument: Any) -> str:
    """What an argument holds, in a few words."""
    kinds = [
        str(_compat.aval_of(leaf).dtype) if _is_array(leaf) else type(leaf).__name__
        for leaf in jax.tree.leaves(argument)
    ]
    return ", ".join(dict.fromkeys(kinds)) or "nothing"


def _argument_names(fun: Callable[..., Any], count: int) -> list[str]:
    try:
        parameters = list(inspect.signature(fun).parameters.values())
    except (TypeError, ValueError):
        parameters = []
    positional = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    names = [p.name for p in parameters if p.kind in positional][:count]
    return names + [f"args[{i}]" for i in range(len(names), count)]


def normalise_argnums(argnums: Any, num_args: int) -> int | tuple[int, ...]:
    """``argnums`` as non-negative integers, checked against the number of arguments."""
    single = not isinstance(argnums, (Collection, np.ndarray)) or _is_scalar_array(argnums)
    given: Any = [argnums] if single else argnums
    try:
        indices = [operator.index(i) for i in given]
    except TypeError:
        raise complain(
            TypeError,
            f"argnums must be an integer or a sequence of integers, got {argnums!r}.",
            remedy="argnums counts the positional arguments, from 0.",
        ) from None
    if not indices:
        raise complain(ValueError, f"argnums={argnums!r} names no argument to differentiate.")
    for i in indices:
        if not -num_args <= i < num_args:
            raise complain(
                TypeError if i >= 0 else ValueError,
                f"differentiating with respect to argnums={argnums!r} needs at least "
                f"{i + 1 if i >= 0 else -i} positional arguments, but the function was called "
                f"with {num_args}.",
                remedy="Pass the arguments to differentiate by position, or change argnums.",
            )
    positive = tuple(i % num_args for i in indices)
    if len(set(positive)) < len(positive):
        raise complain(TypeError, f"argnums={argnums!r} names an argument twice.")
    return positive[0] if single else positive


def _is_scalar_array(argnums: Any) -> bool:
    return isinstance(argnums, (np.ndarray, jax.Array)) and argnums.ndim == 0


def check_parameters(arguments: Arguments, *, allow_int: bool = False) -> None:
    """Parameters must be arrays of floating-point (or complex) numbers."""
    for leaf, name, parameter in zip(
        arguments.leaves, arguments.names, arguments.parameter, strict=True
    ):
        if not parameter:
            continue
        if not _compat.is_typed(leaf):
            raise complain(
                TypeError,
                f"argument {name} is not a valid JAX type: {type(leaf).__name__}.",
                remedy="Differentiate arrays and numbers only; pass the rest as another argument, "
                "or use dendrax.equinox.filter_value_and_grad.",
            )
        if not allow_int and not is_inexact(_compat.aval_of(leaf)):
            raise complain(
                TypeError,
                "requires real- or complex-valued inputs (a sub-dtype of np.inexact) to "
                f"differentiate, but {name} is {_compat.aval_of(leaf).dtype}.",
                remedy="Convert it to a float, leave it out of argnums, or use dendrax.vjp.",
            )
