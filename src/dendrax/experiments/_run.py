"""Runs measurements, with a progress bar; what is finished already is only read."""

from __future__ import annotations

import shutil
import signal
import threading
import time
from collections.abc import Sequence
from typing import Any

from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TaskID,
    TextColumn,
    TimeElapsedColumn,
)

from dendrax.experiments._store import Cell, Finding, Report, Store, Work


def run_cells(cells: Sequence[Cell], store: Store, console: Console) -> list[Finding]:
    """Measure what is not yet in the store; all findings, in the order of the cells.

    An interruption loses at most what was measured since the last checkpoint of one cell.
    """
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn())
    with Progress(*columns, TimeElapsedColumn(), console=console, transient=True) as progress:
        whole = progress.add_task("measurements", total=len(cells))
        findings = []
        with _Interrupts() as interrupts:
            for cell in cells:
                interrupts.check()
                findings.append(store.find(cell) or _measure(cell, store, progress, interrupts))
                progress.advance(whole)
    return findings


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


def _measure(cell: Cell, store: Store, progress: Progress, interrupts: _Interrupts) -> Finding:
    task = progress.add_task(cell.name, total=100)
    start = time.perf_counter()
    try:
        result = cell.measure(
            Work(store.scratch(cell), _reporter(progress, task, cell.name, interrupts))
        )
    finally:
        progress.remove_task(task)
    found = store.keep(cell, result, time.perf_counter() - start)
    shutil.rmtree(store.scratch(cell), ignore_errors=True)
    return found


def _reporter(progress: Progress, task: TaskID, name: str, interrupts: _Interrupts) -> Report:
    def report(part: float, text: str) -> None:
        interrupts.check()
        progress.update(task, completed=round(100 * part), description=f"{name}  [dim]{text}[/]")

    return report
