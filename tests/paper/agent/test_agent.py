"""The whole agent: deterministic, one under all exact rules, the same after an interruption."""

import json
import re
import shutil

import numpy as np
import pytest

import dendrax
from dendrax.models import squared_error_loss
from dendrax.paper._atari import GAMES
from dendrax.paper.agent import Agent, QSettings, load, random_score, save, train, transitions
from dendrax.train._checkpoint import checksum_of_record
from tests.compare import same

pytest.importorskip("ale_py")

QUICK = QSettings(
    "Breakout",
    steps=600,
    hidden_size=32,
    capacity=250,
    warmup=50,
    learn_every=2,
    target_rate=0.05,
    epsilon_steps=300,
    evaluate_every=300,
    evaluate_episodes=2,
    max_steps=120,
)


def _played(steps, settings=QUICK, **options):
    agent = Agent(settings, **options)
    agent.play(steps)
    return agent


def _memory(agent):
    return agent.replay.arrays(), agent.replay.progress


def test_everything_follows_from_the_seed():
    first, again, other = (_played(150, seed=seed) for seed in (1, 1, 2))
    assert same(first.state, again.state) and same(_memory(first), _memory(again))
    assert not same(first.state, other.state)


def test_bp_zil_and_jax_are_one_agent():
    """Every weight, Adam's averages and all that was seen, to the last bit, after 300 updates."""
    bp, zil, own = (_played(650, rule=rule) for rule in (dendrax.BP(), dendrax.ZIL(), None))
    assert zil.state.updates == 301
    assert same(bp.state, zil.state) and same(bp.state, own.state)
    assert same(_memory(bp), _memory(zil)) and same(_memory(bp), _memory(own))


def test_il_is_another_agent():
    """So the test above can fail."""
    il = _played(100, rule=dendrax.IL(num_steps=5, gamma=0.1, batch="mean"))
    assert il.state.updates > 0 and not same(il.state, _played(100).state)


@pytest.mark.parametrize(
    ("game", "steps"),
    [("Breakout", 30), ("Breakout", 311), pytest.param("Qbert", 220, marks=pytest.mark.slow)],
)
def test_an_interrupted_agent_goes_on_identically(tmp_path, game, steps):
    settings = QSettings(**{**QUICK.__dict__, "game": game})
    whole, part = _played(400, settings), _played(steps, settings)
    save(part, tmp_path / "agent")
    part.play(5)  # what happens to the old one does not matter
    continued = load(tmp_path / "agent")
    continued.play(400 - steps)
    assert continued.step == whole.step and same(continued.state, whole.state)
    assert same(_memory(continued), _memory(whole))
    assert continued.game.state() == whole.game.state()
    np.testing.assert_array_equal(continued.window, whole.window)
    np.testing.assert_array_equal(continued.evaluate(), whole.evaluate())
    assert [path.name for path in (tmp_path / "agent").iterdir()] == [str(steps)]


@pytest.mark.slow
def test_bfloat16_is_saved_too(tmp_path):
    agent = _played(60, QSettings(**{**QUICK.__dict__, "dtype": "bfloat16"}))
    save(agent, tmp_path / "agent")
    assert same(load(tmp_path / "agent").state, agent.state)


def test_an_interrupted_run_goes_on_identically(tmp_path):
    path, heard = tmp_path / "run", []
    whole = train(QUICK, progress=heard.append)
    assert [point.step for point in heard] == whole.steps.tolist() == [0, 300, 600]
    assert whole.scores.shape == (3, 2) and whole.means.shape == (3,)

    def stop(point):
        if point.step == 300:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        train(QUICK, progress=stop, checkpoint=path)
    assert same(train(QUICK, checkpoint=path), whole)
    assert same(train(QUICK, checkpoint=path), whole)  # nothing is left to do
    longer = train(QSettings(**{**QUICK.__dict__, "steps": 700}), checkpoint=path)
    assert longer.steps.tolist() == [0, 300, 600, 700]
    problem = r"train: .*run holds a run of 700 steps, and steps=600\.\n.*Ask for more"
    with pytest.raises(ValueError, match=problem):
        train(QUICK, checkpoint=path)


def test_another_agent_is_not_gone_on_from(tmp_path):
    path = tmp_path / "run"
    save(_played(30), path)
    with pytest.raises(ValueError, match=r"has rule = .ZIL\(.*\)., and this run has .BP"):
        load(path, rule=dendrax.BP())
    with pytest.raises(ValueError, match=r"run/30 is the checkpoint of another run: it has seed"):
        train(QUICK, seed=3, checkpoint=path)
    with pytest.raises(ValueError, match=r"of another run: it has window = 4, and this run has 5"):
        train(QSettings(**{**QUICK.__dict__, "window": 5}), checkpoint=path)
    with pytest.raises(ValueError, match=r"after 30 updates, so that none after 20"):
        save(_played(20), path)
    for nowhere in (tmp_path / "nowhere", tmp_path):
        with pytest.raises(FileNotFoundError, match=r"load: there is no agent in "):
            load(nowhere)


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    path = tmp_path_factory.mktemp("saved") / "agent"
    save(_played(30), path)
    return path


@pytest.fixture
def copy(saved, tmp_path):
    return shutil.copytree(saved, tmp_path / "agent")


def _refused(path, why=""):
    problem = rf"load: {re.escape(str(path))} holds no whole agent(?s:.*){why}(?s:.*)train anew"
    with pytest.raises(ValueError, match=problem):
        load(path)


def test_damaged_files(copy):
    for file in (copy / "30" / "state").rglob("d/*"):
        file.write_bytes(file.read_bytes()[:-20])
    _refused(copy, "its state cannot be read")


SPOILT = {
    "no notes": lambda notes: None,
    "a list": lambda notes: [],
    "no step": lambda notes: notes | {"step": None},
    "a negative step": lambda notes: notes | {"step": -1},
    "no seed": lambda notes: notes | {"seed": "one"},
    "no updates": lambda notes: notes | {"updates": 1.5},
    "other settings": lambda notes: notes | {"settings": {"colour": "red"}},
    "wrong settings": lambda notes: notes | {"settings": {"window": -1}},
    "no settings": lambda notes: notes | {"settings": 3},
    "no generator": lambda notes: notes | {"explorer": {}},
    "half a generator": lambda notes: notes | {"drawer": {"bit_generator": "PCG64"}},
    "no console": lambda notes: notes | {"console": "00" * 9},
    "a console of words": lambda notes: notes | {"console": "on"},
    "no replay": lambda notes: notes | {"replay": [0]},
    "a negative count": lambda notes: notes | {"replay": [-5, 0]},
    "half a curve": lambda notes: notes | {"curve": {"steps": [0]}},
    "a curve without scores": lambda notes: (
        notes | {"curve": {"steps": [0], "scores": [], "weights": ["a"]}}
    ),
}


@pytest.mark.parametrize("spoil", SPOILT.values(), ids=SPOILT)
def test_notes_that_somebody_has_edited(copy, spoil):
    file = copy / "30" / "record" / "metadata"
    record = json.loads(file.read_text())
    record["notes"] = spoil(record["notes"])
    record["checksum"] = checksum_of_record(record)
    file.write_text(json.dumps(record))
    _refused(copy, "its notes are not those of an agent")


def test_an_agent_of_another_size(copy):
    """Its own settings say what its arrays must be."""
    file = copy / "30" / "record" / "metadata"
    record = json.loads(file.read_text())
    record["notes"]["settings"]["hidden_size"] = 16
    record["checksum"] = checksum_of_record(record)
    file.write_text(json.dumps(record))
    with pytest.raises(ValueError, match="another model or optimizer"):
        load(copy)


@pytest.mark.parametrize("seed", [-1, 2**32, 1.5, None, True])
def test_wrong_seeds(seed):
    problem = f"seed={seed!r} must be an integer from 0 to 4294967295"
    with pytest.raises(ValueError, match=f"Agent: {problem}"):
        Agent(QUICK, seed=seed)
    with pytest.raises(ValueError, match=f"train: {problem}"):
        train(QUICK, seed=seed)


def test_the_largest_seed_of_numpy(tmp_path):
    save(Agent(QUICK, seed=np.uint32(2**32 - 1)), tmp_path / "agent")
    assert load(tmp_path / "agent").seed == 2**32 - 1


@pytest.mark.parametrize("steps", [-1, 1.5, "10"])
def test_wrong_numbers_of_steps(steps):
    agent = Agent(QUICK)
    problem = rf"Agent\.play: steps={steps!r} must be an integer, at least 0"
    with pytest.raises(ValueError, match=problem):
        agent.play(steps)
    agent.play(0)
    assert agent.step == 0


def test_the_agent_sees_what_it_remembers():
    """The window that it acts on is the window that it will learn from."""
    agent, windows = Agent(QUICK), []
    for _ in range(200):
        windows.append(agent.window)
        agent.play(1)
    first, last = agent.replay.sampled_range()
    batch = agent.replay.take(np.arange(first, last))
    np.testing.assert_array_equal(batch.windows, np.stack(windows[first:last]))
    assert batch.over.any()
    alive = ~batch.over
    np.testing.assert_array_equal(
        batch.next_windows[alive], np.stack(windows[QUICK.horizon :])[first:last][alive]
    )


def test_a_lost_life_ends_an_episode():
    def ends(life_ends):
        options = {"life_ends": life_ends, "warmup": 1000}  # it only plays
        agent = _played(200, QSettings(**{**QUICK.__dict__, **options}))
        return _memory(agent)[0]["over"].sum()

    assert ends(True) > ends(False)


@pytest.mark.parametrize(
    "game",
    [game if game == "Qbert" else pytest.param(game, marks=pytest.mark.slow) for game in GAMES],
)
def test_real_transitions(game):
    batch = transitions(game, batch=8, window=3, steps=60, seed=1)
    assert batch.inputs.shape == (8, 3, 128) and batch.target.shape == (8, 128)
    assert batch.inputs.dtype == batch.target.dtype == np.float32
    assert batch.inputs.min() >= -1 and batch.inputs.max() <= 1
    assert dendrax.check(squared_error_loss, *batch).exact


def test_transitions_follow_from_the_seed():
    first, again, other = (transitions("Qbert", steps=60, seed=seed) for seed in (1, 1, 2))
    assert same(first, again) and not same(first, other)


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"batch": 0}, "batch=0 must be an integer, at least 1"),
        ({"window": -1}, "window=-1 must be an integer, at least 1"),
        ({"steps": 1}, "steps=1 must be an integer, at least 2"),
        ({"epsilon": 1.5}, r"epsilon=1\.5 must be a number from 0 to 1"),
        ({"game": "Chess"}, "unknown game 'Chess'"),
        ({"seed": -1}, "seed=-1 must be an integer from 0"),
        ({"dtype": "int8"}, "dtype='int8' is not known"),
    ],
)
def test_wrong_transitions(wrong, message):
    """The errors speak of what was passed, and not of what is made of it."""
    with pytest.raises(ValueError, match=f"dendrax.paper.agent.transitions: {message}"):
        transitions(**{"game": "Qbert", **wrong})


def test_the_fewest_transitions():
    assert transitions("Qbert", batch=2, window=4, steps=2).inputs.shape == (2, 4, 128)


def test_evaluation_is_apart_from_training():
    agent, whole = _played(100), _played(150)
    np.testing.assert_array_equal(agent.evaluate(), agent.evaluate())
    agent.play(50)
    assert same(agent.state, whole.state)


def test_later_evaluations_are_other_games(monkeypatch):
    seeds = []
    monkeypatch.setattr(
        "dendrax.paper.agent._play.evaluate", lambda *args, seed, **options: seeds.append(seed)
    )
    agent = Agent(QUICK)
    agent.evaluate()
    agent.play(1)
    agent.evaluate()
    assert len(set(seeds)) == 2


def test_random_scores():
    scores = random_score("Breakout", episodes=3, seed=1, max_steps=100)
    assert scores.shape == (3,) and (scores >= 0).all()
    np.testing.assert_array_equal(scores, random_score("breakout", 3, 1, max_steps=100))
    for episodes in (0, -1, 1.5):
        problem = f"random_score: episodes={episodes} must be an integer, at least 1"
        with pytest.raises(ValueError, match=problem):
            random_score("Breakout", episodes)
    with pytest.raises(ValueError, match=r"(?s)random_score: unknown game 'Chess'.*The games are"):
        random_score("Chess")
    with pytest.raises(ValueError, match="random_score: seed=-1 must be an integer from 0 to"):
        random_score("Breakout", seed=-1)
    with pytest.raises(ValueError, match="random_score: max_steps=0 must be an integer"):
        random_score("Breakout", max_steps=0)
