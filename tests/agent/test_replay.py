"""What is remembered: against a list of episodes that forgets nothing."""

import numpy as np
import pytest

from dendrax.agent import Replay


def _episodes(generator, count):
    """Observations numbered from 0 (as two bytes), with random ends."""
    over = generator.random(count) < 0.15
    observations = np.arange(count, dtype="<u2").view(np.uint8).reshape(count, 2)
    actions, rewards = generator.integers(18, size=count), generator.normal(size=count)
    return observations, actions, rewards.astype(np.float32), over


def _fill(replay, episodes):
    for observation, action, reward, over in zip(*episodes, strict=True):
        replay.add(observation, int(action), float(reward), bool(over))


def _slow_window(observations, over, index, window):
    """Step back one by one; at an episode's first observation, stay."""
    found = [observations[index]]
    for _ in range(window - 1):
        if index > 0 and not over[index - 1]:
            index -= 1
        found.insert(0, observations[index])
    return np.stack(found)


@pytest.mark.parametrize("window", [1, 2, 5])
@pytest.mark.parametrize("count", [7, 40, 300])
def test_windows_never_cross_an_episodes_border(window, count):
    episodes = _episodes(np.random.default_rng(count), count)
    observations, actions, rewards, over = episodes
    replay = Replay(40, window=window, size=2)
    _fill(replay, episodes)
    first, last = replay.sampled_range()
    assert last == count - 1 and first == (0 if count <= 40 else count - 40 + window - 1)
    batch = replay.take(np.arange(first, last))
    for row, index in enumerate(range(first, last)):
        expected = _slow_window(observations, over, index, window)
        np.testing.assert_array_equal(batch.windows[row], expected)
        assert batch.actions[row] == actions[index] and batch.rewards[row] == rewards[index]
        assert batch.over[row] == over[index]
        following = _slow_window(observations, over, index + 1, window)
        np.testing.assert_array_equal(batch.next_windows[row], following)


@pytest.mark.parametrize("horizon", [1, 2, 5])
def test_rewards_up_to_the_horizon(horizon):
    episodes = _episodes(np.random.default_rng(3), 90)
    observations, _, rewards, over = episodes
    replay = Replay(40, window=2, size=2, horizon=horizon, discount=0.5)
    _fill(replay, episodes)
    first, last = replay.sampled_range()
    assert last == 90 - horizon
    batch = replay.take(np.arange(first, last))
    for row, index in enumerate(range(first, last)):
        ends = next((k for k in range(horizon) if over[index + k]), None)
        steps = horizon if ends is None else ends + 1
        wanted = sum(0.5**k * rewards[index + k] for k in range(steps))
        np.testing.assert_allclose(batch.rewards[row], wanted, rtol=1e-6)
        assert batch.over[row] == (ends is not None)
        if ends is None:
            following = _slow_window(observations, over, index + horizon, 2)
            np.testing.assert_array_equal(batch.next_windows[row], following)


def test_samples_are_spread_over_all_that_is_whole():
    replay = Replay(20, window=3, size=2)
    _fill(replay, _episodes(np.random.default_rng(0), 50))
    batch = replay.sample(np.random.default_rng(1), 2000)
    newest = batch.windows[:, -1].reshape(-1, 2).copy().view("<u2")[:, 0]
    assert set(newest.tolist()) == set(range(32, 49))


def test_saved_and_restored():
    episodes = _episodes(np.random.default_rng(0), 70)
    whole, half = Replay(30, window=4, size=2), Replay(30, window=4, size=2)
    _fill(whole, episodes)
    _fill(half, [part[:41] for part in episodes])
    copy = Replay(30, window=4, size=2)
    copy.restore({name: array.copy() for name, array in half.arrays().items()})
    _fill(copy, [part[41:] for part in episodes])
    for name, array in whole.arrays().items():
        np.testing.assert_array_equal(copy.arrays()[name], array)


def test_too_little_to_sample():
    replay = Replay(30, window=4, size=2)
    replay.add(np.zeros(2, np.uint8), 0, 0.0, False)
    with pytest.raises(ValueError, match=r"Replay\.sample: 1 transitions are too few"):
        replay.sample(np.random.default_rng(0), 2)
