"""IL and its relatives: against `jax.grad` of the whole energy, against theory, and against BP."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import dendrax
from dendrax import BP, IL, ZIL, ErrorPC, FixedPrediction, IncrementalPC
from dendrax.models import problem
from tests.cases.graphs import GRAPHS
from tests.compare import close, distance, same
from tests.reference import energy

GRAPH_IDS = [case.name for case in GRAPHS]
MODELS = ["mlp", "cnn", "rnn", "rnn_scan", "fc_resnet", "transformer"]
SLOW_MODELS = [pytest.param(n, marks=pytest.mark.slow) for n in ("resnet18", "transformer12")]
# Few of the small graphs have layers.
VERTICES = ["primitive", pytest.param("layer", marks=pytest.mark.slow)]
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
    slope = jax.jit(jax.grad(functools.partial(energy, graph, precision=precision)))
    for t in range(steps):
        x, after = nodes_at(graph, result, t), nodes_at(graph, result, t + 1)
        expected = slope(x)
        assert float(result.energy[t]) == pytest.approx(
            float(energy(graph, x, precision=precision)), rel=1e-12
        )
        scale = max([float(jnp.max(jnp.abs(g))) for g in expected.values()], default=1.0)
        for key, gradient in expected.items():
            change = -rule.gamma / precision * jnp.conj(gradient)
            np.testing.assert_allclose(
                after[key] - x[key], change, rtol=1e-9, atol=1e-13 * max(scale / precision, 1)
            )


# ---- the equations -------------------------------------------------------------------------------


@NO_NODE
@pytest.mark.parametrize("vertices", VERTICES)
@pytest.mark.parametrize("case", GRAPHS, ids=GRAPH_IDS)
def test_each_step_is_the_gradient_of_the_energy(case, vertices):
    check_steps(traced(case, vertices), IL(num_steps=4, gamma=0.05, init="noise"))


@pytest.mark.parametrize("name", [*MODELS, *SLOW_MODELS])
def test_each_step_of_a_model_is_the_gradient_of_the_energy(name):
    rule = IL(num_steps=4, gamma=0.02, init=lambda v, mu: mu + 0.01 * jnp.cos(mu), precision=3.0)
    check_steps(model_graph(name), rule, precision=3.0)


@pytest.mark.parametrize("name", ["mlp", "cnn", "rnn", "fc_resnet"])
def test_each_step_of_a_model_by_operation(name):
    check_steps(model_graph(name, "primitive"), IL(num_steps=4, gamma=0.02))


def test_delays_have_value_nodes_too():
    """On a levelled graph a step is the gradient of the energy of the graph written out."""
    graph = model_graph("fc_resnet")
    written = dendrax.level(graph).expand()
    assert len(written.nodes) > len(graph.nodes)
    check_steps(written, IL(num_steps=4, gamma=0.02, init="noise"))
    found = dendrax.run(graph, IL(levelled=True, init="noise", num_steps=5), record="energy")
    by_hand = dendrax.run(written, IL(init="noise", num_steps=5), record="energy")
    assert same(found.gradient, by_hand.gradient)
    assert same(found.energy, by_hand.energy)
    flat = dendrax.run(graph, IL(init="noise", num_steps=5)).gradient
    assert distance(flat, found.gradient) > 1e-3


def test_complex_value_nodes_descend():
    def fun(w):
        z = jnp.exp(1j * w) * jnp.conj(w * (1.0 + 0.5j))
        return jnp.sum(jnp.abs(jnp.sin(z)) ** 2)

    graph = dendrax.trace(fun, jnp.asarray([0.3 + 0.1j, -0.5 + 0.4j]))
    check_steps(graph, IL(num_steps=4, gamma=0.02, init="noise"))
    for rule in (IL(gamma=0.02, num_steps=50), ErrorPC(gamma=0.02, num_steps=50)):
        descent = dendrax.run(graph, rule, record="energy").energy
        assert (np.diff(descent) <= 0).all()
    assert close(
        dendrax.run(graph, FixedPrediction()).gradient, jax.grad(fun)(*graph.call.leaves()[-1:])
    )


@pytest.mark.parametrize("rule", [IL(num_steps=60, gamma=0.01), ErrorPC(num_steps=60, gamma=0.01)])
@pytest.mark.parametrize("name", ["mlp", "cnn", "rnn", "fc_resnet", "transformer"])
def test_small_gamma_lowers_the_energy_at_every_step(name, rule):
    descent = dendrax.run(model_graph(name), rule, record="energy").energy
    assert len(descent) == 61
    assert (np.diff(descent) < 0).all()


@pytest.mark.parametrize("rule", [IL, ErrorPC])
def test_at_convergence_the_gradient_of_the_energy_is_zero(rule):
    graph = model_graph("mlp")
    result = dendrax.run(graph, rule(num_steps=5000, gamma=0.2, tol=1e-13), record="x")
    assert result.converged and result.num_steps < 5000 and len(result.x) == result.num_steps + 1
    gradient = jax.grad(functools.partial(energy, graph))(nodes_at(graph, result, -1))
    assert max(float(jnp.max(jnp.abs(g))) for g in gradient.values()) < 1e-12


def test_il_and_error_pc_have_the_same_equilibrium():
    graph = model_graph("rnn")
    settled = [
        dendrax.run(graph, rule, record="x")
        for rule in (IL(20_000, 0.1, tol=1e-14), ErrorPC(20_000, 0.1, tol=1e-14))
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
    for rule in (IL(5000, 0.05, tol=1e-14), ErrorPC(5000, 0.05, tol=1e-14)):
        graph = dendrax.trace(loss, [jnp.asarray(W), jnp.asarray(V)], a, y, vertices="layer")
        result = dendrax.run(graph, rule, record="x")
        np.testing.assert_allclose(result.x[-1][graph.nodes[0]], x, atol=1e-12)
        for found, gradient in zip(result.gradient, expected, strict=True):
            np.testing.assert_allclose(found, gradient, atol=1e-12)


# ---- the batch -----------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["mlp", "cnn", "rnn", "fc_resnet", "transformer"])
@pytest.mark.parametrize("rule", [IL, ErrorPC])
def test_a_mean_over_the_batch_is_the_mean_over_samples(name, rule):
    """And without batch='mean' it is not."""
    p = problem(name, dtype="float64", small=True)
    # The Transformer's positions could be a batch too, as far as shapes tell.
    batch = len(p.inputs) if name == "transformer" else "mean"
    whole = dendrax.grad(p.loss, rule=rule(5, 0.1, batch=batch))(p.model, p.inputs, p.target)
    alone = [
        dendrax.grad(p.loss, rule=rule(5, 0.1))(p.model, x[None], y[None])
        for x, y in zip(p.inputs, p.target, strict=True)
    ]
    mean = jax.tree.map(lambda *g: sum(g) / len(g), *alone)
    scale = distance(mean, jax.tree.map(jnp.zeros_like, mean))
    assert distance(whole, mean) < 1e-13 * scale
    plain = dendrax.grad(p.loss, rule=rule(5, 0.1))(p.model, p.inputs, p.target)
    assert distance(plain, mean) > 1e-4 * scale


def test_precision_is_the_same_thing():
    p = problem("mlp", dtype="float64", small=True)
    args = p.model, p.inputs, p.target
    by_name = dendrax.grad(p.loss, rule=IL(batch="mean"))(*args)
    assert close(dendrax.grad(p.loss, rule=IL(precision=1 / 4))(*args), by_name)
    assert close(dendrax.grad(p.loss, rule=IL(precision=lambda v: 0.25))(*args), by_name)
    uneven = IL(precision=lambda v: 1.0 if v.name == "model.layers[0]" else 2.0)
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
    assert close(found, dendrax.grad(deeper, rule=IL(precision=1 / 7))(third, x))
    with pytest.raises(
        ValueError, match="batch='mean' needs one axis that the data and all value nodes share"
    ):
        mixed = lambda w, x: loss(w, x) + jnp.sum(jnp.tanh(w[2] @ jnp.ones(3)) @ w[2])
        dendrax.grad(mixed, rule=rule)(third, x)


def test_a_batch_behind_features_of_equal_size():
    """Two hidden layers of 4 units, columns are samples: the batch is 5, not 4."""

    def loss(w, x):
        h = jnp.tanh(w[1] @ jnp.tanh(w[0] @ x))
        return jnp.mean(jnp.sum((w[2] @ h) ** 2, 0))

    rng = np.random.default_rng(0)
    w = [jnp.asarray(rng.normal(size=s)) for s in ((4, 3), (4, 4), (2, 4))]
    x = jnp.asarray(rng.normal(size=(3, 5)))
    expected = dendrax.grad(loss, rule=IL(precision=1 / 5))(w, x)
    assert close(dendrax.grad(loss, rule=IL(batch=5))(w, x), expected)
    assert close(dendrax.grad(loss, rule=IL(batch="mean"))(w, x), expected)


def test_numpy_numbers_as_settings():
    p = problem("mlp", dtype="bfloat16", small=True)
    settings = {"gamma": np.float64(0.1), "precision": np.float32(2.0)}
    found = dendrax.grad(p.loss, rule=IL(**settings))(p.model, p.inputs, p.target)
    plain = dendrax.grad(p.loss, rule=IL(gamma=0.1, precision=2.0))(p.model, p.inputs, p.target)
    assert same(found, plain)


# ---- against backpropagation ---------------------------------------------------------------------


@NO_NODE
@pytest.mark.parametrize("vertices", VERTICES)
@pytest.mark.parametrize("case", GRAPHS, ids=GRAPH_IDS)
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


@pytest.mark.parametrize("name", MODELS)
def test_fixed_predictions_give_backprop_on_models(name):
    p = problem(name, dtype="float64", small=True)
    args = p.model, p.inputs, p.target
    expected = dendrax.grad(p.loss, rule=BP())(*args)
    graph = dendrax.trace(p.loss, *args, vertices="layer")
    levels = len(dendrax.level(graph).levels) - 1
    found = dendrax.run(graph, FixedPrediction(gamma=1, num_steps=levels))
    assert found.num_steps == levels
    assert close(found.gradient, expected, ulps=256)
    longer = dendrax.run(graph, FixedPrediction(num_steps=levels + 7)).gradient
    assert close(longer, expected, ulps=256)
    written = dendrax.level(graph).expand()
    assert close(dendrax.run(written, FixedPrediction()).gradient, expected, ulps=256)
    if levels > 2:
        short = dendrax.run(graph, FixedPrediction(num_steps=levels - 2)).gradient
        assert distance(short, expected) > 1e-6
    slow = dendrax.run(graph, FixedPrediction(num_steps=400, gamma=0.3)).gradient
    assert close(slow, expected, ulps=1e4)


def test_converged_il_tends_to_backprop_as_precision_grows():
    """At the rate 1 / precision: the settled errors are the backprop errors to that order."""
    p = problem("mlp", dtype="float64", small=True)
    args = p.model, p.inputs, p.target
    expected = jax.grad(p.loss)(*args)
    off = [
        distance(
            dendrax.grad(p.loss, rule=IL(20_000, 0.2, precision=10.0**k, tol=1e-15))(*args),
            expected,
        )
        for k in range(2, 6)
    ]
    np.testing.assert_allclose(np.array(off[:-1]) / off[1:], 10.0, rtol=0.05)


def test_il_depends_on_the_vertices_and_zil_does_not():
    p = problem("mlp", dtype="float64", small=True)
    args = p.model, p.inputs, p.target
    il = [dendrax.grad(p.loss, rule=IL(), vertices=v)(*args) for v in ("primitive", "layer")]
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
    rule = IncrementalPC(num_steps=7, gamma=gamma, learning_rate=alpha)
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
    found = dendrax.grad(loss, rule=ErrorPC(num_steps=6, gamma=0.1))(w, a, y)
    for got, want in zip(found, expected, strict=True):
        np.testing.assert_allclose(got, want, rtol=1e-11, atol=1e-13)


# ---- settings, records, results ------------------------------------------------------------------


def test_target_setting():
    """The paper's: a vector output clamped to a target, quadratic energy everywhere."""
    p = problem("mlp", dtype="float64", small=True)
    graph = dendrax.trace(p.predict, p.model, p.inputs, vertices="layer")
    result = dendrax.run(graph, IL(num_steps=9), target=p.target, record=("energy", "epsilon"))

    def loss(model, x, y):
        return jnp.sum((p.predict(model, x) - y) ** 2) / 2

    expected = dendrax.grad(loss, rule=IL(num_steps=9))(p.model, p.inputs, p.target)
    assert close(result.gradient, expected)
    np.testing.assert_allclose(
        result.epsilon[0]["output"], p.predict(p.model, p.inputs) - p.target, rtol=1e-12
    )


def test_prediction_by_inference():
    p = problem("mlp", dtype="float64", small=True)
    graph = dendrax.trace(p.predict, p.model, p.inputs, vertices="layer")
    result = dendrax.run(graph, IL(2000, 0.2, init="zeros"), record="energy")
    assert result.gradient is None
    np.testing.assert_allclose(result.output, p.predict(p.model, p.inputs), atol=1e-10)


@pytest.mark.parametrize(
    "rule",
    [
        IL(num_steps=6),
        IL(num_steps=6, tol=1e-12),
        FixedPrediction(num_steps=6, gamma=0.5),
        IncrementalPC(num_steps=6),
        ErrorPC(num_steps=6),
    ],
    ids=["il", "il-tol", "fixed", "incremental", "error"],
)
def test_records(rule):
    graph = model_graph("mlp")
    result = dendrax.run(graph, rule, record=("energy", "x", "mu", "epsilon"))
    assert result.num_steps == 6
    assert result.energy.shape == (7,)
    for quantity in (result.x, result.mu, result.epsilon, result.energies):
        assert len(quantity) == 7
        assert set(quantity[0]) == set(graph.active)
    for v in graph.active:
        np.testing.assert_allclose(
            result.epsilon[:][v], result.mu[:][v] - result.x[:][v], atol=1e-14
        )
    shares = sum(np.asarray(result.energies[:][v]) for v in graph.active)
    np.testing.assert_allclose(shares, result.energy, rtol=1e-12)
    quiet = dendrax.run(graph, rule)
    assert quiet.energy is None and quiet.x is None
    assert close(quiet.gradient, result.gradient)
    assert f"{rule}: 6 steps" in repr(result) and "recorded: energy, x" in repr(result)


def test_energies_of_zil_by_vertex():
    graph = model_graph("mlp")
    result = dendrax.run(graph, ZIL(), record="energy")
    shares = sum(np.asarray(result.energies[:][v]) for v in graph.active)
    np.testing.assert_allclose(shares, result.energy, rtol=1e-12)


def test_starts():
    graph = model_graph("mlp")
    first = {
        init: dendrax.run(graph, IL(num_steps=1, init=init), record="x").x[0]
        for init in ("forward", "zeros", "noise")
    }
    node = graph.nodes[1]
    assert (first["zeros"][node] == 0).all()
    np.testing.assert_allclose(
        first["noise"][node] - first["forward"][node],
        jax.random.normal(jax.random.fold_in(jax.random.key(0), node.index), node.shape, "float64"),
        rtol=1e-12,
    )
    given = {v.name: np.full(v.shape, i + 1.0) for i, v in enumerate(graph.nodes)}
    result = dendrax.run(
        graph, IL(num_steps=1, init=lambda v, mu: jnp.asarray(given[v.name])), record="x"
    )
    assert all((result.x[0][name] == value).all() for name, value in given.items())


def test_optimizers_for_the_value_nodes():
    graph = model_graph("mlp")
    plain = dendrax.run(graph, IL(num_steps=30, gamma=0.1), record="x")
    sgd = dendrax.run(graph, IL(num_steps=30, optimizer=optax.sgd(0.1)), record="x")
    assert close(sgd.gradient, plain.gradient)
    with jax.numpy_dtype_promotion("standard"):  # which optax.adam relies on
        adam = dendrax.run(graph, IL(num_steps=300, optimizer=optax.adam(0.05)), record="energy")
    assert adam.energy[-1] < plain.descent.ends[1]
    weighted = IL(num_steps=30, optimizer=optax.sgd(0.1), precision=4.0)
    assert close(
        dendrax.run(graph, weighted).gradient,
        dendrax.run(graph, IL(num_steps=30, precision=4.0)).gradient,
    )


def test_tol_stops_early_and_says_so():
    graph = model_graph("mlp")
    done = dendrax.run(graph, IL(num_steps=5000, gamma=0.2, tol=1e-6), record="energy")
    assert done.converged and 10 < done.num_steps < 5000 and done.advice == ""
    assert len(done.energy) == done.num_steps + 1
    exact = dendrax.run(graph, IL(num_steps=done.num_steps, gamma=0.2))
    assert close(exact.gradient, done.gradient)
    short = dendrax.run(graph, IL(num_steps=3, gamma=0.2, tol=1e-6))
    assert not short.converged and short.num_steps == 3
    assert "did not converge in 3 steps" in short.advice and short.advice in repr(short)


@pytest.mark.parametrize("record", [(), ("energy",)])
def test_divergence_is_reported_with_the_step_and_a_remedy(record):
    graph = model_graph("fc_resnet")
    result = dendrax.run(graph, IL(num_steps=300, gamma=3.0), record=record)
    assert 1 <= result.diverged_at < 20
    assert f"from step {result.diverged_at} on" in result.advice
    assert "Try a smaller gamma than 3, for instance 0.75" in result.advice
    assert result.advice in repr(result)
    fine = dendrax.run(graph, IL(num_steps=30, gamma=0.02), record=record)
    assert fine.diverged_at is None and fine.advice == ""


def test_divergence_before_the_numbers_overflow():
    result = dendrax.run(model_graph("fc_resnet"), IL(num_steps=5, gamma=3.0))
    assert np.isfinite(result.descent.ends[1]) and result.diverged_at is not None


def test_a_start_that_is_not_finite():
    result = dendrax.run(model_graph("mlp"), IL(num_steps=3, init=lambda v, mu: mu * jnp.nan))
    assert result.diverged_at == 0
    assert "from the start" in result.advice and "init='forward'" in result.advice


def test_rounding_is_not_divergence():
    p = problem("transformer", dtype="float32", small=True)
    graph = dendrax.trace(p.predict, p.model, p.inputs, vertices="layer")
    assert dendrax.run(graph, IL(num_steps=20)).diverged_at is None


def test_advice_fits_the_rule():
    graph = model_graph("fc_resnet")
    wild = dendrax.run(graph, IL(num_steps=30, optimizer=optax.sgd(5.0)))
    assert "an optimizer with a smaller learning rate" in wild.advice
    assert "optax" not in dendrax.run(graph, ErrorPC(num_steps=30, gamma=5.0)).advice


def test_results_inside_jit():
    graph = model_graph("mlp")
    rule = IL(num_steps=4000, gamma=0.2, tol=1e-6)
    outside = dendrax.run(graph, rule, record=("energy", "x"))

    @jax.jit
    def inside(leaves):
        result = dendrax.run(graph, rule, *leaves, record=("energy", "x"))
        assert "not known yet" in repr(result)
        return result.energy[-1], result.x[-1][graph.nodes[0]]

    p = problem("mlp", dtype="float64", small=True)
    found = inside((p.model, p.inputs, p.target))
    assert close(found, (outside.energy[-1], outside.x[-1][graph.nodes[0]]), ulps=64)


# ---- composing with JAX --------------------------------------------------------------------------

RULES = {
    "il": IL(num_steps=5),
    "il-tol": IL(num_steps=5, tol=1e-9),
    "levelled": IL(num_steps=5, levelled=True),
    "momentum": IL(num_steps=5, optimizer=optax.sgd(0.1, momentum=0.9)),
    "fixed": FixedPrediction(num_steps=4, gamma=0.5),
    "incremental": IncrementalPC(num_steps=5),
    "error": ErrorPC(num_steps=5),
}


@pytest.mark.parametrize("rule", RULES.values(), ids=RULES)
def test_jit_vmap_aux_and_vjp(rule):
    p = problem("mlp", dtype="float64", small=True)
    args = p.model, p.inputs, p.target
    expected = dendrax.value_and_grad(p.loss, rule=rule)(*args)
    assert close(expected[0], p.loss(*args))
    assert close(jax.jit(dendrax.value_and_grad(p.loss, rule=rule))(*args), expected)
    with_aux = dendrax.value_and_grad(
        lambda *args: (p.loss(*args), {"n": 3}), has_aux=True, rule=rule
    )
    (value, aux), gradient = with_aux(*args)
    assert aux == {"n": 3} and close((value, gradient), expected)
    y, pull = dendrax.vjp(lambda model: p.loss(model, *args[1:]), p.model, rule=rule)
    assert close((y, pull(jnp.ones_like(y))[0]), expected)

    @jax.jit
    def single(x, t):
        return dendrax.grad(p.loss, rule=rule)(p.model, x[None], t[None])

    batched = jax.vmap(single)(p.inputs, p.target)
    one = single(p.inputs[1], p.target[1])
    assert close(jax.tree.map(lambda g: g[1], batched), one, ulps=256)


@pytest.mark.parametrize("rule", RULES.values(), ids=RULES)
def test_inside_shard_map(rule):
    p = problem("mlp", dtype="float64", small=True)
    mesh = jax.sharding.Mesh(np.array(jax.devices()[:2]), ("batch",))
    spec = jax.sharding.PartitionSpec

    def local(model, x, y):
        model = jax.tree.map(lambda w: jax.lax.pcast(w, "batch", to="varying"), model)
        return jax.lax.pmean(dendrax.grad(p.loss, rule=rule)(model, x, y), "batch")

    shards = spec("batch")
    step = jax.shard_map(local, mesh=mesh, in_specs=(spec(), shards, shards), out_specs=spec())
    found = jax.jit(step)(p.model, p.inputs, p.target)
    halves = [
        dendrax.grad(p.loss, rule=rule)(p.model, p.inputs[i : i + 2], p.target[i : i + 2])
        for i in (0, 2)
    ]
    assert close(found, jax.tree.map(lambda a, b: (a + b) / 2, *halves), ulps=1e4)


def test_no_tracer_leaks(no_leaks):
    p = problem("mlp", dtype="float64", small=True)
    step = jax.jit(dendrax.value_and_grad(p.loss, rule=IL(num_steps=5)))
    step(p.model, p.inputs, p.target)


@pytest.mark.parametrize("name", ["il", "levelled", "momentum", "fixed", "incremental", "error"])
def test_gradients_can_be_differentiated(name):
    """Through the loop, for those who learn to learn: against finite differences."""
    p = problem("mlp", dtype="float64", small=True)

    def norm(scale):
        gradient = dendrax.grad(p.loss, rule=RULES[name])(p.model, scale * p.inputs, p.target)
        return sum(jnp.sum(g**2) for g in jax.tree.leaves(gradient))

    slope = jax.grad(norm)(1.0)
    step = 1e-5
    assert float(slope) == pytest.approx(
        float((norm(1 + step) - norm(1 - step)) / (2 * step)), rel=1e-5
    )


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float16"])
def test_low_precision(dtype):
    p = problem("cnn", dtype=dtype, small=True)
    for rule in RULES.values():
        gradient = jax.jit(dendrax.grad(p.loss, rule=rule))(p.model, p.inputs, p.target)
        leaves = jax.tree.leaves(gradient)
        assert all(g.dtype == dtype and np.isfinite(g).all() for g in leaves)


# ---- cost ----------------------------------------------------------------------------------------


def jaxpr_of(rule, name="cnn"):
    p = problem(name, small=True)
    return jax.make_jaxpr(dendrax.grad(p.loss, rule=rule))(p.model, p.inputs, p.target)


def equations(jaxpr):
    for eqn in jaxpr.eqns:
        yield eqn
        for value in eqn.params.values():
            inner = getattr(value, "jaxpr", value)
            if hasattr(inner, "eqns"):
                yield from equations(inner)


def loop_body(jaxpr):
    (loop,) = [eqn for eqn in jaxpr.eqns if eqn.primitive.name in ("scan", "while")]
    return loop.params["jaxpr" if "jaxpr" in loop.params else "body_jaxpr"].jaxpr


def count(jaxpr, *primitives):
    return sum(eqn.primitive.name in primitives for eqn in equations(jaxpr))


@pytest.mark.parametrize("rule", [IL, IncrementalPC, ErrorPC, FixedPrediction])
def test_the_program_does_not_grow_with_the_number_of_steps(rule):
    short, long = (jaxpr_of(rule(num_steps=n, gamma=0.1)).jaxpr for n in (20, 1000))
    assert len(list(equations(short))) == len(list(equations(long)))


def test_memory_does_not_grow_with_the_number_of_steps():
    p = problem("cnn", small=True)

    def memory(num_steps):
        step = jax.jit(dendrax.grad(p.loss, rule=IL(num_steps=num_steps)))
        compiled = step.lower(p.model, p.inputs, p.target).compile()
        return compiled.memory_analysis().temp_size_in_bytes

    assert memory(20) == memory(1000)


def test_nothing_clamped_is_computed_again():
    """Two convolutions and two dense layers, the first clamped: three predictions and messages."""
    body = loop_body(jaxpr_of(IL()).jaxpr)
    assert count(body, "conv_general_dilated") == 2  # the second's prediction and message
    assert count(body, "dot_general") == 4  # prediction and message of either dense layer
    fixed = loop_body(jaxpr_of(FixedPrediction(num_steps=5)).jaxpr)
    assert count(fixed, "conv_general_dilated") == 1
    assert count(fixed, "dot_general") == 1  # the output's message does not change either


# ---- bad input -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: IL(gamma=0), r"IL: gamma=0 is not a positive Python number.*small gamma"),
        (lambda: IL(gamma=-0.1), "gamma=-0.1 is not a positive"),
        (lambda: IL(gamma=float("nan")), "gamma=nan is not a positive"),
        (lambda: IL(gamma=True), "gamma=True is not a positive"),
        (
            lambda: IL(precision=0.0),
            r"precision=0.0 is not a positive Python number.*backpropagation",
        ),
        (lambda: IL(precision="high"), "precision='high' is not a positive"),
        (lambda: IL(num_steps=0), "IL: num_steps=0 is not a positive integer"),
        (lambda: IL(num_steps=2.5), "num_steps=2.5 is not a positive integer"),
        (lambda: IL(num_steps=True), "num_steps=True is not a positive integer"),
        (lambda: IL(init="random"), r"init='random' is not known.*'forward', 'zeros', 'noise'"),
        (lambda: IL(tol=0), "IL: tol=0 is not a positive"),
        (lambda: IL(batch="sum"), "batch='sum' is not known.*'mean'"),
        (lambda: IL(levelled=2), "levelled=2 is not known"),
        (lambda: FixedPrediction(num_steps=-1), "num_steps=-1 is not a positive integer"),
        (lambda: FixedPrediction(gamma=2.0), r"errors grow without end.*between 0 and 2"),
        (lambda: IncrementalPC(learning_rate=0), r"learning_rate=0 is not a positive.*step size"),
        (lambda: IncrementalPC(num_steps="20"), "num_steps='20' is not a positive integer"),
        (lambda: ErrorPC(gamma="0.1"), "ErrorPC: gamma='0.1' is not a positive"),
        (lambda: ErrorPC(precision=-1), "ErrorPC: precision=-1 is not a positive"),
    ],
)
def test_wrong_settings(make, message):
    with pytest.raises(ValueError, match=f"(?s){message}"):
        make()


def test_wrong_optimizer():
    with pytest.raises(TypeError, match=r"(?s)optimizer='adam' is not an optax optimizer.*optax"):
        IL(optimizer="adam")


def test_wrong_precision_of_a_vertex():
    p = problem("mlp", small=True)
    rule = IL(precision=lambda v: -1.0)
    with pytest.raises(ValueError, match=r"precision of model.layers\[0\]=-1.0 is not a positive"):
        dendrax.grad(p.loss, rule=rule)(p.model, p.inputs, p.target)


def test_a_wrong_start():
    p = problem("mlp", small=True)
    rule = IL(init=lambda v, mu: mu[0])
    with pytest.raises(ValueError, match=r"(?s)init.*model.layers\[0\].*\(8,\).*\(4, 8\)"):
        dendrax.grad(p.loss, rule=rule)(p.model, p.inputs, p.target)
