"""Value nodes inside a `scan`: one for all steps, and every rule makes of it what it makes of the
loop written out."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import dendrax
from dendrax import IL, ZIL, ErrorPC, FixedPrediction, IncrementalPC
from tests.compare import close, same
from tests.sampling import every, rotating

RULES = [
    IL(batch="sum"),
    IL(num_steps=5, gamma=0.2, batch="sum"),
    FixedPrediction(num_steps=9),
    IncrementalPC(num_steps=3, batch="sum"),
    ErrorPC(num_steps=3, batch="sum"),
]


def written_out(body, init, xs, length=None, reverse=False):
    """`jax.lax.scan` as a Python loop."""
    length = len(jax.tree.leaves(xs)[0]) if length is None else length
    carry, ys = init, [None] * length
    for t in reversed(range(length)) if reverse else range(length):
        carry, ys[t] = body(carry, jax.tree.map(lambda x, t=t: x[t], xs))
    return carry, jax.tree.map(lambda *y: jnp.stack(y), *ys)


@dendrax.vertex
def cell(w, h, x):
    return jnp.tanh(h @ w + x)


@dendrax.vertex
def readout(w, h):
    return jnp.sin(h @ w)


@dendrax.vertex
def lstm(w, h, c, x):
    i, f, g, o = jnp.split(jnp.concatenate([x, h], 1) @ w, 4, axis=1)
    c = jax.nn.sigmoid(f + 1) * c + jax.nn.sigmoid(i) * jnp.tanh(g)
    return jax.nn.sigmoid(o) * jnp.tanh(c), c


def half(value):
    return jnp.sum(value**2) / 2


def last(scan, w, xs):
    h, _ = scan(lambda h, x: (cell(w["h"], h, x), None), jnp.ones((2, 3)), xs)
    return half(h @ w["o"])


def all_of_them(scan, w, xs):
    _, hs = scan(lambda h, x: (h := cell(w["h"], h, x), h), w["h"][:2], xs)
    return half(jnp.einsum("tbi,io->tbo", hs, w["o"]) - 0.3)


def backwards(scan, w, xs):
    body = lambda h, x: (h := cell(w["h"], h, x), h * x)
    h, hs = scan(body, jnp.ones((2, 3)), xs, reverse=True)
    return half(h @ w["o"]) + half(hs)


def two_layers(scan, w, xs):
    def body(carry, x):
        a, b = carry
        a = cell(w["h"], a, x)
        b = cell(w["h2"], b, a)
        return (a, b), readout(w["o"], b)

    _, ys = scan(body, (jnp.zeros((2, 3)), jnp.ones((2, 3))), xs)
    return half(ys - 0.2)


def of_two_results(scan, w, xs):
    def body(carry, x):
        h, c = lstm(w["lstm"], *carry, x)
        return (h, c), h

    (_, c), hs = scan(body, (jnp.zeros((2, 3)), jnp.zeros((2, 3))), xs)
    return half(hs @ w["o"]) + half(c)


def with_an_uncut_carry(scan, w, xs):
    def body(carry, x):
        h, total = carry
        h = cell(w["h"], h, x + total)
        return (h, total + jnp.sin(h) / 4), None

    (h, total), _ = scan(body, (jnp.zeros((2, 3)), jnp.zeros((2, 3))), xs)
    return half(h @ w["o"]) + half(total)


def with_a_counter_and_a_key(scan, w, xs):
    def body(carry, x):
        h, t, key = carry
        key, now = jax.random.split(key)
        keep = jax.random.bernoulli(now, 0.7, h.shape)
        h = cell(w["h"], jnp.where(keep, h, 0.0) * (t + 1).astype(float), x)
        return (h, t + 1, key), t

    init = jnp.ones((2, 3)), jnp.asarray(0), jax.random.key(3)
    (h, t, _), ts = scan(body, init, xs)
    return half(h @ w["o"]) * t.astype(float) + jnp.sum(ts).astype(float)


def with_a_delay(scan, w, xs):
    def body(carry, x):
        older, old = carry
        return (old, cell(w["h"], older, x)), old

    (a, b), olds = scan(body, (jnp.ones((2, 3)), jnp.zeros((2, 3))), xs)
    return half((a + b) @ w["o"]) + half(olds)


def nested(scan, w, xs):
    def outer(h, x):
        h, inner = scan(lambda h, s: (cell(w["h"], h, x * s), h), h, jnp.arange(3.0) - 1)
        h = cell(w["h2"], h, jnp.sum(inner, 0))
        return h, inner

    h, hs = scan(outer, jnp.ones((2, 3)), xs)
    return half(h @ w["o"]) + half(hs)


def nested_backwards(scan, w, xs):
    def outer(total, x):
        h, _ = scan(lambda h, s: (cell(w["h"], h, x * s), None), x, jnp.arange(3.0), reverse=True)
        return total + readout(w["o"], h), None

    return half(scan(outer, jnp.zeros((2, 2)), xs)[0])


def with_remat(scan, w, xs):
    body = jax.checkpoint(lambda h, x: (h := cell(w["h"], h, jnp.sin(x)), h))
    h, hs = scan(body, jnp.ones((2, 3)), xs)
    return half(h @ w["o"]) + half(hs)


def with_jit(scan, w, xs):
    body = jax.jit(lambda h, x: (cell(w["h"], jax.jit(jnp.sin)(h), x), x))
    h, _ = scan(body, jnp.ones((2, 3)), xs)
    return half(h @ w["o"])


def of_marked_inputs(scan, w, xs):
    embedded = cell(w["h2"], xs, 0.0)
    h, hs = scan(lambda h, x: (h := cell(w["h"], h, x), h), embedded[0], embedded)
    return half(readout(w["o"], h + jnp.mean(hs, 0)) - 0.1)


def without_a_carry(scan, w, xs):
    _, ys = scan(lambda _, x: (None, cell(w["h"], x, 1.0)), None, xs)
    return half(ys @ w["o"])


def without_inputs(scan, w, xs):
    h, _ = scan(lambda h, _: (cell(w["h"], h, 0.1), None), xs[0], None, length=4)
    return half(h @ w["o"])


def one_after_the_other(scan, w, xs):
    body = lambda h, x: (h := cell(w["h"], h, x), h)
    h, hs = scan(body, jnp.ones((2, 3)), xs)
    h, hs = scan(body, h, hs, reverse=True)
    return half(h @ w["o"]) + half(hs)


def partly_still(scan, w, xs):
    def body(carry, x):
        h, still = carry
        return (cell(w["h"], h, x + still), jax.lax.stop_gradient(cell(w["h2"], still, x))), None

    (h, still), _ = scan(body, (jnp.ones((2, 3)), jnp.ones((2, 3))), xs)
    return half(h @ w["o"]) + jnp.sum(still)


def branching(scan, w, xs):
    def body(carry, x):
        h, t = carry
        h = jax.lax.cond(t % 2 == 0, lambda h: jnp.cos(h) + x, lambda h: jnp.sin(h) @ w["h"], h)
        return (cell(w["h2"], h, x), t + 1), None

    (h, _), _ = scan(body, (jnp.ones((2, 3)), 0), xs)
    return half(h @ w["o"])


PROGRAMS = [
    last,
    all_of_them,
    backwards,
    two_layers,
    of_two_results,
    with_an_uncut_carry,
    with_a_counter_and_a_key,
    with_a_delay,
    nested,
    nested_backwards,
    with_remat,
    with_jit,
    of_marked_inputs,
    without_a_carry,
    without_inputs,
    one_after_the_other,
    partly_still,
    branching,
]


def arguments(length=4):
    rng = np.random.default_rng(0)
    shapes = {"h": (3, 3), "h2": (3, 3), "o": (3, 2), "lstm": (6, 12)}
    w = {name: jnp.asarray(rng.normal(size=shape) / 2) for name, shape in shapes.items()}
    return w, jnp.asarray(rng.normal(size=(length, 2, 3)))


def of(program, scan):
    return lambda w, xs: program(scan, w, xs)


@pytest.mark.parametrize(("program", "rule"), rotating(PROGRAMS, RULES))
def test_every_rule_learns_as_in_the_loop_written_out(program, rule):
    found, expected = (
        jax.jit(dendrax.value_and_grad(of(program, scan), rule=rule, vertices="marked"))
        for scan in (jax.lax.scan, written_out)
    )
    assert close(found(*arguments()), expected(*arguments()), ulps=4096)


@pytest.mark.parametrize("program", every(3, PROGRAMS))
def test_a_marked_scan_means_nothing_to_zil(program):
    fun, args = of(program, jax.lax.scan), arguments()
    expected = jax.jit(jax.value_and_grad(fun))(*args)
    for vertices in (None, "marked"):
        found = jax.jit(dendrax.value_and_grad(fun, rule=ZIL(), vertices=vertices))
        assert same(found(*args), expected)


@pytest.mark.parametrize("program", every(4, PROGRAMS))
def test_the_dynamics_run_step_by_step(program):
    fun, args = of(program, jax.lax.scan), arguments()
    graph = dendrax.trace(fun, *args, vertices="marked")
    found = dendrax.run(graph, ZIL(), record="energy").gradient
    assert close(found, jax.grad(fun)(*args))


@pytest.mark.parametrize("length", [0, 1])
@pytest.mark.parametrize("program", [last, all_of_them, backwards, two_layers, without_a_carry])
def test_scans_of_no_step_and_of_one(program, length):
    fun = of(program, jax.lax.scan)
    w, xs = arguments(length)
    found = dendrax.value_and_grad(fun, rule=ZIL())(w, xs)
    assert same(found, jax.value_and_grad(fun)(w, xs))
    rule = IL(num_steps=3, batch="sum")
    if length:
        found, expected = (
            dendrax.grad(of(program, scan), rule=rule, vertices="marked")(w, xs)
            for scan in (jax.lax.scan, written_out)
        )
        assert close(found, expected)
    else:
        with pytest.raises(ValueError, match="no marked function lies between"):
            dendrax.grad(fun, rule=rule, vertices="marked")(w, xs)


def test_one_node_with_time_as_its_first_axis():
    graph = dendrax.trace(of(nested, jax.lax.scan), *arguments(), vertices="marked")
    shapes = {v.name: v.outputs[0].shape for v in graph.nodes}
    assert shapes == {"scan/scan/cell": (4, 3, 2, 3), "scan/cell": (4, 2, 3)}


def test_records_show_all_steps_and_one():
    args = arguments()
    fun = of(nested, jax.lax.scan)
    graph = dendrax.trace(fun, *args, vertices="marked")
    rule = IL(num_steps=3, batch="sum")
    result = dendrax.run(graph, rule, record=["epsilon", "x"])
    hand = dendrax.trace(of(nested, written_out), *args, vertices="marked")
    expected = dendrax.run(hand, rule, record=["epsilon", "x"])
    errors = result.epsilon[-1]["scan/scan/cell"]
    assert errors.shape == (4, 3, 2, 3)
    np.testing.assert_array_equal(result.epsilon[-1]["scan[2]/scan[1]/cell"], errors[2, 1])
    np.testing.assert_array_equal(result.epsilon[-1]["scan[2]/scan/cell"], errors[2])
    np.testing.assert_array_equal(result.epsilon[-1]["scan/scan[1]/cell"], errors[:, 1])
    np.testing.assert_array_equal(
        result.epsilon[:]["scan[2]/cell"], result.epsilon[:]["scan/cell"][:, 2]
    )
    by_hand = [expected.epsilon[-1][v] for v in hand.nodes]
    inner, outer = result.epsilon[-1]["scan/scan/cell"], result.epsilon[-1]["scan/cell"]
    in_order = [e for t in range(4) for e in [*inner[t], outer[t]]]
    assert close(in_order, by_hand, ulps=1024)
    assert "scan/cell" in str(result.epsilon[-1])


@pytest.mark.parametrize("name", ["scan[4]/cell", "scan[0]/scan[3]/cell"])
def test_a_step_that_does_not_exist(name):
    graph = dendrax.trace(of(nested, jax.lax.scan), *arguments(), vertices="marked")
    result = dendrax.run(graph, IL(num_steps=2, batch="sum"), record="epsilon")
    with pytest.raises(KeyError, match=r"scan.* has [34] steps, there is no 'scan\["):
        result.epsilon[-1][name]
    with pytest.raises(KeyError, match="no vertex"):
        result.epsilon[-1]["scan[0]/call"]


def test_under_vmap_and_for_a_batch_of_models():
    w, xs = arguments()
    many = jax.tree.map(lambda leaf: jnp.stack([leaf, 0.5 * leaf]), w)
    fun = dendrax.grad(
        of(two_layers, jax.lax.scan), rule=IL(num_steps=3, batch="sum"), vertices="marked"
    )
    found = jax.vmap(fun, (0, None))(many, xs)
    each = [fun(jax.tree.map(lambda leaf, k=k: leaf[k], many), xs) for k in range(2)]
    assert close(found, jax.tree.map(lambda *leaves: jnp.stack(leaves), *each), ulps=1024)


def test_the_steps_run_side_by_side_where_all_carries_are_held():
    def loops(program):
        fun = dendrax.grad(
            of(program, jax.lax.scan), rule=IL(num_steps=3, batch="sum"), vertices="marked"
        )
        lengths = str(jax.make_jaxpr(fun)(*arguments(7)))
        return lengths.count("length=7")

    assert loops(last) == 1  # the forward pass, from which the value nodes start
    assert loops(with_an_uncut_carry) > 1


def test_what_is_of_all_steps_together_is_not_shown_for_one():
    graph = dendrax.trace(of(last, jax.lax.scan), *arguments(), vertices="marked")
    result = dendrax.run(graph, IL(num_steps=2, batch="sum"), record=["energy", "statistics"])
    assert result.statistics[-1]["scan/cell"].shape == (3,)
    for record in (result.statistics, result.energies):
        with pytest.raises(KeyError, match=r"of all its steps together: for 'scan\[1\]/cell' rec"):
            record[-1]["scan[1]/cell"]


def test_energies_are_those_of_all_steps():
    args, rule = arguments(), IL(num_steps=2, batch="sum")
    found, by_hand = (
        dendrax.run(dendrax.trace(of(last, scan), *args, vertices="marked"), rule, record="energy")
        for scan in (jax.lax.scan, written_out)
    )
    assert close(found.energy, by_hand.energy, ulps=1024)
    each = [by_hand.energies[-1][v] for v in by_hand.graph.nodes]
    assert close(found.energies[-1]["scan/cell"], sum(each), ulps=1024)


def test_pictures_show_one_node_and_curves_of_single_steps(tmp_path):
    fun, args = of(nested, jax.lax.scan), arguments()
    graph = dendrax.trace(fun, *args, vertices="marked")
    assert "scan/scan/cell" in dendrax.draw.graph(graph).svg
    result = dendrax.run(graph, IL(num_steps=3, batch="sum"), record="epsilon")
    (axes,) = dendrax.draw.traces(result, ["scan/cell", "scan[2]/scan[1]/cell"]).axes
    labels = [text.get_text() for text in axes.texts] + [line.get_label() for line in axes.lines]
    assert "scan[2]/scan[1]/cell" in labels
    with pytest.raises(ValueError, match=r"nothing was recorded for \['scan\[9\]/cell'\]"):
        dendrax.draw.traces(result, "scan[9]/cell")
    page = dendrax.explore(
        fun, *args, rule=IL(2, batch="sum"), vertices="marked", path=tmp_path / "a.html"
    )
    assert page.exists()
    steps = dendrax.explore(fun, *args, rule=ZIL(), vertices="marked", path=tmp_path / "b.html")
    assert steps.exists()
