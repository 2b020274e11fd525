"""Energies: every step is the gradient of the whole energy, whatever holds the value nodes."""

import dataclasses
import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import dendrax
from dendrax import IL, Bernoulli, Categorical, ErrorPC, Gaussian, Huber, IncrementalPC, Laplace
from dendrax.models import problem
from tests.cases.graphs import TIMED_GRAPHS
from tests.compare import close, same
from tests.reference import energy
from tests.sampling import rotating


@dataclasses.dataclass(frozen=True)
class Quartic(dendrax.Energy):
    """A user's, for the whole value node."""

    def energy(self, mu, x):
        return jnp.sum((mu - x) ** 2) ** 2 + jnp.sum(mu * x) / 100


def cauchy(mu, x):
    """A user's, as a function, elementwise."""
    return jnp.log1p((mu - x) ** 2) / 2


def kl_of_bits(mu, x):
    p, q = jax.nn.sigmoid(x), jax.nn.sigmoid(mu)
    return jnp.sum(p * jnp.log(p / q) + (1 - p) * jnp.log((1 - p) / (1 - q)))


def kl_of_classes(mu, x):
    p, q = jax.nn.softmax(x), jax.nn.softmax(mu)
    return jnp.sum(p * jnp.log(p / q))


def huber(mu, x, delta=0.1):
    size = jnp.abs(mu - x)
    return jnp.sum(jnp.where(size < delta, size**2 / 2, delta * (size - delta / 2)))


# An energy, and the same written down once more.
ENERGIES = {
    "gaussian": (Gaussian(2.5), lambda mu, x: 1.25 * jnp.sum((mu - x) ** 2)),
    "laplace": (Laplace(0.4), lambda mu, x: jnp.sum(jnp.abs(mu - x)) / 0.4),
    "huber": (Huber(0.1), huber),
    "bernoulli": (Bernoulli(), kl_of_bits),
    "categorical": (Categorical(), kl_of_classes),
    "function": (cauchy, lambda mu, x: jnp.sum(cauchy(mu, x))),
    "class": (Quartic(), Quartic().energy),
}


def is_for(name, v):
    return name != "categorical" or (v.shape and v.shape[-1] > 1)


def check_steps(graph, rule, of, target=None, of_target=None, scale=1.0):
    """Each step is -gamma times `jax.grad` of the whole energy, in units of the node's own."""
    result = dendrax.run(graph, rule, target=target, record=("x", "energy"))
    whole = functools.partial(energy, graph, target=target, of=of, of_target=of_target)
    slope = jax.jit(jax.value_and_grad(whole))
    moved = 0
    for t in range(3):
        x, after = (values_at(graph, result, s) for s in (t, t + 1))
        value, expected = slope(x)
        assert float(result.energy[t]) == pytest.approx(float(value), rel=1e-10)
        for key, gradient in expected.items():
            change = np.subtract(after[key], x[key])
            units = scale(graph[key[0]]) if callable(scale) else scale
            np.testing.assert_allclose(change, -rule.gamma * gradient / units, 1e-8, 1e-12)
            moved += np.any(change != 0)
    assert moved or not nodes(graph)


def values_at(graph, result, t):
    return {
        (v.index, o): value
        for v in nodes(graph)
        for o, value in zip(
            graph.flow.emitted[v.index], jax.tree.leaves(result.x[t][v]), strict=True
        )
    }


def nodes(graph):
    return [*graph.free, *graph.nodes]


@pytest.mark.filterwarnings("ignore:.*has no value node:UserWarning")
@pytest.mark.parametrize(("case", "name"), rotating(TIMED_GRAPHS, list(ENERGIES)))
def test_each_step_is_the_gradient_of_the_energy(case, name):
    own, formula = ENERGIES[name]
    graph = dendrax.trace(case.fun, *case.make_args(), argnums=case.argnums, vertices="primitive")
    chosen = lambda v: own if is_for(name, v) else Gaussian()
    half = lambda mu, x: jnp.sum((mu - x) ** 2) / 2
    of = lambda v, mu, x: (formula if is_for(name, v) else half)(mu, x)
    units = (lambda v: 2.5) if name == "gaussian" else 1.0
    rule = IL(
        num_steps=4,
        gamma=0.01,
        init=lambda v, mu: mu + 0.1 * jnp.cos(mu),
        energies=chosen,
        batch="sum",
    )
    check_steps(graph, rule, of, scale=units)


@pytest.mark.parametrize("name", ENERGIES)
def test_each_step_of_a_network_with_a_target(name):
    """The output has the energy, too, if it is named; held at classes or bits."""
    own, formula = ENERGIES[name]
    p = problem("mlp", dtype="float64", small=True)
    graph = dendrax.trace(p.predict, p.model, p.inputs, vertices="layer")
    shape = graph[graph.outputs[0].vertex].shape
    target = jax.nn.one_hot(jnp.arange(shape[0]) % shape[1], shape[1], dtype="float64")
    at_target = {
        "bernoulli": lambda mu, y: (
            -jnp.sum(y * jax.nn.log_sigmoid(mu) + (1 - y) * jax.nn.log_sigmoid(-mu))
        ),
        "categorical": lambda mu, y: -jnp.sum(y * jax.nn.log_softmax(mu)),
    }.get(name, formula)
    rule = IL(
        num_steps=4,
        gamma=0.01,
        init=lambda v, mu: mu + 0.1 * jnp.cos(mu),
        energies={"*": own},
        batch="sum",
    )
    units = 2.5 if name == "gaussian" else 1.0
    check_steps(graph, rule, lambda v, mu, x: formula(mu, x), target, at_target, units)


def classifier():
    rng = np.random.default_rng(0)
    w = [jnp.asarray(rng.normal(size=shape)) for shape in ((3, 5), (5, 4))]
    x, y = jnp.asarray(rng.normal(size=(6, 3))), jax.nn.one_hot(jnp.arange(6) % 4, 4, dtype=float)
    return w, x, y


def logits(w, x):
    return jnp.tanh(x @ w[0]) @ w[1]


def cross_entropy(w, x, y):
    return -jnp.sum(y * jax.nn.log_softmax(logits(w, x)))


@pytest.mark.parametrize(
    "rule", [IL(10, batch="sum"), ErrorPC(5, batch="sum"), IncrementalPC(5, batch="sum")]
)
def test_a_held_categorical_output_is_the_cross_entropy(rule):
    w, x, y = classifier()
    loss, expected = dendrax.value_and_grad(cross_entropy, rule=rule)(w, x, y)
    held = dataclasses.replace(rule, energies={"output": Categorical()})
    both = dendrax.value_and_grad(logits, rule=held, target=y, has_result=True)
    (output, result), found = both(w, x)
    assert close(found, expected, ulps=512) and close(output, logits(w, x))
    graph = dendrax.trace(logits, w, x, vertices="layer")
    course = dendrax.run(graph, held, target=y, record="energy").energy
    assert float(course[0]) == pytest.approx(float(loss), rel=1e-12)
    assert float(result.energy) == pytest.approx(float(course[-1]), rel=1e-12)


@pytest.mark.parametrize(
    "rule", [IL(6, batch="sum"), ErrorPC(6, batch="sum"), IncrementalPC(6, batch="sum")]
)
def test_precision_is_short_for_gaussian_energies(rule):
    w, x, y = classifier()
    loss = lambda w: jnp.sum((logits(w, x) - y) ** 2) / 2
    find = lambda **more: dendrax.grad(loss, rule=dataclasses.replace(rule, **more))(w)
    expected = find(precision=3.0)
    assert same(find(energies=Gaussian(3.0)), expected)
    assert same(find(energies={"*": Gaussian(3.0)}), expected)
    assert same(find(energies=lambda vertex: Gaussian(3.0)), expected)
    assert not same(find(energies=Gaussian(2.0)), expected)
    assert same(find(energies=Gaussian()), find())


@pytest.mark.parametrize(
    "rule", [IL(6, gamma=0.05, batch="sum"), ErrorPC(6, gamma=0.05, batch="sum")]
)
def test_a_precision_for_each_neuron(rule):
    w, x, y = classifier()
    loss = lambda w: jnp.sum((logits(w, x) - y) ** 2) / 2
    find = lambda p: dendrax.grad(loss, rule=dataclasses.replace(rule, energies=Gaussian(p)))(w)
    assert close(find(np.full(5, 3.0)), find(3.0), ulps=512)
    uneven = find(jnp.array([1.0, 2.0, 3.0, 4.0, 5.0]))
    assert not close(uneven, find(3.0), ulps=1e6)
    inside = jax.jit(lambda p: find(p))(jnp.array([1.0, 2.0, 3.0, 4.0, 5.0]))
    assert close(inside, uneven, ulps=512)


@pytest.mark.parametrize("name", ENERGIES)
def test_each_step_of_error_pc_is_the_gradient_of_the_energy(name):
    """It moves errors, but the energy is the same: also where it depends on more than these."""
    own, formula = ENERGIES[name]
    w, x, y = classifier()
    w = [w[0], jnp.eye(5) - 0.2, w[1]]

    def network(w, nodes):
        """The energy, with the value nodes as they follow from predictions."""
        h, total = x, 0.0
        for weight, node in zip(w[:-1], nodes, strict=True):
            mu = h @ weight
            value = node(mu)
            total = total + formula(mu, value)
            h = jnp.tanh(value)
        return total + jnp.sum((h @ w[-1] - y) ** 2) / 2

    def of_errors(errors):
        return network(w, [lambda mu, e=e: mu - e for e in errors])

    def loss(w):
        return jnp.sum((jnp.tanh(jnp.tanh(x @ w[0]) @ w[1]) @ w[2] - y) ** 2) / 2

    graph = dendrax.trace(loss, w, vertices="layer")
    rule = ErrorPC(4, gamma=0.01, energies=own, batch="sum")
    result = dendrax.run(graph, rule, record=("epsilon", "energy"))
    hidden = graph.nodes
    for t in range(3):
        errors = [result.epsilon[t][v] for v in hidden]
        value, slope = jax.value_and_grad(of_errors)(errors)
        assert float(result.energy[t]) == pytest.approx(float(value), rel=1e-10)
        units = 2.5 if name == "gaussian" else 1.0
        for v, error, gradient in zip(hidden, errors, slope, strict=True):
            change = np.subtract(result.epsilon[t + 1][v], error)
            np.testing.assert_allclose(change, -rule.gamma * gradient / units, 1e-8, 1e-12)


def test_energies_by_name_and_pattern():
    w, x, y = classifier()
    deep = [w[0], jnp.eye(5), jnp.eye(5) / 2, w[1]]

    def loss(w):
        h = x
        for weight in w[:-1]:
            h = jnp.tanh(h @ weight)
        return jnp.sum((h @ w[-1] - y) ** 2) / 2

    find = lambda energies: dendrax.grad(loss, rule=IL(8, energies=energies, batch="sum"))(deep)
    of_name = lambda v: Huber(0.01) if v.name == "layer(w[1])" else Gaussian()
    assert same(find({"layer(w[1])": Huber(0.01)}), find(of_name))
    assert same(find({"w[1]": Huber(0.01)}), find(of_name))
    of_most = lambda v: Laplace() if v.name == "layer(w[0])" else Huber(0.01)
    assert same(find({"w[0]": Laplace(), "layer(*)": Huber(0.01)}), find(of_most))
    assert not same(find(of_most), find(of_name))


def test_rules_with_energies_are_settings():
    rule = IL(energies={"*": Gaussian(np.ones(3))}, batch="sum")
    assert rule == IL(energies={"*": Gaussian(np.ones(3))}, batch="sum")
    assert hash(rule) == hash(IL(energies={"*": Gaussian(np.ones(3))}, batch="sum"))
    assert rule != IL(energies={"*": Gaussian(np.ones(3) * 2)}, batch="sum") != IL(batch="sum")
    assert "energies" in repr(rule) and "energies" not in repr(IL(batch="sum"))
    assert IL(gamma=0.2, energies=Huber(), batch="sum") == dataclasses.replace(
        IL(energies=Huber(), batch="sum"), gamma=0.2
    )


def test_a_rule_of_the_users_has_energies_of_its_own():
    @dataclasses.dataclass(frozen=True)
    class Robust(IL):
        batch: str = "sum"

        def energies(self, vertex):
            return Huber(0.05)

    w, x, y = classifier()
    loss = lambda w: jnp.sum((logits(w, x) - y) ** 2) / 2
    expected = dendrax.grad(loss, rule=IL(energies=Huber(0.05), batch="sum"))(w)
    assert same(dendrax.grad(loss, rule=Robust())(w), expected)
    rule = Robust(gamma=0.2)
    assert rule == Robust(gamma=0.2) == dataclasses.replace(Robust(), gamma=0.2)
    assert hash(rule) == hash(Robust(gamma=0.2)) and "gamma=0.2" in repr(rule)
    with pytest.raises(ValueError, match="both precision and energies"):
        Robust(precision=2.0)


def test_energies_of_an_output_count_only_if_it_is_held():
    w, x, y = classifier()
    loss = lambda w: jnp.sum((logits(w, x) - y) ** 2) / 2
    find = lambda energies: dendrax.grad(loss, rule=IL(4, energies=energies, batch="sum"))(w)
    assert same(find({"*": Categorical()}), find({"layer(*)": Categorical()}))
    assert same(
        find(lambda v: Gaussian([1.0, 2.0, 3.0, 4.0, 5.0])),
        find({"w[0]": Gaussian(np.arange(1.0, 6))}),
    )


@pytest.mark.parametrize(
    ("energies", "message"),
    [
        (
            lambda mu, x: jnp.ones(3),
            r"(?s)the energy <lambda> gives float64\[3\] for.*test_energies",
        ),
        (lambda mu, x: (mu - x) > 0, r"(?s)gives bool\[6,5\].*Return one real number"),
        (lambda mu, x: None, r"(?s)gives NoneType for layer\(w\[0\]\)"),
        (Categorical(axis=2), r"without classes along axis 2"),
        (Gaussian(np.ones(4)), r"has shape \(6, 5\), and the precision has shape \(4,\)"),
        ({"layr*": Huber()}, r"(?s)energies: there is no 'layr\*'.*layer\(w\[0\]\)"),
        ({"layer(w[7])": Huber()}, r"there is no 'layer\(w\[7\]\)'. Did you mean"),
    ],
)
def test_what_is_no_energy_of_a_node(energies, message):
    w, x, y = classifier()
    loss = lambda w: jnp.sum((logits(w, x) - y) ** 2) / 2
    with pytest.raises(ValueError, match=message):
        dendrax.grad(loss, rule=IL(energies=energies, batch="sum"))(w)


@pytest.mark.parametrize(
    ("make", "kind", "message"),
    [
        (
            lambda: IL(energies=Huber, batch="sum"),
            TypeError,
            r"the class Huber, which is no energy.*\n.*Huber\(\)",
        ),
        (
            lambda: IL(energies=3.0, batch="sum"),
            TypeError,
            r"IL: energies is 3.0, which is no energy",
        ),
        (
            lambda: IL(energies={"a": 1}, batch="sum"),
            TypeError,
            r"energies\['a'\] is 1, which is no",
        ),
        (
            lambda: IL(energies=Huber(), precision=2.0, batch="sum"),
            ValueError,
            "both precision and energies",
        ),
        (
            lambda: ErrorPC(energies=Huber(), precision=abs, batch="sum"),
            ValueError,
            "both precision and",
        ),
        (lambda: Huber(delta=0), ValueError, "delta=0 is not a positive number"),
        (lambda: Laplace(scale="1"), ValueError, "scale='1' is not a positive"),
        (lambda: Gaussian(-1.0), ValueError, "precision=-1.0 is not a positive number"),
        (lambda: Gaussian(np.array([1.0, np.nan])), ValueError, "is not a positive number, or"),
        (
            lambda: IL(on_divergence="stop", batch="sum"),
            ValueError,
            "on_divergence='stop' is not known",
        ),
    ],
)
def test_settings_that_are_none(make, kind, message):
    with pytest.raises(kind, match=message):
        make()


def test_complex_nodes_are_gaussian():
    fun = lambda w: jnp.abs(jnp.sum(jnp.exp(w) * w)) ** 2
    args = jnp.array([0.3 + 1j, 0.5])
    dendrax.grad(fun, rule=IL(2, batch="sum"), vertices="primitive")(args)
    with pytest.raises(ValueError, match=r"is complex, and only dendrax.Gaussian"):
        dendrax.grad(fun, rule=IL(2, energies=Huber(), batch="sum"), vertices="primitive")(args)


def test_an_energy_that_is_nan_at_its_start():
    w, x, y = classifier()
    loss = lambda w: jnp.sum((logits(w, x) - y) ** 2) / 2
    rule = IL(3, energies=lambda mu, x: jnp.log(mu - 100.0) + (mu - x) ** 2, batch="sum")
    with pytest.warns(UserWarning, match=r"energy is nan from the start.*layer\(w\[0\]\)"):
        dendrax.grad(loss, rule=rule)(w)


def test_functions_of_optax_are_energies():
    optax = pytest.importorskip("optax")
    w, x, y = classifier()
    loss = lambda w: jnp.sum((logits(w, x) - y) ** 2) / 2
    found = dendrax.grad(loss, rule=IL(5, energies=optax.l2_loss, batch="sum"))(w)
    assert close(found, dendrax.grad(loss, rule=IL(5, batch="sum"))(w), ulps=256)


def test_an_energy_that_cannot_be_hashed():
    @dataclasses.dataclass
    class Loose(dendrax.Energy):
        width: float = 1.0

        def energy(self, mu, x):
            return (mu - x) ** 2

    with pytest.raises(TypeError, match=r"(?s)IL: energies cannot be hashed.*above class Loose"):
        IL(energies=Loose(), batch="sum")
