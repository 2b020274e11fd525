"""How much memory there is; what would not fit is refused before it is taken, with the numbers."""

from __future__ import annotations

import contextlib
import math
import os
import pathlib
from collections.abc import Iterator
from typing import Any

import jax

from dendrax._errors import complain


def check_memory(what: str, size: int, remedy: str) -> None:
    """Raise ``MemoryError`` if ``what`` takes more bytes than there are."""
    available = available_memory()
    if size > available:
        raise complain(
            MemoryError,
            f"{what} would take {in_words(size)}, and {in_words(available)} are available.",
            remedy=remedy,
        )


def check_records(entry: Any, count: int) -> None:
    """Raise if a record with so many entries would not fit."""
    check_memory(
        f"a record of {count:,} time steps",
        2 * count * size_of(entry),  # twice: it is put together from the loop's and the last entry
        remedy="Take fewer steps, or record less: 'statistics' instead of values and errors, or "
        "'energy'.",
    )


def size_of(tree: Any) -> int:
    """The bytes of all arrays of a tree, or of what they would be."""
    return sum(math.prod(leaf.shape) * leaf.dtype.itemsize for leaf in jax.tree.leaves(tree))


def in_words(size: float) -> str:
    """As people write it: 1.5 GB."""
    size = max(size, 0.0)
    for unit in ("bytes", "kB", "MB", "GB"):
        if size < 1000:
            return f"{size:.3g} {unit}"
        size /= 1000
    return f"{size:,.1f} TB" if size < 1000 else f"{size:.1e} TB"


def available_memory() -> float:
    """Bytes that this process may still take: of the machine, its container and its own limit."""
    return min(_limits(), default=math.inf)


def _limits() -> Iterator[float]:
    with contextlib.suppress(OSError, ValueError, IndexError):
        lines = pathlib.Path("/proc/meminfo").read_text().splitlines()
        yield next(1024.0 * int(x.split()[1]) for x in lines if x.startswith("MemAvailable"))
    with contextlib.suppress(OSError, ValueError, StopIteration):
        group = pathlib.Path("/sys/fs/cgroup")
        most = int((group / "memory.max").read_text())
        yield float(most - int((group / "memory.current").read_text()))
    with contextlib.suppress(ImportError, OSError, ValueError, IndexError):
        import resource

        most, _ = resource.getrlimit(resource.RLIMIT_AS)
        if most != resource.RLIM_INFINITY:
            pages = int(pathlib.Path("/proc/self/statm").read_text().split()[0])
            yield float(most - pages * os.sysconf("SC_PAGE_SIZE"))
