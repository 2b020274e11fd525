"""Models of Equinox and Flax NNX as they are: trace, run, check, audit, explore."""

import base64
import re
import zlib
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import pytest
from flax import nnx

import dendrax
import dendrax.nnx
from dendrax import BP, IL, ZIL
from tests.compare import same
from tests.sampling import every


class Case(NamedTuple):
    """A model of a library: its loss, its arguments, and names of some of its parameters."""

    loss: Any
    args: tuple[Any, ...]
    names: set[str]
    has_aux: bool = False


class Block(eqx.Module):
    """A block of a Transformer. Rates of dropout and scale are Python numbers."""

    attention: eqx.nn.MultiheadAttention
    norm: eqx.nn.LayerNorm
    mlp: eqx.nn.MLP
    dropout: eqx.nn.Dropout
    scale: float

    def __init__(self, key):
        a, b = jax.random.split(key)
        self.attention = eqx.nn.MultiheadAttention(2, 8, dropout_p=0.1, key=a)
        self.norm = eqx.nn.LayerNorm(8)
        self.mlp = eqx.nn.MLP(8, 8, 16, 1, key=b)
        self.dropout = eqx.nn.Dropout(0.1)
        self.scale = 0.5

    def __call__(self, x, key):
        a, b = jax.random.split(key)
        h = jax.vmap(self.norm)(x)
        h = x + self.attention(h, h, h, key=a)
        return self.dropout(h + self.scale * jax.vmap(self.mlp)(h), key=b)


def equinox_transformer():
    def loss(model, x, key):
        return jnp.mean(model(x, key) ** 2)

    x = jax.random.normal(jax.random.key(1), (5, 8))
    names = {"model.attention.query_proj.weight", "model.mlp.layers[0].bias", "model.norm.weight"}
    return Case(loss, (Block(jax.random.key(0)), x, jax.random.key(2)), names)


class Normed(eqx.Module):
    """A network with statistics of the batch, which are its state."""

    first: eqx.nn.Linear
    norm: eqx.nn.BatchNorm
    last: eqx.nn.Linear

    def __init__(self, key):
        self.first = eqx.nn.Linear(4, 6, key=key)
        self.norm = eqx.nn.BatchNorm(6, axis_name="batch", mode="batch")
        self.last = eqx.nn.Linear(6, 2, key=key)

    def __call__(self, x, state):
        h, state = self.norm(self.first(x), state)
        return self.last(jnp.tanh(h)), state


def equinox_batch_norm():
    def loss(model, state, x):
        over_batch = jax.vmap(model, axis_name="batch", in_axes=(0, None), out_axes=(0, None))
        y, state = over_batch(x, state)
        return jnp.mean(y**2), state

    model, state = eqx.nn.make_with_state(Normed)(jax.random.key(0))
    x = jax.random.normal(jax.random.key(1), (5, 4))
    return Case(loss, (model, state, x), {"model.first.weight", "model.norm.bias"}, has_aux=True)


class CNN(nnx.Module):
    def __init__(self, rngs):
        self.conv = nnx.Conv(1, 3, (3, 3), rngs=rngs)
        self.norm = nnx.BatchNorm(3, rngs=rngs)
        self.dropout = nnx.Dropout(0.5, rngs=rngs)
        self.layers = nnx.List([nnx.Linear(48, 8, rngs=rngs), nnx.Linear(8, 2, rngs=rngs)])

    def __call__(self, x):
        x = nnx.relu(self.norm(self.conv(x)))
        x = self.dropout(x.reshape(len(x), -1))
        return self.layers[1](nnx.relu(self.layers[0](x)))


def squared(model, x):
    return jnp.mean(model(x) ** 2)


def nnx_cnn():
    x = jax.random.normal(jax.random.key(1), (2, 4, 4, 1))
    return Case(squared, (CNN(nnx.Rngs(0)), x), {"model.conv.kernel", "model.layers[1].bias"})


class Recurrent(nnx.Module):
    def __init__(self, rngs):
        self.rnn = nnx.RNN(nnx.GRUCell(3, 5, rngs=rngs))
        self.last = nnx.Linear(5, 2, rngs=rngs)

    def __call__(self, x):
        return self.last(self.rnn(x)[:, -1])


def nnx_rnn():
    x = jax.random.normal(jax.random.key(1), (2, 4, 3))
    return Case(squared, (Recurrent(nnx.Rngs(0)), x), {"model.rnn.cell.dense_h.kernel"})


CASES = [equinox_batch_norm, equinox_transformer, nnx_cnn, nnx_rnn]


@pytest.mark.parametrize("make", every(2, CASES))
def test_models_are_taken_as_they_are(make, tmp_path):
    case = make()
    settings = {"has_aux": case.has_aux}
    certificate = dendrax.check(case.loss, *case.args, **settings)
    assert certificate.exact
    assert case.names <= {row.name for row in certificate.rows}

    graph = dendrax.trace(case.loss, *case.args, **settings)
    assert case.names <= {v.name for v in graph.parameters}
    wave = dendrax.run(graph, ZIL())
    found = dendrax.run(graph, IL(num_steps=8, gamma=0.01, batch="sum"), record="energy")
    assert found.energy[-1] < found.energy[0]
    learned = [len(jax.tree.leaves(result.gradient)) for result in (wave, found)]
    assert learned == [len(graph.parameters)] * 2
    assert not same(wave.gradient, found.gradient)

    assert dendrax.audit(case.loss, *case.args, rule=IL(batch="sum"), **settings).local
    assert not dendrax.audit(case.loss, *case.args, rule=BP(), **settings).local
    page = dendrax.explore(
        case.loss, *case.args, rule=IL(5, batch="sum"), path=tmp_path / "p.html", **settings
    )
    assert next(iter(case.names)).rsplit(".", 1)[0] in _text_of(page)
    assert "<svg" in dendrax.draw.graph(found.graph)._repr_svg_()


def _text_of(page):
    packed = re.search(r'<script id="payload"[^>]*>([^<]*)</script>', page.read_text())[1]
    return zlib.decompress(base64.b64decode(packed)).decode(errors="replace")


# ---- what stays the user's -----------------------------------------------------------------------


def test_the_callers_modules_do_not_change():
    loss, (model, x), _, _ = nnx_cnn()
    before = jax.tree.map(jnp.copy, nnx.state(model, nnx.BatchStat, nnx.RngCount))
    graph = dendrax.trace(loss, model, x)
    dendrax.run(graph, ZIL())
    dendrax.check(loss, model, x)
    assert same(nnx.state(model, nnx.BatchStat, nnx.RngCount), before)


def test_a_graph_runs_with_another_model():
    loss, (model, x), _, _ = nnx_cnn()
    other, graph = CNN(nnx.Rngs(1)), dendrax.trace(loss, model, x)
    again = dendrax.run(graph, ZIL(), other, 2 * x)
    assert same(again.gradient, dendrax.run(dendrax.trace(loss, other, 2 * x), ZIL()).gradient)
    assert not same(again.gradient, dendrax.run(graph, ZIL()).gradient)


def test_the_gradient_is_a_tree_like_the_model():
    case = equinox_transformer()
    gradient = dendrax.run(dendrax.trace(case.loss, *case.args), ZIL()).gradient
    assert isinstance(gradient, Block)
    assert gradient.scale is None and gradient.dropout.p is None  # numbers are settings there
    loss, (model, x), _, _ = nnx_cnn()
    found = dendrax.run(dendrax.trace(loss, model, x), ZIL()).gradient
    assert jax.tree.structure(found) == jax.tree.structure(nnx.state(model, nnx.Param))


def test_other_variables_may_learn():
    loss, (model, x), _, _ = nnx_cnn()
    wanted = nnx.DiffState(0, nnx.PathContains("conv"))
    graph = dendrax.trace(loss, model, x, argnums=wanted)
    assert {v.name for v in graph.parameters} == {"model.conv.bias", "model.conv.kernel"}


def test_a_function_of_trees():
    loss, (model, x), _, _ = nnx_cnn()
    function, arguments = dendrax.nnx.functional(loss, model, x)
    assert len(arguments) == 3  # the statistics and random numbers come last
    value, gradient = jax.value_and_grad(function)(*arguments)
    expected = dendrax.nnx.value_and_grad(loss)(model, x)
    assert same((value, jax.tree.leaves(gradient)), (expected[0], jax.tree.leaves(expected[1])))


# ---- what is refused -----------------------------------------------------------------------------


def test_what_cannot_learn():
    with pytest.raises(
        TypeError,
        match=r"dendrax\.trace: argument w has nothing that can learn: that "
        r"needs real- or complex-valued arrays, and it holds int32, str",
    ):
        dendrax.trace(lambda w: 1.0, {"a": jnp.arange(3), "name": "w"})
    with pytest.raises(TypeError, match=r"and it holds nothing"):
        dendrax.check(lambda w: 1.0, {})


def test_integers_and_flags_of_a_model_are_left_alone():
    def loss(model, x):
        return jnp.sum(model["act"](x @ model["w"])[model["which"]]) * model["count"]

    model = {"w": jnp.eye(3), "which": jnp.array([0, 2]), "act": jnp.tanh, "count": 2}
    x = jnp.ones((3, 3))
    assert dendrax.check(loss, model, x).exact
    gradient = dendrax.run(dendrax.trace(loss, model, x), ZIL()).gradient
    assert gradient["which"] is None and gradient["act"] is None and gradient["w"].shape == (3, 3)


def test_a_model_whose_form_changes():
    loss, (model, x), _, _ = nnx_cnn()
    graph = dendrax.trace(loss, model, x)
    model.layers[1] = nnx.Linear(8, 2, use_bias=False, rngs=nnx.Rngs(0))
    with pytest.raises(
        TypeError,
        match=r"run: the graph was traced with other arguments: "
        r"model\.layers\[1\]\.bias is missing\.\n"
        "  Give arguments of the same structure, or trace the function again",
    ):
        dendrax.run(graph, ZIL(), model, x)


class Flat(eqx.Module):
    weight: jax.Array
    bias: jax.Array | None
    power: int = eqx.field(static=True, default=2)

    def __call__(self, x):
        return (x @ self.weight + (0 if self.bias is None else self.bias)) ** self.power


@pytest.mark.parametrize(
    "args, difference",
    [
        ((Flat(jnp.eye(3), None), 1), r"model\.bias is missing\."),
        ((Flat(jnp.eye(3), jnp.ones(3), power=3), 1), "what is no array .* differs"),
        ((Flat(jnp.eye(3), jnp.ones(3)),), "x is missing"),
        ((Flat(jnp.eye(3), jnp.ones(3)), 1, 1, 1), "argument 2, argument 3 are new"),
    ],
)
def test_what_differs_is_named(args, difference):
    x = jnp.ones((2, 3))
    graph = dendrax.trace(squared, Flat(jnp.eye(3), jnp.ones(3)), x)
    with pytest.raises(TypeError, match=f"traced with other arguments: {difference}"):
        dendrax.run(graph, ZIL(), *(x if arg == 1 else arg for arg in args))


def test_state_that_a_module_has_found_since():
    model = CNN(nnx.Rngs(0))
    linear = nnx.Sequential(model.layers[0], model.layers[1])
    graph = dendrax.trace(squared, linear, jnp.ones((2, 48)))
    linear.seen = nnx.BatchStat(jnp.zeros(3))
    with pytest.raises(TypeError, match=r"other arguments: state.*\.seen is new"):
        dendrax.run(graph, ZIL(), linear, jnp.ones((2, 48)))


def test_the_drop_in_sends_models_to_their_own_function():
    """It takes what JAX takes, and a model with a function inside is not that."""
    model = eqx.nn.MLP(3, 1, 4, 1, key=jax.random.key(0))
    remedy = r"not a valid JAX type: .*\n.*use dendrax\.equinox\.filter_value_and_grad"
    with pytest.raises(TypeError, match=remedy):
        dendrax.value_and_grad(lambda model, x: model(x)[0])(model, jnp.ones(3))


def test_a_library_layer_as_the_loss():
    """The line that is named is the layer's, or the caller's, never one of ours."""
    with pytest.raises(TypeError, match="scalar-output") as found:
        dendrax.check(nnx.Linear(3, 1, rngs=nnx.Rngs(0)), jnp.ones((4, 3)))
    assert "  at " in str(found.value) and "dendrax/" not in str(found.value).split("  at ")[1]


def test_a_bound_method_of_a_module():
    _, (model, x), _, _ = nnx_cnn()
    with pytest.raises(ValueError, match="bound to a module"):
        dendrax.nnx.functional(model.__call__, x)
