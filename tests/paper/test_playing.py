"""The agent's checkpoints inside a measurement: gone on from if whole, done anew if damaged."""

import shutil

import numpy as np
import pytest

from dendrax import IL, ZIL
from dendrax.paper._playing import _cell
from dendrax.paper._store import Work
from dendrax.paper.agent import Agent, Curve, QSettings, load, save

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
    """Training that only looks: the step of the agent that it would have gone on from, if any."""
    found = []

    def look(settings, *, rule, seed, progress, checkpoint):
        found.append(load(checkpoint, rule=rule).step if checkpoint.exists() else None)
        return Curve(np.zeros(1, np.int64), np.zeros((1, 1)), np.array(["digest"]))

    monkeypatch.setattr("dendrax.paper._playing.train", look)
    return found


def measure(folder, name="Z-IL"):
    return _cell(TINY, name, RULES[name], seed=0).measure(Work(folder))


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    """The checkpoint of an agent of each rule."""
    pytest.importorskip("ale_py")
    folder = tmp_path_factory.mktemp("saved")
    for name, rule in RULES.items():
        agent = Agent(TINY, rule=rule, seed=0)
        agent.play(5)
        save(agent, folder / name / "agent")
    return folder


def test_without_a_checkpoint(train, tmp_path):
    assert measure(tmp_path / "new")["weights"] == ["digest"]
    assert train == [None]


@pytest.mark.parametrize("name", RULES)
def test_a_whole_checkpoint_is_gone_on_from_whatever_the_rule(train, saved, name):
    measure(saved / name, name)
    assert train == [5]


@pytest.mark.parametrize("part", ["state", "record"])
def test_half_a_checkpoint_is_done_anew(train, saved, tmp_path, part):
    shutil.copytree(saved / "Z-IL", tmp_path / "half")
    for file in (tmp_path / "half" / "agent" / "5" / part).rglob("*"):
        if file.is_file():
            file.write_bytes(file.read_bytes()[: file.stat().st_size // 2])
    measure(tmp_path / "half")
    assert train == [None] and not (tmp_path / "half" / "agent").exists()


def test_a_folder_of_something_else_is_done_anew(train, tmp_path):
    (tmp_path / "agent" / "7").mkdir(parents=True)
    (tmp_path / "agent" / "7" / "letter.txt").write_text("dear")
    measure(tmp_path)
    assert train == [None]
