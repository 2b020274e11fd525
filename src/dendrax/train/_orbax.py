"""Orbax without its noise: imported late, quiet about what it then raises, errors in one line."""

from __future__ import annotations

import contextlib
import errno
import functools
import gc
import inspect
import logging
import os
import sys
import traceback
from collections.abc import Iterator
from typing import Any

from dendrax.support import require_extra


def import_orbax() -> Any:
    """Imported only when there is something to keep: it takes seconds."""
    with require_extra("the folder of a run, for its checkpoints,", "train"):
        import orbax.checkpoint as ocp
    return ocp


@contextlib.contextmanager
def quiet() -> Iterator[None]:
    """Orbax logs what it then raises, too, and asyncio what it forgot to raise."""
    loggers = [logging.getLogger(name) for name in ("absl", "asyncio")]
    levels = [logger.level for logger in loggers]
    for logger in loggers:
        logger.setLevel(logging.CRITICAL + 1)
    try:
        with _hushed_loops():
            try:
                yield
            except Exception as problem:
                _hush_threads()
                _let_go(problem)
                gc.collect()  # asyncio complains when a task is collected: let it be now
                raise
    finally:
        for logger, level in zip(loggers, levels, strict=True):
            logger.setLevel(level)


@functools.cache
def _hush_threads() -> None:
    """Threads of orbax may log what was raised when we are no longer quiet."""
    logging.getLogger("absl").addFilter(lambda found: "_SignalingThread" not in found.getMessage())


def _let_go(problem: BaseException | None) -> None:
    """The frames that an error went through keep the tasks alive that failed of it."""
    if problem is not None:
        traceback.clear_frames(problem.__traceback__)
        _let_go(problem.__cause__ or problem.__context__)


@contextlib.contextmanager
def _hushed_loops() -> Iterator[None]:
    """When orbax gives up, threads of its storage still call into the event loop that it closed,
    and coroutines that it started are collected unfinished.

    Python prints a traceback for each: dozens, about nothing but what is raised in any case.
    """
    usual = sys.unraisablehook

    def hook(found: Any) -> None:
        forgotten = (
            inspect.iscoroutine(found.object) and "orbax" in found.object.cr_code.co_filename
        )
        if not forgotten and str(found.exc_value) != "Event loop is closed":
            usual(found)

    sys.unraisablehook = hook
    try:
        yield
    finally:
        if sys.unraisablehook is hook:  # or somebody has put in another one, which stays
            sys.unraisablehook = usual


_OF_THE_DISK = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EACCES, errno.EROFS, errno.EIO)


def short_reason(problem: BaseException) -> str:
    """What the innermost cause says: orbax wraps it in pages of its own."""
    while problem.__cause__ is not None:
        problem = problem.__cause__
    text = str(problem).strip()
    known = [os.strerror(number) for number in _OF_THE_DISK if os.strerror(number) in text]
    return (known or text.splitlines() or [type(problem).__name__])[0][:200]
