"""A run says when inference diverges in its updates, once, and its journal says how often."""

import warnings

import jax
import numpy as np
import pytest

import dendrax
from dendrax import IL
from tests.train.cases import loss, network
from tests.train.test_fit import DATA, fit, settings


def mildly_diverging():
    """A rule whose energy rises in the first update, but does not run away."""
    for gamma in np.arange(1.2, 3.0, 0.1):
        rule = IL(num_steps=8, gamma=float(gamma), batch="mean")
        update = jax.jit(dendrax.value_and_grad(loss, rule=rule, has_result=True))
        (value, result), _ = update(network(), DATA[0][:16], DATA[1][:16])
        if result.diverged and result.energy < 5 * value:
            return rule
    raise AssertionError("no such rule")


@pytest.mark.parametrize("chunks", [None, 4])
def test_it_is_told_once_and_counted(chunks):
    rule = mildly_diverging()
    with pytest.warns(UserWarning, match="IL: inference diverged at update 1, and in") as told:
        found = fit(rule=rule, settings=settings(epochs=2, chunks=chunks, nonfinite="skip"))
    assert len([w for w in told if "inference diverged" in str(w.message)]) == 1
    assert found.history[0]["diverged"] >= 1


def test_updates_that_are_skipped_count():
    rule = IL(num_steps=60, gamma=30.0, batch="mean")
    with pytest.warns(UserWarning, match=r"at update 1, and in 3 of the last 3 updates"):
        found = fit(rule=rule, settings=settings(epochs=1, nonfinite="skip"))
    assert all(line["diverged"] >= 1 for line in found.history)


def test_one_that_runs_away_stops_with_the_reason():
    with pytest.raises(
        FloatingPointError, match=r"(?s)gradient is not finite at update 1.*diverged"
    ):
        fit(rule=IL(num_steps=60, gamma=30.0, batch="mean"))


def test_a_healthy_run_is_silent():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        found = fit(rule=IL(num_steps=8, gamma=0.1, batch="mean"))
    assert all("diverged" not in line for line in found.history)
