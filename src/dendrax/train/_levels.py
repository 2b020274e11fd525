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
from dendrax.rules import Rule
from dendrax.support import complain
from dendrax.train._samples import Samples, chosen
from dendrax.train._settings import Settings
from dendrax.train._task import Task
from dendrax.train._update import Numbers, State, all_finite, key_of

_finite = jax.jit(all_finite)
_CUT = (2, 3)  # the arguments of the loss that are cut into micro-batches: batch and keys


class Levels:
    """A task whose model is on all devices of this process, by levels."""

    def __init__(self, task: Task, settings: Settings, learned: Any, kept: Any, samples: Samples):
        _check(settings, task.rule)
        self.task, self.settings = task, settings
        batch = samples[chosen(samples, settings.batch_size, settings.seed, 0)]
        self.placed = placement.place(
            self._loss,
            *(learned, kept, batch, self._keys(0)),
            has_aux=True,
            rule=task.rule,
            vertices=task.vertices,
            micro_batches=settings.micro_batches,
            batch_argnums=_CUT,
        )
        self.first = self.placed.devices[0]
        self.begun = self._begin(learned, kept)

    def _loss(self, model: Any, kept: Any, batch: Any, keys: Any) -> Any:
        return self.task.whole_loss(model, kept, batch, keys[0])

    def _keys(self, step: Any) -> Any:
        """A PRNG key for each micro-batch; if there is only one, that of the update."""
        key, count = key_of(self.settings, step), self.settings.micro_batches
        return jax.random.split(key, count) if count > 1 else key[None]

    def _begin(self, learned: Any, kept: Any) -> State:
        learner = self.placed.init(self.task.optimizer, learned)
        alive = jax.device_put(jnp.asarray(True), self.first)
        return State(self.placed.params(learner), self._home(kept), learner.states, alive)

    def _home(self, tree: Any) -> Any:
        """What belongs to no level is kept by the first device."""
        return jax.device_put(tree, self.first)

    def gathered(self, state: State) -> State:
        """The model on one device, to be evaluated."""
        return state._replace(learned=self._home(state.learned), optimizer=None)

    def update(self, state: State, batch: Any, step: Any, stop: Any) -> tuple[State, Numbers]:
        """As the function that `compiled_update` makes."""
        own = self.placed.by_device(state.learned)
        learner = placement.Learner(own, state.optimizer, self.task.optimizer)
        flags: list[Any] = []
        (loss, kept), after = self.placed.update(
            learner,
            *(state.kept, batch, self._keys(step)),
            watch=lambda _, gradients: flags.append(_finite(gradients)),
        )
        moved = State(self.placed.params(after), self._home(kept), after.states, state.alive)
        fine = bool(jnp.isfinite(loss)) and all(map(bool, jax.device_get(flags)))
        numbers = Numbers(loss, np.asarray(fine), np.max(stop))
        if self.settings.nonfinite == "allow":
            return moved, numbers
        moves = fine and bool(state.alive)
        stays = self.settings.nonfinite == "skip"
        alive = state.alive if stays else self._home(jnp.asarray(moves))
        return (moved if moves else state)._replace(alive=alive), numbers


def _check(settings: Settings, rule: Rule) -> None:
    if jax.process_count() > 1:
        raise complain(
            NotImplementedError,
            "sharding='levels' is for the devices of one process.",
            remedy="Use sharding='replicated' or 'fsdp' with several.",
        )
    if not rule.is_wave and not rule.is_placeable:
        raise complain(
            ValueError,
            f"sharding='levels' is for ZIL(), BP() and IL, not for {rule}.",
            remedy="Use sharding='replicated' or 'fsdp'.",
        )
    if settings.batch_size % settings.micro_batches:
        raise complain(
            ValueError,
            f"batch_size={settings.batch_size} cannot be split into {settings.micro_batches} "
            "micro_batches.",
            remedy="Use a multiple.",
        )
    if settings.chunks is not None:
        raise complain(
            ValueError,
            "chunks are for batches that are split over devices, and with sharding='levels' the "
            "model is.",
            remedy="Use micro_batches.",
        )
