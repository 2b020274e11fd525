"""Equinox: its layers, models of its documentation, and the semantics of its filtered gradients."""

from collections.abc import Callable

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import dendrax
import dendrax.equinox
from dendrax import train
from tests.compare import same
from tests.integrations.both import check_learns, check_same, cross_entropy, images, repeat

THEIRS = eqx.filter_value_and_grad
OURS = dendrax.equinox.filter_value_and_grad


# ------------------------------------------------------------------------------------------------
# Models
# ------------------------------------------------------------------------------------------------


class CNN(eqx.Module):
    """After the MNIST tutorial of Equinox' documentation: functions stand among the layers."""

    layers: list

    def __init__(self, key):
        keys = jax.random.split(key, 4)
        self.layers = [
            eqx.nn.Conv2d(1, 3, kernel_size=4, key=keys[0]),
            eqx.nn.MaxPool2d(kernel_size=2),
            jax.nn.relu,
            jnp.ravel,
            eqx.nn.Linear(3 * 24 * 24, 24, key=keys[1]),
            jax.nn.sigmoid,
            eqx.nn.Linear(24, 16, key=keys[2]),
            jax.nn.relu,
            eqx.nn.Linear(16, 10, key=keys[3]),
        ]

    def __call__(self, x):
        for layer in self.layers:
            x = layer(x)
        return x


class Stateful(eqx.Module):
    """After the example of stateful operations in Equinox' documentation."""

    norm1: eqx.nn.BatchNorm
    spectral: eqx.nn.SpectralNorm
    norm2: eqx.nn.BatchNorm
    linear: eqx.nn.Linear

    def __init__(self, key):
        keys = jax.random.split(key, 3)
        self.norm1 = eqx.nn.BatchNorm(input_size=6, axis_name="batch", mode="batch")
        inner = eqx.nn.Linear(6, 16, key=keys[0])
        self.spectral = eqx.nn.SpectralNorm(inner, weight_name="weight", key=keys[1])
        self.norm2 = eqx.nn.BatchNorm(input_size=16, axis_name="batch", mode="batch")
        self.linear = eqx.nn.Linear(16, 3, key=keys[2])

    def __call__(self, x, state):
        x, state = self.norm1(x, state)
        x, state = self.spectral(x, state)
        x, state = self.norm2(jax.nn.relu(x), state)
        return self.linear(x), state


class Recurrent(eqx.Module):
    """After the tutorial of Equinox' documentation that tells spirals apart: a scan over a GRU."""

    cell: eqx.nn.GRUCell
    linear: eqx.nn.Linear

    def __init__(self, key):
        first, second = jax.random.split(key)
        self.cell = eqx.nn.GRUCell(2, 8, key=first)
        self.linear = eqx.nn.Linear(8, 1, key=second)

    def __call__(self, sequence):
        start = jnp.zeros(self.cell.hidden_size)
        last, _ = jax.lax.scan(lambda h, x: (self.cell(x, h), None), start, sequence)
        return self.linear(last)[0]


class Attention(eqx.Module):
    """A block of a vision transformer, after that example of Equinox' documentation."""

    attention: eqx.nn.MultiheadAttention
    norms: tuple[eqx.nn.LayerNorm, eqx.nn.LayerNorm]
    mlp: eqx.nn.MLP
    dropout: eqx.nn.Dropout
    head: eqx.nn.Linear

    def __init__(self, key, size=8):
        keys = jax.random.split(key, 3)
        self.attention = eqx.nn.MultiheadAttention(2, size, dropout_p=0.2, key=keys[0])
        self.norms = (eqx.nn.LayerNorm(size), eqx.nn.LayerNorm(size))
        self.mlp = eqx.nn.MLP(size, size, 16, 1, activation=jax.nn.gelu, key=keys[1])
        self.dropout = eqx.nn.Dropout(0.3)
        self.head = eqx.nn.Linear(size, 10, key=keys[2])

    def __call__(self, x, key):
        first, second = jax.random.split(key)
        y = jax.vmap(self.norms[0])(x)
        x = x + self.attention(y, y, y, key=first)
        x = x + self.dropout(jax.vmap(self.mlp)(jax.vmap(self.norms[1])(x)), key=second)
        return self.head(jnp.mean(x, axis=0))


def classify(model, x, y):
    return cross_entropy(jax.vmap(model)(x), y)


def classify_with_state(model, state, x, y):
    out, state = jax.vmap(model, axis_name="batch", in_axes=(0, None), out_axes=(0, None))(x, state)
    return cross_entropy(out, y), state


def classify_at_random(model, x, y, key):
    return cross_entropy(jax.vmap(model)(x, jax.random.split(key, len(x))), y)


def binary(model, x, y):
    logits = jax.vmap(model)(x)
    return jnp.mean(optax.sigmoid_binary_cross_entropy(logits, y.astype(jnp.float32)))


# ------------------------------------------------------------------------------------------------
# Trained with one line changed
# ------------------------------------------------------------------------------------------------


def training(make: Callable, loss: Callable, *batch) -> Callable:
    """The training loop of Equinox' tutorials, as a function of the line that is changed."""
    optimizer = optax.adam(3e-3)

    def trained(filter_value_and_grad):
        model = make(jax.random.key(0))

        @eqx.filter_jit
        def step(carry, *batch):
            model, opt_state = carry
            value, grads = filter_value_and_grad(loss)(model, *batch)  # <- the line
            updates, opt_state = optimizer.update(grads, opt_state, model)
            return (eqx.apply_updates(model, updates), opt_state), value, grads

        run = repeat(step, (model, optimizer.init(eqx.filter(model, eqx.is_array))), *batch)
        return run._replace(final=eqx.filter(run.final, eqx.is_array))

    return trained


def training_with_state(filter_value_and_grad):
    """The same for a model with state."""
    optimizer = optax.adam(3e-3)
    model, state = eqx.nn.make_with_state(Stateful)(jax.random.key(0))

    @eqx.filter_jit
    def step(carry, x, y):
        model, state, opt_state = carry
        value_and_grad = filter_value_and_grad(classify_with_state, has_aux=True)  # <- the line
        (value, state), grads = value_and_grad(model, state, x, y)
        updates, opt_state = optimizer.update(grads, opt_state, model)
        return (eqx.apply_updates(model, updates), state, opt_state), value, grads

    opt_state = optimizer.init(eqx.filter(model, eqx.is_inexact_array))
    run = repeat(step, (model, state, opt_state), *images(8, 6, classes=3))
    return run._replace(final=eqx.filter(run.final, eqx.is_array))


TRAININGS = {
    "cnn": training(CNN, classify, *images(8, 1, 28, 28)),
    "stateful": training_with_state,
    "recurrent": training(Recurrent, binary, *images(8, 12, 2, classes=2)),
    "attention": training(
        Attention, classify_at_random, *images(4, 5, 8), np.array([0, 1], np.uint32)
    ),
    "mlp": training(  # the package's own model
        lambda key: eqx.nn.MLP(6, 3, 16, 2, key=key), classify, *images(8, 6, classes=3)
    ),
}


SLOW = {"cnn", "attention", "recurrent", "mlp"}
NAMES = [pytest.param(name, marks=[pytest.mark.slow] * (name in SLOW)) for name in TRAININGS]


@pytest.mark.parametrize("name", NAMES)
def test_one_line_changes(name):
    check_same(TRAININGS[name], THEIRS, OURS)


@pytest.mark.parametrize("name", ["stateful", pytest.param("cnn", marks=pytest.mark.slow)])
def test_inference_learning(name):
    check_learns(TRAININGS[name], THEIRS, OURS)


def test_fit_with_batch_statistics():
    model, state = eqx.nn.make_with_state(Stateful)(jax.random.key(0))
    found = train.fit(
        model,
        classify_with_state,
        images(32, 6, classes=3),
        state=state,
        optimizer=optax.adam(1e-2),
        settings=train.Settings(epochs=4, batch_size=8),
    )
    losses = [line["loss"] for line in found.history if "loss" in line]
    assert isinstance(found.model, Stateful) and losses[-1] < losses[0]
    assert not same(found.state, state)


# ------------------------------------------------------------------------------------------------
# Semantics
# ------------------------------------------------------------------------------------------------


@pytest.fixture
def mlp():
    return eqx.nn.MLP(2, 1, width_size=4, depth=1, key=jax.random.key(0))


def energy(model, x):
    return jnp.mean(jax.vmap(model)(x) ** 2)


X = np.linspace(-1, 1, 8, dtype=np.float32).reshape(4, 2)


def test_the_gradient_is_none_where_nothing_learns(mlp):
    value, gradient = OURS(energy)(mlp, X)
    expected = THEIRS(energy)(mlp, X)
    assert jax.tree.structure(gradient) == jax.tree.structure(expected[1])
    assert same((value, gradient), expected)
    assert gradient.activation is None


MIXED = {
    "float32": jnp.arange(3.0),
    "numpy": np.arange(3.0, dtype=np.float32),
    "numpy scalar": np.float32(2.0),
    "complex": jnp.array([1.0 + 2.0j], jnp.complex64),
    "integers": jnp.arange(3),
    "number": 2.0,
    "text": "name",
    "function": jnp.tanh,
    "key": jax.random.key(0),
    "none": None,
}


def test_what_learns_is_what_learns_in_equinox():
    def loss(tree):
        total = jnp.sum(tree["float32"] * tree["numpy"]) * tree["numpy scalar"] * tree["number"]
        return tree["function"](
            total + jnp.sum(jnp.abs(tree["complex"]) ** 2) + tree["integers"][0]
        )

    found, expected = jax.jit(lambda: OURS(loss)(MIXED))(), jax.jit(lambda: THEIRS(loss)(MIXED))()
    assert same(found, expected)
    assert {name for name, g in found[1].items() if g is not None} == {
        "float32",
        "numpy",
        "numpy scalar",
        "complex",
    }


def test_nothing_to_learn():
    assert same(OURS(lambda tree: 1.0 * tree["n"])({"n": 2}), (2.0, {"n": None}))


def test_grad_is_the_second_half(mlp):
    with_aux = lambda model, x: (energy(model, x), x + 1)
    value, gradient = OURS(energy)(mlp, X)
    assert same(dendrax.equinox.filter_grad(energy)(mlp, X), gradient)
    assert same(dendrax.equinox.filter_grad(with_aux, has_aux=True)(mlp, X), (gradient, X + 1))
    assert same(OURS(with_aux, has_aux=True)(mlp, X), ((value, X + 1), gradient))


def test_decorators_with_and_without_settings(mlp):
    @dendrax.equinox.filter_value_and_grad
    def plain(model, x):
        """What it does."""
        return energy(model, x)

    @dendrax.equinox.filter_grad(has_aux=True, rule=dendrax.BP(), vertices="primitive")
    def with_settings(model, x):
        return energy(model, x), "aux"

    assert plain.__name__ == "plain" and plain.__doc__ == "What it does."
    assert same(plain(mlp, X), THEIRS(energy)(mlp, X))
    gradient, aux = with_settings(mlp, X)
    assert same(gradient, eqx.filter_grad(energy)(mlp, X)) and aux == "aux"


def test_keywords_are_not_differentiated(mlp):
    loss = lambda model, *, x, power: jnp.mean(jax.vmap(model)(x) ** power)
    assert same(OURS(loss)(mlp, x=X, power=2), THEIRS(loss)(mlp, x=X, power=2))


@pytest.mark.parametrize("library", [eqx, dendrax.equinox])
def test_methods(library):
    class Model(eqx.Module):
        weight: jax.Array

        @library.filter_value_and_grad
        def loss(self, x):
            return jnp.sum((self.weight * x) ** 2)

        @library.filter_grad
        def slope(self, x):
            return jnp.sum((self.weight * x) ** 2)

    value, gradient = Model(jnp.ones(3)).loss(2.0)
    assert value == 12 and same(gradient, Model(jnp.full(3, 8.0)))
    assert same(Model(jnp.ones(3)).slope(2.0), Model(jnp.full(3, 8.0)))


@pytest.mark.parametrize("transform", [THEIRS, OURS])
def test_a_model_can_be_the_function_and_is_traced_with_it(transform):
    """Its arrays are inputs of a compiled function, not constants in it."""

    class Weighted(eqx.Module):
        weight: jax.Array

        def __call__(self, x):
            traces.append(self.weight)
            return jnp.sum(self.weight * x**2)

    traces = []
    call = eqx.filter_jit(lambda transformed, x: transformed(x))
    for weight in (1.0, 2.0):
        value, gradient = call(transform(Weighted(jnp.array(weight))), jnp.ones(3))
        assert value == 3 * weight and same(gradient, jnp.full(3, 2 * weight))
    assert len(traces) == 1


def test_a_bound_method_differentiates_its_first_argument():
    mlp = eqx.nn.MLP("scalar", "scalar", 4, 1, key=jax.random.key(0))
    found, expected = OURS(mlp.__call__)(jnp.array(0.5)), THEIRS(mlp.__call__)(jnp.array(0.5))
    assert same(found, expected)


def test_vmap_and_gradients_of_gradients(mlp):
    models = eqx.filter_vmap(lambda key: eqx.nn.MLP(2, 1, 4, 1, key=key))(
        jax.random.split(jax.random.key(0), 3)
    )

    def ensemble(transform):
        return eqx.filter_jit(eqx.filter_vmap(transform(energy), in_axes=(eqx.if_array(0), None)))

    assert same(ensemble(OURS)(models, X), ensemble(THEIRS)(models, X))

    def twice(grad):
        squares = lambda model, x: sum(
            jnp.sum(g**2) for g in jax.tree.leaves(grad(energy)(model, x))
        )
        return eqx.filter_jit(grad(squares))(mlp, X)

    assert same(twice(dendrax.equinox.filter_grad), twice(eqx.filter_grad))


# ------------------------------------------------------------------------------------------------
# Randomness, and comparisons that can fail
# ------------------------------------------------------------------------------------------------


def dropped(model, x, key):
    h = eqx.nn.Dropout(0.5)(jax.vmap(model.layers[0])(x), key=key)
    return jnp.mean(jax.vmap(model.layers[1])(h) ** 2), h == 0


@pytest.mark.parametrize("rule", [dendrax.ZIL(), dendrax.IL(num_steps=2, gamma=0.01, batch="sum")])
def test_dropout_masks_are_the_same(rule, mlp):
    """And another key is noticed."""

    ours = eqx.filter_jit(OURS(dropped, has_aux=True, rule=rule))
    theirs = eqx.filter_jit(THEIRS(dropped, has_aux=True))
    key, other = jax.random.split(jax.random.key(3))
    (_, mask), gradient = ours(mlp, X, key)
    (_, expected_mask), expected_gradient = theirs(mlp, X, key)
    (_, other_mask), other_gradient = ours(mlp, X, other)
    assert same(mask, expected_mask) and not same(other_mask, mask)
    assert same(gradient, expected_gradient) == isinstance(rule, dendrax.ZIL)
    assert not same(other_gradient, gradient)


# ------------------------------------------------------------------------------------------------
# Errors
# ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "call, message",
    [
        (lambda: OURS(3.0), "filter_value_and_grad: expected a function, got float"),
        (lambda: OURS(energy, rule="IL"), "filter_value_and_grad: rule must be a rule, got 'IL'"),
        (
            lambda: OURS(energy, vertices="all"),
            "filter_value_and_grad: vertices='all' is not known",
        ),
        (lambda: OURS(energy)(), "the function was called without arguments"),
        (lambda: OURS(energy)(model=None, x=X), "called with model, x by keyword only"),
        (lambda: OURS(lambda w: w)(jnp.ones(2)), "filter_value_and_grad: .* had shape \\(2,\\)"),
        (lambda: OURS(lambda w: w, has_aux=True)(jnp.ones(())), "must return a pair"),
        (lambda: dendrax.equinox.filter_grad(1), "filter_grad: expected a function"),
        (lambda: dendrax.equinox.filter_grad(energy)(), "dendrax.equinox.filter_grad: the first"),
    ],
)
def test_errors(call, message):
    with pytest.raises((TypeError, ValueError), match=message):
        call()


@eqx.filter_custom_vjp
def scaled_sine(vjp_arg, y, *, scale):
    x, z = vjp_arg
    return jnp.sin(x) * scale + jnp.sum(z) * y


@scaled_sine.def_fwd
def _(perturbed, vjp_arg, y, *, scale):
    return scaled_sine(vjp_arg, y, scale=scale), (jnp.cos(vjp_arg[0]) * scale, y)


@scaled_sine.def_bwd
def _(residuals, g, perturbed, vjp_arg, y, *, scale):
    """What is not perturbed is told apart: its gradient is made wrong to show it."""
    cosine, y = residuals
    return g * cosine * (1.0 if perturbed[1] else 5.0), jnp.full(3, jnp.sum(g * y))


def test_filter_custom_vjp():
    """Its rules ask which arguments are differentiated, by JAX's symbolic zeros."""

    def both(xz):
        return jnp.sum(scaled_sine(xz, 2.0, scale=3.0))

    def one(x):
        return both((x, jnp.ones(3)))

    x = jnp.arange(2.0)
    for function, arg in ((one, x), (both, (x, jnp.ones(3)))):
        for transform in (lambda f: f, eqx.filter_jit):
            found = transform(OURS(function))(arg)
            assert same(found, transform(THEIRS(function))(arg))
