"""Models as they are, for those who look inside: modules that are no trees, and what learns.

`dendrax.value_and_grad` differentiates what `jax.value_and_grad` would. `dendrax.trace` and its kin
take the models of libraries as they are: of an argument that learns they take the floating-point
arrays, and leave functions, flags and integers alone.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
import numpy as np

from dendrax import _compat
from dendrax.local import is_inexact

Close = Callable[[Sequence[Any]], Sequence[Any]]
Spell = Callable[[tuple[Any, ...]], str]


class Opened(NamedTuple):
    """Arguments as trees of arrays and settings.

    - ``args``: the trees. There may be more of them than arguments.
    - ``close``: the trees to the arguments that the function takes.
    - ``argnums``: which of the trees learn.
    - ``spell``: how the path to a leaf is written.
    - ``again``: other arguments to their trees.
    """

    args: tuple[Any, ...]
    close: Close
    argnums: Any
    spell: Spell
    again: Callable[[tuple[Any, ...]], tuple[Any, ...]]


def open_arguments(args: tuple[Any, ...], argnums: Any) -> Opened:
    """Trees in place of modules that are none: those of Flax NNX."""
    if "flax.nnx" in sys.modules:  # otherwise there is no such module
        nnx = importlib.import_module("dendrax.nnx")
        if nnx.has_modules(args):
            trees, close, chosen = nnx.open_modules(args, argnums)
            again = lambda args: nnx.open_modules(args, argnums)[0]  # noqa: E731
            return Opened(trees, close, chosen, nnx.spell_path, again)
    return Opened(args, lambda args: args, argnums, jax.tree_util.keystr, lambda args: args)


def learning_leaves(argument: Any) -> list[bool]:
    """Which leaves of an argument that learns do: the floating-point arrays.

    Numbers of Python learn too, as they do by `jax.grad`; in a module of Equinox they are settings.
    """
    numbers_learn = not _has_equinox(argument)
    return [_learns(leaf, numbers_learn) for leaf in jax.tree.leaves(argument)]


def _learns(leaf: Any, numbers_learn: bool) -> bool:
    is_array = isinstance(leaf, (jax.Array, np.ndarray, np.generic))
    if not is_array and not (numbers_learn and isinstance(leaf, (float, complex))):
        return False
    return is_inexact(_compat.aval_of(leaf))


def _has_equinox(argument: Any) -> bool:
    equinox = sys.modules.get("equinox")
    if equinox is None:
        return False
    is_module = lambda x: isinstance(x, equinox.Module)  # noqa: E731
    return any(map(is_module, jax.tree.leaves(argument, is_leaf=is_module)))
