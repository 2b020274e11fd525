"""Where and when something was measured."""

import datetime
import os
import pathlib
import platform
from importlib import metadata

PACKAGES = ("dendrax", "jax", "jaxlib", "numpy", "equinox", "optax", "ale-py")


def now() -> str:
    """The date and time, in UTC."""
    return datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%d %H:%M UTC")


def machine() -> str:
    """Processor, cores and system."""
    return f"{_processor()}, {os.cpu_count()} cores, {platform.system()}"


def versions() -> str:
    """Of Python and of the packages that decide the numbers."""
    found = [f"{name} {_version(name)}" for name in PACKAGES]
    return ", ".join([f"Python {platform.python_version()}", *found])


def _version(package: str) -> str:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return "(not installed)"


def _processor() -> str:
    """The processor's own name where Linux tells it."""
    try:
        lines = pathlib.Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.machine()
    names = [line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.machine()
