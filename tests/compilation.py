"""How programs are compiled in the tests, and where they are kept.

Which tests are compiled quickly, by `make test`: those that claim nothing about the last bits of
programs that differ. Without most of XLA's optimizations, they take three quarters of the time.
`make test-all` compiles everything as users do.

Programs are kept in the checkout, so that the second run of the tests takes a third of the time of
the first. JAX finds a program by its text, its settings and the version of jaxlib, so a change to
dendrax that changes a program compiles it anew. Processors that differ do not share a folder. An
entry that cannot be read (its writer was killed) is compiled again: JAX warns, and pyproject.toml
lets it.
"""

import hashlib
import pathlib
import platform

import jax

ROOT = pathlib.Path(__file__).resolve().parents[1]


def cache_folder() -> str:
    """A folder for this kind of processor."""
    info = pathlib.Path("/proc/cpuinfo")
    lines = info.read_text().splitlines() if info.exists() else []
    kind = {line for line in lines if line.startswith(("model name", "flags", "Features"))}
    name = hashlib.sha256(repr((platform.platform(), sorted(kind))).encode()).hexdigest()[:12]
    return str(ROOT / ".cache" / "jax" / name)


QUICK = (
    "cli",
    "draw",
    "models",
    "paper/test_page.py",
    "paper/test_pictures.py",
    "paper/test_report.py",
    "placement/test_relaxation.py",
    "train/test_checkpoint.py",
    "train/test_code.py",
    "train/test_folder.py",
    "train/test_load.py",
    "train/test_plan.py",
    "test_audit.py",
    "test_contraction.py",
    "test_convolution.py",
    "test_dynamics.py",
    "test_records.py",
    "test_relax.py",
    "test_relax_results.py",
    "test_vertices.py",
)


def is_quick(path: pathlib.Path) -> bool:
    """Whether the tests of a file may be compiled quickly."""
    below = path.relative_to(ROOT / "tests")
    return below.as_posix() in QUICK or below.parts[0] in QUICK


def compile_quickly(quickly: bool) -> None:
    """From here on. What was compiled in the other way is forgotten."""
    if jax.config.read("jax_disable_most_optimizations") != quickly:
        jax.config.update("jax_disable_most_optimizations", quickly)
        jax.clear_caches()
