"""The full dynamics: lemmas, ablations, agreement with the wavefront and with a reference."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import dendrax
from dendrax import ZIL
from dendrax.graph._graph import Port
from dendrax.models import problem
from tests.cases.graphs import GRAPHS, TIMED_GRAPHS
from tests.compare import close, distance, same
from tests.reference import simulate
from tests.sampling import every, rotating

OVERFLOW = ("rnn", "transformer", "resnet18")  # value nodes behind the wave may overflow


def traced(case):
    return dendrax.trace(case.fun, *case.make_args(), argnums=case.argnums)


def linearise(function, inputs, emitted, received, summed):
    """One vertex's outputs, and its pullback from ``(sums, errors)`` to the new sums.

    The waiting sums pass through it, so that each term is added to them as JAX adds it.
    """

    def local(*values):
        given = dict(zip(received, values, strict=True))
        outputs = function(*(given.get(k, value) for k, value in enumerate(inputs)))
        return (tuple(given[k] for k in summed), tuple(outputs[o] for o in emitted)), outputs

    _, pullback, outputs = jax.vjp(local, *(inputs[k] for k in received), has_aux=True)
    return outputs, pullback


def wave_errors(graph):
    """Every error of the wave, by port, without the dynamics."""
    flow, pullbacks = graph.flow, {}
    values = dict(zip(map(Port, graph.leaves), graph.call.leaves(), strict=True))
    for v in graph.vertices:
        if v.function is not None:
            inputs = [values[port] for port in v.inputs]
            ends = flow.emitted[v.index], flow.received[v.index], flow.summed[v.index]
            outputs, pullbacks[v.index] = linearise(v.function, inputs, *ends)
            values.update((Port(v.index, o), value) for o, value in enumerate(outputs))
    found = {graph.outputs[0]: jnp.ones_like(values[graph.outputs[0]])}
    for v in reversed(graph.active):
        arrived = tuple(found[Port(v.index, o)] for o in flow.emitted[v.index])
        waiting = tuple(found[v.inputs[k]] for k in flow.summed[v.index])
        targets = [v.inputs[k] for k in flow.received[v.index]]
        found.update(zip(targets, pullbacks[v.index]((waiting, arrived)), strict=True))
    return found


@pytest.mark.parametrize("case", every(5, TIMED_GRAPHS))
def test_errors_arrive_on_time_and_equal_the_wavefronts(case):
    """Lemma: epsilon is exactly 0 before t = level, and at t = level it is the backprop error.

    So what the parameters have learned at the end is the gradient.
    """
    with jax.disable_jit():
        args = case.make_args()
        graph = dendrax.trace(case.fun, *args, argnums=case.argnums)
        level_of = dendrax.level(graph).level_of
        result = dendrax.run(graph, ZIL(), record=("epsilon", "x", "mu"))
        expected = wave_errors(graph)
        assert result.num_steps >= 1
        assert same(result.gradient, jax.grad(case.fun, case.argnums)(*args))
    for v in graph.active:
        arrival = level_of[v.index]
        wave = [expected[Port(v.index, o)] for o in graph.flow.emitted[v.index]]
        assert same(jax.tree.leaves(result.epsilon[arrival][v]), wave), v
        if graph.outputs[0].vertex == v.index:
            continue
        for t in range(arrival):
            assert all((e == 0).all() for e in jax.tree.leaves(result.epsilon[t][v])), v
            assert same(result.x[t][v], result.x[0][v])
            assert same(result.mu[t][v], result.mu[0][v])


def slow(*names):
    return [pytest.param(name, marks=pytest.mark.slow) for name in names]


LONG = slow("transformer", "resnet18")
MODELS = ["mlp", *slow("fc_resnet", "cnn", "rnn"), *LONG]


@pytest.mark.parametrize("name", MODELS)
def test_models_operation_by_operation(name):
    """Table 3, first column: exactly 0.0 by the full dynamics, in the paper's setting."""
    p = problem(name, dtype="float64", small=True)
    with jax.disable_jit():
        graph = dendrax.trace(p.predict, p.model, p.inputs)
        found = dendrax.run(graph, ZIL(), target=p.target, record="energy").gradient
        wave = dendrax.run(graph, ZIL(), target=p.target).gradient

        def energy(model):
            return jnp.sum((p.predict(model, p.inputs) - p.target) ** 2) / 2

        expected = jax.grad(energy)(p.model)
    assert same(found, expected)
    assert same(wave, expected)


@functools.cache
def clamped(name):
    """A model in the paper's setting: its graph, its target, and the wave's gradient."""
    p = problem(name, dtype="float64", small=True)
    graph = dendrax.trace(p.predict, p.model, p.inputs)
    with jax.disable_jit():
        return graph, p.target, dendrax.run(graph, ZIL(), target=p.target).gradient


def divergence(name, rule):
    """Of the dynamics from the wave. Under `jax.disable_jit` both go operation by operation."""
    graph, target, expected = clamped(name)
    found = jax.jit(lambda: dendrax.run(graph, rule, target=target, record="energy").gradient)()
    return distance(found, expected)


@pytest.mark.parametrize("name", ["mlp", "rnn", *slow("cnn")])
def test_original_zil_is_exact_on_chains(name):
    """Table 1, and Theorems 1 and 2: no levels are needed where there is one path to each leaf."""
    with jax.disable_jit():
        assert divergence(name, ZIL(levelled=False)) == 0.0


@pytest.mark.parametrize("name", ["fc_resnet", *LONG])
def test_original_zil_is_wrong_where_paths_rejoin(name):
    found = divergence(name, ZIL(levelled=False))
    assert found > 1e-3 if name == "fc_resnet" else not np.isfinite(found)  # deep ones overflow


CONDITIONS = {
    "timing": ZIL(timing="end"),
    "start": ZIL(init="noise"),
    "gamma": ZIL(gamma=0.5),
}


@pytest.mark.parametrize(("name", "rule"), rotating(MODELS, CONDITIONS))
def test_each_condition_is_necessary(name, rule):
    """Table 3: without any one of the three conditions the update is not backprop's."""
    found = divergence(name, rule)
    assert found > 1e-3 or (name in OVERFLOW and not np.isfinite(found))


def skip_network(z1, z2, z3):
    h = 0.7 * z3
    return h + h * z2 * z1


def test_skip_connection():
    """Erratum 6: the dynamics of original Z-IL give -0.2132; with levels, backprop's -0.0204."""
    z, y = (1.1, -0.6, 0.9), 0.3
    graph = dendrax.trace(skip_network, *z, argnums=(0, 1, 2))
    original = dendrax.run(graph, ZIL(levelled=False), target=y).gradient
    levelled = dendrax.run(graph, ZIL(), target=y, record="energy").gradient
    assert float(original[2]) == pytest.approx(-0.2132, abs=5e-5)
    assert float(levelled[2]) == pytest.approx(-0.0204, abs=5e-5)
    delta = float(skip_network(*z)) - y
    assert float(levelled[2]) == pytest.approx(delta * (z[0] * z[1] + 1) * 0.7, rel=1e-14)


@pytest.mark.parametrize("gamma", [1.0, 0.5])
@pytest.mark.parametrize("expand", [True, False])
def test_reference_simulation(expand, gamma):
    """An independent, literal simulation, with the delays written out and without any."""

    def network(w, v, x):
        h = jnp.tanh(w @ x)
        return v @ (h + jnp.sin(w @ jnp.sin(h)))

    rng = np.random.default_rng(3)
    args = rng.normal(size=(3, 3)) * 0.4, rng.normal(size=(2, 3)), rng.normal(size=3)
    target = rng.normal(size=2)
    graph = dendrax.trace(network, *args, argnums=(0, 1))
    levelled = dendrax.level(graph)
    rule = ZIL(gamma=gamma, levelled=expand)
    with jax.disable_jit():
        result = dendrax.run(graph, rule, target=target, record="epsilon")
        written = levelled.expand() if expand else graph
        level_of = dendrax.level(written).level_of
        learn_at = {
            (e.source.vertex, e.user): level_of[e.user]
            for e in written.edges
            if written[e.source.vertex].kind == "parameter"
        }
        gradient, history = simulate(
            written, target, gamma=gamma, num_steps=result.num_steps, learn_at=learn_at
        )
    assert close([gradient[i] for i in written.leaves if i in gradient], list(result.gradient))
    for t in range(result.num_steps):
        for v in graph.active:
            assert close([history[t][written[v.name].index]], [result.epsilon[t][v]], ulps=1e4)


@pytest.mark.parametrize("init", ["zeros", "noise", lambda vertex, mu: mu * 0.5])
def test_prediction_by_inference_converges_to_the_forward_pass(init):
    def network(w, x):
        return jnp.tanh(w @ jnp.tanh(w @ x))

    rng = np.random.default_rng(1)
    w, x = rng.normal(size=(3, 3)) * 0.5, rng.normal(size=3)
    graph = dendrax.trace(network, w, x)
    rule = ZIL(gamma=0.3, init=init, levelled=False, num_steps=600)
    result = dendrax.run(graph, rule, record="energy")
    assert result.gradient is None
    np.testing.assert_allclose(result.output, network(w, x), atol=1e-10)
    assert result.energy[-1] < 1e-18 < result.energy[0]


def test_target_setting_is_the_quadratic_energy():
    def network(w, x):
        return jnp.tanh(x @ w)

    rng = np.random.default_rng(0)
    w, x, y = rng.normal(size=(3, 2)), rng.normal(size=(4, 3)), rng.normal(size=(4, 2))
    result = dendrax.run(dendrax.trace(network, w, x), ZIL(), target=y, record="energy")
    assert float(result.energy[0]) == pytest.approx(0.5 * np.sum((np.tanh(x @ w) - y) ** 2))
    new = rng.normal(size=(3, 2))
    again = dendrax.run(dendrax.trace(network, w, x), ZIL(), new, x, target=y)

    def energy(w):
        return jnp.sum((network(w, x) - y) ** 2) / 2

    assert close(again.gradient, jax.grad(energy)(new))


def test_loss_setting_starts_at_the_loss():
    case = next(case for case in GRAPHS if case.name == "mlp")
    result = dendrax.run(traced(case), ZIL(), record="energy")
    assert float(result.energy[0]) == pytest.approx(float(case.fun(*case.make_args())))


def test_infinite_derivatives_do_not_poison_what_has_not_been_reached():
    """sqrt at 0 has an infinite slope; before the wave arrives 0 * inf must not send NaN."""

    def fun(w):
        return jnp.sum(jnp.sin(jnp.cos(jnp.sqrt(w[0] * 0.0) + w[1])) * w[1])

    w = jnp.asarray([1.0, 2.0])
    with jax.disable_jit():
        result = dendrax.run(dendrax.trace(fun, w), ZIL(), record="epsilon")
        expected = jax.grad(fun)(w)
    assert np.isfinite(result.epsilon[0]["sqrt"]).all()
    assert same(result.gradient, expected)
    assert not np.isfinite(expected[0])


def test_complex_vertices():
    def fun(w):
        z = jnp.exp(1j * w) + jnp.conj(w * (1.0 + 0.5j))
        return jnp.sum(jnp.abs(jnp.fft.fft(z)) ** 2)

    w = jnp.asarray([0.3 + 0.1j, -1.2 + 0.4j, 0.7 - 0.2j])
    with jax.disable_jit():
        found = dendrax.run(dendrax.trace(fun, w), ZIL(), record="energy").gradient
        assert same(found, jax.grad(fun)(w))
