"""Broken on purpose: the tests of IL and its relatives must notice. And a second opinion."""

import jax
import jax.numpy as jnp
import pytest

import dendrax
from benchmarks.handwritten import WORKLOADS, fixed_prediction, il, loss_function
from dendrax import IL, FixedPrediction
from dendrax.inference import _network, _relax
from dendrax.local import _contraction, _convolution
from dendrax.rules import _descent
from dendrax.rules import il as il_file
from tests.compare import distance
from tests.sampling import rotating
from tests.test_relax import check_steps, model_graph

RULE = IL(num_steps=4, gamma=0.02, init=lambda v, mu: mu + 0.01 * jnp.cos(mu), precision=3.0)


def check(name="mlp"):
    check_steps(model_graph(name), RULE, precision=3.0)


def test_unbroken():
    check()


def test_messages_not_divided_by_the_precision(monkeypatch):
    monkeypatch.setattr(_descent, "divided", lambda message, precision: message)
    with pytest.raises(AssertionError):
        check()


def test_errors_not_weighted(monkeypatch):
    def unweighted(net, mu, epsilon, precision):
        return {**epsilon, **net.output_errors(mu)}

    monkeypatch.setattr(_descent, "weighted", unweighted)
    with pytest.raises(AssertionError):
        check()


def test_a_step_in_the_wrong_direction(monkeypatch):
    def uphill(x, gamma, slope):
        return {port: value - gamma * slope[port] for port, value in x.items()}

    monkeypatch.setattr(il_file, "moved", uphill)
    with pytest.raises(AssertionError):
        check()


def test_a_value_node_that_lags_behind(monkeypatch):
    """Predictions from the forward pass instead of from the value nodes."""
    predict = _network.Network.predict

    def stale(self, flow, value, parameters=None):
        return predict(self, flow, lambda port, mu: self.forward[port], parameters)

    monkeypatch.setattr(_network.Network, "predict", stale)
    with pytest.raises(AssertionError):
        check()


def test_a_kernel_that_is_not_flipped(monkeypatch):
    monkeypatch.setattr(_convolution.jnp, "flip", lambda value, axes: value)
    with pytest.raises(AssertionError):
        check("cnn")


def test_a_weight_that_is_not_turned(monkeypatch):
    """Only a square weight could go unnoticed by its shape; the numbers tell."""
    message = _contraction.Contraction.message

    def wrong(self, error):
        return 1.01 * message(self, error)

    monkeypatch.setattr(_contraction.Contraction, "message", wrong)
    with pytest.raises(AssertionError):
        check()


def check_by_hand(name, rule, by_hand):
    workload = WORKLOADS[name]
    arguments = workload.data(0)
    settings = rule(num_steps=7, gamma=0.1)
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
    run_all = _relax._run_all

    def shorter(rule, net, fixed, start, num_steps, look):
        return run_all(rule, net, fixed, start, num_steps - 1, look)

    monkeypatch.setattr(_relax, "_run_all", shorter)
    with pytest.raises(AssertionError):
        check_by_hand("mlp", IL, il)
