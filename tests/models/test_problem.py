"""Every ready-made problem: dtypes, leaves, gradients, and that small means the same structure."""

import dataclasses
import functools
import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from dendrax.models import PROBLEMS, Problem, cross_entropy_loss, problem, squared_error_loss
from tests.sampling import every, rotating

DTYPES = (jnp.float64, jnp.float32, jnp.bfloat16)


@functools.cache
def small(name: str, dtype=jnp.float64):
    return problem(name, dtype=dtype, small=True)


def arguments(p: Problem):
    return (p.model, p.inputs, p.target)


def leaves(p: Problem) -> list[jax.Array]:
    return jax.tree.leaves(arguments(p))


@pytest.mark.parametrize(("name", "dtype"), rotating(PROBLEMS, DTYPES))
def test_one_dtype_throughout(name: str, dtype):
    """Traced under strict promotion, so that nothing is promoted on the way either."""
    p = small(name, dtype)
    output = jax.eval_shape(p.predict, p.model, p.inputs)
    value, gradient = jax.eval_shape(jax.value_and_grad(p.loss), *arguments(p))
    assert output.shape == p.target.shape and value.shape == ()
    dtypes = {leaf.dtype for leaf in jax.tree.leaves((arguments(p), output, value, gradient))}
    assert dtypes == {jnp.dtype(dtype)}


# The deep ones are the others once more.
BY_DEPTH = [
    pytest.param(name, marks=pytest.mark.slow if name in ("transformer12", "mlp100") else ())
    for name in PROBLEMS
]


@pytest.mark.parametrize("name", every(2, BY_DEPTH))
def test_every_leaf_is_an_array_that_learns(name: str):
    p = small(name)
    assert all(isinstance(leaf, jax.Array) for leaf in jax.tree.leaves(p.model))
    gradient = jax.jit(jax.grad(p.loss))(*arguments(p))
    for path, leaf in jax.tree.leaves_with_path(gradient):
        assert np.isfinite(leaf).all(), jax.tree_util.keystr(path)
        assert np.any(leaf), jax.tree_util.keystr(path)


@pytest.mark.parametrize("name", every(2, BY_DEPTH))
def test_bfloat16_approximates_float64(name: str):
    low, high = (small(name, dtype) for dtype in (jnp.bfloat16, jnp.float64))
    a, b = (jax.jit(p.loss)(*arguments(p)) for p in (low, high))
    np.testing.assert_allclose(float(a), float(b), rtol=0.1)


@pytest.mark.parametrize("name", PROBLEMS)
def test_small_has_the_same_structure(name: str):
    """The same parameters, and the same operations on them."""

    def structure(is_small: bool):
        args = jax.eval_shape(lambda: arguments(problem(name, small=is_small)))
        jaxpr = jax.make_jaxpr(small(name).loss)(*args)
        paths = [jax.tree_util.keystr(path) for path, _ in jax.tree.leaves_with_path(args)]
        return paths, {equation.primitive.name for equation in jaxpr.eqns}

    assert structure(True) == structure(False)


@pytest.mark.parametrize(
    ("name", "inputs", "target"),
    [
        ("mlp", (20, 784), (20, 10)),
        ("cnn", (20, 28, 28, 1), (20, 10)),
        ("rnn", (32, 10, 128), (32, 128)),
        ("rnn_scan", (32, 10, 128), (32, 128)),
        ("fc_resnet", (20, 784), (20, 10)),
        ("resnet18", (8, 32, 32, 3), (8, 10)),
        ("transformer", (20, 16, 128), (20, 16, 128)),
        ("mlp100", (20, 784), (20, 10)),
    ],
)
def test_full_batch(name: str, inputs: tuple[int, ...], target: tuple[int, ...]):
    shapes = jax.eval_shape(lambda: (problem(name).inputs, problem(name).target))
    assert (shapes[0].shape, shapes[1].shape) == (inputs, target)


@pytest.mark.parametrize("name", ["mlp", "rnn"])
def test_same_key_same_problem_in_every_dtype(name: str):
    """Drawn in float32 and cast; float64 holds the float32 numbers exactly."""
    low, high = (small(name, dtype) for dtype in (jnp.float32, jnp.float64))
    for a, b in zip(leaves(low), leaves(high), strict=True):
        assert (a.astype(jnp.float64) == b).all()


def test_the_key_decides_everything():
    first, again, other = (problem("rnn", key=jax.random.key(k), small=True) for k in (0, 0, 1))
    for a, b, c in zip(leaves(first), leaves(again), leaves(other), strict=True):
        assert (a == b).all() and not (a == c).all()


def test_default_key_is_zero():
    default, zero = small("mlp", jnp.float32), problem("mlp", key=jax.random.key(0), small=True)
    assert (default.inputs == zero.inputs).all()


@pytest.mark.parametrize("name", ["mlp", "cnn", "resnet18", "mlp100"])
def test_classification_targets_are_one_hot(name: str):
    target = small(name).target
    assert (jnp.sum(target, axis=-1) == 1).all() and (jnp.max(target, axis=-1) == 1).all()


def test_signal_survives_a_hundred_layers():
    p = problem("mlp100")
    gradient = jax.jit(jax.grad(p.loss))(*arguments(p))
    norms = [jnp.linalg.norm(layer.weight) for layer in gradient.layers]
    assert len(norms) == 100
    assert 1e-3 < norms[1] / norms[-2] < 1e3


def test_losses_against_their_definitions():
    x = jax.random.normal(jax.random.key(1), (5, 4), jnp.float64)
    y = jax.nn.one_hot(jnp.arange(5) % 4, 4, dtype=jnp.float64)
    identity = lambda x: x
    probability = np.exp(x) / np.exp(x).sum(axis=1, keepdims=True)
    picked = [probability[i, i % 4] for i in range(5)]
    np.testing.assert_allclose(cross_entropy_loss(identity, x, y), -np.mean(np.log(picked)))
    np.testing.assert_allclose(
        squared_error_loss(identity, x, y), np.mean([0.5 * np.sum(d**2) for d in np.asarray(x - y)])
    )


@pytest.mark.parametrize("loss", [cross_entropy_loss, squared_error_loss])
@pytest.mark.parametrize("shape", [(5,), (4,), (5, 1), (1, 4), (4, 5), (5, 4, 1), ()])
def test_targets_of_another_shape_are_refused(loss, shape: tuple[int, ...]):
    """Most of these would broadcast."""
    problem = f"{loss.__name__}: target has shape {shape}, and the model's output (5, 4). "
    for transform in (lambda f: f, jax.jit, jax.grad):
        with pytest.raises(ValueError, match=re.escape(problem)):
            transform(lambda x, y: loss(lambda x: x, x, y))(jnp.ones((5, 4)), jnp.ones(shape))


@pytest.mark.parametrize("loss", [cross_entropy_loss, squared_error_loss])
def test_a_batch_is_needed(loss):
    with pytest.raises(ValueError, match=f"{loss.__name__}: the model's output needs an axis"):
        loss(lambda x: x, jnp.float32(1), jnp.float32(1))


def test_checks_of_losses_are_no_operations():
    x, y = jnp.ones((5, 4)), jnp.ones((5, 4))

    def primitives(function):
        return [equation.primitive.name for equation in jax.make_jaxpr(function)(x, y).eqns]

    assert primitives(lambda x, y: cross_entropy_loss(lambda x: x, x, y)) == primitives(
        lambda x, y: -jnp.mean(jnp.sum(y * jax.nn.log_softmax(x), axis=-1))
    )
    assert primitives(lambda x, y: squared_error_loss(lambda x: x, x, y)) == primitives(
        lambda x, y: jnp.sum(jnp.square(x - y)) / 10
    )


def test_problem_is_frozen_and_unknown_names_are_refused():
    with pytest.raises(dataclasses.FrozenInstanceError):
        small("mlp").name = "cnn"  # pyright: ignore[reportAttributeAccessIssue]
    with pytest.raises(ValueError, match=r"unknown name 'vgg'\. Choose from mlp, cnn, rnn"):
        problem("vgg")
