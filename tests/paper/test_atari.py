"""The games: all of them step, and a restored game goes on as the saved one."""

import json
import sys

import numpy as np
import pytest

from dendrax.paper._atari import GAMES, Atari

pytest.importorskip("ale_py")


def _play(game, steps, seed):
    generator, seen = np.random.default_rng(seed), []
    for _ in range(steps):
        observation, reward, over = game.step(int(generator.integers(game.num_actions)))
        seen.append((observation.tobytes(), reward, over))
        if over:
            seen.append(game.reset().tobytes())
    return seen


@pytest.mark.parametrize("name", GAMES)
def test_every_game_steps(name):
    game = Atari(name, seed=1)
    observation = game.reset()
    assert observation.shape == (128,) and observation.dtype == np.uint8
    assert 3 <= game.num_actions <= 18
    for action in range(game.num_actions):
        observation, reward, over = game.step(action)
        assert observation.shape == (128,) and observation.dtype == np.uint8
        assert isinstance(reward, float) and over is False


@pytest.mark.parametrize("name", GAMES)
def test_a_restored_game_goes_on_identically(name):
    """Through sticky actions and the end of a game, whatever the other console did before."""
    game = Atari(name, seed=1, max_steps=150)
    game.reset()
    _play(game, 100, seed=0)
    state = game.state()
    expected = _play(game, 120, seed=1)
    other = Atari(name, seed=2, max_steps=150)
    other.reset()
    _play(other, 37, seed=2)
    other.restore(state)
    assert other.state() == state
    assert _play(other, 120, seed=1) == expected


@pytest.mark.parametrize("name", GAMES)
def test_every_reset_is_the_same(name):
    """Without sticky actions a game follows from its actions alone, and not from those before."""
    game = Atari(name, sticky=0)
    first = [game.reset().tobytes(), *_play(game, 50, seed=0)]
    _play(game, 150, seed=1)
    assert [game.reset().tobytes(), *_play(game, 50, seed=0)] == first


def test_seeds_decide():
    def play(seed):
        game = Atari("Breakout", seed=seed)
        game.reset()
        return _play(game, 200, seed=0)

    assert play(1) == play(1) != play(2)


def test_max_steps_ends_a_game():
    game = Atari("Enduro", max_steps=3)
    game.reset()
    assert [game.step(0)[2] for _ in range(3)] == [False, False, True]
    game.reset()
    assert game.step(0)[2] is False


def test_frame_skip_and_rewards():
    """Four frames of one console are four steps of another."""
    slow, fast = Atari("Seaquest", frame_skip=1, sticky=0), Atari("Seaquest", sticky=0)
    slow.reset(), fast.reset()
    for action in np.random.default_rng(0).integers(18, size=300):
        frames = [slow.step(action) for _ in range(4)]
        observation, reward, _ = fast.step(action)
        np.testing.assert_array_equal(observation, frames[-1][0])
        assert reward == sum(points for _, points, _ in frames)


def test_it_is_quiet(capfd):
    Atari("Pong").reset()
    assert capfd.readouterr() == ("", "")


@pytest.mark.parametrize("name", ["spaceinvaders", "SPACE_INVADERS", "Space Invaders"])
def test_spelling_does_not_matter(name):
    assert Atari(name).game == "SpaceInvaders"


def test_wrong_games_and_settings():
    with pytest.raises(ValueError, match=r"(?s)Atari: unknown game 'Brekout'.*mean Breakout\?"):
        Atari("Brekout")
    with pytest.raises(ValueError, match="The games are: Breakout, Pong, SpaceInvaders"):
        Atari("Chess")
    for nothing in (None, 3, ""):
        problem = rf"(?s)Atari: unknown game {nothing!r}.*The games are: Breakout, Pong"
        with pytest.raises(ValueError, match=problem):
            Atari(nothing)
    with pytest.raises(ValueError, match="Atari: frame_skip=0 must be an integer, at least 1"):
        Atari("Pong", frame_skip=0)
    with pytest.raises(ValueError, match=r"max_steps=2\.5 must be an integer"):
        Atari("Pong", max_steps=2.5)
    for sticky in (-0.1, 1, 1.5, float("nan"), "no", True):
        with pytest.raises(ValueError, match=f"sticky={sticky!r} must be a number at least 0"):
            Atari("Pong", sticky=sticky)
    for seed in (-1, 2**32, 0.5, None):
        with pytest.raises(ValueError, match=f"seed={seed!r} must be an integer from 0 to 4294967"):
            Atari("Pong", seed=seed)


@pytest.mark.parametrize("action", [-1, 4, 255, 256, 1.0, None, True, "1"])
def test_a_wrong_action_leaves_no_trace(action):
    """What was done is played again by `restore`: it must be possible."""
    game = Atari("Breakout", seed=1)
    game.step(1)
    before = game.state()
    problem = rf"Atari\.step: action={action!r} must be an integer from 0 to 3\."
    with pytest.raises(ValueError, match=problem):
        game.step(action)
    assert game.state() == before


def _states():
    """Each spoilt in one way."""
    header, frames = Atari("Breakout", seed=1).state().split(b"\n", 1)
    game, step, generator = json.loads(header)
    wrong = {
        "not three": [game, step],
        "no game": [None, step, generator],
        "no step": [game, "one", generator],
        "no generator": [game, step, None],
        "another generator": [game, step, {**generator, "bit_generator": "MT19937"}],
        "half a generator": [game, step, {"bit_generator": generator["bit_generator"]}],
        "a large number": [game, step, {**generator, "uinteger": 2**99}],
    }
    states = {name: json.dumps(parts).encode() + b"\n" + frames for name, parts in wrong.items()}
    whole = {"nothing": b"", "noise": bytes(range(256)), "text": "text", "none": None}
    return {**states, **whole, "no header": b"\n" + frames, "half a header": header[:9] + b"\n"}


@pytest.mark.parametrize("state", _states().values(), ids=_states())
def test_garbage_is_not_restored(state):
    game = Atari("Breakout", seed=1)
    game.step(1)
    before = game.state()
    problem = r"(?s)Atari\.restore: this is no state of a game.*Pass what state\(\) returned"
    with pytest.raises(ValueError, match=problem):
        game.restore(state)
    assert game.state() == before and game.step(0)


def test_states_of_other_games_are_not_restored():
    game = Atari("Breakout")
    with pytest.raises(ValueError, match="restore: this is a state of Pong, not of Breakout"):
        game.restore(Atari("Pong").state())
    with pytest.raises(ValueError, match="restore: this state holds actions that Breakout does no"):
        game.restore(game.state() + bytes([4]))


def test_without_ale_py(monkeypatch):
    monkeypatch.setitem(sys.modules, "ale_py", None)
    with pytest.raises(
        ImportError, match=r"needs what is not installed(.|\n)*pip install 'ale-py>="
    ):
        Atari("Pong")
