"""Flax NNX: its layers, models of its documentation, and the semantics of its gradients."""

import functools
from collections.abc import Callable

import flax
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from flax import nnx

import dendrax
import dendrax.nnx
from dendrax import train
from tests.compare import close, same
from tests.integrations.both import (
    IL,
    Trained,
    check_learns,
    check_same,
    cross_entropy,
    images,
    repeat,
)

THEIRS = nnx.value_and_grad
OURS = dendrax.nnx.value_and_grad


# ------------------------------------------------------------------------------------------------
# Models
# ------------------------------------------------------------------------------------------------


class CNN(nnx.Module):
    """After the MNIST tutorial of Flax' documentation, narrower: statistics and dropout."""

    def __init__(self, rngs):
        self.conv1 = nnx.Conv(1, 4, kernel_size=(3, 3), rngs=rngs)
        self.batch_norm1 = nnx.BatchNorm(4, rngs=rngs)
        self.dropout1 = nnx.Dropout(rate=0.025, rngs=rngs)
        self.conv2 = nnx.Conv(4, 6, kernel_size=(3, 3), rngs=rngs)
        self.batch_norm2 = nnx.BatchNorm(6, rngs=rngs)
        self.linear1 = nnx.Linear(3 * 3 * 6, 12, rngs=rngs)
        self.dropout2 = nnx.Dropout(rate=0.3, rngs=rngs)
        self.linear2 = nnx.Linear(12, 10, rngs=rngs)
        self.avg_pool = functools.partial(nnx.avg_pool, window_shape=(2, 2), strides=(2, 2))

    def __call__(self, x):
        x = self.avg_pool(nnx.relu(self.batch_norm1(self.dropout1(self.conv1(x)))))
        x = self.avg_pool(nnx.relu(self.batch_norm2(self.conv2(x))))
        x = nnx.relu(self.dropout2(self.linear1(x.reshape(x.shape[0], -1))))
        return self.linear2(x)


class Count(nnx.Variable):
    """How often a model was called."""


class MLP(nnx.Module):
    """After NNX' basics: a model that counts its calls in a variable of its own type."""

    def __init__(self, rngs):
        self.count = Count(jnp.array(0))
        self.linear1 = nnx.Linear(6, 16, rngs=rngs)
        self.bn = nnx.BatchNorm(16, rngs=rngs)
        self.dropout = nnx.Dropout(0.2, rngs=rngs)
        self.linear2 = nnx.Linear(16, 3, rngs=rngs)

    def __call__(self, x):
        self.count[...] += 1
        return self.linear2(self.dropout(nnx.gelu(self.bn(self.linear1(x)))))


class Transformer(nnx.Module):
    """After the miniature GPT of the tutorials: embeddings, causal attention, dropout, norms."""

    def __init__(self, rngs, size=8):
        self.tokens = nnx.Embed(12, size, rngs=rngs)
        self.positions = nnx.Embed(6, size, rngs=rngs)
        self.attention = nnx.MultiHeadAttention(
            num_heads=2,
            in_features=size,
            dropout_rate=0.1,
            deterministic=False,
            decode=False,
            rngs=rngs,
        )
        self.norm1 = nnx.LayerNorm(size, rngs=rngs)
        self.linear1 = nnx.Linear(size, 16, rngs=rngs)
        self.linear2 = nnx.Linear(16, size, rngs=rngs)
        self.dropout = nnx.Dropout(0.1, rngs=rngs)
        self.norm2 = nnx.LayerNorm(size, rngs=rngs)

    def __call__(self, x):
        h = self.tokens(x) + self.positions(jnp.arange(x.shape[1]))[None]
        h = self.norm1(h + self.attention(h, mask=nnx.make_causal_mask(x)))
        h = self.norm2(h + self.dropout(self.linear2(nnx.relu(self.linear1(h)))))
        return self.tokens.attend(h)  # the embedding is used twice


class Recurrent(nnx.Module):
    """A classifier of sequences by the package's own recurrent layers."""

    def __init__(self, rngs):
        self.rnn = nnx.RNN(nnx.OptimizedLSTMCell(2, 6, rngs=rngs))
        self.both = nnx.Bidirectional(
            nnx.RNN(nnx.GRUCell(6, 4, rngs=rngs)), nnx.RNN(nnx.SimpleCell(6, 4, rngs=rngs))
        )
        self.linear = nnx.Linear(8, 3, rngs=rngs)

    def __call__(self, x):
        return self.linear(self.both(self.rnn(x))[:, -1])


class LowRank(nnx.Module):
    """A frozen network with adapters."""

    def __init__(self, rngs):
        self.first = nnx.LoRALinear(6, 16, lora_rank=2, rngs=rngs)
        self.second = nnx.LoRALinear(16, 3, lora_rank=2, rngs=rngs)
        for layer in (self.first, self.second):
            layer.lora.lora_b[...] = 0.1 * jnp.ones_like(layer.lora.lora_b[...])

    def __call__(self, x):
        return self.second(jnp.tanh(self.first(x)))


def classify(model, x, y):
    logits = model(x)
    return cross_entropy(logits, y), logits


def predict_next(model, x, y):
    logits = model(x)
    return jnp.mean(optax.softmax_cross_entropy_with_integer_labels(logits, y)), logits


# ------------------------------------------------------------------------------------------------
# Trained with one line changed
# ------------------------------------------------------------------------------------------------


def training(make: Callable, loss: Callable, *batch, wrt=nnx.Param) -> Callable:
    """The training loop of Flax' tutorials, as a function of the line that is changed."""

    def trained(value_and_grad) -> Trained:
        model = make(nnx.Rngs(0))
        optimizer = nnx.Optimizer(model, optax.adam(3e-3), wrt=wrt)
        metrics = nnx.MultiMetric(loss=nnx.metrics.Average("loss"))
        argnums = 0 if wrt is nnx.Param else nnx.DiffState(0, wrt)

        @nnx.jit
        def step(model, optimizer, metrics, *batch):
            grad_fn = value_and_grad(loss, argnums=argnums, has_aux=True)  # <- the line
            (value, _), grads = grad_fn(model, *batch)
            metrics.update(loss=value)
            optimizer.update(model, grads)
            return value, grads

        def update(everything, *batch):
            return everything, *step(*everything, *batch)

        run = repeat(update, (model, optimizer, metrics), *batch)
        return run._replace(final=[nnx.state(part) for part in run.final])

    return trained


TOKENS = np.random.default_rng(0).integers(12, size=(4, 7)).astype(np.int32)
TRAININGS = {
    "cnn": training(CNN, classify, *images(8, 12, 12, 1)),
    "mlp": training(MLP, classify, *images(8, 6, classes=3)),
    "transformer": training(Transformer, predict_next, TOKENS[:, :-1], TOKENS[:, 1:]),
    "recurrent": training(Recurrent, classify, *images(8, 5, 2, classes=3)),
    "low rank": training(LowRank, classify, *images(8, 6, classes=3), wrt=nnx.LoRAParam),
}
SLOW = {"cnn", "transformer", "recurrent", "low rank"}
NAMES = [pytest.param(name, marks=[pytest.mark.slow] * (name in SLOW)) for name in TRAININGS]


@pytest.mark.parametrize("name", NAMES)
def test_one_line_changes(name):
    check_same(TRAININGS[name], THEIRS, OURS)


@pytest.mark.parametrize("name", ["mlp", pytest.param("cnn", marks=pytest.mark.slow)])
def test_inference_learning(name):
    check_learns(TRAININGS[name], THEIRS, OURS)


def test_fit_by_split_and_merge():
    """`dendrax.train.fit` learns trees of arrays: the parameters of the model, and its state."""
    definition, params, state = nnx.split(MLP(nnx.Rngs(0)), nnx.Param, ...)

    def loss(params, state, x, y):
        model = nnx.merge(definition, params, state)
        value, _ = classify(model, x, y)
        return value, nnx.state(model, nnx.Not(nnx.Param))

    found = train.fit(
        params,
        loss,
        images(32, 6, classes=3),
        state=state,
        optimizer=optax.adam(1e-2),
        settings=train.Settings(epochs=20, batch_size=8, log_every=1),
    )
    model = nnx.merge(definition, found.model, found.state)
    assert model.count[...] == found.step == 80
    losses = [line["loss"] for line in found.history if "loss" in line]
    assert np.mean(losses[-8:]) < 0.8 * np.mean(losses[:8])  # its dropout is noisy


# ------------------------------------------------------------------------------------------------
# Semantics
# ------------------------------------------------------------------------------------------------

X = np.linspace(-1, 1, 24, dtype=np.float32).reshape(4, 6)


class Small(nnx.Module):
    """As little as has parameters, statistics and a variable of another type."""

    def __init__(self, rngs):
        self.linear = nnx.Linear(6, 3, rngs=rngs)
        self.bn = nnx.BatchNorm(3, rngs=rngs)
        self.count = Count(jnp.array(0))

    def __call__(self, x):
        self.count[...] += 1
        return jnp.tanh(self.bn(self.linear(x)))


def energy(model, x):
    return jnp.mean(model(x) ** 2)


def test_the_callers_modules_change():
    expected, model = Small(nnx.Rngs(0)), Small(nnx.Rngs(0))
    THEIRS(energy)(expected, X)
    OURS(energy)(model, X)
    assert model.count[...] == 1
    assert same(nnx.state(model), nnx.state(expected))
    assert not same(nnx.state(model), nnx.state(Small(nnx.Rngs(0))))


def test_statistics_are_those_of_the_forward_pass():
    """Whatever the rule: value nodes that move do not move them."""
    expected, model = Small(nnx.Rngs(0)), Small(nnx.Rngs(0))
    nnx.jit(THEIRS(energy))(expected, X)
    nnx.jit(OURS(energy, rule=IL, vertices="primitive"))(model, X)
    assert model.count[...] == 1
    assert close(nnx.state(model, nnx.BatchStat), nnx.state(expected, nnx.BatchStat))


def test_structure_and_plain_attributes_change_too():
    def loss(model, x):
        model.calls, model.scale = 1, nnx.Param(jnp.ones(()))
        return energy(model, x)

    model = Small(nnx.Rngs(0))
    bias = model.linear.bias
    gradient = dendrax.nnx.grad(loss)(model, X)
    assert model.calls == 1 and model.scale[...] == 1
    assert model.linear.bias is bias and not isinstance(bias[...], jax.core.Tracer)
    assert "scale" not in gradient


@pytest.mark.filterwarnings("ignore:.*sow.*:DeprecationWarning")
def test_sown_values():
    class Sower(nnx.Module):
        def __init__(self, rngs):
            self.linear = nnx.Linear(6, 3, rngs=rngs)

        def __call__(self, x):
            h = self.linear(x)
            self.sow(nnx.Intermediate, "h", h)
            return h

    models = Sower(nnx.Rngs(0)), Sower(nnx.Rngs(0))
    for transform, model in zip((THEIRS, OURS), models, strict=True):
        nnx.jit(lambda model, transform=transform: transform(energy)(model, X))(model)
    assert len(models[1].h) == 1
    assert same(nnx.state(models[1]), nnx.state(models[0]))


def test_modules_in_aux_are_the_callers_own_or_new():
    def loss(model, x):
        return energy(model, x), {"old": model, "new": nnx.Linear(2, 2, rngs=nnx.Rngs(1)), "n": 3}

    model = Small(nnx.Rngs(0))
    gradient, aux = dendrax.nnx.grad(loss, has_aux=True)(model, X)
    assert aux["old"] is model and aux["n"] == 3
    assert same(nnx.state(aux["new"]), nnx.state(nnx.Linear(2, 2, rngs=nnx.Rngs(1))))
    assert isinstance(gradient, nnx.State)


def mixed(model, variable, tree):
    layer, weight = tree["layer"], tree["weight"]
    return jnp.mean(jnp.abs(layer(model(X)) * variable * weight) ** 2)


ARGNUMS = [
    -1,
    (0,),
    [2, 0],
    nnx.DiffState(0, nnx.BatchStat),
    nnx.DiffState(2, ...),
    (nnx.DiffState(0, nnx.All(nnx.Param, nnx.PathContains("kernel"))), 1),
    nnx.DiffState(0, None),
]


@pytest.mark.parametrize("argnums", ARGNUMS, ids=str)
def test_argnums(argnums):
    def found(transform, argnums):
        model = Small(nnx.Rngs(0))
        tree = {"layer": nnx.Linear(3, 2, rngs=nnx.Rngs(1)), "weight": jnp.array([1.0, 2.0])}
        call = nnx.jit(lambda *args: transform(mixed, argnums=argnums)(*args))
        return call(model, nnx.Param(jnp.array(0.5)), tree), nnx.state(model)

    theirs = 2 if argnums == -1 else argnums  # which Flax does not take
    assert same(found(OURS, argnums), found(THEIRS, theirs))


def test_keywords():
    """Those that have a position count as if they were given by position, as in Flax."""
    model, weight = Small(nnx.Rngs(0)), nnx.Param(jnp.array(0.5))
    tree = {"layer": nnx.Linear(3, 2, rngs=nnx.Rngs(1)), "weight": jnp.array([1.0, 2.0])}
    by_keyword = OURS(mixed, argnums=1)(model, tree=tree, variable=weight)
    model = Small(nnx.Rngs(0))
    assert same(by_keyword, OURS(mixed, argnums=1)(model, weight, tree))


def test_keywords_without_a_position():
    """Which Flax does not take."""
    model = nnx.Linear(6, 3, rngs=nnx.Rngs(0))
    loss = lambda model, *, x: energy(model, x)
    assert same(OURS(loss)(model, x=X), OURS(energy)(model, X))


def test_partial_functions():
    model = nnx.Linear(6, 3, rngs=nnx.Rngs(0))
    loss = functools.partial(energy, x=X)
    assert same(OURS(loss)(model), OURS(energy)(model, X))


@pytest.mark.parametrize("transform", [nnx.grad, dendrax.nnx.grad])
def test_a_module_shared_by_two_arguments(transform):
    """Its gradient is that of the first of them."""
    layer = nnx.Linear(6, 6, rngs=nnx.Rngs(0))
    both = lambda a, b, x: jnp.mean(a(b(x)) ** 2)
    first, second = transform(both, argnums=(0, 1))(layer, layer, X)
    assert same(first, transform(lambda layer, x: both(layer, layer, x))(layer, X))
    assert not second


def test_a_module_shared_inside_a_model():
    class Tied(nnx.Module):
        def __init__(self, rngs):
            self.first = nnx.Linear(6, 6, rngs=rngs)
            self.second = self.first

        def __call__(self, x):
            return self.second(jnp.tanh(self.first(x)))

    model = Tied(nnx.Rngs(0))
    found, expected = (nnx.jit(t(energy))(model, X) for t in (OURS, THEIRS))
    assert same(found, expected)


def test_decorators_with_and_without_settings():
    @dendrax.nnx.value_and_grad
    def plain(model, x):
        """What it does."""
        return energy(model, x)

    @dendrax.nnx.grad(argnums=1, rule=dendrax.BP(), vertices="primitive")
    def with_settings(model, x):
        return energy(model, x)

    model = nnx.Linear(6, 3, rngs=nnx.Rngs(0))
    assert plain.__name__ == "plain" and plain.__doc__ == "What it does."
    assert same(plain(model, X), THEIRS(energy)(model, X))
    assert same(with_settings(model, X), nnx.grad(energy, argnums=1)(model, X))


@pytest.mark.parametrize("library", [nnx, dendrax.nnx])
def test_methods(library):
    class Model(nnx.Module):
        def __init__(self):
            self.weight = nnx.Param(jnp.ones(3))

        @library.value_and_grad
        def loss(self, x):
            return jnp.sum((self.weight * x) ** 2)

    value, gradient = Model().loss(2.0)
    assert value == 12 and same(gradient["weight"][...], jnp.full(3, 8.0))


def test_gradients_inside_gradients():
    model = nnx.Linear(6, 3, rngs=nnx.Rngs(0))

    def twice(grad):
        squares = lambda model, x: sum(
            jnp.sum(g**2) for g in jax.tree.leaves(grad(energy)(model, x))
        )
        return nnx.jit(grad(squares))(model, X)

    assert same(twice(dendrax.nnx.grad), twice(nnx.grad))


def test_vmap_over_models():
    @nnx.vmap
    def make(key):
        return nnx.Linear(6, 3, rngs=nnx.Rngs(key))

    models = make(jax.random.split(jax.random.key(0), 3))

    def found(transform):
        return nnx.jit(nnx.vmap(transform(energy), in_axes=(0, None)))(models, X)

    assert same(found(OURS), found(THEIRS))


@pytest.mark.parametrize("rule", [dendrax.ZIL(), dendrax.IL(num_steps=2, gamma=0.01, batch="sum")])
def test_dropout_masks_are_the_same(rule):
    """And another key is noticed."""

    class Dropped(nnx.Module):
        def __init__(self, seed):
            self.first = nnx.Linear(6, 6, rngs=nnx.Rngs(0))
            self.dropout = nnx.Dropout(0.5, rngs=nnx.Rngs(seed))
            self.second = nnx.Linear(6, 1, rngs=nnx.Rngs(1))

        def __call__(self, x):
            h = self.dropout(self.first(x))
            return jnp.mean(self.second(h) ** 2), h == 0

    def found(step, seed):
        model = Dropped(seed)
        step(model)  # the second mask is another one
        (_, mask), gradient = step(model)
        return mask, gradient

    call = lambda model: model(X)
    ours = nnx.jit(OURS(call, has_aux=True, rule=rule))
    theirs = nnx.jit(THEIRS(call, has_aux=True))
    (mask, gradient), (expected, backprop), (other, _) = (
        found(ours, 0),
        found(theirs, 0),
        found(ours, 1),
    )
    assert same(mask, expected) and not same(mask, other)
    assert same(gradient, backprop) == isinstance(rule, dendrax.ZIL)


# ------------------------------------------------------------------------------------------------
# Errors
# ------------------------------------------------------------------------------------------------


def linear():
    return nnx.Linear(6, 3, rngs=nnx.Rngs(0))


def two(first, second):
    return jnp.mean(first(X) + second(X))


@pytest.mark.parametrize(
    "call, message",
    [
        (lambda m: OURS(3.0), "dendrax.nnx.value_and_grad: expected a function, got float"),
        (lambda m: OURS(energy, rule="IL"), "nnx.value_and_grad: rule must be a rule, got 'IL'"),
        (lambda m: dendrax.nnx.grad(energy, vertices="all"), "nnx.grad: vertices='all'"),
        (lambda m: OURS(m.__call__), "__call__ is bound to a module"),
        (lambda m: OURS(functools.partial(m.__call__, X)), "__call__ is bound to a module"),
        (lambda m: OURS(energy, argnums=(0, 0))(m, X), "names an argument twice"),
        (lambda m: OURS(energy, argnums=2)(m, X), "argnums=2 needs at least 3 positional"),
        (lambda m: OURS(energy, argnums="model")(m, X), "must be an integer or a sequence"),
        (lambda m: OURS(two)(m, m), "the Param at argument 1.bias is shared"),
        (lambda m: OURS(lambda m, x: m(x))(m, X), "value_and_grad: .* had shape \\(4, 3\\)"),
        (lambda m: OURS(energy, has_aux=True)(m, X), "nnx.value_and_grad: with has_aux=True"),
        (
            lambda m: OURS(lambda rngs: rngs.uniform(), argnums=nnx.DiffState(0, ...))(nnx.Rngs(0)),
            "but rngs\\['default'\\]\\['count'\\].* is uint32",
        ),
        (
            lambda m: jax.jit(lambda x: OURS(energy)(m, x))(X),
            "argument 0.bias was made outside of the jit or vmap",
        ),
    ],
)
def test_errors(call, message):
    model = linear()
    with pytest.raises((TypeError, ValueError), match=message):
        call(model)
    assert same(nnx.state(model), nnx.state(linear()))  # whatever went wrong


def test_a_function_that_fails_leaves_the_modules_as_they_were():
    def loss(model, x):
        model(x)
        raise RuntimeError("of the user")

    model = Small(nnx.Rngs(0))
    with pytest.raises(RuntimeError, match="of the user"):
        OURS(loss)(model, X)
    assert same(nnx.state(model), nnx.state(Small(nnx.Rngs(0))))
    assert same(OURS(energy)(model, X), OURS(energy)(Small(nnx.Rngs(0)), X))


FLAX = tuple(map(int, flax.__version__.split(".")[:3]))


@pytest.mark.skipif(FLAX < (0, 12, 6), reason="before Flax 0.12.6 there is no tree mode")
@pytest.mark.parametrize("switch", ["set_graph_mode", "set_graph_updates"])
def test_tree_mode_is_refused(switch):
    with (
        getattr(nnx, switch)(False),
        pytest.raises(NotImplementedError, match=f"tree mode \\(nnx.{switch} is off"),
    ):
        OURS(energy)
