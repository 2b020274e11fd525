"""The games: all of them step, and a restored game goes on as the saved one."""

import sys

import numpy as np
import pytest

from dendrax.data._atari import GAMES, Atari

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
    with pytest.raises(ValueError, match="frame_skip=0"):
        Atari("Pong", frame_skip=0)
    with pytest.raises(ValueError, match=r"sticky=1\.5 is not a probability"):
        Atari("Pong", sticky=1.5)
    with pytest.raises(ValueError, match="restore: this is a state of Pong, not of Breakout"):
        Atari("Breakout").restore(Atari("Pong").state())


def test_without_ale_py(monkeypatch):
    monkeypatch.setitem(sys.modules, "ale_py", None)
    with pytest.raises(ImportError, match=r'pip install "dendrax\[atari\]"'):
        Atari("Pong")
