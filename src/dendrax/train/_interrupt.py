"""Ctrl-C and SIGTERM: finish the update, save, leave. A second one leaves at once."""

from __future__ import annotations

import contextlib
import os
import signal
import threading
from types import FrameType, TracebackType
from typing import Any

SIGNALS = (signal.SIGINT, signal.SIGTERM)


class Interruption:
    """While it is entered, the first signal is only noted, in ``requested``."""

    def __init__(self, *, says: bool = True) -> None:
        self.requested, self._says = False, says
        self._before: dict[int, Any] = {}

    def __enter__(self) -> Interruption:
        if threading.current_thread() is threading.main_thread():
            for number in SIGNALS:
                # A run in the background has SIGINT ignored, and shall not be stopped by it.
                if signal.getsignal(number) is not signal.SIG_IGN:
                    self._before[number] = signal.signal(number, self._note)
        return self

    def _note(self, number: int, frame: FrameType | None) -> None:
        if self.requested:
            raise KeyboardInterrupt
        self.requested = True
        if self._says:  # past Python's own streams, which may be in the middle of something
            with contextlib.suppress(OSError):
                os.write(2, b"\nStopping after this update, and saving. Once more: at once.\n")

    def __exit__(
        self,
        kind: type[BaseException] | None,
        problem: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)
