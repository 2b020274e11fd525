"""Comparing gradients: bit for bit, unless a test says otherwise."""

from collections.abc import Callable
from typing import Any

import jax
import numpy as np


def same(found: Any, expected: Any) -> bool:
    """Equal trees of equal arrays of equal type; NaN equals NaN."""
    if jax.tree.structure(found) != jax.tree.structure(expected):
        return False
    pairs = zip(jax.tree.leaves(found), jax.tree.leaves(expected), strict=True)
    return all(_same_array(a, b) for a, b in pairs)


def _same_array(a: Any, b: Any) -> bool:
    a, b = _as_numpy(a), _as_numpy(b)
    if a.dtype != b.dtype or a.shape != b.shape:
        return False
    return a.dtype == jax.dtypes.float0 or bool(np.all((a == b) | ((a != a) & (b != b))))


def _as_numpy(x: Any) -> np.ndarray:
    is_key = hasattr(x, "dtype") and jax.dtypes.issubdtype(x.dtype, jax.dtypes.prng_key)
    return np.asarray(jax.random.key_data(x) if is_key else x)


def same_jitted(found: Callable[..., Any], expected: Callable[..., Any], *args: Any) -> bool:
    """Do two functions give the same bits, each compiled as a whole?

    Compiling is what takes time. Two functions that are lowered to the same program, to the letter,
    are one function to XLA: only where the programs differ are they compiled and run.
    """
    lowered = [jax.jit(fun).lower(*args) for fun in (found, expected)]
    if same_program(*lowered):
        return True
    return same(*(program.compile()(*args) for program in lowered))


def same_program(a: jax.stages.Lowered, b: jax.stages.Lowered) -> bool:
    """The same StableHLO, of the same arguments, for results of the same types."""
    return _identity(a) is not None and _identity(a) == _identity(b)


def _identity(lowered: jax.stages.Lowered) -> tuple[Any, ...] | None:
    """All that decides what a program computes; None where the text leaves something open."""
    inner = lowered._lowering
    settings = inner.compile_args
    if inner.const_args or settings["host_callbacks"]:
        return None
    types = tuple((x.shape, x.dtype, x.weak_type) for x in settings["global_out_avals"])
    return lowered.as_text(), tuple(settings["kept_var_idx"]), lowered.out_tree, types


def close(found: Any, expected: Any, ulps: float = 64) -> bool:
    """Equal to within some units in the last place of the largest element."""
    pairs = zip(jax.tree.leaves(found), jax.tree.leaves(expected), strict=True)
    return all(_close_array(np.asarray(a), np.asarray(b), ulps) for a, b in pairs)


def _close_array(a: np.ndarray, b: np.ndarray, ulps: float) -> bool:
    if a.dtype != b.dtype or a.shape != b.shape:
        return False
    if a.dtype == jax.dtypes.float0 or a.size == 0:
        return True
    epsilon = float(jax.numpy.finfo(a.dtype).eps)
    wide = np.complex128 if np.iscomplexobj(a) else np.float64
    a, b = a.astype(wide), b.astype(wide)
    return bool(np.max(np.abs(a - b)) <= ulps * epsilon * max(np.max(np.abs(b)), 1e-30))


def distance(found: Any, expected: Any) -> float:
    """The Euclidean distance of two trees."""
    pairs = zip(jax.tree.leaves(found), jax.tree.leaves(expected), strict=True)
    return float(np.sqrt(sum(np.sum(np.abs(np.asarray(a) - np.asarray(b)) ** 2) for a, b in pairs)))
