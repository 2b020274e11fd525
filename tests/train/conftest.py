"""Training runs in float32 with JAX's own promotion: Optax cannot do with the strict one."""

import pathlib
import shutil
import socket
from collections.abc import Iterator

import jax
import pytest

from tests.train.cases import bits, fit


@pytest.fixture(autouse=True)
def strict_dtypes() -> Iterator[None]:
    with jax.enable_x64(False), jax.numpy_dtype_promotion("standard"):
        yield


@pytest.fixture(scope="session")
def finished(tmp_path_factory):
    """A run of 24 updates, and what it left."""
    folder = tmp_path_factory.mktemp("finished") / "run"
    with jax.enable_x64(False), jax.numpy_dtype_promotion("standard"):
        return folder, bits(fit(folder).model)


@pytest.fixture
def run(finished, tmp_path):
    """A copy of it, to be damaged."""
    return pathlib.Path(shutil.copytree(finished[0], tmp_path / "run"))


@pytest.fixture
def free_port() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return free.getsockname()[1]
