"""What is learned from: samples by number, and which of them an update sees.

The order depends on the seed and the number of the update alone. A run that goes on after a
checkpoint, or on other devices, or in several processes, sees the same batches.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence, Sized
from typing import Any, Protocol

import jax
import numpy as np

from dendrax.support import complain


class Samples(Protocol):
    """Anything with a length that gives the arrays of the samples ``indices``, as a tuple."""

    def __len__(self) -> int: ...

    def __getitem__(self, indices: np.ndarray) -> tuple[Any, ...]: ...


class Arrays:
    """Arrays in memory (or memory-mapped) whose first axis counts the samples.

    **Arguments:** `arrays`: the arguments of the loss after the model; each a tree of arrays.

    !!! example

        ```python
        import numpy as np
        from dendrax import train

        samples = train.Arrays(np.ones((100, 3)), np.zeros(100))
        x, y = samples[np.arange(10)]
        x.shape  # -> (10, 3)
        ```
    """

    def __init__(self, *arrays: Any):
        self.arrays = jax.tree.map(np.asarray, arrays)
        lengths = {leaf.shape[:1] for leaf in jax.tree.leaves(self.arrays)}
        if len(lengths) != 1 or lengths == {()}:
            shapes = [leaf.shape for leaf in jax.tree.leaves(self.arrays)]
            raise complain(
                ValueError,
                f"arrays of shapes {shapes} do not have a first axis of one length.",
                remedy="The first axis counts the samples.",
            )
        self._length = lengths.pop()[0]

    def __len__(self) -> int:
        return self._length

    def __getitem__(self, indices: np.ndarray) -> tuple[Any, ...]:
        return jax.tree.map(lambda array: array[indices], self.arrays)


def as_samples(name: str, data: Any) -> Samples:
    """Samples, or a tuple of arrays."""
    if isinstance(data, tuple | list):
        return Arrays(*data)
    if not hasattr(data, "__len__") or not hasattr(data, "__getitem__") or hasattr(data, "shape"):
        raise complain(
            TypeError,
            f"{name} is {type(data).__name__}, not samples.",
            remedy="Pass a tuple of arrays, (inputs, targets), or an object with a length that "
            "gives such a tuple for an array of indices.",
        )
    return data


def batches_per_epoch(samples: Sized, batch_size: int) -> int:
    """How many full batches there are."""
    count = len(samples) // batch_size
    if not count:
        raise complain(
            ValueError,
            f"batch_size={batch_size} is more than the {len(samples)} samples that there are.",
        )
    return count


def chosen(samples: Sized, batch_size: int, seed: int, step: int) -> np.ndarray:
    """The samples of one update: a new permutation for each pass, without what is left over."""
    epoch, place = divmod(step, batches_per_epoch(samples, batch_size))
    order = _permutation(len(samples), seed, epoch)
    return order[place * batch_size : (place + 1) * batch_size]


@functools.lru_cache(maxsize=2)
def _permutation(count: int, seed: int, epoch: int) -> np.ndarray:
    return np.random.default_rng((seed, epoch)).permutation(count)


def pieces(samples: Samples, size: int) -> Sequence[np.ndarray]:
    """All samples in order, ``size`` at a time; the last piece may be shorter."""
    count = len(samples)
    return [np.arange(first, min(first + size, count)) for first in range(0, count, size)]
