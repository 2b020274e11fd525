"""Runs measurements, with a progress bar; what is finished already is only read."""

from __future__ import annotations

import shutil
import signal
import threading
import time
from collections.abc import Sequence
from typing import Any

from rich.console import Console
from rich.markup import escape
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TaskID,
    TextColumn,
    TimeElapsedColumn,
)
from rich.table import Column

from dendrax.paper._store import Cell, Finding, OnProgress, Store, Work

ROOM_FOR_A_BAR = 60  # columns


def run_cells(cells: Sequence[Cell], store: Store, console: Console) -> list[Finding]:
    """Measure what is not yet in the store; all findings, in the order of the cells.

    An interruption loses at most what was measured since the last checkpoint of one cell.
    """
    findings: list[Finding] = []
    with progress_line(console) as progress, _Interrupts() as interrupts:
        task = progress.add_task("", total=len(cells))
        for cell in cells:
            interrupts.check()
            on_progress = _bar_mover(progress, task, cell.name, len(findings), interrupts)
            findings.append(store.find(cell) or _measure(cell, store, on_progress))
            progress.update(task, completed=len(findings))
    return findings


def progress_line(console: Console) -> Progress:
    """One line in any terminal: what is being measured comes last, and is cut where room ends."""
    overflow = "ellipsis" if console.encoding.startswith("utf") else "crop"
    rest = Column(ratio=1, no_wrap=True, overflow=overflow)
    bar = [BarColumn(console.width // 6)] if console.width >= ROOM_FOR_A_BAR else []
    return Progress(
        *(*bar, MofNCompleteColumn(), TimeElapsedColumn()),
        TextColumn("{task.description}", table_column=rest),
        console=console,
        transient=True,
        expand=True,
    )


class _Interrupts:
    """Ctrl-C stops the run, even if the interrupt was raised where somebody swallowed it.

    (JAX runs Python code when garbage is collected, and what is raised there is lost.)
    """

    def __enter__(self) -> _Interrupts:
        self.seen = False
        self.before: Any = None
        ignored = signal.getsignal(signal.SIGINT) is signal.SIG_IGN  # as in a script's background
        if threading.current_thread() is threading.main_thread() and not ignored:
            self.before = signal.signal(signal.SIGINT, self._interrupt)
        return self

    def __exit__(self, *_: object) -> None:
        if self.before is not None:
            signal.signal(signal.SIGINT, self.before)

    def _interrupt(self, *_: object) -> None:
        self.seen = True
        raise KeyboardInterrupt

    def check(self) -> None:
        """Raise what was lost."""
        if self.seen:
            raise KeyboardInterrupt


def finished(cells: Sequence[Cell], store: Store) -> list[Finding]:
    """The findings that are there already."""
    return [found for cell in cells if (found := store.find(cell)) is not None]


def _measure(cell: Cell, store: Store, on_progress: OnProgress) -> Finding:
    start = time.perf_counter()
    on_progress(0.0, "")
    result = cell.measure(Work(store.scratch(cell), on_progress))
    found = store.keep(cell, result, time.perf_counter() - start)
    shutil.rmtree(store.scratch(cell), ignore_errors=True)
    return found


def _bar_mover(
    progress: Progress, task: TaskID, name: str, before: int, interrupts: _Interrupts
) -> OnProgress:
    """Moves the bar by the part of this measurement, after those ``before`` it."""

    def on_progress(part: float, text: str) -> None:
        interrupts.check()
        description = f"{escape(name)}  [dim]{escape(text)}[/]"
        progress.update(task, completed=before + part, description=description)

    return on_progress
