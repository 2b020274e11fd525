"""What is remembered: against a list of episodes that forgets nothing."""

import numpy as np
import pytest

from dendrax.paper.agent import Replay


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
    copy.progress = half.progress
    _fill(copy, [part[41:] for part in episodes])
    for name, array in whole.arrays().items():
        np.testing.assert_array_equal(copy.arrays()[name], array)


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"capacity": 0}, "capacity=0 must be an integer, at least 1"),
        ({"capacity": 9.5}, r"capacity=9\.5 must be an integer"),
        ({"window": 0}, "window=0 must be an integer"),
        ({"window": True}, "window=True must be an integer"),
        ({"size": -2}, "size=-2 must be an integer"),
        ({"horizon": 0}, "horizon=0 must be an integer"),
        ({"discount": 1.5}, r"discount=1\.5 must be a number from 0 to 1"),
        ({"discount": float("nan")}, "discount=nan must be a number"),
        ({"capacity": 5}, "capacity=5 holds no window=4 .* horizon=2 (?s:.*)at least 6"),
    ],
)
def test_wrong_sizes(wrong, message):
    with pytest.raises(ValueError, match=f"dendrax.paper.agent.Replay: {message}"):
        Replay(**{"capacity": 30, "window": 4, "size": 2, "horizon": 2, **wrong})


def test_the_smallest_capacity_holds_one_transition():
    replay = Replay(6, window=4, size=2, horizon=2)
    episodes = _episodes(np.random.default_rng(0), 20)
    _fill(replay, episodes)
    first, last = replay.sampled_range()
    assert (first, last) == (17, 18)
    expected = _slow_window(episodes[0], episodes[3], 17, 4)
    np.testing.assert_array_equal(replay.take(np.arange(17, 18)).windows[0], expected)


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"observation": np.zeros(3, np.uint8)}, r"2 numbers of type uint8, got uint8\(3,\)"),
        ({"observation": np.zeros(2)}, r"2 numbers of type uint8, got float64\(2,\)"),
        ({"observation": 0}, r"2 numbers of type uint8, got int64\(\)"),
        ({"action": -1}, "action=-1 must be an integer from 0 to 255"),
        ({"action": 1.5}, r"action=1\.5 must be an integer"),
        ({"reward": float("nan")}, "reward=nan is not finite"),
    ],
)
def test_wrong_transitions_are_not_remembered(wrong, message):
    replay = Replay(30, window=4, size=2)
    good = {"observation": np.zeros(2, np.uint8), "action": 0, "reward": 0.0, "over": False}
    with pytest.raises(ValueError, match=rf"Replay\.add: .*{message}"):
        replay.add(**{**good, **wrong})
    assert len(replay) == 0


@pytest.mark.parametrize("outside", [-1, 11, 12, 39, 100])
def test_what_is_forgotten_or_to_come_is_not_taken(outside):
    replay = Replay(30, window=4, size=2)
    _fill(replay, _episodes(np.random.default_rng(0), 40))
    problem = rf"Replay\.take: transition {outside} is not among 13 to 38"
    with pytest.raises(IndexError, match=problem):
        replay.take(np.array([20, outside]))


def test_no_samples():
    replay = Replay(30, window=4, size=2)
    _fill(replay, _episodes(np.random.default_rng(0), 20))
    with pytest.raises(ValueError, match=r"Replay\.sample: batch_size=0 must be an integer"):
        replay.sample(np.random.default_rng(0), 0)


def test_too_little_to_sample():
    replay = Replay(30, window=4, size=2)
    replay.add(np.zeros(2, np.uint8), 0, 0.0, False)
    with pytest.raises(ValueError, match=r"Replay\.sample: 1 transitions are too few"):
        replay.sample(np.random.default_rng(0), 2)
