"""Nonsense sizes are refused by the name of their argument; NumPy's integers are taken."""

import re

import equinox as eqx
import jax
import numpy as np
import pytest

from dendrax.models import CNN, MLP, RNN, AlexNet, FCResNet, ResNet18, Transformer

KEY = jax.random.key(0)
SIZES = {
    MLP: ("in_size", "out_size"),
    CNN: ("hidden_size", "out_size"),
    AlexNet: ("out_size", "width"),
    RNN: ("in_size", "hidden_size", "out_size"),
    FCResNet: ("in_size", "hidden_size", "out_size", "num_layers"),
    ResNet18: ("in_channels", "out_size", "width"),
    Transformer: (
        "in_size",
        "d_model",
        "out_size",
        "num_layers",
        "num_heads",
        "hidden_size",
        "vocab_size",
    ),
}
SHAPES = {MLP: ("hidden_sizes",), CNN: ("image_shape", "channels"), AlexNet: ("image_shape",)}


def pairs(table):
    return [
        pytest.param(model, name, id=f"{model.__name__}.{name}")
        for model, names in table.items()
        for name in names
    ]


@pytest.mark.parametrize(("model", "name"), pairs(SIZES))
@pytest.mark.parametrize("size", [0, -3, 2.5, 4.0, True, "8", (8, 8)])
def test_what_is_no_size(model, name: str, size):
    problem = f"dendrax.models.{model.__name__}: {name}={size!r} must be an integer, at least 1."
    with pytest.raises(ValueError, match=re.escape(problem)):
        model(**{name: size}, key=KEY)


@pytest.mark.parametrize(("model", "name"), pairs(SHAPES))
@pytest.mark.parametrize("shape", [8, None, (8, 0, 1), (8, -1), (8, 2.5, 1), "888", ((8, 8), 1)])
def test_what_is_no_shape(model, name: str, shape):
    problem = rf"dendrax.models.{model.__name__}: {name}={re.escape(repr(shape))} must be a tuple"
    with pytest.raises(ValueError, match=problem):
        model(**{name: shape}, key=KEY)


def test_shapes_of_another_length():
    with pytest.raises(ValueError, match=r"image_shape=\(28, 28\) must be a tuple of 3 integers"):
        CNN((28, 28), key=KEY)  # pyright: ignore[reportArgumentType]
    with pytest.raises(ValueError, match=r"channels=\(8,\) must be a tuple of 2 integers"):
        CNN(channels=(8,), key=KEY)  # pyright: ignore[reportArgumentType]


def test_images_too_small_for_alexnet():
    problem = r"image_shape=\(14, 28, 1\) is too small for its poolings\. .*15 x 15"
    with pytest.raises(ValueError, match=problem):
        AlexNet((14, 28, 1), width=1, key=KEY)
    assert AlexNet((15, 15, 1), width=1, key=KEY).hidden[0].weight.shape == (4, 64)


@pytest.mark.parametrize(
    ("build", "shape"),
    [
        (lambda n: MLP(n(4), np.array([3, 3]), n(2), key=KEY), (5, 4)),
        (lambda n: CNN((n(8), n(8), n(1)), (n(2), n(2)), n(4), n(2), key=KEY), (5, 8, 8, 1)),
        (lambda n: RNN(n(4), n(3), n(2), key=KEY), (5, 3, 4)),
        (lambda n: FCResNet(n(4), n(3), n(2), n(2), key=KEY), (5, 4)),
        (lambda n: Transformer(n(4), n(4), n(2), num_heads=n(2), key=KEY), (5, 3, 4)),
    ],
    ids=["mlp", "cnn", "rnn", "fc_resnet", "transformer"],
)
def test_sizes_of_numpy(build, shape: tuple[int, ...]):
    x = jax.ShapeDtypeStruct(shape, np.float32)
    assert jax.eval_shape(build(np.int64), x).shape == jax.eval_shape(build(int), x).shape


def test_a_perceptron_may_have_no_hidden_layer():
    assert len(MLP(4, (), 2, key=KEY).layers) == 1


def test_tokens_need_no_in_size():
    assert Transformer(0, 8, 3, num_heads=2, vocab_size=5, key=KEY).embed.table.shape == (5, 8)


def test_weights_for_which_there_is_no_memory():
    """Nothing is drawn; jax.eval_shape, which draws nothing either, may ask for the shapes."""
    huge = 10**7
    for build, hidden in ((MLP, (huge,)), (FCResNet, huge), (RNN, huge), (Transformer, 8 * huge)):
        with pytest.raises(MemoryError, match=r"weights, \(.*\), would take .* are available"):
            build(huge, hidden, 10, key=KEY)
    found = eqx.filter_eval_shape(lambda: MLP(huge, (huge,), 10, key=KEY))
    assert found.layers[0].weight.shape == (huge, huge)
