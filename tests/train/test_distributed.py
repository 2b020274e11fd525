"""How processes find each other: who listens where, and what is said if they do not."""

import os
import subprocess
import sys

import jax
import pytest

from dendrax import train
from dendrax._compat import ClusterEnv
from dendrax.train import _distributed
from tests.train.launcher import in_two, with_mpiexec


@pytest.fixture(autouse=True)
def joined(monkeypatch):
    """What JAX is asked for; nobody is joined, and no launcher is there."""
    asked = {}

    def initialize(*peers, **settings):
        asked.update(settings, peers=peers)

    monkeypatch.setattr(jax.distributed, "initialize", initialize)
    monkeypatch.setattr(sys, "excepthook", sys.excepthook)  # to be as before
    for name in os.environ:
        if name.startswith(_distributed._LAUNCHED):
            monkeypatch.delenv(name)
    return asked


def run(program, *words, processes=1, **variables):
    """A program in a process of its own, or in two."""
    command = [sys.executable, "-c", program, *words]
    return subprocess.run(
        in_two(command) if processes == 2 else command,
        env={**os.environ, **variables},
        capture_output=True,
        text=True,
        timeout=60,
    )


@pytest.mark.parametrize("host", ["localhost", "127.0.0.1", "127.0.1.1", "[::1]"])
def test_on_one_machine_the_coordinator_listens_on_loopback(joined, host):
    train.connect(f"{host}:4321", 2, 0)
    assert joined["peers"] == (f"{host}:4321", 2, 0, None)
    assert joined["coordinator_bind_address"] == f"{host}:4321"


@pytest.mark.parametrize("host", ["node7", "10.0.0.7", "node.localhost.example"])
def test_on_several_it_listens_as_jax_does(joined, host):
    train.connect(f"{host}:4321", 2, 0)
    assert joined["coordinator_bind_address"] is None


SLURM = {
    "SLURM_JOB_ID": "4321",
    "SLURM_NTASKS": "4",
    "SLURM_PROCID": "3",
    "SLURM_LOCALID": "1",
    "SLURM_STEP_NODELIST": "node[7-8]",
}


@pytest.mark.parametrize(("nodes", "host"), [("2", "node7"), ("1", "127.0.0.1")])
@pytest.mark.parametrize("method", [None, "slurm"])
def test_slurm_says_who_is_who(joined, monkeypatch, nodes, host, method):
    """On one node all of it stays on the loopback interface."""
    for name, value in {**SLURM, "SLURM_STEP_NUM_NODES": nodes}.items():
        monkeypatch.setenv(name, value)
    train.connect(method=method)
    address, *rest = joined["peers"]
    assert address.startswith(f"{host}:") and rest == [4, 3, [1]]
    assert joined["coordinator_bind_address"] == (address if nodes == "1" else None)


def test_two_processes_of_open_mpi_on_one_host(joined, monkeypatch):
    local = {"OMPI_COMM_WORLD_SIZE": "2", "OMPI_COMM_WORLD_RANK": "1"}
    local |= {"OMPI_COMM_WORLD_LOCAL_SIZE": "2", "OMPI_COMM_WORLD_LOCAL_RANK": "1"}
    local |= {"OMPI_MCA_orte_hnp_uri": "1531576320.0;tcp://10.96.0.1,10.148.0.1:34911"}
    for name, value in local.items():
        monkeypatch.setenv(name, value)
    train.connect()
    address, *rest = joined["peers"]
    assert address.startswith("127.0.0.1:") and rest == [2, 1, [1]]


@pytest.mark.parametrize("method", [None, "slurm", "mpi4py"])
def test_without_a_launcher(method):
    if method == "mpi4py":
        pytest.importorskip("mpi4py")
    with pytest.raises(RuntimeError, match=r"no launcher started this process.*\n.*mpiexec -n 2"):
        train.connect(method=method)


def test_a_launcher_that_jax_does_not_know():
    with pytest.raises(ValueError, match=r"no launcher 'slrum'\. Did you mean 'slurm'\?\n.*ompi"):
        train.connect(method="slrum")


def test_mpi4py_is_missing(monkeypatch):
    (env,) = [env for env in ClusterEnv._cluster_types if env.name == "mpi4py"]
    monkeypatch.setattr(env, "is_env_present", lambda: False)
    monkeypatch.setenv("PMI_RANK", "0")
    with pytest.raises(ImportError, match=r"mpi4py is not installed(.|\n)*pip install mpi4py"):
        train.connect(method="mpi4py")


def test_a_launcher_whose_variables_are_none(monkeypatch):
    for name, value in {**SLURM, "SLURM_NTASKS": "many"}.items():
        monkeypatch.setenv(name, value)
    with pytest.raises(RuntimeError, match=r"does not say who is who \(invalid literal"):
        train.connect()


@pytest.mark.parametrize(
    ("said", "text"),
    [
        ({"coordinator": "host:1"}, "go together"),
        ({"process_id": 0}, "go together"),
        ({"method": "slurm", "process_id": 0}, "'slurm' says who is who, and 0 was said, too"),
        ({"coordinator": "host", "num_processes": 2, "process_id": 0}, "is not an address"),
        ({"coordinator": "host:1", "num_processes": 2, "process_id": 2}, "from 0 to 1"),
        ({"coordinator": "host:1", "num_processes": 0, "process_id": 0}, "num_processes=0 must"),
    ],
)
def test_peers_that_do_not_fit(said, text):
    with pytest.raises(ValueError, match=text):
        train.connect(**said)


def test_joining_fails(monkeypatch):
    def fail(*_, **__):
        raise RuntimeError("the port is taken\nand more")

    monkeypatch.setattr(jax.distributed, "initialize", fail)
    with pytest.raises(RuntimeError, match=r"process 0 of 2 cannot join.*\(the port is taken\)"):
        train.connect("localhost:4321", 2, 0)


ALONE = """
from dendrax.train import _distributed, connect
import sys
_distributed.PATIENCE = 1
connect(f"127.0.0.1:{sys.argv[1]}", 2, int(sys.argv[2]))
"""


@pytest.mark.parametrize("index", ["0", "1"])
def test_a_peer_that_never_comes(index, free_port):
    done = run(ALONE, str(free_port), index)
    assert done.returncode == 1 and len(done.stderr.splitlines()) == 2, done.stderr
    assert f"process {index} of 2 has waited 1 seconds for the others" in done.stderr


TWO = """
from dendrax import train
train.connect(method="mpi4py")
import jax
assert jax.process_count() == 2 and jax.device_count() == 2
if jax.process_index() == 1:
    raise ValueError("of one alone")
from jax.experimental import multihost_utils
multihost_utils.sync_global_devices("never")
"""


@with_mpiexec
def test_one_that_fails_ends_the_job():
    """Its own traceback is there, and the other does not wait for it."""
    done = run(
        TWO.replace("from dendrax._compat import jax_coordinator\n", ""), processes=2, XLA_FLAGS=""
    )
    assert done.returncode == 1
    assert "ValueError: of one alone" in done.stderr


LISTENING = """
from dendrax import train
train.connect(method="mpi4py")
import jax, pathlib
port = jax._src.distributed.global_state.coordinator_address.rpartition(":")[2]
lines = [line.split() for name in ("tcp", "tcp6") for line in open(f"/proc/net/{name}")]
found = [words[1] for words in lines if words[3] == "0A" and int(words[1][-4:], 16) == int(port)]
assert found and all(place.endswith(f"0100007F:{int(port):04X}") for place in found), found
"""


@with_mpiexec
def test_on_one_host_nobody_else_reaches_the_coordinator():
    done = run(LISTENING, processes=2)
    assert done.returncode == 0, done.stderr
