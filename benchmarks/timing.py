"""How the benchmarks compile, and how they time two functions against each other."""

import time
from collections.abc import Callable, Sequence
from typing import Any

import jax
import numpy as np
from rich.console import Console
from rich.progress import Progress


def build(function: Callable[..., Any], arguments: Any) -> tuple[Any, float, float]:
    """The compiled function, the seconds to trace and lower it, and the seconds to compile it."""
    start = time.perf_counter()
    lowered = jax.jit(function).lower(*arguments)
    middle = time.perf_counter()
    compiled = lowered.compile()
    return compiled, middle - start, time.perf_counter() - middle


def temporary_bytes(compiled: Any) -> int:
    """The size of XLA's temporary buffers."""
    return compiled.memory_analysis().temp_size_in_bytes


def interleaved(ours: Any, theirs: Any, arguments: Any, seconds: float) -> tuple[float, float, int]:
    """The ratio of medians over interleaved runs, with the order changing each time."""
    for call in (ours, theirs, ours, theirs):
        _seconds(call, arguments)
    times: dict[int, list[float]] = {id(ours): [], id(theirs): []}
    deadline = time.perf_counter() + seconds
    turn = 0
    while time.perf_counter() < deadline or turn < 10:
        for call in (ours, theirs) if turn % 2 else (theirs, ours):
            times[id(call)].append(_seconds(call, arguments))
        turn += 1
    mine, reference = np.median(times[id(ours)]), np.median(times[id(theirs)])
    return float(mine / reference), float(mine), turn


def with_progress(
    console: Console, jobs: Sequence[tuple[str, str]], measure: Callable[[str, str], Any]
) -> list[Any]:
    """What was measured of each job, a workload and a rule, with a bar meanwhile."""
    with Progress(console=console, transient=True) as progress:
        task = progress.add_task("", total=len(jobs))
        found = []
        for workload, rule in jobs:
            progress.update(task, description=f"{workload}: {rule}")
            found.append(measure(workload, rule))
            progress.advance(task)
        return found


def _seconds(call: Any, arguments: Any) -> float:
    start = time.perf_counter()
    jax.block_until_ready(call(*arguments))
    return time.perf_counter() - start
