"""How much memory there is; what would not fit is refused before it is taken, with the numbers."""

from __future__ import annotations

import contextlib
import math
import os
import pathlib
from collections.abc import Iterator
from typing import Any

from dendrax.support._errors import complain


def check_memory(what: str, size: int, remedy: str) -> None:
    """Raise ``MemoryError`` if ``what``, arrays of JAX, takes more bytes than there are."""
    import jax  # not above: whoever only wants words and errors need not load it

    if jax.default_backend() == "cpu":  # elsewhere JAX itself keeps count
        check_host_memory(what, size, remedy)


def check_host_memory(what: str, size: int, remedy: str) -> None:
    """The same for arrays of NumPy, which are never elsewhere."""
    available = available_memory()
    if size > available:
        raise complain(
            MemoryError,
            f"{what} would take {in_words(size)}, and {in_words(available)} are available.",
            remedy=remedy,
        )


def check_records(entry: Any, count: int, copies: int = 1) -> None:
    """Raise if a record with so many entries would not fit; how often it is there at a time."""
    check_memory(
        f"a record of {count:,} time steps",
        copies * count * size_of(entry),
        remedy="Take fewer steps, or record less: 'statistics' instead of values and errors, or "
        "'energy'.",
    )


def size_of(tree: Any) -> int:
    """The bytes of all arrays of a tree, or of what they would be."""
    import jax

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


GROUP = pathlib.Path("/sys/fs/cgroup")


def _numbers(file: pathlib.Path) -> dict[str, int]:
    """Lines of a name and a number, as Linux writes them."""
    words = (line.replace(":", " ").split() for line in file.read_text().splitlines())
    return {line[0]: int(line[1]) for line in words if len(line) > 1 and line[1].isdecimal()}


def _limits() -> Iterator[float]:
    with contextlib.suppress(OSError, ValueError, KeyError):
        yield 1024.0 * _numbers(pathlib.Path("/proc/meminfo"))["MemAvailable"]
    with contextlib.suppress(OSError, ValueError, KeyError):
        most = int((GROUP / "memory.max").read_text())
        used = int((GROUP / "memory.current").read_text())
        # Files that were read are in memory only as long as nobody needs the room.
        yield float(most - used + _numbers(GROUP / "memory.stat")["inactive_file"])
    with contextlib.suppress(ImportError, OSError, ValueError, IndexError):
        import resource

        most, _ = resource.getrlimit(resource.RLIMIT_AS)
        if most != resource.RLIM_INFINITY:
            pages = int(pathlib.Path("/proc/self/statm").read_text().split()[0])
            yield float(most - pages * os.sysconf("SC_PAGE_SIZE"))
