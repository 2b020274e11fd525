"""The launcher: one command, run by several processes of this machine that find each other.

If one of them dies, the others wait for it forever or until their own time is up. The launcher
does not: it stops them, and says which one it was.
"""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Sequence

from dendrax.support import complain, integer, public
from dendrax.train._distributed import COORDINATOR, LOOPBACK, NUM_PROCESSES, PROCESS_ID
from dendrax.train._interrupt import SIGNALS

INTERRUPTED = 130  # the exit code of a run that was asked to stop
GRACE = 15.0  # seconds between the first process that stops so and the last
LAST_WORDS = 1.0  # seconds in which the others may say what they know of it


@public("dendrax.train.launch")
def launch(
    command: Sequence[str],
    num_processes: int,
    *,
    say: Callable[[str], None] = lambda text: print(text, file=sys.stderr),
) -> int:
    """Run a command in several processes that form one run.

    **Arguments:**

    - `command`: the program and its arguments. It calls `dendrax.train.connect()`, as
      `dendrax train` does.
    - `num_processes`: how many.
    - `say`: is told what happens.

    **Returns:** the exit code: that of the first process that failed, or 0.

    !!! example

        ```python
        import sys
        from dendrax import train

        train.launch([sys.executable, "script.py"], 2)  # -> 0
        ```
    """
    num_processes = integer("num_processes", num_processes)
    address = f"{LOOPBACK}:{_free_port()}"
    processes: list[subprocess.Popen[bytes]] = []

    def pass_on(number: int, frame: object) -> None:
        for process in processes:
            _send(process, number)

    handlers = {number: signal.signal(number, pass_on) for number in SIGNALS}
    try:
        for index in range(num_processes):
            processes.append(_start(command, address, num_processes, index))
        return _watch(processes, say)
    finally:
        for process in processes:
            if process.poll() is None:
                process.kill()
                process.wait()
        for number, handler in handlers.items():
            signal.signal(number, handler)


def _free_port() -> int:
    with socket.socket() as free:
        free.bind((LOOPBACK, 0))
        return free.getsockname()[1]


def _start(command: Sequence[str], address: str, count: int, index: int) -> subprocess.Popen[bytes]:
    who = {COORDINATOR: address, NUM_PROCESSES: str(count), PROCESS_ID: str(index)}
    try:
        # A session of its own: the terminal's Ctrl-C comes to us alone, and we pass it on once.
        return subprocess.Popen(command, env={**os.environ, **who}, start_new_session=True)
    except OSError as problem:
        raise complain(
            type(problem), f"cannot run {command[0]!r}: {problem.strerror or problem}."
        ) from problem


def _watch(processes: list[subprocess.Popen[bytes]], say: Callable[[str], None]) -> int:
    """Wait for all; when one fails, stop the others. The exit code of the first that failed."""
    codes = [process.poll() for process in processes]
    while None in codes and not any(codes):
        time.sleep(0.05)
        codes = [process.poll() for process in processes]
    if not any(codes):
        return 0
    first = _culprit([process.poll() for process in processes])
    code = processes[first].returncode
    rest = [process for process in processes if process.poll() is None]
    if code == INTERRUPTED:  # it was asked to stop and has saved; the others are about to
        _wait(rest, GRACE)
    else:
        _wait(rest, LAST_WORDS)
        who = f"dendrax launch: process {first} of {len(processes)} {_ended(code)}."
        # One that failed has said itself what there is to do.
        advice = " The same command with --resume goes on from the last checkpoint." * (code < 0)
        say(f"{who} Stopped the others.{advice}")
    for process in rest:
        _send(process, signal.SIGKILL)
        process.wait()
    return 128 - code if code < 0 else code


def _culprit(codes: Sequence[int | None]) -> int:
    """Which one ended the run: one that was killed, or else the first that failed.

    When one is killed, another may find out and fail before we look.
    """
    killed = [index for index, code in enumerate(codes) if (code or 0) < 0]
    return (killed or [index for index, code in enumerate(codes) if code])[0]


def _wait(processes: list[subprocess.Popen[bytes]], seconds: float) -> None:
    end = time.monotonic() + seconds
    while any(process.poll() is None for process in processes) and time.monotonic() < end:
        time.sleep(0.05)


def _send(process: subprocess.Popen[bytes], number: int) -> None:
    if process.poll() is None:
        process.send_signal(number)


def _ended(code: int) -> str:
    if code < 0:
        return f"was killed by {signal.Signals(-code).name}"
    return f"failed with exit code {code}"
