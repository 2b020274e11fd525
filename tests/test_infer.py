"""`infer`: free arguments, held values, masks, ties, against what is known in closed form."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import dendrax
from dendrax import IL, ErrorPC, Gaussian, Huber, IncrementalPC, infer
from tests.compare import close, same
from tests.reference import energy

SETTLED = IL(num_steps=20_000, gamma=0.05, tol=1e-13, batch="sum")
RNG = np.random.default_rng(0)
W = [RNG.normal(size=shape) / 2 for shape in ((2, 4), (4, 6))]
Z, Y = np.zeros((3, 2)), RNG.normal(size=(3, 6))
KNOWN = RNG.random((3, 6)) < 0.5


def linear(w, z):
    return (z @ w[0]) @ w[1]


def decoder(w, z):
    return jnp.tanh(z @ w[0]) @ w[1]


def posterior(y, known, precision=2.0):
    """The mean of z given what is known of y = (z W + noise) V + noise, z ~ N(0, 1)."""
    a, v = W[0] @ W[1], W[1]
    mean = []
    for row, seen in zip(y, known, strict=True):
        b, u = a[:, seen], v[:, seen]
        covariance = u.T @ u / precision + jnp.eye(u.shape[1])
        inverse = jnp.linalg.inv(covariance)
        mean.append(jnp.linalg.solve(jnp.eye(2) + b @ inverse @ b.T, b @ inverse @ row[seen]))
    return jnp.stack(mean)


# ---- the posterior mean of a linear Gaussian chain -----------------------------------------------


@pytest.mark.parametrize("known", [jnp.ones((3, 6), bool), KNOWN], ids=["all", "half"])
@pytest.mark.parametrize(
    "rule",
    [SETTLED, ErrorPC(20_000, gamma=0.02, tol=1e-13, batch="sum")],
    ids=["IL", "ErrorPC"],
)
def test_the_posterior_mean_of_a_linear_chain(rule, known):
    rule = type(rule)(rule.num_steps, gamma=rule.gamma, tol=rule.tol, precision=2.0)
    y = jnp.where(known, Y, jnp.nan)  # what is not known may be anything
    found = infer(linear, W, Z, free=1, target=y, mask=known, prior=Gaussian(), rule=rule)
    assert found.converged and found.advice == ""
    np.testing.assert_allclose(found.args[1], posterior(Y, known), atol=1e-10)
    assert close(found.args[0], W, ulps=0) and same(found.x["z"], found.args[1])


def test_a_prior_with_a_mean_and_by_name():
    mean = jnp.asarray([0.5, -1.0])
    shifted = Y - linear(W, jnp.broadcast_to(mean, Z.shape))
    rule = IL(20_000, gamma=0.05, tol=1e-13, precision=2.0, batch="sum")
    everywhere = jnp.ones(Y.shape, bool)
    for prior in ((Gaussian(), mean), {"z": (Gaussian(), mean)}):
        found = infer(linear, W, Z, free="z", target=Y, prior=prior, rule=rule)
        expected = mean + posterior(shifted, everywhere)
        np.testing.assert_allclose(found.args[1], expected, atol=1e-10)


@pytest.mark.parametrize("rule", [IL(2000, batch="sum"), ErrorPC(2000, batch="sum")])
def test_a_weak_prior_does_not_make_large_steps(rule):
    for precision in (1e-6, 1.0, 8.0):
        prior = Gaussian(precision)
        found = infer(lambda w, z: w * z, 2.0, 0.0, free="z", target=4.0, prior=prior, rule=rule)
        assert found.diverged_at is None
        assert float(found.args[1]) == pytest.approx(8 / (4 + precision), rel=1e-9)


def test_with_no_prior_least_squares():
    found = infer(
        linear, W, Z, free="z", target=Y, rule=IL(100_000, gamma=0.3, tol=1e-14, batch="sum")
    )
    a, v = W[0] @ W[1], W[1]
    weights = jnp.linalg.inv(v.T @ v + jnp.eye(6))
    expected = jnp.linalg.solve(a @ weights @ a.T, a @ weights @ Y.T).T
    np.testing.assert_allclose(found.args[1], expected, rtol=1e-9)


# ---- every step ----------------------------------------------------------------------------------


def values_at(result, nodes, t):
    return {(v.index, 0): result.x[t][v] for v in nodes}


@pytest.mark.parametrize("energies", [None, Huber(0.3)])
def test_each_step_is_the_gradient_of_the_energy(energies):
    """Free arguments and value nodes alike, also with a part of both held."""
    graph = dendrax.trace(decoder, W, Z + 0.1, free="z", vertices="layer")
    hidden, (latent,) = graph.nodes, graph.free
    nodes = (latent, *hidden)
    known, fixed = jnp.arange(4) % 2 == 0, jnp.array([True, False])
    hold = {hidden[0].name: (0.7, known), "z": (-0.4, fixed)}
    rule = IL(5, gamma=0.05, energies=energies, batch="sum")
    result = dendrax.run(graph, rule, target=Y, hold=hold, record=("x", "energy"))
    formula = None if energies is None else (lambda v, mu, x: jnp.sum(energies.energy(mu, x)))
    slope = jax.value_and_grad(functools.partial(energy, graph, target=Y, of=formula))
    moves = {latent.index: ~fixed, hidden[0].index: ~known}
    for t in range(4):
        x, after = values_at(result, nodes, t), values_at(result, nodes, t + 1)
        whole, expected = slope({key: jnp.asarray(value) for key, value in x.items()})
        assert float(result.energy[t]) == pytest.approx(float(whole), rel=1e-12)
        for key, gradient in expected.items():
            change = jnp.where(moves[key[0]], -0.05 * gradient, 0)
            np.testing.assert_allclose(np.subtract(after[key], x[key]), change, 1e-9, 1e-13)
    assert np.all(result.x[4][hidden[0]][:, ::2] == 0.7) and np.all(result.x[4]["z"][:, 0] == -0.4)


# ---- masks and holds -----------------------------------------------------------------------------


RULES = [
    IL(30, batch="sum"),
    ErrorPC(10, batch="sum"),
    IL(30, optimizer=optax.sgd(0.05, momentum=0.5), batch="sum"),
]


@pytest.mark.parametrize("rule", RULES)
def test_a_mask_of_all_ones_is_the_clamp_and_of_all_zeros_is_none(rule):
    find = functools.partial(infer, decoder, W, Z + 0.1, free=1, prior=Gaussian(0.5), rule=rule)
    held, free = find(target=Y), find()
    ones, zeros = find(target=Y, mask=Y == Y), find(target=Y, mask=Y != Y)
    assert close(ones.args[1], held.args[1], ulps=16) and close(ones.x, held.x, ulps=16)
    assert close(ones.energy, held.energy, ulps=64)
    assert close(zeros.args[1], free.args[1], ulps=16) and close(zeros.x, free.x, ulps=16)
    assert close(zeros.energy, free.energy, ulps=64)
    assert not close(held.args[1], free.args[1], ulps=1e6)


@pytest.mark.parametrize("rule", RULES)
def test_what_is_held_stays_and_all_else_reads_it(rule):
    value = jnp.full((3, 4), 0.3)
    found = infer(decoder, W, Z + 0.1, free="z", hold={"w[0]": value}, target=Y, rule=rule)
    name = "layer(w[0])"
    assert same(found.x[name], value)
    assert close(found.output, jnp.tanh(value) @ W[1])
    # The latent is pulled towards what is held, and by nothing else.
    expected = jnp.linalg.lstsq(W[0].T, value[0])[0]
    many = type(rule)(2000) if not isinstance(rule, IL) else IL(2000, batch="sum")
    far = infer(decoder, W, Z + 0.1, free="z", hold={name: value}, target=Y, rule=many)
    np.testing.assert_allclose(far.args[1][0], expected, atol=1e-4)


def test_an_output_is_held_by_name_as_by_a_target():
    by_target = infer(decoder, W, Z, free=1, target=Y, mask=KNOWN, rule=IL(20, batch="sum"))
    by_name = infer(decoder, W, Z, free=1, hold={"output": (Y, KNOWN)}, rule=IL(20, batch="sum"))
    assert same(by_target.x, by_name.x)


def test_one_of_several_outputs_is_held():
    both = lambda w, z: {"image": decoder(w, z), "size": jnp.sum(z**2, 1)}
    target = {"image": Y, "size": None}
    found = infer(both, W, Z, free=1, target=target, rule=IL(20, batch="sum"))
    assert close(
        found.x["z"], infer(decoder, W, Z, free=1, target=Y, rule=IL(20, batch="sum")).x["z"]
    )
    assert found.output["size"].shape == (3,)


def test_value_nodes_inside_a_loop_are_held():
    @dendrax.vertex
    def cell(w, h, x):
        return jnp.tanh(h @ w + x)

    def last(w, h, xs):
        return jax.lax.scan(lambda h, x: (cell(w, h, x), None), h, xs)[0]

    w, h, xs = jnp.eye(2) / 2, jnp.ones(2), jnp.ones((5, 2)) / 4
    known = jnp.zeros((5, 2), bool).at[3].set(True)
    for rule in (IL(20, batch="sum"), ErrorPC(10, batch="sum")):
        found = infer(last, w, h, xs, free="h", hold={"scan/cell": (0.9, known)}, rule=rule)
        steps = found.x["scan/cell"]
        assert steps.shape == (5, 2) and np.all(np.asarray(steps[3]) == 0.9)
        assert close(found.output, jnp.tanh(jnp.full(2, 0.9) @ w + xs[4]), ulps=1e9)
        assert not np.any(np.asarray(steps[:3]) == 0.9)


# ---- transformations -----------------------------------------------------------------------------


def test_jit_and_vmap():
    rule = IL(30, batch="sum")
    find = lambda z, y: infer(decoder, W, z, free=1, target=y, prior=Gaussian(), rule=rule)
    whole = find(Z + 0.1, Y)
    assert close(jax.jit(find)(Z + 0.1, Y).x, whole.x, ulps=256)
    single = jax.vmap(find)(Z + 0.1, Y)
    assert close(single.x["z"], whole.x["z"], ulps=256)
    assert single.energy.shape == (3,) and "3" in repr(single)
    np.testing.assert_allclose(single.energy.sum(), whole.energy, rtol=1e-12)


def test_it_can_be_differentiated():
    def settled_energy(w):
        found = infer(linear, w, Z, free=1, target=Y, prior=Gaussian(), rule=IL(3000, batch="sum"))
        return found.energy

    found = jax.grad(settled_energy)(W)
    # At the minimum the latents' own change does not count: it is the local gradient.
    rule = IL(3000, batch="sum")
    both = dendrax.value_and_grad(linear, rule=rule, free=1, target=Y, prior=Gaussian())
    np.testing.assert_allclose(found[0], both(W, Z)[1][0], rtol=1e-6, atol=1e-9)


def test_free_inside_a_pytree():
    def fun(w, batch):
        return decoder(w, batch["z"] + batch["fixed"])

    batch = {"z": Z, "fixed": Z + 0.2, "label": jnp.arange(3)}
    found = infer(fun, W, batch, free="batch['z']", target=Y, rule=IL(50, batch="sum"))
    for name in ("fixed", "label"):
        assert same(found.args[1][name], batch[name])
    assert not same(found.args[1]["z"], batch["z"])
    with pytest.raises(TypeError, match=r"argument batch\['label'\] is free, but int"):
        infer(fun, W, batch, free="batch", target=Y)
    model = {"w": W, "z": Z}
    whole = lambda m: decoder(m["w"], m["z"] + 0.2)
    inside = infer(whole, model, free="m['z']", target=Y, rule=IL(50, batch="sum"))
    assert close(inside.args[0]["z"], found.args[1]["z"], ulps=256)


def test_warm_starts():
    rule = IL(20, batch="sum")
    find = functools.partial(infer, decoder, W, free="z", target=Y, rule=rule)
    long = find(Z, rule=IL(40, batch="sum"))
    first = find(Z)
    second = find(first.args[1], start=first)
    assert close(second.x, long.x, ulps=256)
    assert second.energy < first.energy
    by_name = find(Z, start={"z": first.args[1], "w[0]": first.x["layer(w[0])"]})
    assert close(by_name.x, long.x, ulps=256)
    with pytest.raises(ValueError, match=r"start has shape \(2,\) for z, whose shape is \(3, 2\)"):
        find(Z, start={"z": jnp.ones(2)})


def test_energies_and_course():
    found = infer(decoder, W, Z + 0.1, free=1, target=Y, rule=IL(25, batch="sum"), record="energy")
    assert found.course.shape == (26,) and found.course[-1] == found.energy
    assert (np.diff(found.course) < 0).all() and found.num_steps == 25 and found.slope > 0
    assert set(found.energies) == {"z", "layer(w[0])", "output"}
    np.testing.assert_allclose(sum(found.energies.values()), found.energy, rtol=1e-12)
    text = repr(found)
    assert "value nodes: z, layer(w[0])" in text and "in 25 steps" in text
    assert "25 steps" in found._repr_html_()


def test_a_complex_free_argument():
    found = infer(
        lambda w, z: w * z,
        2 + 1j,
        0j,
        free=1,
        target=3 + 4j,
        rule=IL(3000, gamma=0.05, batch="sum"),
    )
    assert abs(complex(found.args[1]) - (2 + 1j)) < 1e-9


@pytest.mark.parametrize("batch", ["mean", 3])
def test_a_target_is_a_sum_over_samples(batch):
    """So that nothing is divided by their number."""
    rules = [IL(10, batch=b) for b in (batch, "sum")]
    found, expected = (infer(decoder, W, Z + 0.1, free=1, target=Y, rule=r).x for r in rules)
    assert same(found, expected)


def test_a_latent_that_all_samples_share_has_its_whole_prior():
    """The loss counts once for each sample, the prior once."""
    loss = lambda w, c: jnp.mean(jnp.sum((w * c - Y) ** 2, -1)) / 2
    rule = IL(3000, gamma=0.05, batch=3)
    found = infer(loss, 2.0, jnp.zeros(6), free="c", prior=Gaussian(2.0), rule=rule)
    alone = lambda c: loss(2.0, c) + jnp.sum(c**2)
    assert np.max(np.abs(jax.grad(alone)(found.args[1]))) < 1e-9


def test_starts_of_rules_that_begin_elsewhere():
    first = infer(decoder, W, Z + 0.1, free=1, target=Y, rule=IL(100, batch="sum"))
    for rule in (ErrorPC(3, batch="sum"), IL(3, init="zeros", batch="sum"), IL(3, batch="sum")):
        again = infer(decoder, W, first.args[1], free=1, target=Y, rule=rule, start=first)
        np.testing.assert_allclose(again.descent.start, first.energy, rtol=1e-9)


def test_many_at_once_say_what_went_wrong():
    find = lambda z: infer(
        lambda w, z: w * z, 9.0, z, free=1, target=4.0, rule=IL(50, gamma=0.5, batch="sum")
    )
    found = jax.vmap(find)(jnp.arange(3.0))
    assert found.diverged_at.shape == (3,) and "diverged in 3 of 3" in repr(found)


# ---- learning with latents -----------------------------------------------------------------------


@pytest.mark.parametrize("rule", [IL(40, batch="sum"), ErrorPC(20, batch="sum")])
def test_learning_with_latents(rule):
    """The parameters learn from where the latents have settled: as a loss with a free argument."""
    loss = lambda w, z: jnp.sum((decoder(w, z) - Y) ** 2) / 2
    by_loss = dendrax.value_and_grad(loss, rule=rule, free=1, has_result=True)
    by_target = dendrax.value_and_grad(decoder, rule=rule, free="z", target=Y, has_result=True)
    (value, one), first = by_loss(W, Z + 0.1)
    (output, other), second = jax.jit(by_target)(W, Z + 0.1)
    assert close(first, second, ulps=4096) and close(one.energy, other.energy, ulps=4096)
    assert same(value, loss(W, Z + 0.1)) and close(output, decoder(W, Z + 0.1), ulps=64)
    assert one.energy < value and one.num_steps == rule.num_steps and one.slope > 0
    settled = infer(decoder, W, Z + 0.1, free=1, target=Y, rule=rule)
    assert close(one.args[1], settled.args[1], ulps=4096) and not one.diverged
    fixed = dendrax.grad(loss, rule=rule)(W, settled.args[1])
    assert not close(fixed, first, ulps=1e6)


def test_the_course_of_an_update():
    both = dendrax.value_and_grad(
        decoder, rule=IL(7, batch="sum"), free=1, target=Y, has_result="energy"
    )
    (_, result), _ = both(W, Z + 0.1)
    assert result.course.shape == (8,) and result.course[-1] == pytest.approx(result.energy)
    (_, result), _ = dendrax.value_and_grad(lambda w: w**2, has_result=True)(2.0)
    assert result.energy == 4.0 and result.course is None


def test_a_mean_over_samples():
    """Latents belong to their samples: the mean of what each gives alone."""
    loss = lambda w, z, y: jnp.mean(jnp.sum((decoder(w, z) - y) ** 2, -1)) / 2
    rule = IL(15, batch="mean")
    whole = dendrax.value_and_grad(loss, rule=rule, free="z")(W, Z + 0.1, Y)[1]
    single = dendrax.value_and_grad(loss, rule=IL(15, batch="sum"), free="z")
    each = [single(W, Z[i : i + 1] + 0.1, Y[i : i + 1])[1] for i in range(3)]
    mean = jax.tree.map(lambda *g: sum(g) / 3, *each)
    assert close(whole, mean, ulps=1024)


# ---- cycles --------------------------------------------------------------------------------------


def recurrent(w, h):
    return jnp.tanh(h @ w)


def test_each_step_of_a_cyclic_network_is_the_gradient_of_its_energy():
    rng = np.random.default_rng(1)
    w, h = jnp.asarray(rng.normal(size=(100, 100)) / 20), jnp.asarray(rng.normal(size=100))
    known = jnp.arange(100) < 30
    graph = dendrax.trace(recurrent, w, h, tie="h", vertices="layer")
    rule = IL(6, gamma=0.1, batch="sum")
    result = dendrax.run(graph, rule, hold={"h": (h, known)}, record=("x", "energy"))
    hidden = graph.nodes
    assert not hidden  # what predicts the state reads it: one layer
    whole = lambda h: jnp.sum((recurrent(w, h) - h) ** 2) / 2
    for t in range(5):
        x = jnp.asarray(result.x[t]["h"])
        value, slope = jax.value_and_grad(whole)(x)
        assert float(result.energy[t]) == pytest.approx(float(value), rel=1e-12)
        change = np.subtract(result.x[t + 1]["h"], x)
        np.testing.assert_allclose(change, jnp.where(known, 0, -0.1 * slope), 1e-9, 1e-13)


def test_a_cyclic_memory_stores_and_completes_patterns():
    rng = np.random.default_rng(2)
    patterns = jnp.asarray(rng.choice([-0.8, 0.8], size=(5, 100)))
    w = jnp.zeros((100, 100))

    @jax.jit
    def learn(w):
        both = dendrax.value_and_grad(
            recurrent, rule=IL(1, batch="sum"), tie="h", hold={"h": (patterns, jnp.ones(100, bool))}
        )
        gradient = both(w, patterns)[1]
        return (w - 0.02 * gradient) * (1 - jnp.eye(100))  # no unit predicts itself

    for _ in range(300):
        w = learn(w)
    known = jnp.arange(100) < 60
    cue = jnp.where(known, patterns, 0.0)
    hold = {"h": (patterns, known)}
    found = infer(
        recurrent, w, cue, tie={"h": lambda result: result}, hold=hold, rule=IL(500, batch="sum")
    )
    assert np.mean(np.abs(found.args[1] - patterns)) < 0.05
    assert np.all(np.sign(found.args[1]) == np.sign(patterns))


def test_two_arguments_tied_to_one_output():
    """The errors of both arrive at it."""
    fun = lambda w, h, k: jnp.tanh(w * (h + k))

    def whole(w, h, k):
        mu = fun(w, h, k)
        return ((mu - h) ** 2 + (mu - k) ** 2) / 2

    h, k = 1.0, 0.0
    for _ in range(5):
        slopes = jax.grad(whole, (1, 2))(0.5, h, k)
        h, k = h - 0.1 * slopes[0], k - 0.1 * slopes[1]
    both = {"h": None, "k": None}
    found = infer(fun, 0.5, 1.0, 0.0, tie=both, rule=IL(5, batch="sum"))
    np.testing.assert_allclose(found.args[1:], (h, k), rtol=1e-12)
    _, gradient = dendrax.value_and_grad(fun, rule=IL(5, batch="sum"), tie=both)(0.5, 1.0, 0.0)
    assert float(gradient) == pytest.approx(float(jax.grad(whole)(0.5, h, k)), rel=1e-12)


def test_a_run_on_a_cycle_is_what_infer_finds():
    fun = lambda w, h: (jnp.tanh(h * w), 3 * h)
    graph = dendrax.trace(fun, 0.7, 1.0, tie={"h": 0})
    result = dendrax.run(graph, IL(20, batch="sum"), record=("x",))
    found = infer(fun, 0.7, 1.0, tie={"h": 0}, rule=IL(20, batch="sum"))
    np.testing.assert_allclose(result.x[20]["h"], found.args[1], rtol=1e-12)
    _, gradient = dendrax.value_and_grad(fun, rule=IL(20, batch="sum"), tie={"h": 0})(0.7, 1.0)
    np.testing.assert_allclose(result.gradient, gradient, rtol=1e-12)


def test_a_tie_to_a_part_of_the_result():
    def step(w, state):
        h = jnp.tanh(state["h"] @ w)
        return {"h": h, "seen": h[:, :2]}

    w, state = jnp.eye(4) / 2 + 0.1, {"h": jnp.ones((3, 4)), "t": jnp.asarray(0)}
    y = {"h": None, "seen": jnp.full((3, 2), 0.3)}
    found = infer(step, w, state, tie={"state['h']": "h"}, target=y, rule=IL(50, batch="sum"))
    assert found.args[1]["h"].shape == (3, 4) and found.args[1]["t"] == 0
    again = infer(
        step, w, state, tie={"state['h']": lambda out: out["h"]}, target=y, rule=IL(50, batch="sum")
    )
    assert same(again.x, found.x)
    assert found.energy < found.descent.start


def test_a_cycle_has_no_levels():
    graph = dendrax.trace(recurrent, jnp.eye(3), jnp.ones(3), tie="h")
    with pytest.raises(ValueError, match=r"(?s)a cycle, and so no levels: h is predicted.*Cut"):
        dendrax.level(graph)
    with pytest.raises(ValueError, match=r"a cycle, and so no levels"):
        infer(recurrent, jnp.eye(3), jnp.ones(3), tie="h", rule=IL(levelled=True, batch="sum"))
    assert dendrax.level(dendrax.trace(recurrent, jnp.eye(3), jnp.ones(3), free="h"))
    assert "1 free" in repr(graph)


def test_graphs_with_free_arguments_are_shown():
    graph = dendrax.trace(decoder, W, Z, free="z", vertices="layer")
    assert "free       z" in repr(graph) and "reads z, 1 parameter" in repr(graph)
    tied = dendrax.trace(recurrent, np.eye(3), np.ones(3), tie="h")
    for shown in (graph, tied):
        assert shown.free[0].name in dendrax.draw.graph(shown).svg
    result = dendrax.run(graph, IL(4, batch="sum"), target=Y, record=("epsilon", "statistics"))
    assert "z" in repr(result.epsilon[2]) and not np.any(result.epsilon[2]["z"])


# ---- models of libraries -------------------------------------------------------------------------


def test_models_as_they_are():
    eqx = pytest.importorskip("equinox")
    model = eqx.nn.MLP(2, 6, 4, 1, activation=jnp.tanh, key=jax.random.key(0), dtype=float)
    fun = lambda model, z: jax.vmap(model)(z)
    found = infer(fun, model, Z, free="z", target=Y, rule=IL(30, batch="sum"))
    assert found.args[0].activation is model.activation and found.energy < found.descent.start
    assert set(found.x) == {"z", "layers[0]"}


# ---- mistakes ------------------------------------------------------------------------------------


def of_the_whole(mu, x):
    return jnp.sum(mu * x)


@pytest.mark.parametrize(
    ("settings", "kind", "message"),
    [
        ({"free": 2}, ValueError, "free=2, but the function was called with 2 arguments"),
        ({"free": "y"}, ValueError, r"free='y' names no argument(?s:.*)arguments are w, z"),
        ({"free": "z['a']"}, ValueError, r"names no part of an argument"),
        ({"free": 1.5}, TypeError, "free=1.5 is neither a position nor a name"),
        ({"target": Y[:2]}, ValueError, r"the target has shape \(2, 6\)"),
        ({"mask": KNOWN}, ValueError, "a mask, but no target"),
        (
            {"target": Y, "mask": Y},
            TypeError,
            "mask of the output is float64, not boolean",
        ),
        (
            {"target": Y, "mask": KNOWN[:, :3]},
            ValueError,
            "the mask of the output has shape",
        ),
        (
            {"hold": {"layer(w[3])": 0.0}},
            ValueError,
            r"there is no .*w\[3\].*Did you mean",
        ),
        ({"hold": {"w[0]": jnp.ones(3)}}, ValueError, r"holds layer\(w\[0\]\) has shape \(3,\)"),
        ({"hold": {"w[0]": (0.0, jnp.ones(4))}}, TypeError, "mask of .* is float32, not boolean"),
        ({"hold": 3}, TypeError, "hold must be a dictionary"),
        ({"free": "z", "hold": {"z": 0.0}}, ValueError, "z is both free and held"),
        ({"target": Y, "hold": {"output": Y}}, ValueError, "output, which has a target already"),
        ({"tie": "z"}, ValueError, r"z is tied to an output of type float64 and shape \(3, 6\)"),
        ({"tie": ["z"]}, TypeError, "tie=.* is neither an argument nor a dictionary"),
        ({"tie": "q"}, ValueError, "tie='q' names no argument"),
        ({"tie": {"z": lambda out: "no"}}, ValueError, "a tie picks 'no', which is no part"),
        ({"tie": {"w": None}}, ValueError, "has 2 arrays in the argument and 1 in the output"),
        ({"target": Y, "mask": (KNOWN, KNOWN)}, ValueError, "there are 2 masks for 1 output"),
        ({"hold": {"w[0]": 1j}}, TypeError, "the value that holds layer"),
        (
            {"free": "z", "rule": IL(energies={"z": Gaussian(2.0)}, batch="sum")},
            ValueError,
            "there is no 'z'",
        ),
        (
            {
                "target": Y,
                "mask": KNOWN,
                "rule": IL(energies={"output": lambda m, x: jnp.sum(m * x)}, batch="sum"),
            },
            ValueError,
            "gives one number for output, of which a mask cannot leave out a part",
        ),
        ({"start": 3}, TypeError, "start must be a dictionary"),
        ({"tie": {"z": "h"}}, ValueError, r"tie={'z': 'h'} finds nothing"),
        ({"prior": Gaussian()}, ValueError, "(?s)there is no '\\*'.*none"),
        ({"free": "z", "prior": 3.0}, TypeError, "prior is 3.0, which is no energy"),
        ({"free": "z", "prior": (Gaussian(), jnp.ones(5))}, ValueError, "the prior of z has shape"),
        (
            {"free": "z", "rule": dendrax.ZIL()},
            ValueError,
            "ZIL can do nothing about free",
        ),
        ({"free": "z", "rule": dendrax.FixedPrediction()}, ValueError, "can do nothing about free"),
        (
            {"free": "z", "rule": IncrementalPC(batch="sum")},
            ValueError,
            "IncrementalPC moves parameters",
        ),
        ({"record": "x"}, ValueError, "(?s)record='x' is not known.*dendrax.run"),
    ],
)
def test_mistakes(settings, kind, message):
    with pytest.raises(kind, match=message):
        infer(decoder, W, Z, **{"rule": IL(2, batch="sum"), **settings})


def test_positions_are_counted_as_the_user_does():
    """Also from the end, and past arguments that hold nothing."""
    fun = lambda w, z, nothing: decoder(w, z)
    found = infer(fun, W, Z + 0.1, None, free=-2, target=Y, rule=IL(5, batch="sum"))
    assert set(found.x) == {"z", "layer(w[0])"}
    expected = infer(decoder, W, Z + 0.1, free=1, target=Y, rule=IL(5, batch="sum"))
    assert same(found.args[1], expected.args[1])


@pytest.mark.parametrize("rule", [dendrax.BP(), dendrax.ZIL()])
def test_backpropagation_of_a_target(rule):
    (_, result), found = dendrax.value_and_grad(decoder, rule=rule, target=Y, has_result=True)(
        W, Z + 0.1
    )
    loss = lambda w: jnp.sum((decoder(w, Z + 0.1) - Y) ** 2) / 2
    assert close(found, jax.grad(loss)(W)) and result.energy is None


def test_mistakes_of_learning():
    loss = lambda w, z: jnp.sum(decoder(w, z) ** 2)
    with pytest.raises(ValueError, match="argument z is both free and differentiated"):
        dendrax.value_and_grad(loss, argnums=(0, 1), rule=IL(batch="sum"), free="z")(W, Z)
    with pytest.raises(ValueError, match="ZIL can do nothing about free"):
        dendrax.value_and_grad(loss, free="z")(W, Z)
    with pytest.raises(TypeError, match="argument z is free, but int"):
        dendrax.value_and_grad(loss, rule=IL(batch="sum"), free="z")(W, jnp.ones((3, 2), int))
    unused = lambda w, z: jnp.sum(w[0] ** 2)
    with pytest.raises(ValueError, match="the output does not depend on it"):
        dendrax.value_and_grad(unused, rule=IL(batch="sum"), free="z")(W, Z)
    with pytest.raises(ValueError, match="hold names output, which is a loss"):
        dendrax.value_and_grad(loss, rule=IL(batch="sum"), hold={"output": 0.0})(W, Z)
    with pytest.raises(ValueError, match="has a target and is tied"):
        infer(recurrent, jnp.eye(3), jnp.ones(3), tie="h", target=jnp.ones(3))
