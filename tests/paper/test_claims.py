"""Every claim holds on a perfect reproduction, and fails when it should."""

import numpy as np
import pytest

from dendrax import data
from dendrax.paper import _published as published
from dendrax.paper._claims import all_claims
from dendrax.paper._library import _samples
from tests.paper import findings as made


def claim(found, text):
    fitting = [c for c in all_claims(found) if text in c.text]
    assert len(fitting) == 1, [c.text for c in all_claims(found)]
    return fitting[0]


def replaced(found, new):
    return [new if (f.kind, f.name) == (new.kind, new.name) else f for f in found]


def test_a_perfect_reproduction():
    claims = all_claims(made.everything())
    assert len(claims) == 9 and all(c.holds for c in claims), [c for c in claims if not c.holds]


def test_nothing_found_nothing_claimed():
    assert all_claims([]) == []


@pytest.mark.parametrize("distance", [1e-300, 5.0, None])
@pytest.mark.parametrize(
    ("column", "text"), [("wavefront", "compiled"), ("dynamics", "by the full dynamics")]
)
def test_zil_is_not_exact(column, text, distance):
    found = replaced(made.as_published(), made.divergence(column, distance, "RNN"))
    wrong = claim(found, text)
    assert wrong.exact and not wrong.holds and "RNN" in wrong.evidence


@pytest.mark.parametrize(("row", "distance"), [("MLP", 1e-9), ("ResNet18", 0.0)])
def test_the_pattern_of_table_1(row, distance):
    assert claim(made.as_published(), "Original Z-IL").holds
    found = replaced(made.as_published(), made.divergence("original", distance, row))
    assert not claim(found, "Original Z-IL").holds


def test_an_overflow_is_not_zero():
    found = replaced(made.as_published(), made.divergence("noise", None, "MLP"))
    assert claim(found, "three conditions").holds
    found = replaced(made.as_published(), made.divergence("noise", 0.0, "MLP"))
    assert not claim(found, "three conditions").holds


@pytest.mark.parametrize(("weights", "holds"), [(["a", "b"], True), (["a", "x"], False)])
def test_weights_that_differ(weights, holds):
    found = [made.run("BP", ["a", "b"]), made.run("Z-IL", weights)]
    assert claim(found, "every weight").holds is holds


def test_only_the_same_start_is_compared():
    for other in ({"seed": 1}, {"rate": 0.2}, {"data": "others"}, {"course": "CNN"}):
        found = [made.run("BP", ["a", "b"], **other), made.run("Z-IL", ["a", "b"])]
        assert not any("every weight" in c.text for c in all_claims(found))


def test_agents_that_differ():
    bp, zil = (made.game(rule, [[1.0]] * 2, "ab") for rule in ("BP", "Z-IL"))
    assert claim([bp, zil], "Agents").holds
    for other in (made.game("Z-IL", [[1.0]] * 2, "ax"), made.game("Z-IL", [[1.0], [2.0]], "ab")):
        assert not claim([bp, other], "Agents").holds


ZIL_SPEED, IL_SPEED = "Z-IL / BP", "IL's time"


@pytest.mark.parametrize(
    ("ratio", "noise", "holds"),
    [
        (1.0, 0.0, True),
        (1.02, 0.0, False),  # the paper's is 1.005
        (1.01, 0.02, True),  # cannot be told from it
        (1.2, 0.5, False),  # nor can this, but by a measurement that tells nothing
    ],
)
def test_speed_of_zil(ratio, noise, holds):
    assert claim([made.speed("RNN", zil=ratio, noise=noise)], ZIL_SPEED).holds is holds


def test_one_slow_row_is_enough():
    rows = [made.speed(row) for row in published.ROWS]
    assert claim(rows, ZIL_SPEED).holds and claim(rows, IL_SPEED).holds
    assert not claim([*rows[1:], made.speed("MLP", zil=1.1)], ZIL_SPEED).holds
    wrong = claim([*rows[1:], made.speed("MLP", il=161.0)], IL_SPEED)
    assert not wrong.holds and "T = 100" in wrong.evidence


@pytest.mark.parametrize(
    ("accuracies", "holds"), [((0.898,) * 3, True), ((0.8979,) * 3, False), ((0.9,) * 2, False)]
)
def test_accuracy_of_il_counts_in_three_runs_on_the_full_set(accuracies, holds):
    full = library_name(60_000, 10_000)
    found = [made.run("IL", ["a"], a, data=full, seed=i) for i, a in enumerate(accuracies)]
    assert claim(found, "trained by IL").holds is holds
    assert not all_claims([made.run("IL", ["a"], 0.95)])


def library_name(train, test):
    """What the library itself calls a set of that size."""
    images = data.Images(
        np.zeros((train, 1, 1), np.uint8), None, np.zeros((test, 1, 1), np.uint8), None
    )
    with np.errstate(invalid="ignore"):
        return _samples("FashionMNIST", images).name


@pytest.mark.parametrize(
    ("start", "end", "holds"), [(1.0, 9.0, True), (1.0, 2.5, False), (8.9, 9.0, False)]
)
def test_better_than_random_play_and_than_untrained(start, end, holds):
    random = made.game("random", [1.0, 2.0, 3.0])
    scores = [[start - 1, start + 1]] * 2 + [[end - 1, end + 1]] * 4
    learned = made.game("Z-IL", scores, "abcdef")
    assert claim([random, learned], "random play").holds is holds
