"""`load`: a model out of the checkpoints of a run."""

from __future__ import annotations

import os
import pathlib
from typing import Any

import jax
import jax.numpy as jnp

from dendrax.support import (
    CHECKPOINT_NAMES,
    CheckpointName,
    complain,
    expanded,
    one_of,
    public,
    warn,
)
from dendrax.train._checkpoint import Checkpoints
from dendrax.train._folder import fixed_settings, read_about
from dendrax.train._progress import read_progress
from dendrax.train._task import take_apart
from dendrax.train._update import State


@public("dendrax.train.load")
def load(
    folder: str | os.PathLike[str], model: Any, *, state: Any = None, which: CheckpointName = "best"
) -> Any:
    """The model that a run has learned.

    **Arguments:**

    - `folder`: of the run.
    - `model`: one of the same structure, as it was given to `dendrax.train.fit`; its numbers do not
      matter.
    - `state`: if the run had one, a state of the same structure.
    - `which`: `"best"`, after the best evaluation, or `"last"`, the newest.

    **Returns:** the model; with a `state`, the pair of model and state.

    !!! example

        ```python
        import jax.numpy as jnp, numpy as np, optax
        from dendrax import train

        x = np.ones((64, 3), "float32")
        loss = lambda w, x: jnp.mean((x @ w - 1) ** 2)
        train.fit(jnp.zeros(3), loss, (x,), optimizer=optax.sgd(0.1), folder="runs/line")
        w = train.load("runs/line", jnp.zeros(3))
        w  # -> [0.330, 0.330, 0.330]
        ```
    """
    one_of("which", which, CHECKPOINT_NAMES)
    place = expanded("folder", folder)
    checkpoints = Checkpoints(place / which, keep=1, run=_run_in(place), read_notes=read_progress)
    learned, parts = take_apart(model)
    like = State(jax.tree.map(jnp.asarray, learned), jax.tree.map(jnp.asarray, state), None, None)
    only = (".learned",) if state is None else (".learned", ".kept")
    if not checkpoints.steps():
        raise complain(
            FileNotFoundError,
            f"there is no checkpoint in {checkpoints.folder}.",
            remedy="Name the folder of a run; it has a best checkpoint from its first evaluation "
            "on.",
        )
    try:
        found, problems = checkpoints.load(like, only)
    finally:
        checkpoints.close()
    if found is None:
        raise complain(
            ValueError, "no checkpoint can be read.\n  " + "\n  ".join(problems.values())
        )
    for problem in problems.values():
        warn(f"{problem} Took {checkpoints.folder / str(found.step)} instead.")
    joined = parts.join(found.state.learned)
    return joined if state is None else (joined, found.state.kept)


def _run_in(folder: pathlib.Path) -> dict[str, Any]:
    """What the run is, as far as that is known: a model can be had without it."""
    try:
        return fixed_settings(read_about(folder) or {})
    except ValueError as problem:
        warn(f"{problem.args[0]}\n  Its checkpoints are read without it.")
        return {}
