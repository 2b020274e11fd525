"""The loop of a run: update, read, write down, evaluate, save.

Everything that decides the course of a run is counted in updates and is the same in every process.
The numbers of an update are read while the next one is being computed.
"""

from __future__ import annotations

import math
import time
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.experimental import multihost_utils

from dendrax import _graphs
from dendrax.support import complain, counted, nearest, warn
from dendrax.train._checkpoint import Found, is_key
from dendrax.train._devices import Devices
from dendrax.train._diagnose import first_nonfinite
from dendrax.train._feed import Feed
from dendrax.train._folder import Folder
from dendrax.train._interrupt import Interruption
from dendrax.train._journal import Journal
from dendrax.train._levels import Levels
from dendrax.train._progress import Progress
from dendrax.train._samples import Samples, batches_per_epoch, chosen, pieces
from dendrax.train._settings import Settings
from dendrax.train._task import Task
from dendrax.train._update import Numbers, State, compiled_evaluation, compiled_update, key_of

EVALUATED = 500  # samples at a time, or a batch if that is more


class Moment(NamedTuple):
    """What there is to see of a run right now."""

    step: int
    total: int
    epoch: float
    loss: float
    measures: Mapping[str, float]
    rate: float  # updates per second


class Run:
    """A run at work."""

    def __init__(
        self,
        task: Task,
        settings: Settings,
        devices: Devices,
        train: Samples,
        test: Samples | None,
        folder: Folder | None,
        state: State,
        watch: Callable[[Moment], None] | None,
        levels: Levels | None = None,
    ):
        self.task, self.settings, self.devices, self.state = task, settings, devices, state
        self.train, self.test, self.folder, self.watch = train, test, folder, watch
        self.step, self.progress = 0, Progress()
        self.per_epoch = batches_per_epoch(train, settings.batch_size)
        self.total = settings.total(self.per_epoch)
        self.is_writer = jax.process_index() == 0
        path = None if folder is None else folder.metrics
        self.journal = Journal(path, writes=self.is_writer)
        self.measures: dict[str, float] = {}
        self._levels = levels
        self._update = levels.update if levels else compiled_update(task, settings, devices, state)
        self._evaluate = compiled_evaluation(task, settings, devices)
        self._energy = jax.jit(self._energy_of) if _relaxes(task) else None
        self._waiting: deque[tuple[int, Numbers]] = deque()
        self._diverged: list[int] = []  # the updates since the last line of the journal
        self._since, self._has_warned = 0, False
        self._asked, self._saved = False, 0
        self._clock = _Clock()

    def check_measures(self) -> None:
        """Raise unless there will be what is to be monitored; nothing is computed."""
        names, monitor = ["loss"], self.settings.monitor
        if self.test is not None:
            names += [f"test_{name}" for name in self._measures_of(self.test)]
        if self._energy is not None:
            names.append("energy")
        if monitor is not None and monitor not in names:
            raise complain(
                ValueError,
                f"monitor={monitor!r} is not measured.{nearest(monitor, names)}",
                remedy=f"Measures: {', '.join(names)}.",
            )

    def _measures_of(self, samples: Samples) -> Iterable[str]:
        one, count = samples[np.arange(1)], min(self.settings.batch_size, len(samples))
        batch = jax.tree.map(lambda leaf: _shaped((count, *np.shape(leaf)[1:]), leaf), one)
        learned, kept = jax.tree.map(
            lambda leaf: _shaped(leaf.shape, leaf), (self.state.learned, self.state.kept)
        )
        return jax.eval_shape(self.task.evaluate, learned, kept, batch, key_of(self.settings, 0))

    def go_on_from(self, found: Found) -> None:
        """Continue where a checkpoint stopped."""
        self.step, self.state, self._saved = found.step, found.state, found.step
        self.progress = found.notes
        self.journal.go_back_to(found.step)

    # ---- the loop --------------------------------------------------------------------------------

    def learn(self) -> str:
        """Run to the end; says why it ended: finished, patience or interrupted."""
        settings = self.settings
        feed = Feed(
            self.train, self.devices, settings.batch_size, settings.seed, self.step, self.total
        )
        try:
            with Interruption(says=self.is_writer) as interruption:
                return self._loop(feed, interruption)
        finally:
            feed.close()

    def _loop(self, feed: Feed, interruption: Interruption) -> str:
        if not _is_patient(self.settings, self.progress):  # it had stopped before
            return "patience"
        while self.step < self.total:
            self._dispatch(next(feed), interruption.requested)
            last = self.step == self.total
            due = [what for what in ("log", "evaluate", "checkpoint") if self._is_due(what, last)]
            self._read(behind=0 if due else 1)
            if "log" in due or "evaluate" in due:
                self._write_down(evaluates="evaluate" in due)
            patient = _is_patient(self.settings, self.progress)
            if "checkpoint" in due or not patient:
                self._save()
            if not patient:
                return "patience"
            if self._asked and not last:
                self._read(behind=0)
                self._save()
                return "interrupted"
        return "finished"

    def _is_due(self, what: str, last: bool) -> bool:
        return last or self.settings.due(what, self.step, self.per_epoch)

    def _dispatch(self, batch: Any, stop: bool) -> None:
        flags = _flags(self.devices, stop)
        self.state, numbers = self._update(self.state, batch, np.int32(self.step), flags)
        self._waiting.append((self.step, numbers))
        self.step += 1

    def _read(self, behind: int) -> None:
        """Take in the numbers of all updates but the last ``behind``."""
        while len(self._waiting) > behind:
            step, numbers = self._waiting.popleft()
            numbers = Numbers(*jax.device_get(tuple(numbers)))
            self._asked |= bool(numbers.stop)
            self._since += 1
            if numbers.diverged > 0:
                self._diverged.append(step + 1)
            if numbers.fine or self.settings.nonfinite == "allow":
                self.progress.losses.append(float(numbers.loss))
            elif self.settings.nonfinite == "skip":
                self.progress.skipped += 1
            else:
                self._lost(step, float(numbers.loss))
            self._show(step + 1, float(numbers.loss))

    def _show(self, step: int, loss: float) -> None:
        rate = self._clock.tick(step)
        if self.watch is not None and self.is_writer:
            epoch = step / self.per_epoch
            self.watch(Moment(step, self.total, epoch, loss, self.measures, rate))

    # ---- what is done now and then ---------------------------------------------------------------

    def _write_down(self, *, evaluates: bool) -> None:
        self.progress.seconds += self._clock.lap()
        losses, self.progress.losses = self.progress.losses, []
        line: dict[str, Any] = {"step": self.step, "epoch": self.step / self.per_epoch}
        line["loss"] = float(np.mean(losses)) if losses else math.nan
        if self._diverged:
            line["diverged"] = len(self._diverged)
            self._tell_of_divergence()
        self._since = 0
        if evaluates:
            self.measures = self._evaluation()
            line |= self.measures
            self._judge(line)
            self._show(self.step, line["loss"])
        line |= {"seconds": self.progress.seconds, "updates_per_second": self._clock.rate}
        self.journal.add(line)

    def _tell_of_divergence(self) -> None:
        """Once in a run: the journal has the rest."""
        if self.is_writer and not self._has_warned:
            rule, updates = self.task.rule, counted(self._since, "update")
            warn(
                f"{type(rule).__name__}: inference diverged at update {self._diverged[0]}, and in "
                f"{len(self._diverged)} of the last {updates}: it ended with more energy than it "
                f"began with. Try {rule.remedy()}."
            )
            self._has_warned = True
        self._diverged = []

    @property
    def seen(self) -> State:
        """The state where an evaluation can see it: a model spread by levels is gathered."""
        return self.state if self._levels is None else self._levels.gathered(self.state)

    def _evaluation(self) -> dict[str, float]:
        found, seen = {}, self.seen
        if self.test is not None:
            measured = self._measured(self.test, seen)
            found = {f"test_{name}": value for name, value in measured.items()}
        if self._energy is not None:
            samples, size = self.test or self.train, self.settings.batch_size
            indices = np.arange(min(size, len(samples)))
            batch = self.devices.put_batch(samples, indices)
            found["energy"] = float(self._energy(seen, batch))
        return found

    def _measured(self, samples: Samples, seen: State) -> dict[str, float]:
        """The mean of each measure over all samples."""
        sums: dict[str, float] = {}
        size = self.settings.batch_size
        size *= max(1, EVALUATED // size)  # a multiple of what can be split over the devices
        for indices in pieces(samples, size):
            batch = self.devices.put_batch(samples, indices)
            found = self._evaluate(seen, batch)
            for name, value in jax.device_get(found).items():
                sums[name] = sums.get(name, 0.0) + float(value) * len(indices)
        return {name: value / len(samples) for name, value in sums.items()}

    def _loss_at(self, step: int) -> Callable[..., Any]:
        """The loss of an update, a scalar."""
        key = key_of(self.settings, step)
        return lambda model, kept, batch: self.task.whole_loss(model, kept, batch, key)[0]

    def _energy_of(self, state: State, batch: Any) -> Any:
        """The energy after inference."""
        rule, loss = self.task.rule, self._loss_at(0)
        arguments = (state.learned, state.kept, batch)
        graph = _graphs.trace(loss, *arguments, vertices=self.task.vertices or rule.vertices)
        return _graphs.run(graph, rule, *arguments, record="energy").energy[-1]

    def _judge(self, line: Mapping[str, Any]) -> None:
        """Keep the best."""
        usual = "test_loss" if "test_loss" in line else "loss"
        value = float(line[self.settings.monitor or usual])
        better = value < _or(self.progress.best, math.inf)
        if self.settings.mode == "max":
            better = value > _or(self.progress.best, -math.inf)
        if not better:
            self.progress.since += 1
            return
        self.progress.best, self.progress.best_step, self.progress.since = value, self.step, 0
        if self.folder is not None:
            self._check_finite()
            self.folder.best.save(self.step, self.state, asdict(self.progress))

    def _save(self) -> None:
        if self.folder is None or self.step == self._saved:
            return
        self._check_finite()
        self.progress.seconds += self._clock.lap()
        self.folder.last.save(self.step, self.state, asdict(self.progress))
        self._saved = self.step

    # ---- when numbers are lost -------------------------------------------------------------------

    def _check_finite(self) -> None:
        """Never replace a good checkpoint by one that is of no use."""
        if self.settings.nonfinite != "allow" and not bool(_finite(self.seen.learned)):
            raise complain(
                FloatingPointError,
                f"The weights are not finite after update {self.step} of {self.total}, though loss "
                "and gradient were: the optimizer's step was too large.",
                remedy=self._last_good(),
            )

    def _lost(self, step: int, loss: float) -> None:
        what = "The gradient" if math.isfinite(loss) else "The loss"
        raise complain(
            FloatingPointError,
            f"{what} is not finite at update {step + 1} of {self.total} (loss {loss:g}). "
            f"{self._first_lost(step)}".strip(),
            remedy=self._last_good(),
        )

    def _last_good(self) -> str:
        kept = self.folder.last.steps() if self.folder is not None else []
        if self.folder is None or not kept:
            return "There is no checkpoint."
        return f"The last good checkpoint is {self.folder.last.folder / str(kept[0])}."

    def _first_lost(self, step: int) -> str:
        """Which vertex it was, found on the host from the state that led there."""
        indices = chosen(self.train, self.settings.batch_size, self.settings.seed, step)
        state, batch = jax.tree.map(_whole, self.state), self.train[indices]
        return first_nonfinite(
            self._loss_at(step),
            state.learned,
            state.kept,
            batch,
            rule=self.task.rule,
            vertices=self.task.vertices,
        )


def _is_patient(settings: Settings, progress: Progress) -> bool:
    """Whether to go on."""
    return settings.patience is None or progress.since < settings.patience


def _relaxes(task: Task) -> bool:
    return task.rule.relaxes and task.rule.descends


def _or(value: float | None, default: float) -> float:
    return default if value is None else value


@jax.jit
def _finite(learned: Any) -> Any:
    return jnp.all(jnp.stack([jnp.all(jnp.isfinite(leaf)) for leaf in jax.tree.leaves(learned)]))


def _shaped(shape: tuple[int, ...], like: Any) -> jax.ShapeDtypeStruct:
    return jax.ShapeDtypeStruct(shape, jax.dtypes.canonicalize_dtype(like.dtype, True))


def _flags(devices: Devices, stop: bool) -> Any:
    """A flag for each device, set by the process that it belongs to."""

    def flag(index: Any) -> np.ndarray:
        return np.full((1,), stop)

    return jax.make_array_from_callback((devices.count,), devices.split, flag)


def _whole(array: Any) -> Any:
    """An array on this process alone, wherever it was."""
    if array.is_fully_addressable or array.is_fully_replicated:
        return jax.device_put(np.asarray(array)) if not is_key(array) else array
    return jnp.asarray(multihost_utils.process_allgather(array, tiled=True))


class _Clock:
    """How fast it goes: an average over the last updates, in which compiling does not count."""

    def __init__(self) -> None:
        self._last_lap = time.perf_counter()
        self._times: deque[tuple[int, float]] = deque(maxlen=50)

    @property
    def rate(self) -> float:
        if len(self._times) < 2:
            return 0.0
        (first, start), (last, end) = self._times[0], self._times[-1]
        return (last - first) / (end - start) if end > start else 0.0

    def tick(self, step: int) -> float:
        self._times.append((step, time.perf_counter()))
        return self.rate

    def lap(self) -> float:
        now = time.perf_counter()
        passed, self._last_lap = now - self._last_lap, now
        return passed
