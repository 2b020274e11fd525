"""A progress bar for a run: loss, measures, updates per second, and the time that is left."""

from __future__ import annotations

from types import TracebackType
from typing import Any

from dendrax.support import printable, require_extra
from dendrax.train._engine import Moment


def bar(console: Any = None, *, title: str = "") -> Bar:
    """A progress bar to watch a run with.

    **Arguments:**

    - `console`: of rich; by default the standard error stream.
    - `title`: a line above the bar. Of a run that is refused `fit` shows neither.

    **Returns:** a `watch` for `dendrax.train.fit`, which shows it while it is at work. It is a
    context manager, too: entered, it stays for several runs.

    !!! example

        ```python
        import jax.numpy as jnp, numpy as np, optax
        from dendrax import train

        x = np.ones((64, 3), "float32")
        loss = lambda w, x: jnp.mean((x @ w - 1) ** 2)
        train.fit(jnp.zeros(3), loss, (x,), optimizer=optax.sgd(0.1), watch=train.bar())
        ```
    """
    return Bar(console, title)


class Bar:
    """See `bar`."""

    def __init__(self, console: Any = None, title: str = ""):
        with require_extra("dendrax.train.bar", "train"):
            from rich import console as consoles
            from rich import progress
        self._progress = progress.Progress(
            progress.TextColumn("epoch {task.fields[epoch]:.1f}"),
            progress.BarColumn(bar_width=20),
            progress.MofNCompleteColumn(),
            progress.TextColumn("{task.fields[numbers]}", markup=False),
            progress.TimeRemainingColumn(),
            console=console or consoles.Console(stderr=True),
        )
        self._title = title
        self._entered = 0
        self._task = self._progress.add_task("", total=None, epoch=0.0, numbers="compiling")

    def __enter__(self) -> Bar:
        if not self._entered:
            if self._title:
                self._progress.console.print(
                    printable(self._title),
                    style="bold",
                    markup=False,
                    highlight=False,
                    soft_wrap=True,
                )
            self._progress.start()
        self._entered += 1
        return self

    def __call__(self, moment: Moment) -> None:
        self._progress.update(
            self._task,
            completed=moment.step,
            total=moment.total,
            epoch=moment.epoch,
            numbers=told(moment),
        )

    def __exit__(
        self,
        kind: type[BaseException] | None,
        problem: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._entered -= 1
        if not self._entered:
            self._progress.stop()


def told(moment: Moment) -> str:
    """Its numbers in a few words."""
    shown = {name: value for name, value in moment.measures.items() if name != "test_loss"}
    numbers = {"loss": moment.loss, **shown}
    words = [f"{name.removeprefix('test_')} {value:.4g}" for name, value in numbers.items()]
    return ", ".join([*words, f"{moment.rate:.3g} updates/s"])
