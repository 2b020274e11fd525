"""The compiled update and evaluation.

An update at which the loss or the gradient is not finite changes nothing, and neither do those that
follow it (unless they are to be skipped): the state stays the one that led there, to be looked at.
"""

from __future__ import annotations

import functools
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax
from jax.sharding import PartitionSpec

from dendrax.train._devices import AXIS, Devices
from dendrax.train._settings import Settings
from dendrax.train._task import Task


class State(NamedTuple):
    """What a run carries from update to update. All leaves are arrays.

    - ``learned``: the arrays of the model that learn, in a tree like it.
    - ``kept``: the state of the model that the loss hands on (statistics, for instance).
    - ``alive``: whether everything has been finite.
    - ``memory``: what the rule remembers from update to update, if it does.
    """

    learned: Any
    kept: Any
    optimizer: Any
    alive: Any
    memory: Any = None


class Numbers(NamedTuple):
    """What an update says of itself: the same in every process."""

    loss: Any
    fine: Any  # whether loss and gradient were finite
    stop: Any  # whether a process has been asked to stop
    diverged: Any = 0.0  # more than 0 if inference diverged


def start_state(task: Task, learned: Any, kept: Any, devices: Devices, first: Any = None) -> State:
    """The state before the first update, where it belongs. A rule that remembers something is shown
    the ``first`` batch."""
    kept = jax.tree.map(jnp.asarray, kept)
    learned, kept, alive = devices.put((learned, kept, jnp.asarray(True)), devices.of_state)
    # Made where it is to lie: the optimizer's state of a model that is spread need not fit on one.
    begin = task.optimizer.init
    where = jax.tree.map(devices.of_state, jax.eval_shape(begin, learned))
    optimizer = jax.jit(begin, out_shardings=where)(learned)
    if not task.rule.remembers:
        return State(learned, kept, optimizer, alive)
    memory = jax.jit(task.first_memory)(learned, kept, first, jax.random.key(0))
    return State(learned, kept, optimizer, alive, devices.put(memory, devices.of_state))


def key_of(settings: Settings, step: Any) -> Any:
    """The PRNG key of an update."""
    return jax.random.fold_in(jax.random.key(settings.seed), step)


def compiled_update(task: Task, settings: Settings, devices: Devices, state: State) -> Any:
    """``(state, batch, step, stop) -> (state, Numbers)``; the old state's memory is used again."""
    where = jax.tree.map(devices.of_state, state)
    gradient_of = functools.partial(_gradient, task, settings, devices)
    update = functools.partial(_update, task, settings, gradient_of)
    return jax.jit(update, donate_argnums=0, out_shardings=(where, devices.everywhere))


def compiled_evaluation(task: Task, settings: Settings, devices: Devices) -> Any:
    """``(state, batch) -> measures``."""

    def evaluate(state: State, batch: Any) -> Any:
        key = jax.random.key(settings.seed)
        chunks, model = settings.chunks, (state.learned, state.kept)
        if chunks is None:
            return task.evaluate(*model, batch, key)
        if len(jax.tree.leaves(batch)[0]) % chunks:  # on each device alike, for the same bits
            batch = jax.lax.with_sharding_constraint(batch, devices.everywhere)
            return task.evaluate(*model, batch, key)
        return jax.tree.map(_mean, _in_chunks(task.evaluate, chunks, devices, model, batch, key))

    return jax.jit(evaluate, out_shardings=devices.everywhere)


def _update(
    task: Task, settings: Settings, gradient_of: Any, state: State, batch: Any, step: Any, stop: Any
) -> tuple[State, Numbers]:
    key = key_of(settings, step)
    (loss, kept, left), gradient = gradient_of(state.learned, state.kept, batch, key, state.memory)
    fine = jnp.isfinite(loss) & all_finite(gradient)
    numbers = Numbers(loss, fine, jnp.max(stop), left.diverged)

    def moved() -> State:
        change, optimizer = task.optimizer.update(gradient, state.optimizer, state.learned)
        learned: Any = optax.apply_updates(state.learned, change)
        return State(learned, kept, optimizer, state.alive, left.memory)

    if settings.nonfinite == "allow":
        return moved(), numbers
    moves = state.alive & fine
    # A branch, and not a choice between numbers: XLA would fuse that with the optimizer, and round
    # otherwise than in a loop that a user writes by hand.
    after = jax.lax.cond(moves, moved, lambda: state)
    return after._replace(alive=moves if settings.nonfinite == "stop" else state.alive), numbers


def all_finite(tree: Any) -> Any:
    """Whether all numbers of all arrays are finite."""
    leaves = [jnp.all(jnp.isfinite(leaf)) for leaf in jax.tree.leaves(tree)]
    return functools.reduce(jnp.logical_and, leaves, jnp.asarray(True))


def _gradient(
    task: Task,
    settings: Settings,
    devices: Devices,
    learned: Any,
    kept: Any,
    batch: Any,
    key: Any,
    memory: Any,
) -> Any:
    if settings.chunks is None:
        return task.value_and_grad(learned, kept, batch, key, memory)
    return _gradient_in_chunks(task, settings.chunks, devices, learned, kept, batch, key)


def _gradient_in_chunks(
    task: Task, chunks: int, devices: Devices, learned: Any, kept: Any, batch: Any, key: Any
) -> Any:
    """The mean over the chunks of a batch, always added up in the same order."""
    found = _in_chunks(task.value_and_grad, chunks, devices, (learned, kept), batch, key)
    return jax.tree.map(_mean, found)


def _in_chunks(
    fun: Any, chunks: int, devices: Devices, model: tuple[Any, Any], batch: Any, key: Any
) -> Any:
    """``fun`` on each chunk of a batch: in turn on each device, all devices in parallel."""
    batch = jax.tree.map(lambda a: a.reshape(chunks, -1, *a.shape[1:]), batch)
    keys = jax.random.split(key, chunks)

    def share(model: Any, batch: Any, keys: Any) -> Any:
        return jax.lax.map(lambda piece: fun(*model, *piece), (batch, keys))

    split, whole = PartitionSpec(AXIS), PartitionSpec()
    found = jax.shard_map(
        share, mesh=devices.mesh, in_specs=(whole, split, split), out_specs=split, check_vma=False
    )(model, batch, keys)
    return jax.lax.with_sharding_constraint(found, devices.everywhere)


def _mean(pieces: Any) -> Any:
    if not jnp.issubdtype(pieces.dtype, jnp.inexact):  # a counter, say: they all count alike
        return pieces[0]
    total = functools.reduce(jax.lax.add, [pieces[i] for i in range(len(pieces))])
    return total / len(pieces)
