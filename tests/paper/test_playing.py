"""The agent's checkpoints inside a measurement: gone on from if whole, done anew if damaged."""

import numpy as np
import pytest

from dendrax import IL, ZIL
from dendrax.paper._playing import _cell
from dendrax.paper._store import Work
from dendrax.paper.agent import Agent, Curve, QSettings, save

TINY = QSettings(
    "Breakout",
    steps=40,
    hidden_size=2,
    out_size=18,
    batch_size=2,
    capacity=20,
    warmup=10,
    evaluate_every=20,
    evaluate_episodes=1,
    max_steps=20,
)
RULES = {"BP": None, "Z-IL": ZIL(), "IL": IL(num_steps=20, gamma=0.05, batch="mean")}


@pytest.fixture
def train(monkeypatch):
    """Training that only looks: the checkpoints that it would have gone on from."""
    found = []

    def look(settings, *, rule, seed, progress, checkpoint):
        found.append(checkpoint.read_bytes() if checkpoint.exists() else None)
        checkpoint.write_bytes(b"new")
        return Curve(np.zeros(1, np.int64), np.zeros((1, 1)), np.array(["digest"]))

    monkeypatch.setattr("dendrax.paper._playing.train", look)
    return found


def measure(folder, name="Z-IL"):
    return _cell(TINY, name, RULES[name], seed=0).measure(Work(folder))


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    """The checkpoint of an agent of each rule, as bytes."""
    pytest.importorskip("ale_py")
    path, contents = tmp_path_factory.mktemp("saved") / "agent.npz", {}
    for name, rule in RULES.items():
        save(Agent(TINY, rule=rule, seed=0), path)
        contents[name] = path.read_bytes()
    return contents


def test_without_a_checkpoint(train, tmp_path):
    assert measure(tmp_path / "new")["weights"] == ["digest"]
    assert train == [None]


@pytest.mark.parametrize("content", [b"", b"no archive", b"PK\x03\x04", b"\x93NUMPY\x01\x00"])
def test_what_is_no_checkpoint_is_done_anew(train, tmp_path, content):
    (tmp_path / "agent.npz").write_bytes(content)
    assert measure(tmp_path)["weights"] == ["digest"]
    assert train == [None] and (tmp_path / "agent.npz").read_bytes() == b"new"


def test_an_archive_of_something_else_is_done_anew(train, tmp_path):
    np.savez(tmp_path / "agent.npz", a=np.zeros(3))
    measure(tmp_path)
    assert train == [None]


@pytest.mark.parametrize("name", RULES)
def test_a_whole_checkpoint_is_gone_on_from_whatever_the_rule(train, saved, tmp_path, name):
    (tmp_path / "agent.npz").write_bytes(saved[name])
    measure(tmp_path, name)
    assert train == [saved[name]]


@pytest.mark.parametrize("name", RULES)
def test_half_a_checkpoint_is_done_anew(train, saved, tmp_path, name):
    (tmp_path / "agent.npz").write_bytes(saved[name][: len(saved[name]) // 2])
    measure(tmp_path, name)
    assert train == [None]


def test_an_archive_that_lacks_a_part_is_done_anew(train, saved, tmp_path):
    path = tmp_path / "agent.npz"
    path.write_bytes(saved["Z-IL"])
    with np.load(path) as arrays:
        parts = dict(arrays)
    lacking = list(parts)[::8]
    for name in lacking:
        np.savez(path, allow_pickle=False, **{k: v for k, v in parts.items() if k != name})
        measure(tmp_path)
    assert len(lacking) > 3 and train == [None] * len(lacking)


WRONG_BITS = {
    "of a version to come": (b"PK\x01\x02", 6, 0x40),
    "encrypted": (b"PK\x01\x02", 8, 0x01),
    "compressed as nobody can": (b"PK\x01\x02", 10, 0x40),
    "a shape without an end": (b"'shape': ()", 10, 0x01),
    "a number": (b"PK\x01\x02", -1, 0x01),
}


@pytest.mark.parametrize("name", WRONG_BITS)
def test_one_wrong_bit_is_enough(train, saved, tmp_path, name):
    """Python's reader of archives has a different error for each."""
    place, offset, bit = WRONG_BITS[name]
    content = bytearray(saved["Z-IL"])
    content[content.index(place) + offset] ^= bit
    (tmp_path / "agent.npz").write_bytes(content)
    measure(tmp_path)
    assert train == [None]
