"""What each architecture promises: its shape, its size, its residuals, its arrow of time."""

import ast
import functools
import inspect
import pathlib

import equinox as eqx
import jax
import jax.extend
import jax.numpy as jnp
import numpy as np
import pytest

from dendrax import models
from dendrax.models import (
    CNN,
    MLP,
    RNN,
    AlexNet,
    FCResNet,
    ResNet18,
    Transformer,
    astype,
    squared_error_loss,
)

KEY = jax.random.key(0)


def normal(*shape: int, seed: int = 1) -> jax.Array:
    return jnp.asarray(np.random.default_rng(seed).normal(size=shape))


def double(model):
    return astype(model, jnp.float64)


def zeros(tree):
    return jax.tree.map(jnp.zeros_like, tree)


def num_parameters(build) -> int:
    return sum(leaf.size for leaf in jax.tree.leaves(jax.eval_shape(build)))


# Sizes


@pytest.mark.parametrize(
    ("build", "shape", "out_shape"),
    [
        (MLP, (3, 784), (3, 10)),
        (CNN, (3, 28, 28, 1), (3, 10)),
        (AlexNet, (3, 28, 28, 1), (3, 10)),
        (functools.partial(AlexNet, (224, 224, 3), 1000), (3, 224, 224, 3), (3, 1000)),
        (RNN, (3, 5, 128), (3, 128)),
        (FCResNet, (3, 784), (3, 10)),
        (ResNet18, (3, 32, 32, 3), (3, 10)),
        (functools.partial(ResNet18, stem="imagenet"), (3, 224, 224, 3), (3, 10)),
        (Transformer, (3, 5, 128), (3, 5, 128)),
    ],
)
def test_default_sizes(build, shape: tuple[int, ...], out_shape: tuple[int, ...]):
    x = jax.ShapeDtypeStruct(shape, jnp.float32)
    y = jax.eval_shape(lambda x: build(key=KEY)(x), x)
    assert (y.shape, y.dtype) == (out_shape, jnp.float32)


@pytest.mark.parametrize(
    ("build", "count"),
    [
        (lambda: MLP(key=KEY), 118_282),
        (lambda: FCResNet(key=KEY), 784 * 256 + 256 + 5 * (256 * 256 + 256) + 2570),
        # The two below are those of torchvision.
        (lambda: AlexNet((224, 224, 3), 1000, key=KEY), 61_100_840),
        (lambda: ResNet18(out_size=1000, stem="imagenet", key=KEY), 11_689_512),
    ],
    ids=["mlp", "fc_resnet", "alexnet", "resnet18"],
)
def test_number_of_parameters(build, count: int):
    assert num_parameters(build) == count


@pytest.mark.parametrize(("stem", "factor"), [("cifar", 8), ("imagenet", 32)])
def test_resnet18_shrinks_the_image(stem, factor: int):
    x = jax.ShapeDtypeStruct((1, 64, 64, 3), jnp.float32)
    y = jax.eval_shape(lambda x: ResNet18(width=2, stem=stem, key=KEY)._features(x), x)
    assert y.shape == (1, 64 // factor, 64 // factor, 16)


# MLP


def test_mlp_against_numpy():
    model, x = double(MLP(4, (3, 5), 2, key=KEY)), normal(6, 4)
    y = np.asarray(x) @ model.layers[0].weight + model.layers[0].bias
    for layer in model.layers[1:]:
        y = np.tanh(y) @ np.asarray(layer.weight) + np.asarray(layer.bias)
    np.testing.assert_allclose(model(x), y, atol=1e-12)


def test_gain_scales_the_weights_and_not_the_biases():
    plain, gained = MLP(4, (3,), 2, key=KEY), MLP(4, (3,), 2, gain=2.0, key=KEY)
    np.testing.assert_allclose(gained.layers[0].weight, 2 * plain.layers[0].weight, rtol=1e-6)
    assert (gained.layers[0].bias == plain.layers[0].bias).all()


# CNN


@pytest.mark.parametrize(
    ("build", "shape"),
    [
        (lambda: CNN((8, 8, 2), (3, 4), 8, key=KEY), (3, 8, 8, 2)),
        (lambda: AlexNet((28, 28, 1), width=2, key=KEY), (3, 28, 28, 1)),
    ],
    ids=["cnn", "alexnet"],
)
def test_convolutional_networks_treat_each_image_alone(build, shape: tuple[int, ...]):
    model, x = eqx.filter_jit(double(build())), normal(*shape)
    np.testing.assert_allclose(model(x)[:1], model(x[:1]), atol=1e-12)


# RNN


def test_rnn_against_the_papers_recurrence():
    model, x = double(RNN(4, 3, 2, key=KEY)), normal(6, 5, 4)
    weights = map(np.asarray, (model.input.weight, model.recurrent.weight, model.head.weight))
    w_x, w_h, w_y = weights
    y = np.zeros((6, 3))
    for t in range(5):
        y = np.tanh(y) @ w_h + np.asarray(x)[:, t] @ w_x + np.asarray(model.input.bias)
    np.testing.assert_allclose(model(x), np.tanh(y) @ w_y + np.asarray(model.head.bias), atol=1e-12)


def test_rnn_unrolled_equals_scan_in_value_and_gradient():
    loop, scan = (double(RNN(4, 3, 2, unroll=u, key=KEY)) for u in (True, False))
    x, target = normal(6, 5, 4), normal(6, 2, seed=2)
    results = [jax.value_and_grad(squared_error_loss)(m, x, target) for m in (loop, scan)]
    for a, b in zip(*map(jax.tree.leaves, results), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-12, atol=1e-14)


def test_unroll_chooses_the_primitive():
    x = normal(6, 5, 4)
    loop, scan = (double(RNN(4, 3, 2, unroll=u, key=KEY)) for u in (True, False))
    assert "scan" not in str(jax.make_jaxpr(loop)(x))
    assert "scan" in str(jax.make_jaxpr(scan)(x))


# Residual networks


def test_fc_resnet_without_its_layers_is_linear():
    model, x = double(FCResNet(4, 8, 2, key=KEY)), normal(6, 4)
    empty = eqx.tree_at(lambda m: m.layers, model, replace_fn=zeros)
    np.testing.assert_allclose(empty(x), model.head(model.project(x)), atol=1e-12)
    assert not jnp.allclose(empty(x), model(x))


def test_fc_resnet_has_a_residual_at_every_layer():
    """Silencing one layer leaves the others in place: its input reaches its output."""
    model, x = double(FCResNet(4, 8, 2, num_layers=3, key=KEY)), normal(6, 4)
    silent = eqx.tree_at(lambda m: m.layers[1], model, replace_fn=zeros)
    shorter = eqx.tree_at(lambda m: m.layers, model, (model.layers[0], model.layers[2]))
    np.testing.assert_allclose(silent(x), shorter(x), atol=1e-12)


def test_resnet18_block_passes_its_input_on():
    block, x = double(ResNet18(width=4, key=KEY)).blocks[0], jnp.abs(normal(2, 8, 8, 4))
    silent = eqx.tree_at(lambda b: b.second, block, replace_fn=zeros)
    assert (silent(x) == x).all()
    assert not jnp.allclose(block(x), x)


def test_resnet18_projects_only_where_the_shape_changes():
    model = ResNet18(width=4, key=KEY)
    assert [block.shortcut is not None for block in model.blocks] == [0, 0, 1, 0, 1, 0, 1, 0]


# Transformer


def test_transformer_block_passes_its_input_on():
    block, y = double(Transformer(4, 8, 3, num_heads=2, key=KEY)).blocks[0], normal(2, 5, 8)
    silent = eqx.tree_at(
        lambda b: (b.attention.output, b.forward.contract), block, replace_fn=zeros
    )
    assert (silent(y, causal=False) == y).all()
    assert not jnp.allclose(block(y, causal=False), y)


@pytest.mark.parametrize("num_layers", [1, pytest.param(3, marks=pytest.mark.slow)])
def test_causal_means_that_only_the_past_matters(num_layers: int):
    def influence(causal: bool) -> jax.Array:
        """`[s, t]`: whether the output at time s depends on the input at time t."""
        model = Transformer(4, 8, 3, num_heads=2, num_layers=num_layers, causal=causal, key=KEY)
        jacobian = jax.jit(jax.jacobian(lambda x: double(model)(x[None])[0]))(normal(6, 4))
        return jnp.any(jacobian != 0, axis=(1, 3))

    assert (influence(causal=True) == jnp.tril(jnp.ones((6, 6), bool))).all()
    assert influence(causal=False).all()


def test_causal_transformer_has_no_infinite_value():
    """A value node on a masked score must have a finite error."""
    model, x = double(Transformer(4, 8, 3, num_heads=2, causal=True, key=KEY)), normal(2, 5, 4)
    closed = jax.make_jaxpr(model)(x)
    everything = [var for equation in closed.jaxpr.eqns for var in equation.outvars]
    jaxpr = closed.jaxpr.replace(
        outvars=everything, debug_info=closed.jaxpr.debug_info._replace(result_paths=None)
    )
    values = jax.extend.core.jaxpr_as_fun(jax.extend.core.ClosedJaxpr(jaxpr, closed.consts))(x)
    assert len(values) > 50
    assert all(jnp.isfinite(value).all() for value in values)


def test_attention_against_numpy():
    attention = double(Transformer(4, 8, 3, num_heads=2, key=KEY)).blocks[0].attention
    y = normal(1, 5, 8)
    q, k, v = (
        np.asarray(y[0] @ f.weight) for f in (attention.query, attention.key, attention.value)
    )
    heads = []
    for h in (slice(0, 4), slice(4, 8)):
        weights = np.exp(q[:, h] @ k[:, h].T / 2)
        heads.append(weights / weights.sum(axis=1, keepdims=True) @ v[:, h])
    expected = np.concatenate(heads, axis=1) @ np.asarray(attention.output.weight)
    np.testing.assert_allclose(attention(y, causal=False)[0], expected, atol=1e-12)


def test_transformer_knows_the_order_of_its_inputs():
    model, x = double(Transformer(4, 8, 3, num_heads=2, key=KEY)), normal(1, 6, 4)
    assert not jnp.allclose(model(x[:, ::-1]), model(x)[:, ::-1])


@pytest.mark.parametrize("activation", [jax.nn.gelu, jax.nn.relu])
def test_transformer_reads_tokens(activation):
    model = Transformer(
        num_heads=2, d_model=8, out_size=11, vocab_size=11, activation=activation, key=KEY
    )
    tokens = jnp.asarray([[1, 2, 3], [4, 2, 3]])
    gradient = jax.jit(jax.grad(lambda m: jnp.sum(jnp.square(m(tokens)))))(double(model))
    seen = jnp.any(gradient.embed.table != 0, axis=1)
    assert seen.tolist() == [i in (1, 2, 3, 4) for i in range(11)]


# Messages, documentation, boundaries


def test_errors_name_the_remedy():
    with pytest.raises(ValueError, match="d_model=8 must be a multiple of num_heads=3"):
        Transformer(4, 8, 3, num_heads=3, key=KEY)
    with pytest.raises(ValueError, match="give either in_size or vocab_size"):
        Transformer(None, 8, 3, num_heads=2, key=KEY)
    with pytest.raises(ValueError, match='stem must be "cifar" or "imagenet", got \'mnist\''):
        ResNet18(stem="mnist", key=KEY)  # pyright: ignore[reportArgumentType]
    with pytest.raises(ValueError, match="real floating-point numbers, got int32"):
        astype(MLP(key=KEY), jnp.int32)
    for nonsense in (None, "nonsense", 3):  # np.dtype(None) is float64
        with pytest.raises(ValueError, match=f"real floating-point numbers, got {nonsense!r}. Pas"):
            astype(MLP(key=KEY), nonsense)
    with jax.enable_x64(False), pytest.raises(ValueError, match='"jax_enable_x64", True'):
        astype(MLP(key=KEY), jnp.float64)


def test_models_import_nothing_else_from_dendrax():
    """But words: of errors, of settings, and those for a missing Equinox."""
    allowed = ("dendrax.support",)
    for path in pathlib.Path(inspect.getfile(models)).parent.glob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.ImportFrom):
                module = node.module or ""
                assert node.level <= 1
                assert module in allowed or not module.startswith("dendrax")
            if isinstance(node, ast.Import):
                assert not any(alias.name.startswith("dendrax") for alias in node.names)
