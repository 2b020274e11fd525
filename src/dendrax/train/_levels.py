"""Updates of a run whose levels are on different devices (`dendrax.placement`).

Each device learns as soon as the wave has passed it, with an optimizer of its own. So it is known
only at the end whether all was finite; the state before is kept until then.
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from dendrax import placement
from dendrax._errors import complain
from dendrax.train._samples import Samples, chosen
from dendrax.train._settings import Settings
from dendrax.train._task import Task
from dendrax.train._update import Numbers, State, key_of

_BATCH = 2  # the argument of the loss that is cut into micro-batches


class Levels:
    """A task whose model is on all devices of this process, by levels."""

    def __init__(self, task: Task, settings: Settings, learned: Any, kept: Any, samples: Samples):
        _check(settings)
        self.task, self.settings = task, settings
        batch = samples[chosen(samples, settings.batch_size, settings.seed, 0)]
        self.placed = placement.place(
            task.whole_loss,
            *(learned, kept, batch, key_of(settings, 0)),
            has_aux=True,
            rule=task.rule,
            vertices=task.vertices,
            micro_batches=settings.micro_batches,
            batch_argnums=_BATCH,
        )
        self.first = self.placed.devices[0]
        self.begun = self._begin(learned, kept)

    def _begin(self, learned: Any, kept: Any) -> State:
        learner = self.placed.init(self.task.optimizer, learned)
        self._apply = learner.apply
        alive = jax.device_put(jnp.asarray(True), self.first)
        return State(self.placed.params(learner), self._home(kept), learner.optimizer, alive)

    def _home(self, tree: Any) -> Any:
        """What belongs to no level is kept by the first device."""
        return jax.device_put(tree, self.first)

    def gathered(self, state: State) -> State:
        """The model on one device, to be evaluated."""
        return state._replace(learned=self._home(state.learned), optimizer=None)

    def update(self, state: State, batch: Any, step: Any, stop: Any) -> tuple[State, Numbers]:
        """As the function that `compiled_update` makes."""
        own = self.placed.by_device(state.learned)
        learner = placement.Learner(own, state.optimizer, self._apply)
        key = key_of(self.settings, step)
        (loss, kept), after = self.placed.update(learner, state.kept, batch, key)
        moved = State(self.placed.params(after), self._home(kept), after.optimizer, state.alive)
        fine = bool(jnp.isfinite(loss)) and _all_finite(moved.learned)
        numbers = Numbers(loss, np.asarray(fine), np.max(stop))
        if self.settings.nonfinite == "allow":
            return moved, numbers
        moves = fine and bool(state.alive)
        stays = self.settings.nonfinite == "skip"
        alive = state.alive if stays else self._home(jnp.asarray(moves))
        return (moved if moves else state)._replace(alive=alive), numbers


def _all_finite(tree: Any) -> bool:
    flags = [_is_finite(leaf) for leaf in jax.tree.leaves(tree)]
    return all(map(bool, jax.device_get(flags)))


@jax.jit
def _is_finite(leaf: Any) -> Any:
    return jnp.all(jnp.isfinite(leaf))


def _check(settings: Settings) -> None:
    if jax.process_count() > 1:
        raise complain(
            NotImplementedError,
            "sharding='levels' is for the devices of one process.",
            remedy="Use sharding='replicated' or 'fsdp' with several.",
        )
    if settings.chunks is not None:
        raise complain(
            ValueError,
            "chunks are for batches that are split over devices, and with sharding='levels' the "
            "model is.",
            remedy="Use micro_batches.",
        )
