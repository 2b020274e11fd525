"""What is optional: where it is missing, the words name what to type, and it can be typed."""

import importlib.metadata
import pathlib
import shlex
import subprocess
import sys
import tomllib

import pytest

from dendrax.support import _extras
from dendrax.support._extras import install_command, require_extra, requirements

ROOT = pathlib.Path(__file__).parents[1]
EXTRAS = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]


def test_the_extras_for_users_are_few():
    makefile = {"test", "lint", "bench", "zoo", "dev"}
    assert set(EXTRAS) - makefile == {"models", "train", "draw", "paper", "atari", "nnx"}


@pytest.mark.parametrize("extra", EXTRAS)
def test_requirements_are_those_of_pyproject(extra):
    found = requirements(extra)
    own = [line for line in EXTRAS[extra] if not line.startswith("dendrax[")]
    names = {line.replace(" ", "") for line in found}
    assert {line.split("[")[0].split(">")[0] for line in own} <= {
        name.split("[")[0].split(">")[0].split("<")[0] for name in names
    }
    assert not any(line.startswith("dendrax") for line in found)
    assert all(">=" in line for line in found)


def test_what_is_installed_is_not_named(monkeypatch):
    """Unless everything is: then something else is wrong with it."""
    monkeypatch.setattr(_extras, "requirements", lambda extra: ["numpy>=2.0", "no-such-one>=1"])
    assert install_command("train") == "pip install 'no-such-one>=1'"
    monkeypatch.setattr(_extras, "requirements", lambda extra: ["numpy>=2.0"])
    assert shlex.split(install_command("train")) == ["pip", "install", "numpy>=2.0"]


def test_a_checkout_that_is_not_installed(monkeypatch):
    def missing(name):
        raise importlib.metadata.PackageNotFoundError(name)

    monkeypatch.setattr(importlib.metadata, "requires", missing)
    assert install_command("train") == "pyproject.toml of dendrax lists it, under the extra train."


def test_other_problems_are_left_alone():
    with pytest.raises(ValueError, match="mine"), require_extra("this", "models"):
        raise ValueError("mine")
    with pytest.raises(ImportError, match="cannot import name"), require_extra("this", "models"):
        from dendrax import no_such_name  # noqa: F401  # pyright: ignore


# Which package is missing, and who says so.
MISSING = [
    ("equinox", "dendrax.equinox", "equinox>="),
    ("equinox", "dendrax.models", "equinox>="),
    ("equinox", "dendrax.train", "optax>="),
    ("optax", "dendrax.train", "optax>="),
    ("optax", "dendrax.paper", "optax>="),
    ("flax", "dendrax.nnx", "flax>="),
]


def test_a_missing_package_is_named_with_the_command():
    program = f"""
import importlib, sys
for package, module, _ in {MISSING}:
    sys.modules[package] = None
    try:
        importlib.import_module(module)
    except ImportError as problem:
        print(package, module, repr(str(problem)))
    del sys.modules[package]
"""
    run = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    lines = run.stdout.splitlines()
    for (package, module, named), line in zip(MISSING, lines, strict=True):
        assert line.startswith(f"{package} {module} ")
        assert f"{module} needs what is not installed: " in line
        assert "pip install " in line and named in line


@pytest.mark.parametrize("package", ["typer", "optax", "equinox"])
def test_commands_without_their_packages(package):
    """In a sentence."""
    words = ["train", "--steps", "1"] if package != "typer" else ["--help"]
    program = f"""
import sys; sys.modules[{package!r}] = None
from dendrax.cli import main
sys.argv = ["dendrax", *{words}]
main()
"""
    run = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert run.returncode == 1
    assert "needs what is not installed: " in run.stderr and "pip install " in run.stderr
    assert "Traceback" not in run.stderr


def test_help_imports_nothing_heavy():
    program = """
import sys
from dendrax.cli import main
sys.argv = ["dendrax", "--help"]
try:
    main()
finally:
    heavy = {"optax", "orbax", "equinox", "matplotlib", "flax", "PIL", "ale_py", "dendrax.train"}
    print("HEAVY", sorted(heavy & set(sys.modules)))
"""
    run = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert run.returncode == 0 and "train" in run.stdout
    assert "HEAVY []" in run.stdout
