"""Every test runs in float64 with strict dtype promotion, and with every graph checked."""

import os

# Before jax is imported: two devices for the sharding tests, and graphs checked after tracing.
os.environ.setdefault("XLA_FLAGS", "--xla_force_host_platform_device_count=2")
os.environ["DENDRAX_ENABLE_CHECKS"] = "1"

from collections.abc import Iterator

import jax
import pytest


@pytest.fixture(autouse=True)
def strict_dtypes() -> Iterator[None]:
    with jax.enable_x64(True), jax.numpy_dtype_promotion("strict"):
        yield


@pytest.fixture
def no_leaks() -> Iterator[None]:
    """Any tracer that outlives its trace is an error."""
    with jax.checking_leaks():
        yield
