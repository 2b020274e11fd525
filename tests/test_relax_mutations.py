"""Broken on purpose: the tests of IL and its relatives must notice. And a second opinion."""

import jax
import jax.numpy as jnp
import pytest

import dendrax
from benchmarks.handwritten import WORKLOADS, fixed_prediction, il, loss_function
from dendrax import IL, FixedPrediction
from dendrax.inference import Gaussian, Network, _settle
from dendrax.local import _contraction, _convolution
from tests.compare import distance
from tests.sampling import rotating
from tests.test_relax import check_steps, model_graph

RULE = IL(
    num_steps=4, gamma=0.02, init=lambda v, mu: mu + 0.01 * jnp.cos(mu), precision=3.0, batch="sum"
)


def check(name="mlp"):
    check_steps(model_graph(name), RULE, precision=3.0)


def test_unbroken():
    check()


def test_messages_not_divided_by_the_precision(monkeypatch):
    slope = Gaussian.slope
    monkeypatch.setattr(Gaussian, "slope", lambda self, *args: slope(Gaussian(), *args))
    with pytest.raises(AssertionError):
        check()


def test_errors_not_weighted(monkeypatch):
    monkeypatch.setattr(Gaussian, "error", lambda self, mu, x: mu - x)
    with pytest.raises(AssertionError):
        check()


def test_a_step_in_the_wrong_direction(monkeypatch):
    moved = IL.moved

    def uphill(self, net, state, slope):
        return moved(self, net, state, jax.tree.map(jnp.negative, slope))

    monkeypatch.setattr(IL, "moved", uphill)
    with pytest.raises(AssertionError):
        check()


def test_a_value_node_that_lags_behind(monkeypatch):
    """Predictions from the forward pass instead of from the value nodes."""
    look = Network.look

    def stale(self, x, parameters=None):
        found = look(self, self.values, parameters)
        return type(found)(self, x, found.mu, found.outputs, found.tape)

    monkeypatch.setattr(Network, "look", stale)
    with pytest.raises(AssertionError):
        check()


def test_a_kernel_that_is_not_flipped(monkeypatch):
    monkeypatch.setattr(_convolution.jnp, "flip", lambda value, axes: value)
    with pytest.raises(AssertionError):
        check("cnn")


def test_a_weight_that_is_not_turned(monkeypatch):
    """Only a square weight could go unnoticed by its shape; the numbers tell."""
    message = _contraction._Settings.message

    def wrong(self, *args):
        return 1.01 * message(self, *args)

    monkeypatch.setattr(_contraction._Settings, "message", wrong)
    with pytest.raises(AssertionError):
        check()


def check_by_hand(name, rule, by_hand):
    workload = WORKLOADS[name]
    arguments = workload.data(0)
    settings = rule(num_steps=7, gamma=0.1, **({"batch": "sum"} if rule is IL else {}))
    _, found = jax.jit(dendrax.value_and_grad(loss_function(workload), rule=settings))(*arguments)
    _, expected = by_hand(workload, 7, 0.1)(*arguments)
    size = distance(expected, jax.tree.map(jnp.zeros_like, expected))
    assert distance(found, expected) < 1e-5 * size


BY_HAND = {"il": (IL, il), "fixed": (FixedPrediction, fixed_prediction)}


@pytest.mark.parametrize(("name", "rule"), rotating(["cnn", "mlp"], list(BY_HAND)))
def test_against_the_loop_written_by_hand(name, rule):
    """The loops of the benchmarks share nothing with dendrax."""
    check_by_hand(name, *BY_HAND[rule])


def test_one_step_too_few(monkeypatch):
    run_all = _settle._run_all

    def shorter(rule, net, start, num_steps, *args):
        return run_all(rule, net, start, num_steps - 1, *args)

    monkeypatch.setattr(_settle, "_run_all", shorter)
    with pytest.raises(AssertionError):
        check_by_hand("mlp", IL, il)
