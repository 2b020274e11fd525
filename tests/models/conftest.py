"""Every test here runs with strict dtype promotion, and with float64 available."""

from collections.abc import Iterator

import jax
import pytest


@pytest.fixture(autouse=True)
def strict_dtypes() -> Iterator[None]:
    with jax.enable_x64(True), jax.numpy_dtype_promotion("strict"):
        yield
