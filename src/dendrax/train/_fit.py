"""`fit`: the public way into a run."""

from __future__ import annotations

import os
import pathlib
from collections.abc import Callable, Mapping
from contextlib import nullcontext
from dataclasses import asdict, dataclass
from typing import Any

import jax

from dendrax._settings import check_rule, check_vertices, in_words
from dendrax.rules import ZIL, Rule
from dendrax.support import Vertices, complain, expanded, public, warn
from dendrax.train._bar import Bar
from dendrax.train._devices import Devices, all_devices, one_device
from dendrax.train._distributed import together, wait_for_all
from dendrax.train._engine import Moment, Run
from dendrax.train._folder import Folder
from dendrax.train._levels import Levels
from dendrax.train._samples import Samples, as_samples, chosen
from dendrax.train._settings import Settings
from dendrax.train._task import Task, take_apart
from dendrax.train._update import State, start_state


@dataclass(frozen=True, eq=False)
class Fitted:
    """What a run left.

    - `model`, `state`: after the last update.
    - `history`: the lines of the journal: loss, measures and time.
    - `step`: how many updates were made; `best_step`: after how many the best evaluation was.
    - `reason`: why it ended: `"finished"`, `"patience"` or `"interrupted"`.
    - `skipped`: how many updates were left out because they were not finite.
    """

    model: Any
    state: Any
    history: list[dict[str, Any]]
    step: int
    best_step: int
    reason: str
    skipped: int = 0


@public("dendrax.train.fit")
def fit(
    model: Any,
    loss: Callable[..., Any],
    data: Any,
    *,
    optimizer: Any,
    rule: Rule = ZIL(),
    vertices: Vertices | None = None,
    test: Any = None,
    measure: Callable[..., dict[str, Any]] | None = None,
    state: Any = None,
    settings: Settings = Settings(),
    folder: str | os.PathLike[str] | None = None,
    resume: bool = False,
    about: Mapping[str, Any] | None = None,
    watch: Callable[[Moment], None] | None = None,
) -> Fitted:
    """Train a model by any rule, on all devices, in a run that can be stopped and resumed.

    A run is a function of its arguments alone: interrupted at any moment, even by force, and
    resumed, it ends with the same bits.

    **Arguments:**

    - `model`: any pytree; its arrays of floating-point numbers learn.
    - `loss`: `loss(model, *batch)` is a scalar, the mean over a batch. With a `state` it is
      `loss(model, state, *batch) -> (scalar, new state)`. If it has an argument `key`, it gets a
      PRNG key, a new one for each update.
    - `data`: a tuple of arrays, `(inputs, targets)`, whose first axis counts the samples; or any
      object with a length that gives such a tuple for an array of indices.
    - `optimizer`: from Optax. IncrementalPC moves the weights itself, and its gradient is that
      movement over its `learning_rate`: `optax.sgd` with the same rate repeats it.
    - `rule`, `vertices`: as for `dendrax.value_and_grad`.
    - `test`: data for evaluation.
    - `measure`: `measure(model, *batch)` (with a state, `measure(model, state, *batch)`) is a
      dictionary of scalars, each the mean over a batch. By default it is the loss.
    - `state`: what the model carries from batch to batch and does not learn.
    - `settings`: `dendrax.train.Settings`.
    - `folder`: where journal and checkpoints are written; without one, nothing is.
    - `resume`: go on with the run in `folder`, if there is one.
    - `about`: what else the run depends on (in words that JSON has); a run with another `about` is
      not resumed.
    - `watch`: is called after each update, for instance `dendrax.train.bar()`.

    **Returns:** `dendrax.train.Fitted`.

    !!! example

        ```python
        import jax.numpy as jnp, numpy as np, optax
        from dendrax import train

        x = np.random.default_rng(0).normal(size=(256, 3)).astype("float32")
        y = x @ np.array([1.0, -2.0, 3.0], "float32")


        def loss(w, x, y):
            return jnp.mean((x @ w - y) ** 2)


        found = train.fit(
            jnp.zeros(3),
            loss,
            (x, y),
            optimizer=optax.sgd(0.1),
            settings=train.Settings(epochs=10, batch_size=32),
        )
        found.model  # -> [1.00, -2.00, 3.00]
        ```
    """
    _check(rule, optimizer, settings, resume, folder)
    vertices = check_vertices("vertices", vertices)
    samples = as_samples("data", data)
    tested = None if test is None else as_samples("test", test)
    learned, parts = take_apart(model)
    task = Task(parts, loss, rule, vertices, optimizer, measure, state is not None)
    devices, begun, levels = _begin(task, settings, learned, state, samples)
    words = in_words(vertices)
    known = {"rule": repr(rule), "vertices": words, **asdict(settings), **(about or {})}
    known["devices by level"] = None if levels is None else len(levels.placed.devices)
    place = None if folder is None else Folder(expanded("folder", folder), settings.keep, known)
    if place is not None:
        place.check(resume=resume)
    run = Run(task, settings, devices, samples, tested, place, begun, watch, levels)
    run.check_measures()
    try:
        with together():
            if place is not None:
                _open(run, place, begun, resume=resume)
            with watch if isinstance(watch, Bar) and run.is_writer else nullcontext():
                reason = run.learn()
    finally:
        if place is not None:
            place.close()
    return _fitted(run, task, reason)


def _begin(
    task: Task, settings: Settings, learned: Any, kept: Any, samples: Samples
) -> tuple[Devices, State, Levels | None]:
    """Where batches go, the state before the first update, and the levels if they are placed."""
    if settings.sharding == "levels":
        levels = Levels(task, settings, learned, kept, samples)
        return one_device(levels.first), levels.begun, levels
    devices = all_devices(settings.sharding, settings.batch_size)
    _check_chunks(settings, devices, task.rule)
    first = None
    if task.rule.remembers:
        indices = chosen(samples, settings.batch_size, settings.seed, 0)
        first = devices.put_batch(samples, indices)
    return devices, start_state(task, learned, kept, devices, first), None


def _open(run: Run, folder: Folder, begun: State, *, resume: bool) -> None:
    """Claim the folder of a run, and go on with what is there."""
    wait_for_all()  # all have looked at the folder before one writes to it
    if jax.process_index() == 0:
        folder.claim(resume=resume)
    wait_for_all()
    _go_on(run, folder, begun)
    wait_for_all()
    if jax.process_index() == 0:
        folder.record()


def _fitted(run: Run, task: Task, reason: str) -> Fitted:
    state = run.seen
    return Fitted(
        task.parts.join(state.learned),
        state.kept,
        run.journal.lines,
        run.step,
        run.progress.best_step,
        reason,
        run.progress.skipped,
    )


def _go_on(run: Run, folder: Folder, begun: State) -> None:
    """From the newest good checkpoint, if there is any."""
    folder.best.check_runs()
    found, problems = folder.last.load(begun)
    if found is None and problems:
        raise complain(
            ValueError,
            "no checkpoint can be read.\n  " + "\n  ".join(problems.values()),
            remedy="Nothing was changed. Restore one from a copy, or choose another folder.",
        )
    if found is not None:
        folder.last.check_older(step for step in folder.last.steps() if step < found.step)
    moved = folder.last.set_aside(problems)
    for problem, aside in zip(problems.values(), moved, strict=True):
        assert found is not None
        good = folder.last.folder / str(found.step)
        warn(f"{problem} It was set aside as {aside}; going on from {good}.")
    # The run will come to these again, perhaps with other numbers.
    step = 0 if found is None else found.step
    folder.best.set_aside([later for later in folder.best.steps() if later > step], "later")
    if found is not None:
        run.go_on_from(found)
    else:
        run.journal.go_back_to(0)


def _check(
    rule: Any, optimizer: Any, settings: Any, resume: bool, folder: pathlib.Path | Any
) -> None:
    check_rule(rule)
    if not hasattr(optimizer, "init") or not hasattr(optimizer, "update"):
        raise complain(
            TypeError,
            f"optimizer is {type(optimizer).__name__}, which has no init and update.",
            remedy="Pass one of Optax, for instance optax.adam(1e-3).",
        )
    if not isinstance(settings, Settings):
        raise complain(TypeError, f"settings is {type(settings).__name__}, not train.Settings.")
    if resume and folder is None:
        raise complain(ValueError, "resume=True needs the folder of the run.")


def _check_chunks(settings: Settings, devices: Devices, rule: Any) -> None:
    chunks = settings.chunks
    if chunks is None:
        return
    if rule.remembers:
        raise complain(
            ValueError,
            f"{type(rule).__name__} remembers something of the whole batch, so that chunks cannot "
            "be computed one after the other.",
            remedy="Leave chunks out, or use a rule without a memory.",
        )
    if chunks % devices.count or settings.batch_size % chunks:
        raise complain(
            ValueError,
            f"chunks={chunks} cannot be shared out: there are {devices.count} devices, and "
            f"batch_size={settings.batch_size}.",
            remedy="chunks must be a multiple of the devices, and batch_size one of chunks.",
        )
