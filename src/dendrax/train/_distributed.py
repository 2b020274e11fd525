"""Several processes as one run: who they are, how they find each other, and what if one dies.

The launcher (`dendrax launch`) says it in environment variables. On a cluster JAX finds it out by
itself (Slurm, Open MPI, Kubernetes, Cloud TPU), or the variables are set by hand.
"""

from __future__ import annotations

import atexit
import ipaddress
import os
import re
import signal
import sys
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import jax
import numpy as np
from jax.experimental import multihost_utils

from dendrax.support import complain, integer, is_ours, public
from dendrax.train._watchdog import RESUME, explain_aborts, leave, watching

COORDINATOR = "DENDRAX_COORDINATOR"  # host:port of process 0
NUM_PROCESSES = "DENDRAX_NUM_PROCESSES"
PROCESS_ID = "DENDRAX_PROCESS_ID"
VARIABLES = (COORDINATOR, NUM_PROCESSES, PROCESS_ID)
LOOPBACK = "127.0.0.1"  # reached from this machine only
PATIENCE = 120  # seconds in which all processes must have come
HEARTBEAT = 80  # seconds; longer than our own watchdog's, whose words are clearer


@public("dendrax.train.connect")
def connect(
    coordinator: str | None = None,
    num_processes: int | None = None,
    process_id: int | None = None,
    *,
    cluster: bool = False,
) -> None:
    """Join the other processes of a run. Call it first, before JAX looks for devices.

    Without arguments it takes what `dendrax launch` has put into the environment, and does nothing
    in a process that nobody launched.

    **Arguments:**

    - `coordinator`: `host:port` of process 0, which must be free there.
    - `num_processes`, `process_id`: how many there are, and which one this is, from 0.
    - `cluster`: let JAX find all of this out from the cluster's own environment.

    !!! example

        ```python
        from dendrax import train

        train.connect()  # in a script that is run by: dendrax launch -n 2 python script.py
        ```
    """
    said = [value for value in (coordinator, num_processes, process_id) if value is not None]
    if cluster and said:
        raise complain(
            ValueError,
            f"cluster=True finds out who is who, and {said[0]!r} was said, too.",
            remedy="Leave out one or the other.",
        )
    if cluster:
        _join()
        return
    if coordinator is None and said:
        raise complain(
            ValueError,
            "num_processes and process_id need a coordinator.",
            remedy="Say host:port of process 0, or nothing at all.",
        )
    if coordinator is None:
        found = _from_environment(os.environ)
        if found is None:
            return
        coordinator, num_processes, process_id = found
    if num_processes is None or process_id is None:
        raise complain(ValueError, "a coordinator needs num_processes and process_id.")
    num_processes = integer("num_processes", num_processes)
    process_id = integer("process_id", process_id, 0, num_processes - 1)
    host, colon, port = coordinator.rpartition(":")
    if not host or not colon or not port.isdecimal():
        raise complain(
            ValueError, f"coordinator={coordinator!r} is not an address.", remedy="Write host:port."
        )
    _join(coordinator, num_processes, process_id)


def _join(*who: Any) -> None:
    # JAX' coordinator asks nobody who they are, and listens on every interface unless told.
    bound = who[0] if who and _is_loopback(who[0]) else None
    try:
        jax.distributed.initialize(
            *who,
            coordinator_bind_address=bound,
            heartbeat_timeout_seconds=HEARTBEAT,
            initialization_timeout=PATIENCE,
        )
    except Exception as problem:
        raise complain(
            RuntimeError,
            f"the processes did not find each other{f' at {who[0]}' if who else ''} "
            f"({_first_line(problem)}).",
            remedy="Start all of them, within two minutes; the coordinator is host:port of process "
            "0. Call connect first, once, before JAX looks for devices.",
        ) from problem
    if threading.current_thread() is threading.main_thread():
        # JAX has taken SIGTERM to itself, and would do nothing about it.
        signal.signal(signal.SIGTERM, signal.getsignal(signal.SIGTERM))
    explain_aborts()
    with _no_stdout():
        wait_for_all()


def _is_loopback(coordinator: str) -> bool:
    host = coordinator.rpartition(":")[0].strip("[]")
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:  # the name of a host
        return False


@contextmanager
def _no_stdout() -> Iterator[None]:
    """Gloo prints a line when it connects."""
    sys.stdout.flush()
    kept, nothing = os.dup(1), os.open(os.devnull, os.O_WRONLY)
    os.dup2(nothing, 1)
    try:
        yield
    finally:
        os.dup2(kept, 1)
        os.close(kept)
        os.close(nothing)


def _from_environment(variables: Mapping[str, str]) -> tuple[str, int, int] | None:
    there = [name for name in VARIABLES if variables.get(name)]
    if not there:
        return None
    if len(there) < len(VARIABLES):
        missing = ", ".join(name for name in VARIABLES if name not in there)
        raise complain(
            ValueError,
            f"{there[0]} is set in the environment, but not {missing}.",
            remedy="Set all three, or none.",
        )
    coordinator, count, number = (variables[name] for name in VARIABLES)
    if not count.isdecimal() or not number.isdecimal():
        raise complain(
            ValueError,
            f"{NUM_PROCESSES}={count!r} and {PROCESS_ID}={number!r} in the environment are not "
            "both numbers.",
            remedy="Set how many processes there are, and which one this is, from 0.",
        )
    return coordinator, int(count), int(number)


def wait_for_all() -> None:
    """Until every process is here."""
    if jax.process_count() > 1:
        multihost_utils.sync_global_devices("dendrax.train")


@contextmanager
def together() -> Iterator[None]:
    """While processes compute together: an error of the connection is told for what it is."""
    try:
        with watching():
            yield
    except Exception as problem:
        if is_ours(problem) or not is_of_connection(problem):
            raise
        atexit.register(leave)  # JAX would wait for the lost one, for minutes
        raise complain(
            RuntimeError,
            f"process {jax.process_index()} of {jax.process_count()} has lost another one: it has "
            f"died, or cannot be reached ({_first_line(problem)}).",
            remedy=RESUME,
        ) from problem


def all_agree(fine: bool) -> bool:
    """Whether it is so in every process."""
    if jax.process_count() == 1:
        return fine
    return bool(np.all(multihost_utils.process_allgather(np.asarray(fine))))


def _first_line(problem: Exception) -> str:
    return (str(problem).strip().splitlines() or [type(problem).__name__])[0][:200]


_SIGNS = ("gloo", "connection", "unavailable", "deadline", "heartbeat", "barrier", "socket")
# How XLA's own errors begin, of whatever type Python makes them.
_STATUS = re.compile(
    r"\b(UNAVAILABLE|DEADLINE_EXCEEDED|INTERNAL|UNKNOWN|ABORTED|CANCELLED|FAILED_PRECONDITION): "
)


def is_of_connection(problem: Exception) -> bool:
    """Whether something failed because another process of the run is not there."""
    text = str(problem)
    xlas = isinstance(problem, jax.errors.JaxRuntimeError) or (
        isinstance(problem, ValueError | RuntimeError) and _STATUS.search(text) is not None
    )
    return jax.process_count() > 1 and xlas and any(sign in text.lower() for sign in _SIGNS)
