"""IL and its relatives: against `jax.grad` of the whole energy, against theory, and against BP."""

import dataclasses
import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import dendrax
from dendrax import BP, IL, ZIL, ErrorPC, FixedPrediction, IncrementalPC
from dendrax.models import problem
from tests.cases.graphs import TIMED_GRAPHS
from tests.compare import close, distance, same
from tests.reference import energy
from tests.sampling import every, rotating


def slow(name):
    return pytest.param(name, marks=pytest.mark.slow)


TRANSFORMER = slow("transformer")
MODELS = ["mlp", "cnn", "rnn", "rnn_scan", "fc_resnet", TRANSFORMER]
BATCHED = [slow("mlp"), "cnn", slow("rnn"), "fc_resnet", TRANSFORMER]
SLOW_MODELS = [slow("resnet18"), slow("transformer12")]
# Few of the small graphs have layers.
VERTICES = ["primitive", slow("layer")]
NO_NODE = pytest.mark.filterwarnings("ignore:.*has no value node:UserWarning")


def traced(case, vertices="primitive"):
    return dendrax.trace(case.fun, *case.make_args(), argnums=case.argnums, vertices=vertices)


def model_graph(name, vertices="layer"):
    p = problem(name, dtype="float64", small=True)
    return dendrax.trace(p.loss, p.model, p.inputs, p.target, vertices=vertices)


def nodes_at(graph, result, t):
    return {
        (v.index, o): value
        for v in graph.nodes
        for o, value in zip(
            graph.flow.emitted[v.index], jax.tree.leaves(result.x[t][v]), strict=True
        )
    }


def check_steps(graph, rule, precision=1.0, steps=3):
    """Each step is -gamma / precision times `jax.grad` of the whole energy."""
    result = dendrax.run(graph, rule, record=("x", "energy"))
    slope = jax.jit(jax.value_and_grad(functools.partial(energy, graph, precision=precision)))
    for t in range(steps):
        x, after = nodes_at(graph, result, t), nodes_at(graph, result, t + 1)
        whole, expected = slope(x)
        assert float(result.energy[t]) == pytest.approx(float(whole), rel=1e-12)
        scale = max([float(np.max(np.abs(g))) for g in expected.values()], default=1.0)
        for key, gradient in expected.items():
            change = -rule.gamma / precision * np.conj(gradient)
            np.testing.assert_allclose(
                np.subtract(after[key], x[key]),
                change,
                rtol=1e-9,
                atol=1e-13 * max(scale / precision, 1),
            )


# ---- the equations -------------------------------------------------------------------------------


@NO_NODE
@pytest.mark.parametrize("vertices", VERTICES)
@pytest.mark.parametrize("case", every(4, TIMED_GRAPHS))
def test_each_step_is_the_gradient_of_the_energy(case, vertices):
    check_steps(traced(case, vertices), IL(num_steps=4, gamma=0.05, init="noise", batch="sum"))


@pytest.mark.parametrize("name", [*every(2, MODELS), *SLOW_MODELS])
def test_each_step_of_a_model_is_the_gradient_of_the_energy(name):
    rule = IL(
        num_steps=4,
        gamma=0.02,
        init=lambda v, mu: mu + 0.01 * jnp.cos(mu),
        precision=3.0,
        batch="sum",
    )
    check_steps(model_graph(name), rule, precision=3.0)


@pytest.mark.parametrize("name", ["mlp", *map(slow, ("fc_resnet", "cnn", "rnn"))])
def test_each_step_of_a_model_by_operation(name):
    check_steps(model_graph(name, "primitive"), IL(num_steps=4, gamma=0.02, batch="sum"))


def test_delays_have_value_nodes_too():
    """On a levelled graph a step is the gradient of the energy of the graph written out."""
    graph = model_graph("fc_resnet", "parameter")  # the stream lies inside the vertices
    written = dendrax.level(graph).expand()
    assert len(written.nodes) > len(graph.nodes)
    check_steps(written, IL(num_steps=4, gamma=0.02, init="noise", batch="sum"))
    found = dendrax.run(
        graph, IL(levelled=True, init="noise", num_steps=5, batch="sum"), record="energy"
    )
    by_hand = dendrax.run(written, IL(init="noise", num_steps=5, batch="sum"), record="energy")
    assert same(found.gradient, by_hand.gradient)
    assert same(found.energy, by_hand.energy)
    flat = dendrax.run(graph, IL(init="noise", num_steps=5, batch="sum")).gradient
    assert distance(flat, found.gradient) > 1e-3


def test_complex_value_nodes_descend():
    def fun(w):
        z = jnp.exp(1j * w) * jnp.conj(w * (1.0 + 0.5j))
        return jnp.sum(jnp.abs(jnp.sin(z)) ** 2)

    graph = dendrax.trace(fun, jnp.asarray([0.3 + 0.1j, -0.5 + 0.4j]), vertices="primitive")
    check_steps(graph, IL(num_steps=4, gamma=0.02, init="noise", batch="sum"))
    for rule in (
        IL(gamma=0.02, num_steps=50, batch="sum"),
        ErrorPC(gamma=0.02, num_steps=50, batch="sum"),
    ):
        descent = dendrax.run(graph, rule, record="energy").energy
        assert (np.diff(descent) <= 0).all()
    assert close(
        dendrax.run(graph, FixedPrediction()).gradient, jax.grad(fun)(*graph.call.leaves()[-1:])
    )


@pytest.mark.parametrize(("name", "rule"), rotating(BATCHED, [IL, ErrorPC]))
def test_small_gamma_lowers_the_energy_at_every_step(name, rule):
    rule = rule(num_steps=60, gamma=0.01, batch="sum")
    descent = dendrax.run(model_graph(name), rule, record="energy").energy
    assert len(descent) == 61
    assert (np.diff(descent) < 0).all()


@pytest.mark.parametrize("rule", [IL, ErrorPC])
def test_at_convergence_the_gradient_of_the_energy_is_zero(rule):
    graph = model_graph("mlp")
    result = dendrax.run(graph, rule(num_steps=5000, gamma=0.2, tol=1e-13, batch="sum"), record="x")
    assert result.converged and result.num_steps < 5000 and len(result.x) == result.num_steps + 1
    gradient = jax.grad(functools.partial(energy, graph))(nodes_at(graph, result, -1))
    assert max(float(jnp.max(jnp.abs(g))) for g in gradient.values()) < 1e-12


def test_il_and_error_pc_have_the_same_equilibrium():
    graph = model_graph("rnn")
    settled = [
        dendrax.run(graph, rule, record="x")
        for rule in (
            IL(20_000, 0.1, tol=1e-14, batch="sum"),
            ErrorPC(20_000, 0.1, tol=1e-14, batch="sum"),
        )
    ]
    assert distance(settled[0].gradient, settled[1].gradient) < 1e-10


def test_two_layer_linear_network_against_the_closed_form():
    """x settles at (I + V'V)^-1 (W a + V' y), and the gradients follow."""
    rng = np.random.default_rng(4)
    W, V, a, y = (rng.normal(size=s) for s in ((4, 3), (2, 4), 3, 2))

    def loss(w, a, y):
        return jnp.sum((w[1] @ (w[0] @ a) - y) ** 2) / 2

    x = np.linalg.solve(np.eye(4) + V.T @ V, W @ a + V.T @ y)
    expected = [np.outer(W @ a - x, a), np.outer(V @ x - y, x)]
    for rule in (
        IL(5000, 0.05, tol=1e-14, batch="sum"),
        ErrorPC(5000, 0.05, tol=1e-14, batch="sum"),
    ):
        graph = dendrax.trace(loss, [jnp.asarray(W), jnp.asarray(V)], a, y, vertices="layer")
        result = dendrax.run(graph, rule, record="x")
        np.testing.assert_allclose(result.x[-1][graph.nodes[0]], x, atol=1e-12)
        for found, gradient in zip(result.gradient, expected, strict=True):
            np.testing.assert_allclose(found, gradient, atol=1e-12)


# ---- the batch -----------------------------------------------------------------------------------


@pytest.mark.parametrize(("name", "rule"), rotating(BATCHED, [IL, ErrorPC]))
def test_a_mean_over_the_batch_is_the_mean_over_samples(name, rule):
    """By default; and with batch='sum' it is not."""
    p = problem(name, dtype="float64", small=True)
    by_sample = jax.jit(dendrax.grad(p.loss, rule=rule(5, 0.1)))
    plainly = jax.jit(dendrax.grad(p.loss, rule=rule(5, 0.1, batch="sum")))
    whole = by_sample(p.model, p.inputs, p.target)
    alone = [plainly(p.model, x[None], y[None]) for x, y in zip(p.inputs, p.target, strict=True)]
    mean = jax.tree.map(lambda *g: sum(map(np.asarray, g)) / len(g), *alone)
    scale = distance(mean, jax.tree.map(np.zeros_like, mean))
    assert distance(whole, mean) < 1e-13 * scale
    plain = plainly(p.model, p.inputs, p.target)
    assert distance(plain, mean) > 1e-4 * scale


def test_precision_is_the_same_thing():
    p = problem("mlp", dtype="float64", small=True)
    args = p.model, p.inputs, p.target
    by_name = dendrax.grad(p.loss, rule=IL(batch="mean"))(*args)
    assert close(dendrax.grad(p.loss, rule=IL(precision=1 / 4, batch="sum"))(*args), by_name)
    assert close(
        dendrax.grad(p.loss, rule=IL(precision=lambda v: 0.25, batch="sum"))(*args), by_name
    )
    uneven = IL(precision=lambda v: 1.0 if v.name == "layers[0]" else 2.0, batch="sum")
    assert distance(dendrax.grad(p.loss, rule=uneven)(*args), by_name) > 1e-3


def test_a_batch_at_another_axis():
    def loss(w, x):
        return jnp.mean(jnp.sum(jnp.tanh(w[1] @ jnp.tanh(w[0] @ x)) ** 2, 0))

    rng = np.random.default_rng(0)
    w = [jnp.asarray(rng.normal(size=s)) for s in ((4, 3), (3, 4))]
    rule = IL(batch="mean")
    x = jnp.asarray(rng.normal(size=(3, 7)))
    third = [*w, jnp.asarray(rng.normal(size=(2, 3)))]

    def deeper(w, x):
        return jnp.mean(jnp.sum((w[2] @ jnp.tanh(w[1] @ jnp.tanh(w[0] @ x))) ** 2, 0))

    found = dendrax.grad(deeper, rule=rule)(third, x)
    assert close(found, dendrax.grad(deeper, rule=IL(precision=1 / 7, batch="sum"))(third, x))
    # A value node that is made of a parameter alone is shared by all samples: its energy is whole.
    mixed = lambda w, x: deeper(w, x) + jnp.sum(jnp.tanh(w[2] @ jnp.ones(3)) @ w[2])
    found = dendrax.grad(mixed, rule=rule)(third, x)
    shared = lambda v: 1.0 if v.shape == (2,) else 1 / 7
    assert close(found, dendrax.grad(mixed, rule=IL(precision=shared, batch="sum"))(third, x))


def test_an_empty_batch():
    """A mean over no sample: the value is not a number, and nothing is learned, as by JAX."""

    def loss(w, x):
        return jnp.mean((jnp.tanh(x @ w[0]) @ w[1]) ** 2)

    args = [jnp.ones((3, 4)), jnp.ones((4, 2))], jnp.ones((0, 3))
    for rule in (IL(3, batch="mean"), ErrorPC(3, batch="mean"), IL(3, batch="sum")):
        rule = dataclasses.replace(rule, on_divergence="ignore")
        found = dendrax.value_and_grad(loss, rule=rule)(*args)
        assert same(found, jax.value_and_grad(loss)(*args))


def test_a_batch_behind_features_of_equal_size():
    """Two hidden layers of 4 units, columns are samples: the batch is 5, not 4."""

    def loss(w, x):
        h = jnp.tanh(w[1] @ jnp.tanh(w[0] @ x))
        return jnp.mean(jnp.sum((w[2] @ h) ** 2, 0))

    rng = np.random.default_rng(0)
    w = [jnp.asarray(rng.normal(size=s)) for s in ((4, 3), (4, 4), (2, 4))]
    x = jnp.asarray(rng.normal(size=(3, 5)))
    expected = dendrax.grad(loss, rule=IL(precision=1 / 5, batch="sum"))(w, x)
    assert close(dendrax.grad(loss, rule=IL(batch=5))(w, x), expected)
    assert close(dendrax.grad(loss, rule=IL(batch="mean"))(w, x), expected)


def test_numpy_numbers_as_settings():
    p = problem("mlp", dtype="bfloat16", small=True)
    settings = {"gamma": np.float64(0.1), "precision": np.float32(2.0), "batch": "sum"}
    found = dendrax.grad(p.loss, rule=IL(**settings))(p.model, p.inputs, p.target)
    plain = dendrax.grad(p.loss, rule=IL(gamma=0.1, precision=2.0, batch="sum"))(
        p.model, p.inputs, p.target
    )
    assert same(found, plain)


# ---- against backpropagation ---------------------------------------------------------------------


@NO_NODE
@pytest.mark.parametrize("vertices", VERTICES)
@pytest.mark.parametrize("case", every(4, TIMED_GRAPHS))
def test_fixed_predictions_give_backprop(case, vertices):
    """On any graph, levelled or not.

    Why are no levels needed? With frozen derivatives J and gamma = 1 a step is e_i <- sum_j e_j
    J_ji over the users j. The output's error is right and never changes. Once the errors of all
    users of i are right, so is that of i, from the next step on *and for good*: nothing that
    arrived too early along a shorter path survives, since each step replaces the whole error.
    So after as many steps as the longest path is long, every error is right. Z-IL needs levels
    because there an error is right at one moment only.
    """
    args = case.make_args()
    found = dendrax.grad(case.fun, case.argnums, rule=FixedPrediction(), vertices=vertices)
    assert close(found(*args), jax.grad(case.fun, case.argnums)(*args), ulps=64)


@pytest.mark.parametrize("name", every(2, MODELS))
def test_fixed_predictions_give_backprop_on_models(name):
    p = problem(name, dtype="float64", small=True)
    args = p.model, p.inputs, p.target
    expected = jax.jit(dendrax.grad(p.loss, rule=BP()))(*args)
    graph = dendrax.trace(p.loss, *args, vertices="layer")
    levels = len(dendrax.level(graph).levels) - 1
    found = dendrax.run(graph, FixedPrediction(gamma=1, num_steps=levels))
    assert found.num_steps == levels
    assert close(found.gradient, expected, ulps=256)
    written = dendrax.level(graph).expand()

    @jax.jit
    def variations():
        longer, short, slow = (
            dendrax.run(graph, rule).gradient
            for rule in (
                FixedPrediction(num_steps=levels + 7),
                FixedPrediction(num_steps=max(levels - 2, 1)),
                FixedPrediction(num_steps=400, gamma=0.3),
            )
        )
        return longer, dendrax.run(written, FixedPrediction()).gradient, short, slow

    longer, with_delays, short, slow = variations()
    assert close(longer, expected, ulps=256)
    assert close(with_delays, expected, ulps=256)
    assert levels <= 2 or distance(short, expected) > 1e-6
    assert close(slow, expected, ulps=1e4)


def test_converged_il_tends_to_backprop_as_precision_grows():
    """At the rate 1 / precision: the settled errors are the backprop errors to that order."""
    p = problem("mlp", dtype="float64", small=True)
    args = p.model, p.inputs, p.target
    expected = jax.grad(p.loss)(*args)
    off = [
        distance(
            dendrax.grad(p.loss, rule=IL(20_000, 0.2, precision=10.0**k, tol=1e-15, batch="sum"))(
                *args
            ),
            expected,
        )
        for k in range(2, 6)
    ]
    np.testing.assert_allclose(np.array(off[:-1]) / off[1:], 10.0, rtol=0.05)


def test_il_depends_on_the_vertices_and_zil_does_not():
    p = problem("mlp", dtype="float64", small=True)
    args = p.model, p.inputs, p.target
    il = [
        dendrax.grad(p.loss, rule=IL(batch="sum"), vertices=v)(*args)
        for v in ("primitive", "layer")
    ]
    zil = [dendrax.grad(p.loss, rule=ZIL(), vertices=v)(*args) for v in ("primitive", "layer")]
    assert distance(*il) > 1e-2
    assert same(*zil)


def test_incremental_pc_lands_where_its_weights_went():
    """A literal loop: x and weights move at once, by `jax.grad` of the energy with both free."""
    rng = np.random.default_rng(2)
    w = [jnp.asarray(rng.normal(size=s)) for s in ((3, 4), (4, 2))]
    a, y = jnp.asarray(rng.normal(size=(5, 3))), jnp.asarray(rng.normal(size=(5, 2)))

    def loss(w, a, y):
        return jnp.sum((jnp.tanh(a @ w[0]) @ w[1] - y) ** 2) / 2

    def whole(x, w):
        out = jnp.tanh(x) @ w[1]
        return jnp.sum((a @ w[0] - x) ** 2) / 2 + jnp.sum((out - y) ** 2) / 2

    x, now, alpha, gamma = a @ w[0], w, 0.03, 0.1
    for _ in range(7):
        dx, dw = jax.grad(whole, (0, 1))(x, now)
        x, now = x - gamma * dx, [u - alpha * d for u, d in zip(now, dw, strict=True)]
    rule = IncrementalPC(num_steps=7, gamma=gamma, learning_rate=alpha, batch="sum")
    gradient = dendrax.grad(loss, rule=rule)(w, a, y)
    landed = [u - alpha * g for u, g in zip(w, gradient, strict=True)]
    for found, expected in zip(landed, now, strict=True):
        np.testing.assert_allclose(found, expected, rtol=1e-12)


def test_error_pc_against_a_literal_loop():
    rng = np.random.default_rng(2)
    w = [jnp.asarray(rng.normal(size=s)) for s in ((3, 4), (4, 4), (4, 2))]
    a, y = jnp.asarray(rng.normal(size=(5, 3))), jnp.asarray(rng.normal(size=(5, 2)))

    def loss(w, a, y):
        return jnp.sum((jnp.tanh(jnp.tanh(a @ w[0]) @ w[1]) @ w[2] - y) ** 2) / 2

    def states(e):
        x1 = a @ w[0] - e[0]
        x2 = jnp.tanh(x1) @ w[1] - e[1]
        return x1, x2

    def whole(e):
        x2 = states(e)[1]
        return sum(jnp.sum(u**2) for u in e) / 2 + jnp.sum((jnp.tanh(x2) @ w[2] - y) ** 2) / 2

    e = [jnp.zeros((5, 4))] * 2
    for _ in range(6):
        e = [u - 0.1 * d for u, d in zip(e, jax.grad(whole)(e), strict=True)]
    x1, x2 = states(e)
    out = jnp.tanh(x2) @ w[2] - y
    expected = [a.T @ e[0], jnp.tanh(x1).T @ e[1], jnp.tanh(x2).T @ out]
    found = dendrax.grad(loss, rule=ErrorPC(num_steps=6, gamma=0.1, batch="sum"))(w, a, y)
    for got, want in zip(found, expected, strict=True):
        np.testing.assert_allclose(got, want, rtol=1e-11, atol=1e-13)
