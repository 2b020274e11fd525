"""A bar on the terminal for what takes long: steps enter, one line that is written again leaves.

Nothing is written where standard error is no terminal, as in a test, a notebook or a log file.
"""

from __future__ import annotations

import sys
import time
from types import TracebackType

WIDTH = 24  # of the bar, in letters
EVERY = 0.1  # seconds between two pictures


class Progress:
    """``with Progress("dendrax.explore") as bar: bar.begin("running", 30); bar.advance()``."""

    def __init__(self, title: str):
        self._title, self._stage, self._total, self._done = title, "", 0, 0
        self._shown, self._length = 0.0, 0
        self._live = sys.stderr.isatty()

    def begin(self, stage: str, total: int = 0) -> None:
        """A new stage of so many steps; 0 if nobody knows how many there are."""
        self._stage, self._total, self._done = stage, total, 0
        self._show()

    def advance(self) -> None:
        """One step is done."""
        self._done += 1
        if time.monotonic() - self._shown >= EVERY or self._done == self._total:
            self._show()

    def _show(self) -> None:
        self._shown = time.monotonic()
        self._write(f"{self._title}: {self._stage} {self._bar()}".rstrip())

    def _bar(self) -> str:
        if not self._total:
            return "..."
        part = min(1.0, self._done / self._total)
        full = int(part * WIDTH)
        return f"[{'#' * full}{'.' * (WIDTH - full)}] {part:.0%}"

    def _write(self, text: str) -> None:
        if self._live:
            sys.stderr.write("\r" + text.ljust(self._length))
            sys.stderr.flush()
            self._length = len(text)

    def __enter__(self) -> Progress:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        problem: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._write("")
        self._write("")
