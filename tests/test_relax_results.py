"""What a run of IL and its relatives hands back: records, convergence, advice, errors."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import dendrax
from dendrax import IL, ZIL, ErrorPC, FixedPrediction, IncrementalPC
from dendrax.models import problem
from tests.compare import close, same
from tests.sampling import every
from tests.test_relax import model_graph

# ---- settings, records, results ------------------------------------------------------------------


def test_target_setting():
    """The paper's: a vector output clamped to a target, quadratic energy everywhere."""
    p = problem("mlp", dtype="float64", small=True)
    graph = dendrax.trace(p.predict, p.model, p.inputs, vertices="layer")
    result = dendrax.run(
        graph, IL(num_steps=9, batch="sum"), target=p.target, record=("energy", "epsilon")
    )

    def loss(model, x, y):
        return jnp.sum((p.predict(model, x) - y) ** 2) / 2

    expected = dendrax.grad(loss, rule=IL(num_steps=9, batch="sum"))(p.model, p.inputs, p.target)
    assert close(result.gradient, expected)
    np.testing.assert_allclose(
        result.epsilon[0]["output"], p.predict(p.model, p.inputs) - p.target, rtol=1e-12
    )


def test_prediction_by_inference():
    p = problem("mlp", dtype="float64", small=True)
    graph = dendrax.trace(p.predict, p.model, p.inputs, vertices="layer")
    result = dendrax.run(graph, IL(2000, 0.2, init="zeros", batch="sum"), record="energy")
    assert result.gradient is None
    np.testing.assert_allclose(result.output, p.predict(p.model, p.inputs), atol=1e-10)


@pytest.mark.parametrize("rule", [IL(num_steps=4, batch="sum"), ZIL()], ids=["il", "zil"])
def test_statistics_are_the_sizes_of_the_records(rule):
    p = problem("mlp", dtype="float64", small=True)
    graph = dendrax.trace(p.predict, p.model, p.inputs)
    names = ("epsilon", "x", "mu")
    result = dendrax.run(graph, rule, target=p.target, record=(*names, "statistics"))
    assert len(result.statistics) == len(result.epsilon)
    for v in result.statistics[0]:
        sizes = [jnp.sqrt(jnp.mean(getattr(result, name)[-1][v] ** 2)) for name in names]
        np.testing.assert_allclose(result.statistics[-1][v], jnp.stack(sizes), rtol=1e-12)


def test_statistics_of_delay_lines():
    """The product has its error of 1 at t = 1; a step later its message, 3, waits in the delay."""
    graph = dendrax.trace(lambda w: 3.0 * w + jnp.sin(jnp.cos(w)), 2.0)
    result = dendrax.run(graph, ZIL(), record=("epsilon", "statistics"))
    ((edge, waiting),) = result.waiting.items()
    assert dendrax.level(graph).delays[edge] == 1
    assert result.epsilon[1][edge.user] == 1.0
    assert waiting[:, 0].tolist() == [0.0, 0.0, 3.0]


def test_statistics_do_not_overflow():
    graph = dendrax.trace(lambda w: jnp.sum(1e25 * w), jnp.ones(3, jnp.float32))
    result = dendrax.run(graph, ZIL(), record="statistics")
    assert float(result.statistics[0]["mul"][1]) == pytest.approx(1e25, rel=1e-6)


RECORDED = {
    "il": IL(num_steps=6, batch="sum"),
    "incremental": IncrementalPC(num_steps=6, batch="sum"),
    "fixed": FixedPrediction(num_steps=6, gamma=0.5),
    "il-tol": IL(num_steps=6, tol=1e-12, batch="sum"),
    "error": ErrorPC(num_steps=6, batch="sum"),
}


@pytest.mark.parametrize("rule", every(2, RECORDED))
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
    assert not hasattr(quiet, "energy") and not hasattr(quiet, "x")
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
        init: dendrax.run(graph, IL(num_steps=1, init=init, batch="sum"), record="x").x[0]
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
        graph,
        IL(num_steps=1, init=lambda v, mu: jnp.asarray(given[v.name]), batch="sum"),
        record="x",
    )
    assert all((result.x[0][name] == value).all() for name, value in given.items())


def test_optimizers_for_the_value_nodes():
    graph = model_graph("mlp")
    plain = dendrax.run(graph, IL(num_steps=30, gamma=0.1, batch="sum"), record="x")
    sgd = dendrax.run(graph, IL(num_steps=30, optimizer=optax.sgd(0.1), batch="sum"), record="x")
    assert close(sgd.gradient, plain.gradient)
    with jax.numpy_dtype_promotion("standard"):  # which optax.adam relies on
        adam = dendrax.run(
            graph, IL(num_steps=300, optimizer=optax.adam(0.05), batch="sum"), record="energy"
        )
    assert adam.energy[-1] < plain.descent.end
    weighted = IL(num_steps=30, optimizer=optax.sgd(0.1), precision=4.0, batch="sum")
    assert close(
        dendrax.run(graph, weighted).gradient,
        dendrax.run(graph, IL(num_steps=30, precision=4.0, batch="sum")).gradient,
    )


def test_tol_stops_early_and_says_so():
    graph = model_graph("mlp")
    done = dendrax.run(graph, IL(num_steps=5000, gamma=0.2, tol=1e-6, batch="sum"), record="energy")
    assert done.converged and 10 < done.num_steps < 5000 and done.advice == ""
    assert len(done.energy) == done.num_steps + 1
    exact = dendrax.run(graph, IL(num_steps=done.num_steps, gamma=0.2, batch="sum"))
    assert close(exact.gradient, done.gradient)
    short = dendrax.run(graph, IL(num_steps=3, gamma=0.2, tol=1e-6, batch="sum"))
    assert not short.converged and short.num_steps == 3
    assert "did not converge in 3 steps" in short.advice and short.advice in repr(short)


@pytest.mark.parametrize("record", [(), ("energy",)])
def test_divergence_is_reported_with_the_step_and_a_remedy(record):
    graph = model_graph("fc_resnet")
    result = dendrax.run(graph, IL(num_steps=300, gamma=3.0, batch="sum"), record=record)
    assert 1 <= result.diverged_at < 20
    assert f"from step {result.diverged_at} on" in result.advice
    assert "Try a smaller gamma than 3, for instance 0.75" in result.advice
    assert result.advice in repr(result)
    fine = dendrax.run(graph, IL(num_steps=30, gamma=0.02, batch="sum"), record=record)
    assert fine.diverged_at is None and fine.advice == ""


def test_divergence_before_the_numbers_overflow():
    result = dendrax.run(model_graph("fc_resnet"), IL(num_steps=5, gamma=3.0, batch="sum"))
    assert np.isfinite(result.descent.end) and result.diverged_at is not None


def test_a_start_that_is_not_finite():
    result = dendrax.run(
        model_graph("mlp"), IL(num_steps=3, init=lambda v, mu: mu * jnp.nan, batch="sum")
    )
    assert result.diverged_at == 0
    assert "from the start" in result.advice and "init='forward'" in result.advice


def test_rounding_is_not_divergence():
    p = problem("transformer", dtype="float32", small=True)
    graph = dendrax.trace(p.predict, p.model, p.inputs, vertices="layer")
    assert dendrax.run(graph, IL(num_steps=20, batch="sum")).diverged_at is None


def test_advice_fits_the_rule():
    graph = model_graph("fc_resnet")
    wild = dendrax.run(graph, IL(num_steps=30, optimizer=optax.sgd(5.0), batch="sum"))
    assert "an optimizer with a smaller learning rate" in wild.advice
    assert "optax" not in dendrax.run(graph, ErrorPC(num_steps=30, gamma=5.0, batch="sum")).advice


def test_results_inside_jit():
    graph = model_graph("mlp")
    rule = IL(num_steps=4000, gamma=0.2, tol=1e-6, batch="sum")
    outside = dendrax.run(graph, rule, record=("energy", "x"))

    @jax.jit
    def inside(leaves):
        result = dendrax.run(graph, rule, *leaves, record=("energy", "x"))
        assert "not known yet" in repr(result)
        return result.energy[-1], result.x[-1][graph.nodes[0]]

    p = problem("mlp", dtype="float64", small=True)
    found = inside((p.model, p.inputs, p.target))
    assert close(found, (outside.energy[-1], outside.x[-1][graph.nodes[0]]), ulps=64)


# ---- bad input -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (
            lambda: IL(gamma=0, batch="sum"),
            r"IL: gamma=0 is not a positive Python number.*small gamma",
        ),
        (lambda: IL(gamma=-0.1, batch="sum"), "gamma=-0.1 is not a positive"),
        (lambda: IL(gamma=float("nan"), batch="sum"), "gamma=nan is not a positive"),
        (lambda: IL(gamma=True, batch="sum"), "gamma=True is not a positive"),
        (
            lambda: IL(precision=0.0, batch="sum"),
            r"precision=0.0 is not a positive Python number.*backpropagation",
        ),
        (lambda: IL(precision="high", batch="sum"), "precision='high' is not a positive"),
        (lambda: IL(num_steps=0, batch="sum"), "IL: num_steps=0 is not a positive integer"),
        (lambda: IL(num_steps=2.5, batch="sum"), "num_steps=2.5 is not a positive integer"),
        (lambda: IL(num_steps=True, batch="sum"), "num_steps=True is not a positive integer"),
        (
            lambda: IL(init="random", batch="sum"),
            r"init='random' is not known.*'forward', 'zeros', 'noise'",
        ),
        (lambda: IL(tol=0, batch="sum"), "IL: tol=0 is not a positive"),
        (lambda: IL(batch="some"), "batch='some' is not known.*'mean', 'sum'"),
        (lambda: IL(levelled=2, batch="sum"), "levelled=2 is not known"),
        (lambda: FixedPrediction(num_steps=-1), "num_steps=-1 is not a positive integer"),
        (lambda: IL(num_steps=10**20, batch="sum"), "num_steps=10{20} is more than 2,147,483,647"),
        (
            lambda: ErrorPC(num_steps=2**31, batch="sum"),
            "num_steps=2147483648 is more than 2,147,483,647",
        ),
        (lambda: FixedPrediction(gamma=2.0), r"errors grow without end.*between 0 and 2"),
        (
            lambda: IncrementalPC(learning_rate=0, batch="sum"),
            r"learning_rate=0 is not a positive.*step size",
        ),
        (
            lambda: IncrementalPC(num_steps="20", batch="sum"),
            "num_steps='20' is not a positive integer",
        ),
        (lambda: ErrorPC(gamma="0.1", batch="sum"), "ErrorPC: gamma='0.1' is not a positive"),
        (lambda: ErrorPC(precision=-1, batch="sum"), "ErrorPC: precision=-1 is not a positive"),
    ],
)
def test_wrong_settings(make, message):
    with pytest.raises(ValueError, match=f"(?s){message}"):
        make()


def test_wrong_optimizer():
    with pytest.raises(TypeError, match=r"(?s)optimizer='adam' is not an optax optimizer.*optax"):
        IL(optimizer="adam", batch="sum")


def test_wrong_precision_of_a_vertex():
    p = problem("mlp", small=True)
    rule = IL(precision=lambda v: -1.0, batch="sum")
    with pytest.raises(ValueError, match=r"precision of layers\[0\]=-1.0 is not a positive"):
        dendrax.grad(p.loss, rule=rule)(p.model, p.inputs, p.target)


def test_a_wrong_start():
    p = problem("mlp", small=True)
    rule = IL(init=lambda v, mu: mu[0], batch="sum")
    with pytest.raises(ValueError, match=r"(?s)init.*layers\[0\].*\(8,\).*\(4, 8\)"):
        dendrax.grad(p.loss, rule=rule)(p.model, p.inputs, p.target)


# ---- vertices that were not chosen ---------------------------------------------------------------


def test_a_graph_whose_vertices_were_not_chosen_gets_those_of_the_rule():
    p = problem("mlp", dtype="float64", small=True)
    args = p.model, p.inputs, p.target
    graph = dendrax.trace(p.loss, *args)
    for rule in (IL(batch="sum"), ZIL()):
        expected = dendrax.run(dendrax.trace(p.loss, *args, vertices=rule.vertices), rule)
        for given in (graph, dendrax.level(graph)):
            found = dendrax.run(given, rule)
            assert same(found.gradient, expected.gradient)
            assert [v.name for v in found.graph] == [v.name for v in expected.graph]
            assert found.graph.chosen == rule.vertices
    chosen = dendrax.trace(p.loss, *args, vertices="primitive")
    assert len(dendrax.run(chosen, IL(batch="sum")).graph) == len(graph) > len(found.graph.nodes)
    written = dendrax.level(graph).expand()
    assert dendrax.run(written, IL(batch="sum")).graph is written


def test_the_advice_names_the_vertices_first_where_they_are_the_cause():
    p = problem("mlp", dtype="float64", small=True)
    args, rule = (p.model, p.inputs, p.target), IL(gamma=5.0, batch="sum")
    advice = dendrax.run(dendrax.trace(p.loss, *args, vertices="primitive"), rule).advice
    assert "Try vertices='layer' (every operation is a vertex here), then a smaller gamma" in advice
    assert "vertices=" not in dendrax.run(dendrax.trace(p.loss, *args), rule).advice
