"""Several processes as one run: who they are, how they find each other, and what if one dies.

The launcher (`dendrax launch`) says it in environment variables. On a cluster JAX finds it out by
itself (Slurm, Open MPI, Kubernetes, Cloud TPU), or the variables are set by hand.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

import jax
from jax.experimental import multihost_utils

from dendrax._errors import complain, is_ours, public
from dendrax.data._arguments import integer

COORDINATOR = "DENDRAX_COORDINATOR"  # host:port of process 0
NUM_PROCESSES = "DENDRAX_NUM_PROCESSES"
PROCESS_ID = "DENDRAX_PROCESS_ID"
VARIABLES = (COORDINATOR, NUM_PROCESSES, PROCESS_ID)
HEARTBEAT = 20  # seconds after which a process that does not answer counts as dead


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
    if cluster:
        jax.distributed.initialize(heartbeat_timeout_seconds=HEARTBEAT)
        return
    if coordinator is None:
        found = _from_environment(os.environ)
        if found is None:
            return
        coordinator, num_processes, process_id = found
    if num_processes is None or process_id is None:
        raise complain(ValueError, "a coordinator needs num_processes and process_id.")
    num_processes = integer("num_processes", num_processes)
    process_id = integer("process_id", process_id, 0, num_processes - 1)
    jax.distributed.initialize(
        coordinator, num_processes, process_id, heartbeat_timeout_seconds=HEARTBEAT
    )


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
        raise complain(ValueError, f"{NUM_PROCESSES}={count!r} and {PROCESS_ID}={number!r}.")
    return coordinator, int(count), int(number)


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
        raise complain(
            RuntimeError,
            f"process {jax.process_index()} of {jax.process_count()} has lost another one: it has "
            f"died, or cannot be reached ({str(problem).strip().splitlines()[0][:200]}).",
            remedy="Start all of them again with resume: the run goes on from its last checkpoint.",
        ) from problem


_SIGNS = ("gloo", "connection", "unavailable", "deadline", "heartbeat", "barrier", "socket")


def is_of_connection(problem: Exception) -> bool:
    """Whether something failed because another process of the run is not there."""
    text = str(problem).lower()
    # XLA's errors come as any of these, with the kind of the error in their text.
    known = isinstance(problem, jax.errors.JaxRuntimeError | ValueError | RuntimeError)
    return jax.process_count() > 1 and known and any(sign in text for sign in _SIGNS)
