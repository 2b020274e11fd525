"""Where the tests, and the processes that they start, keep compiled programs.

In the checkout, so that the second run of the tests takes a third of the time of the first. JAX
finds a program by its text, its settings and the version of jaxlib, so a change to dendrax that
changes a program compiles it anew. Processors that differ do not share a folder. An entry that
cannot be read (its writer was killed) is compiled again: JAX warns, and pyproject.toml lets it.
"""

import hashlib
import pathlib
import platform

ROOT = pathlib.Path(__file__).resolve().parents[1]


def cache_folder() -> str:
    """A folder for this kind of processor."""
    info = pathlib.Path("/proc/cpuinfo")
    lines = info.read_text().splitlines() if info.exists() else []
    kind = {line for line in lines if line.startswith(("model name", "flags", "Features"))}
    name = hashlib.sha256(repr((platform.platform(), sorted(kind))).encode()).hexdigest()[:12]
    return str(ROOT / ".cache" / "jax" / name)
