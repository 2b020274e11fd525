"""What a result, a record and a moment say of themselves, in text and in a notebook."""

import copy

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import dendrax
from dendrax import BP, IL, ZIL

X, TARGET = jnp.ones((5, 3), jnp.float32), jnp.zeros((5, 2), jnp.float32)
QUANTITIES = ("energy", "x", "mu", "epsilon", "statistics")


def network(w, x):
    return jnp.tanh(jnp.tanh(x @ w["<b>"]) @ w["out"])


def loss(w, x):
    return jnp.sum(network(w, x) ** 2)


@pytest.fixture(scope="module")
def weights():
    shapes = {"<b>": (3, 4), "out": (4, 2)}
    return {
        name: jax.random.normal(jax.random.key(k), shape, jnp.float32) / 2
        for k, (name, shape) in enumerate(shapes.items())
    }


@pytest.fixture(scope="module")
def graph(weights):
    return dendrax.trace(network, weights, X, vertices="layer")


@pytest.fixture(scope="module")
def recorded(graph):
    return dendrax.run(graph, IL(num_steps=4, batch="sum"), target=TARGET, record=QUANTITIES)


@pytest.fixture(scope="module")
def quiet(graph):
    return dendrax.run(graph, IL(num_steps=4, batch="sum"), target=TARGET)


@pytest.mark.parametrize("name", [*QUANTITIES, "energies", "waiting"])
def test_what_was_not_recorded_says_how_to_record_it(quiet, recorded, name):
    word = {"energies": "energy", "waiting": "statistics"}.get(name, name)
    remedy = rf"Result: {name} was not recorded\.\n  Write dendrax\.run\(\.\.\., record='{word}'\)"
    with pytest.raises(AttributeError, match=remedy) as found:
        getattr(quiet, name)
    assert found.value.obj is None  # so Python does not guess another name
    assert not hasattr(quiet, name) and getattr(quiet, name, None) is None
    assert hasattr(recorded, name) and hasattr(copy.copy(recorded), name)


def test_a_record_is_asked_for_a_time_first(recorded):
    with pytest.raises(
        TypeError, match=r"time first, got 'output': write x\[t\]\[vertex\], or x\[:\]"
    ):
        recorded.x["output"]


def test_a_plot_still_speaks_for_itself(quiet):
    with pytest.raises(ValueError, match=r"draw.energy: the result has no record of 'energy'"):
        dendrax.draw.energy(quiet)


def test_a_free_prediction_says_why_it_has_no_gradient(graph, quiet, weights):
    free = dendrax.run(graph, IL(num_steps=4, batch="sum"))
    assert free.gradient is None
    for text in (repr(free), free._repr_html_()):
        assert "None, because nothing was clamped" in text
        assert "target=...), or trace a function that returns a scalar loss" in text
    of_a_loss = dendrax.run(dendrax.trace(loss, weights, X), ZIL())
    for found in (quiet, of_a_loss):
        assert "gradient" not in repr(found) + found._repr_html_()


def test_a_result_is_a_table(recorded):
    text = recorded._repr_html_()
    assert text.count("<tr>") == 1 + len(recorded._facts) == 3
    assert f">{', '.join(QUANTITIES)}</td>" in text
    assert "-&gt;" in text and repr(recorded).splitlines()[1].startswith("  energy ")


def test_advice_stands_below_the_table(graph):
    wild = dendrax.run(graph, IL(num_steps=9, gamma=60.0, batch="sum"), target=TARGET)
    assert wild.advice and wild.advice in repr(wild)
    assert "<p>Inference diverged" in wild._repr_html_()


def test_a_moment_shows_each_vertex(graph, recorded):
    moment = recorded.epsilon[-1]
    title, heading, *rows = repr(moment).splitlines()
    assert title == "epsilon of 2 vertices at time 4"
    assert heading.split("  ")[-1] == "root mean square"
    assert [row.split()[0] for row in rows] == [v.name for v in graph.active]
    for row, error in zip(rows, moment.values(), strict=True):
        assert float(row.split()[-1]) == pytest.approx(np.sqrt(np.mean(error**2)), rel=1e-3)
    for row, share in zip(
        repr(recorded.energies[2]).splitlines()[2:], recorded.energies[2].values(), strict=True
    ):
        assert float(row.split()[-1]) == pytest.approx(float(share), rel=1e-3)
    for row, sizes in zip(
        repr(recorded.statistics[2]).splitlines()[2:], recorded.statistics[2].values(), strict=True
    ):
        assert [float(text) for text in row.split()[-3:]] == pytest.approx(
            np.asarray(sizes), rel=1e-3
        )


def test_a_record_says_how_to_read_it(recorded):
    assert repr(recorded.x).startswith("Record of 5 time steps: x[t][vertex], or x[:][vertex]\n")
    assert "float32[5,5,4]" in repr(recorded.x) and "root" not in repr(recorded.x)
    assert "x of 2 vertices over time" in recorded.x._repr_html_()


def test_a_layer_without_neurons_has_errors_of_zero():
    weights = [jnp.ones((3, 0), jnp.float32), jnp.ones((0, 2), jnp.float32)]
    graph = dendrax.trace(lambda w, x: jnp.sum((x @ w[0]) @ w[1]), weights, X, vertices="layer")
    result = dendrax.run(graph, IL(num_steps=2, batch="sum"), record="epsilon")
    assert repr(result.epsilon[1]).splitlines()[2].endswith("float32[5,0]  0")


def test_several_outputs_are_one_row():
    def two(x):
        q, r = jnp.linalg.qr(jnp.sin(x))
        return jnp.sum(q[:, 0]) + jnp.sum(r**2)

    graph = dendrax.trace(two, jax.random.normal(jax.random.key(0), (5, 2), jnp.float32))
    result = dendrax.run(graph, ZIL(), record=("epsilon", "statistics"))
    name = next(v.name for v in graph.active if len(v.outputs) > 1)
    t = dendrax.level(graph).level_of[graph[name].index]
    (row,) = (row for row in repr(result.epsilon[t]).splitlines() if row.split()[0] == name)
    flat = np.concatenate([np.ravel(error) for error in result.epsilon[t][name]])
    size = np.sqrt(np.mean(flat**2))
    assert float(row.split()[-1]) == pytest.approx(size, rel=1e-3) and size > 0
    (row,) = (row for row in repr(result.statistics[t]).splitlines() if row.split()[0] == name)
    assert float(row.split()[-3]) == pytest.approx(size, rel=1e-3)


def test_a_long_moment_shows_its_ends():
    def deep(w):
        for _ in range(100):
            w = jnp.tanh(w)
        return jnp.sum(w)

    graph = dendrax.trace(deep, jnp.ones(2, jnp.float32))
    moment = dendrax.run(graph, ZIL(), record="statistics").statistics[0]
    assert len(repr(moment).splitlines()) == 27 and "... 77 more ..." in repr(moment)
    assert moment._repr_html_().count("<tr>") == 62 and "... 41 more" in moment._repr_html_()


def test_inside_jit_the_numbers_are_not_known(graph, weights):
    def traced(x):
        result = dendrax.run(
            graph, IL(num_steps=2, batch="sum"), weights, x, target=TARGET, record="x"
        )
        assert repr(result.x[0]).count("not known inside jax.jit") == 2
        assert "numbers are not known yet" in result._repr_html_()
        return x

    jax.jit(traced)(X)


def test_vertices_that_have_no_record(recorded):
    with pytest.raises(KeyError, match=r"no vertex named 'outptu'. Did you mean 'output'"):
        recorded.epsilon[0]["outptu"]
    with pytest.raises(KeyError, match=r"'x' has no error, so nothing .* Recorded: .*, output"):
        recorded.epsilon[0]["x"]
    with pytest.raises(IndexError, match=r"time 5 was not recorded; there are 5 time steps"):
        recorded.epsilon[5]


def test_certificates_and_audits_are_tables(weights):
    found = dendrax.check(loss, weights, X)
    text = found._repr_html_()
    assert text.count("<tr>") == 3 and text.count(">yes<") == 2
    assert "exact: equal to jax.grad, bit for bit" in text
    assert "w[&#x27;&lt;b&gt;&#x27;]" in text and "<b>" not in text
    audits = [dendrax.audit(loss, weights, X, rule=rule) for rule in (IL(batch="sum"), BP())]
    local, far = (audit._repr_html_() for audit in audits)
    assert ">NO<" not in local and ">NO<" in far
    for audit, text in zip(audits, (local, far), strict=True):
        assert text.count("<tr>") == 1 + len(audit.updates) and "<b>" not in text
        assert str(audit).splitlines()[-1].rsplit(": ")[-1] in text


def test_a_graph_that_is_too_large_for_a_picture_is_text(graph):
    assert graph._repr_html_() is None and graph._repr_svg_() is not None

    def long(w):
        for _ in range(500):
            w = jnp.sin(w)
        return w

    large = dendrax.trace(long, 1.0)
    for one in (large, dendrax.level(large)):
        assert one._repr_svg_() is None
        assert one._repr_html_().startswith("<pre>") and "Graph: 501 vertices" in one._repr_html_()
