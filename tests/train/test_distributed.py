"""How processes find each other: who listens where."""

import sys

import jax
import pytest

from dendrax import train
from dendrax.train import _distributed
from dendrax.train._distributed import _is_loopback


@pytest.fixture
def joined(monkeypatch):
    """What JAX is asked for; nobody is joined."""
    asked = {}

    def initialize(*who, **settings):
        asked.update(settings, who=who)

    monkeypatch.setattr(jax.distributed, "initialize", initialize)
    monkeypatch.setattr(_distributed, "explain_aborts", lambda: None)
    for name in _distributed.VARIABLES:
        monkeypatch.delenv(name, raising=False)
    return asked


@pytest.mark.parametrize("host", ["localhost", "127.0.0.1", "127.0.1.1", "[::1]"])
def test_on_one_machine_the_coordinator_listens_on_loopback(joined, host):
    train.connect(f"{host}:4321", 2, 0)
    assert joined["who"] == (f"{host}:4321", 2, 0)
    assert joined["coordinator_bind_address"] == f"{host}:4321"


@pytest.mark.parametrize("host", ["node7", "10.0.0.7", "node.localhost.example"])
def test_on_several_it_listens_as_jax_does(joined, host):
    train.connect(f"{host}:4321", 2, 0)
    assert joined["coordinator_bind_address"] is None


def test_a_cluster_is_left_to_jax(joined):
    train.connect(cluster=True)
    assert joined["who"] == () and joined["coordinator_bind_address"] is None


def test_the_launcher_names_loopback(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    program = "import os; open('address', 'w').write(os.environ['DENDRAX_COORDINATOR'])"
    assert train.launch([sys.executable, "-c", program], 1) == 0
    assert _is_loopback((tmp_path / "address").read_text())
