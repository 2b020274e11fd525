"""Several processes as one run: how they find each other, and what is said if one is lost.

A launcher that JAX knows starts them (Slurm, Open MPI 4, Kubernetes, cloud pods; any MPI, by way of
mpi4py), and ends all of them when one fails. What is here asks JAX who is who, and words errors.
"""

from __future__ import annotations

import atexit
import ipaddress
import os
import re
import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

import jax
import numpy as np
from jax.experimental import multihost_utils

from dendrax._compat import ClusterEnv
from dendrax.support import complain, integer, is_ours, nearest, public

PATIENCE = 120  # seconds in which all processes must have come
HEARTBEAT = 50  # seconds after which JAX ends a run of which one process was stopped
INTERRUPTED = 130  # the exit code of a run that was asked to stop
RESUME = "Start all of them again with resume: the run goes on from its last checkpoint."
_LAUNCHED = ("PMI", "OMPI_", "SLURM_", "MPI_", "FLUX_", "PALS_")  # how a launcher's variables begin


class Peers(NamedTuple):
    """Who is who: the coordinator (process 0), how many there are, and which one this is."""

    coordinator: str
    num_processes: int
    process_id: int
    local_device_ids: Any = None


@public("dendrax.train.connect")
def connect(
    coordinator: str | None = None,
    num_processes: int | None = None,
    process_id: int | None = None,
    *,
    method: str | None = None,
) -> None:
    """Join the other processes of a run. Call it first, before JAX looks for devices.

    Without arguments JAX finds out from the launcher who is who; the launcher ends all processes
    when one of them fails.

    **Arguments:**

    - `coordinator`: `host:port` of process 0, which must be free there; for who has no launcher.
    - `num_processes`, `process_id`: how many there are, and which one this is, from 0.
    - `method`: the launcher, in JAX's words: `"slurm"`, `"ompi"`, ...; `"mpi4py"`, which is for any
      MPI, is used only when it is named.

    !!! example

        ```python
        from dendrax import train

        train.connect(method="mpi4py")  # in a script that is run by: mpiexec -n 2 python script.py
        ```
    """
    said = [value for value in (coordinator, num_processes, process_id) if value is not None]
    if method is not None and said:
        raise complain(
            ValueError,
            f"the launcher {method!r} says who is who, and {said[0]!r} was said, too.",
            remedy="Leave out one or the other.",
        )
    if said:
        _join(_checked(coordinator, num_processes, process_id))
    else:
        _join(_found(method))


def _checked(coordinator: str | None, num_processes: Any, process_id: Any) -> Peers:
    if None in (coordinator, num_processes, process_id):
        raise complain(
            ValueError,
            "coordinator, num_processes and process_id go together.",
            remedy="Say all three, or none of them under a launcher.",
        )
    num_processes = integer("num_processes", num_processes)
    process_id = integer("process_id", process_id, 0, num_processes - 1)
    host, colon, port = str(coordinator).rpartition(":")
    if not host or not colon or not port.isdecimal():
        raise complain(
            ValueError, f"coordinator={coordinator!r} is not an address.", remedy="Write host:port."
        )
    return Peers(str(coordinator), num_processes, process_id)


def _found(method: str | None) -> Peers:
    """From the launcher, as JAX reads it. On one host all is kept on the loopback interface."""
    launched = any(name.startswith(_LAUNCHED) for name in os.environ)
    _check_method(method, launched)
    sys.excepthook = _leave_after  # from here on: the others may wait for this one
    try:
        found = ClusterEnv.auto_detect_unset_distributed_params(
            None, None, None, None, method, PATIENCE
        )
        peers = Peers(*found)  # pyright: ignore[reportArgumentType]
        alone = _is_one_host(method, peers.num_processes)
    except Exception as problem:  # of MPI, of Kubernetes, of the launcher's variables
        raise complain(
            RuntimeError,
            f"the launcher does not say who is who ({_first_line(problem)}).",
            remedy="Look at how it is installed (for mpi4py: pip install mpich, or an MPI of the "
            "system), or say coordinator, num_processes and process_id.",
        ) from problem
    if alone:
        return peers._replace(coordinator=f"127.0.0.1:{peers.coordinator.rpartition(':')[2]}")
    return peers


def _check_method(method: str | None, launched: bool) -> None:
    """Raise unless JAX can find out who is who in this way."""
    known = [env for env in ClusterEnv._cluster_types if env.name or method is None]
    if method is None:
        fitting = [env for env in known if not env.opt_in_only_method and env.is_env_present()]
    else:
        fitting = [env for env in known if env.name == method]
        if not fitting:
            names = [env.name for env in known]
            raise complain(
                ValueError,
                f"JAX knows no launcher {method!r}.{nearest(method, names)}",
                remedy=f"There are: {', '.join(names)}.",
            )
        if method == "mpi4py" and not fitting[0].is_env_present():
            raise complain(
                ImportError,
                "mpi4py is not installed, by which processes under mpiexec find each other.",
                remedy="pip install mpi4py",
            )
    if not any(env.is_env_present() for env in fitting) or (method == "mpi4py" and not launched):
        raise complain(
            RuntimeError,
            "no launcher started this process"
            + (f", as far as {method!r} can tell." if method else " that JAX knows by itself."),
            remedy="Start all processes by one: srun ... --cluster; or mpiexec -n 2 ... --cluster "
            "mpi4py. Without --cluster a run is of one process.",
        )


def _is_one_host(method: str | None, count: int) -> bool:
    """Whether all processes are on this machine, as far as the launcher says."""
    if method == "mpi4py":
        from mpi4py import MPI  # pyright: ignore[reportMissingImports]

        return MPI.COMM_WORLD.Split_type(MPI.COMM_TYPE_SHARED).Get_size() == count
    nodes = os.environ.get("SLURM_STEP_NUM_NODES", os.environ.get("SLURM_NNODES"))
    return os.environ.get("OMPI_COMM_WORLD_LOCAL_SIZE") == str(count) or nodes == "1"


def _join(peers: Peers) -> None:
    sys.excepthook = _leave_after
    # JAX' coordinator asks nobody who they are, and listens on every interface unless told.
    bound = peers.coordinator if _is_loopback(peers.coordinator) else None
    try:
        with _patience(peers):
            jax.distributed.initialize(
                *peers,
                coordinator_bind_address=bound,
                heartbeat_timeout_seconds=HEARTBEAT,
                initialization_timeout=2 * PATIENCE,
            )
    except Exception as problem:
        raise complain(
            RuntimeError,
            f"process {peers.process_id} of {peers.num_processes} cannot join the others at "
            f"{peers.coordinator} ({_first_line(problem)}).",
            remedy="The coordinator is host:port of process 0, and free there. Call connect first, "
            "once, before JAX looks for devices.",
        ) from problem
    if threading.current_thread() is threading.main_thread():
        # JAX has taken SIGTERM to itself, and would do nothing about it.
        signal.signal(signal.SIGTERM, signal.getsignal(signal.SIGTERM))
    with _no_stdout():
        wait_for_all()


@contextmanager
def _patience(peers: Peers) -> Iterator[None]:
    """Leave, with a word, if the others do not come: JAX would abort with a page of C++."""
    said = complain(
        RuntimeError,
        f"process {peers.process_id} of {peers.num_processes} has waited {PATIENCE} seconds for "
        f"the others at {peers.coordinator}, and not all have come.",
        remedy="Start all of them within that time; the coordinator is host:port of process 0.",
    )

    def give_up() -> None:
        sys.stderr.write(f"{said}\n")
        leave()

    timer = threading.Timer(PATIENCE, give_up)
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()


def _leave_after(*problem: Any) -> None:
    """Tell what ended this process, and leave: the usual way out waits for all the others."""
    sys.__excepthook__(*problem)
    leave(INTERRUPTED if problem[0] is KeyboardInterrupt else 1)


def has_peers() -> bool:
    """Whether this process has joined others, or tried to."""
    return sys.excepthook is _leave_after


def leave(code: int = 1) -> None:
    """End this process at once. The launcher then ends the others."""
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


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


def wait_for_all() -> None:
    """Until every process is here."""
    if jax.process_count() > 1:
        multihost_utils.sync_global_devices("dendrax.train")


@contextmanager
def together() -> Iterator[None]:
    """While processes compute together: an error of the connection is told for what it is."""
    try:
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
