"""A thread that notices when another process of the run has failed, hangs or is gone.

A process that waits for another in a collective operation cannot say anything, and JAX's own
heartbeat ends it by an abort with a page of C++. So every process writes a number that grows into
the store that all share, reads those of the others, and leaves with a word when one stands still.
"""

from __future__ import annotations

import atexit
import contextlib
import contextvars
import ctypes
import itertools
import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from typing import Any

import jax

from dendrax._compat import coordination_client
from dendrax.support import complain

BEAT = 1.0  # seconds between two signs of life
SILENT = 30  # beats without one, after which a process counts as gone
UNHEARD = 300  # the same for one that has not said a word yet: it may be reading its data
GRACE = 5  # beats in which this process may say itself what it failed of, as another did

DONE, FAILED = "done", "failed: "
_runs = itertools.count()  # all processes make their runs in the same order
RESUME = "Start all of them again with resume: the run goes on from its last checkpoint."


@contextlib.contextmanager
def watching() -> Iterator[None]:
    """While processes compute together: leave, with a word, when one of the others is lost."""
    client = coordination_client()
    if client is None or jax.process_count() == 1:
        yield
        return
    watch = Watch(client, jax.process_index(), jax.process_count(), next(_runs), leave)
    watch.start()
    try:
        yield
    except BaseException as problem:
        watch.stop(_failure(problem))
        raise
    watch.stop(DONE)


@contextlib.contextmanager
def announcing_failure() -> Iterator[None]:
    """While a process prepares a run by itself: if it fails, the others hear of it when they watch.

    They would wait for it for minutes. Memory, a file or a data set may be missing to one alone.
    """
    try:
        yield
    except BaseException as problem:
        client = coordination_client()
        if client is not None and jax.process_count() > 1:
            with contextlib.suppress(Exception):  # there may be nobody left to tell
                key = f"{_place_of(next(_runs))}/{jax.process_index()}"
                client.key_value_set(key, _failure(problem), allow_overwrite=True)
        raise


def _place_of(run: int) -> str:
    return f"dendrax/run/{run}"


def _failure(problem: BaseException) -> str:
    """In one line."""
    return FAILED + (str(problem).strip() or type(problem).__name__).splitlines()[0][:300]


def leave(text: str = "") -> None:
    """End this process at once, from any thread: the main one may wait for one that is gone."""
    sys.stdout.flush()
    sys.stderr.write(f"\n{text}\n" * bool(text))
    sys.stderr.flush()
    os._exit(1)


def explain_aborts() -> None:
    """If process 0 is gone, JAX aborts the others at once: let a plain sentence be the last word.

    A handler of Python's would wait for the main thread, which waits for process 0.
    """
    text = (
        "dendrax.train: this process has been aborted, perhaps because process 0, the coordinator, "
        f"is gone.\n  {RESUME}"
    )
    handler = ctypes.CFUNCTYPE(None, ctypes.c_int)(lambda number: leave(text))
    _handlers.append(handler)
    ctypes.CDLL(None).signal(signal.SIGABRT, handler)
    atexit.register(_usual_aborts)  # Python is not there any more when C is at its end


def _usual_aborts() -> None:
    signal.signal(signal.SIGABRT, signal.SIG_DFL)


_handlers: list[Any] = []  # C does not keep them alive


class Watch:
    """The two threads of a process: one talks and listens, one counts. Time is counted in beats, so
    that a process that was itself stopped for a while does not take the others for dead.
    """

    def __init__(
        self, client: Any, index: int, count: int, run: int, lost: Callable[[str], None]
    ) -> None:
        self._client, self._index, self._count, self._lost = client, index, count, lost
        self._place = _place_of(run)
        self._over = threading.Event()
        self._context = contextvars.copy_context()  # it knows which public function speaks
        self._heard: dict[int, str] = {}
        self._answered = 0

    def start(self) -> None:
        """Begin."""
        for work in (self._talk, self._count_beats):
            threading.Thread(target=work, name="dendrax.train.watch", daemon=True).start()

    def stop(self, word: str) -> None:
        """End, and tell the others why."""
        self._over.set()
        with contextlib.suppress(Exception):  # there may be nobody left to tell
            self._say(word)

    def _say(self, word: str) -> None:
        self._client.key_value_set(f"{self._place}/{self._index}", word, allow_overwrite=True)

    def _talk(self) -> None:
        for beat in itertools.count():
            with contextlib.suppress(Exception):  # whoever counts the beats sees that it failed
                self._say(str(beat))
                self._heard = _by_process(self._client.key_value_dir_get(self._place))
                self._answered = beat
            if self._over.wait(BEAT):
                return

    def _count_beats(self) -> None:
        silence = dict.fromkeys(range(self._count), 0)
        before: dict[int, Any] = {}
        while not self._over.wait(BEAT):
            now = {**self._heard, self._index: f"{self._answered}"}
            for index in silence:
                well = index in now and _is_well(now[index], before.get(index))
                silence[index] = 0 if well else silence[index] + 1
            before = now
            if found := self._worst(silence, now):
                self._lost(str(self._context.run(complain, RuntimeError, found, remedy=RESUME)))
                return

    def _worst(self, silence: dict[int, int], words: dict[int, str]) -> str:
        """What has happened to another process; empty if nothing has."""
        me = f"process {self._index} of {self._count}"
        for index, beats in silence.items():
            word = words.get(index, "")
            if word.startswith(FAILED) and beats > GRACE:
                return f"{me} stops: process {index} has failed ({word.removeprefix(FAILED)})."
        if silence[self._index] > SILENT:  # nobody can be heard without the store
            return f"{me} has lost process 0: it does not answer{_GONE}"
        for index, beats in silence.items():
            if beats > (SILENT if index in words else UNHEARD):
                return f"{me} has lost process {index}: it shows no sign of life{_GONE}"
        return ""


_GONE = ". It hangs, was stopped or killed, or its machine cannot be reached."


def _is_well(word: str, before: str | None) -> bool:
    return word == DONE or (word != before and not word.startswith(FAILED))


def _by_process(entries: list[tuple[str, str]]) -> dict[int, str]:
    return {int(key.rpartition("/")[2]): word for key, word in entries}
