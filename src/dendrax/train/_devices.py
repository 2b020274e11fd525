"""Where arrays live: batches are split over all devices, the rest is everywhere or spread.

The devices of all processes form one axis. An update is one program over all of them; what it has
to exchange, XLA puts into it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from dendrax.support import Sharding, complain

AXIS = "data"
_SMALL = 1024  # numbers; what is smaller is not worth spreading


@dataclass(frozen=True)
class Devices:
    """All devices of a run, and how the parameters lie on them."""

    mesh: Mesh
    spread: bool = False

    @property
    def count(self) -> int:
        """How many devices, in all processes."""
        return self.mesh.devices.size

    @property
    def everywhere(self) -> NamedSharding:
        """A copy on each device."""
        return NamedSharding(self.mesh, PartitionSpec())

    @property
    def split(self) -> NamedSharding:
        """The first axis cut into one piece for each device."""
        return NamedSharding(self.mesh, PartitionSpec(AXIS))

    def of_state(self, leaf: Any) -> NamedSharding:
        """Where a parameter, or a part of the optimizer's state, lies."""
        fits = [axis for axis, size in enumerate(leaf.shape) if size % self.count == 0]
        if not self.spread or not fits or np.prod(leaf.shape) < _SMALL:
            return self.everywhere
        longest = max(fits, key=lambda axis: leaf.shape[axis])
        return NamedSharding(self.mesh, PartitionSpec(*[None] * longest, AXIS))

    def put(self, tree: Any, where: Callable[[Any], NamedSharding] | None = None) -> Any:
        """Arrays that every process holds whole, put where they belong."""
        where = where or (lambda _: self.everywhere)
        return jax.tree.map(lambda leaf: _put(leaf, where(leaf)), tree)

    def put_batch(self, samples: Any, indices: np.ndarray) -> Any:
        """A batch of samples, of which each process reads only the share of its own devices."""
        sharding = self.split if len(indices) % self.count == 0 else self.everywhere
        mine = sharding.addressable_devices_indices_map((len(indices),))
        shares: dict[Any, Any] = {}
        for index in mine.values():
            key = _span(index, len(indices))
            if key not in shares:
                shares[key] = samples[indices[slice(*key)]]
        return _assemble(shares, len(indices), sharding)


def all_devices(sharding: Sharding = "replicated", batch_size: int | None = None) -> Devices:
    """All devices of all processes."""
    found = jax.devices()
    if batch_size is not None and batch_size % len(found):
        raise complain(
            ValueError,
            f"batch_size={batch_size} cannot be split over {len(found)} devices.",
            remedy=f"Use a multiple of {len(found)}.",
        )
    return Devices(Mesh(np.array(found), (AXIS,)), sharding == "fsdp")


def one_device(device: Any) -> Devices:
    """One device alone."""
    return Devices(Mesh(np.array([device]), (AXIS,)))


def _put(leaf: Any, sharding: NamedSharding) -> Any:
    if sharding.is_fully_addressable:
        # A copy: an update writes over its state, and the caller's model is not ours to write.
        return jax.device_put(jnp.array(leaf, copy=True), sharding)
    whole = np.asarray(leaf)
    return jax.make_array_from_callback(whole.shape, sharding, lambda index: whole[index])


def _span(index: Any, length: int) -> tuple[int, int]:
    first, last, _ = (index[0] if index else slice(None)).indices(length)
    return first, last


def _assemble(shares: dict[Any, Any], length: int, sharding: NamedSharding) -> Any:
    trees = list(shares.values())
    leaves, tree = jax.tree.flatten(trees[0])
    flat = {key: jax.tree.leaves(share) for key, share in shares.items()}

    def whole(place: int, example: Any) -> Any:
        shape = (length, *np.shape(example)[1:])

        def piece(index: Any) -> Any:
            return np.asarray(flat[_span(index, length)][place])

        return jax.make_array_from_callback(shape, sharding, piece)

    return jax.tree.unflatten(tree, [whole(place, leaf) for place, leaf in enumerate(leaves)])
