"""A loss is a mean over samples: the axis that counts them is found, and mistakes are noticed."""

import itertools
import warnings

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import dendrax
from dendrax import IL, ErrorPC, IncrementalPC
from dendrax.models import problem
from tests.compare import close

RNG = np.random.default_rng(0)
W = [RNG.normal(size=s) / 2 for s in ((6, 5), (5, 4), (4, 3))]
X, Y = RNG.normal(size=(7, 6)), RNG.normal(size=(7, 3))


def errors(w, x, y):
    return jnp.tanh(jnp.tanh(x @ w[0]) @ w[1]) @ w[2] - y


def mean(w, x, y):
    return jnp.mean(jnp.sum(errors(w, x, y) ** 2, -1)) / 2


def total(w, x, y):
    return jnp.sum(errors(w, x, y) ** 2) / 2


def axes(loss, *args, rule=IL(), **settings):
    """The batch axis of each value node, by name."""

    class Looks(type(rule)):
        def start(self, net, memory=None):
            found.update((node.name, node.batch) for node in net.nodes.values())
            return super().start(net, memory)

    found = {}
    fields = {name: getattr(rule, name) for name in rule.__dataclass_fields__}
    jax.eval_shape(dendrax.grad(loss, rule=Looks(**fields), **settings), *args)
    return found


@pytest.mark.parametrize("rule", [IL, ErrorPC, IncrementalPC])
def test_by_default_a_loss_is_a_mean_over_samples(rule):
    """The result is the mean of what each sample gives, alone."""
    found = dendrax.grad(mean, rule=rule(10))(W, X, Y)
    alone = dendrax.grad(mean, rule=rule(10, batch="sum"))
    each = jax.vmap(lambda x, y: alone(W, x, y))(X, Y)
    if rule is not IncrementalPC:  # whose parameters move with those of the other samples
        assert close(found, jax.tree.map(lambda g: g.mean(0), each), ulps=256)
    assert close(found, dendrax.grad(mean, rule=rule(10, batch=7))(W, X, Y), ulps=0)
    assert close(jax.jit(dendrax.grad(mean, rule=rule(10)))(W, X, Y), found, ulps=1024)


@pytest.mark.parametrize("name", ["cnn", "transformer", "rnn"])
def test_models(name):
    p = problem(name, dtype="float64", small=True)
    found = set(axes(p.loss, p.model, p.inputs, p.target).values())
    assert found <= {0, 1} and 0 in found


def test_one_sample_without_an_axis():
    """Of as many features as hidden units; sizes alone would say 6 samples."""
    square = [jnp.asarray(RNG.normal(size=(6, 6))) / 3 for _ in range(3)]
    args = square, X[0], X[1]
    found = dendrax.grad(mean_of_one, rule=IL())(*args)
    assert close(found, dendrax.grad(mean_of_one, rule=IL(batch="sum"))(*args), ulps=0)
    assert set(axes(mean_of_one, *args).values()) == {None}


def mean_of_one(w, x, y):
    return jnp.sum(errors(w, x, y) ** 2) / 2


def test_inside_vmap_there_is_one_sample_each():
    one = jax.vmap(dendrax.grad(mean_of_one, rule=IL()), (None, 0, 0))(W, X, Y)
    found = jax.tree.map(lambda g: g.mean(0), one)
    assert close(found, dendrax.grad(mean, rule=IL())(W, X, Y), ulps=256)


def recurrent(w, x, y, axis):
    """A cell that is marked, in a scan over an axis of the sequences."""
    cell = dendrax.vertex(lambda h, x: jnp.tanh(x @ w[0] + h @ w[1]))

    def step(h, x):
        h = cell(h, x)
        return h, h

    h = jnp.zeros((y.shape[0], 5))
    _, hidden = jax.lax.scan(step, h, jnp.moveaxis(x, axis, 0))
    return jnp.mean(jnp.sum((hidden[-1] @ w[2] - y) ** 2, -1)) / 2


@pytest.mark.parametrize("axis", [0, 1])
def test_sequences(axis):
    """Time first or samples first, also where there are as many of both; stacked over time."""
    w = [W[0], jnp.asarray(RNG.normal(size=(5, 5))) / 3, jnp.asarray(RNG.normal(size=(5, 3)))]
    x = jnp.asarray(RNG.normal(size=(7, 7, 6)))
    loss = lambda w, x, y: recurrent(w, x, y, axis)
    assert axes(loss, w, x, Y, vertices="marked") == {"scan/layer(w[0])": 1}
    found = dendrax.grad(loss, rule=IL(5), vertices="marked")(w, x, Y)
    alone = dendrax.grad(loss, rule=IL(5, batch="sum"), vertices="marked")
    each = [
        alone(w, jax.lax.dynamic_slice_in_dim(x, i, 1, 1 - axis), Y[i : i + 1]) for i in range(7)
    ]
    assert close(found, jax.tree.map(lambda *g: sum(g) / 7, *each), ulps=1024)


def test_samples_along_other_axes_of_the_same_size():
    def loss(p, x, y):
        step = lambda h, x: (jnp.tanh(x @ p["a"] + h @ p["w"]), None)
        h, _ = jax.lax.scan(step, jnp.zeros((x.shape[1], 5)), x)
        return jnp.mean((h @ p["o"] - y) ** 2)

    shapes = {"a": (3, 5), "w": (5, 5), "o": (5, 4)}
    p = {name: jnp.asarray(RNG.normal(size=shape)) / 2 for name, shape in shapes.items()}
    x, y = jnp.asarray(RNG.normal(size=(4, 4, 3))), jnp.asarray(RNG.normal(size=(4, 4)))
    found, expected = (dendrax.grad(loss, rule=IL(batch=b))(p, x, y) for b in ("mean", 4))
    assert close(found, expected, ulps=64)


def test_what_samples_share_keeps_its_energy():
    def loss(w, x, y):
        context = jnp.tanh(w[2]) @ w[3]  # of parameters alone
        h = jnp.tanh(x @ w[0]) @ w[1]
        return jnp.mean(jnp.sum((jnp.tanh(h + jnp.sum(context)) @ w[2] - y) ** 2, -1)) / 2

    w = [*W, jnp.asarray(RNG.normal(size=(3, 2)))]
    found = axes(loss, w, X, Y, vertices="parameter")
    assert None in found.values() and 0 in found.values()
    precision = lambda v: 1 / 7 if v.shape[0] == 7 else 1.0
    rule = IL(precision=precision, batch="sum")
    expected = dendrax.grad(loss, rule=rule, vertices="parameter")(w, X, Y)
    found = dendrax.grad(loss, rule=IL(), vertices="parameter")(w, X, Y)
    assert close(found, expected, ulps=64)


def test_a_branch_on_the_data():
    """Numbers that decide Python's branches are looked at: the last sample is there twice."""
    branching = lambda w, x, y: mean(w, x if np.max(x) > 0 else -x, y)
    found = dendrax.grad(branching, rule=IL())(W, np.asarray(X), Y)
    assert close(found, dendrax.grad(mean, rule=IL())(W, X, Y), ulps=0)


def test_as_many_classes_as_samples():
    """Weights of classes are no samples, though there are as many."""
    classes = jnp.array([0.2, 0.3, 0.5])
    loss = lambda w, x, y, c: jnp.mean(jnp.sum(c * errors(w, x, y) ** 2, -1))
    assert set(axes(loss, W, X[:3], Y[:3], classes).values()) == {0}


def test_a_repeated_call_traces_once():
    calls = []

    def loss(w, x, y):
        calls.append(1)
        return mean(w, x, y)

    gradient = dendrax.grad(loss, rule=IL())
    for expected in (2, 3, 4):
        gradient(W, X, Y)
        assert len(calls) == expected


# ---- what has to be asked ------------------------------------------------------------------------


def test_data_from_elsewhere():
    closed = lambda w: mean(w, X, Y)
    with pytest.raises(ValueError, match=r"an axis of 7.*elsewhere.*[\s\S]*batch=32"):
        dendrax.grad(closed, rule=IL())(W)
    found = dendrax.grad(closed, rule=IL(batch=7))(W)
    assert close(found, dendrax.grad(mean, rule=IL())(W, X, Y), ulps=64)


def test_a_function_for_one_size():
    fixed = lambda w, x, y: mean(w, x.reshape(7, 6), y)
    with pytest.raises(ValueError, match=r"an axis of 7, as the data do[\s\S]*batch=32"):
        dendrax.grad(fixed, rule=IL())(W, X, Y)


def test_axes_that_could_all_be_meant():
    def loss(w, x):
        h = jnp.einsum("dab,de->eab", x, w[0])
        return jnp.mean(jnp.einsum("eab,ef->fab", jnp.tanh(h), w[1]) ** 2)

    x = jnp.ones((6, 2, 3))
    with pytest.raises(ValueError, match=r"several axes .* of the sizes 2, 3[\s\S]*batch="):
        dendrax.grad(loss, rule=IL())(W[:2], x)
    dendrax.grad(loss, rule=IL(batch=6))(W[:2], x)


def test_two_batches():
    """Of two sizes, which nothing connects but the loss."""
    loss = lambda w, x, y, more: mean(w, x, y) + mean(w, more, jnp.zeros((4, 3)))
    with pytest.raises(ValueError, match=r"several axes .* of the sizes 4, 7[\s\S]*batch="):
        dendrax.grad(lambda w, x, y, more, z: mean(w, x, y) + mean(w, more, z), rule=IL())(
            W, X, Y, X[:4], Y[:4]
        )
    dendrax.grad(loss, rule=IL(batch=7))(W, X, Y, X[:4])


def test_none_is_gone():
    with pytest.raises(ValueError, match=r"IL: batch=None is not known any more[\s\S]*'sum'"):
        IL(batch=None)  # pyright: ignore


# ---- what is noticed -----------------------------------------------------------------------------


def test_another_number_of_samples():
    with pytest.warns(UserWarning, match="IL: batch=100, but there are 7 samples"):
        dendrax.grad(mean, rule=IL(batch=100))(W, X, Y)


SUMS = {
    "sum": total,
    "vdot": lambda w, x, y: jnp.vdot(errors(w, x, y), errors(w, x, y)) / 2,
    "of samples": lambda w, x, y: jnp.sum(jax.vmap(mean_of_one, (None, 0, 0))(w, x, y)),
    "with decay": lambda w, x, y: total(w, x, y) + 0.01 * jnp.sum(w[0] ** 2),
}


@pytest.mark.parametrize("weigh", [lambda m: m / m.sum(), lambda m: jax.nn.softmax(m, 0)])
def test_weights_for_each_part_of_a_sample_may_make_a_mean(weigh):
    def loss(w, x, m):
        errors = jnp.sum((jnp.tanh(x @ w[0]) @ w[1]) ** 2, -1)
        return jnp.sum(weigh(m) * errors)

    x = jnp.asarray(RNG.normal(size=(9, 5, 6)))
    m = jnp.asarray(RNG.uniform(size=(9, 5)))
    dendrax.grad(loss, rule=IL(2))(W[:2], x, m)  # a warning would be an error


@pytest.mark.parametrize("name", SUMS)
def test_a_sum_that_is_taken_for_a_mean(name):
    with pytest.warns(UserWarning, match=r"adds up 7 samples and divides by nothing.*batch='sum'"):
        dendrax.grad(SUMS[name], rule=IL())(W, X, Y)
    dendrax.grad(SUMS[name], rule=IL(batch="sum"))(W, X, Y)


def per_sample(w, x, y):
    return jnp.sum(errors(w, x, y) ** 2, -1)


def masked(values, mask):
    return jnp.sum(jnp.where(mask, values, 0)) / jnp.sum(mask.astype(values.dtype))


MEANS = {
    "mean": mean,
    "of all": lambda w, x, y: jnp.mean(errors(w, x, y) ** 2),
    "by len": lambda w, x, y: sum(per_sample(w, x, y)) / len(x),
    "by shape": lambda w, x, y: total(w, x, y) / x.shape[0],
    "times": lambda w, x, y: total(w, x, y) * (1 / x.shape[0]),
    "by a number": lambda w, x, y: total(w, x, y) / 7,
    "inside": lambda w, x, y: jnp.sum(per_sample(w, x, y) / x.shape[0]),
    "masked": lambda w, x, y: masked(per_sample(w, x, y), x[:, 0] > 0),
    "weighed": lambda w, x, y: jnp.sum(per_sample(w, x, y) * (x[:, 0] ** 2)),
    "average": lambda w, x, y: jnp.average(per_sample(w, x, y), weights=x[:, 0] ** 2),
    "scaled": lambda w, x, y: total(w, x, y) * jnp.exp(w[0][0, 0]),
}


@pytest.mark.parametrize("name", MEANS)
def test_what_may_be_a_mean_is_not_warned_of(name):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        jax.eval_shape(dendrax.grad(MEANS[name], rule=IL()), W, X, Y)


def test_a_cotangent_divides_nothing():
    _, pull = dendrax.vjp(total, W, X, Y, rule=IL())
    _, expected = dendrax.vjp(total, W, X, Y, rule=IL(batch="sum"))
    one = np.float64(1)
    assert close(pull(one), expected(one), ulps=0)


def test_it_is_not_backpropagation():
    """A mean over 512 samples: as a sum, IL was backpropagation to three digits in every layer."""
    sizes = (784, 64, 64, 10)
    w = [
        jnp.asarray(RNG.normal(size=s), jnp.float32) / s[0] ** 0.5
        for s in itertools.pairwise(sizes)
    ]
    x = jnp.asarray(RNG.normal(size=(512, 784)), jnp.float32)
    y = jax.nn.one_hot(jnp.arange(512) % 10, 10, dtype=jnp.float32)
    cosines = {
        batch: [
            float(jnp.vdot(a, b) / jnp.linalg.norm(a) / jnp.linalg.norm(b))
            for a, b in zip(
                dendrax.grad(mean, rule=IL(100, batch=batch))(w, x, y),
                jax.grad(mean)(w, x, y),
                strict=True,
            )
        ]
        for batch in ("mean", "sum")
    }
    assert min(cosines["sum"]) > 0.999
    assert max(cosines["mean"]) < 0.98 and min(cosines["mean"]) > 0.5
