"""Settings that may differ from vertex to vertex, and optimizers that tell value nodes apart."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import dendrax
from dendrax import IL, ErrorPC, FixedPrediction, IncrementalPC
from tests.compare import close, same

RNG = np.random.default_rng(0)
W = [RNG.normal(size=s) / 2 for s in ((6, 5), (5, 4), (4, 3))]
X, Y = RNG.normal(size=(7, 6)), RNG.normal(size=(7, 3))
FIRST, SECOND = "layer(w[0])", "layer(w[1])"
RULES = [IL, ErrorPC, IncrementalPC, FixedPrediction]


def loss(w, x, y):
    return jnp.mean(jnp.sum((jnp.tanh(jnp.tanh(x @ w[0]) @ w[1]) @ w[2] - y) ** 2, -1)) / 2


@pytest.mark.parametrize("rule", RULES)
def test_gamma_of_each_vertex(rule):
    """The same everywhere is one number; a very small one leaves a value node where it was."""
    one = dendrax.grad(loss, rule=rule(3, gamma=0.25))(W, X, Y)
    assert same(dendrax.grad(loss, rule=rule(3, gamma=lambda v: 0.25))(W, X, Y), one)
    uneven = rule(3, gamma=lambda v: 1e-9 if v.name == FIRST else np.float32(0.25))
    found = dendrax.grad(loss, rule=uneven)(W, X, Y)
    assert np.abs(found[0]).max() < 1e-7 < 1e-3 < np.abs(found[1]).max()


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("wrong", [0, -1.0, "0.1", None, True])
def test_a_wrong_gamma_of_a_vertex(rule, wrong):
    gamma = lambda v: wrong if v.name == SECOND else 0.1
    message = rf"{rule.__name__}: gamma of layer\(w\[1\]\)={wrong!r} is not a positive"
    with pytest.raises(ValueError, match=message):
        dendrax.grad(loss, rule=rule(3, gamma=gamma))(W, X, Y)


def test_a_large_gamma_of_a_vertex():
    rule = FixedPrediction(gamma=lambda v: 2.5 if v.name == SECOND else 1.0)
    with pytest.raises(ValueError, match=r"gamma of layer\(w\[1\]\)=2.5 makes the errors grow"):
        dendrax.grad(loss, rule=rule)(W, X, Y)


def test_an_optimizer_that_tells_value_nodes_apart():
    """By the names that are printed."""
    labels = lambda x: {name: "still" if name == FIRST else "moves" for name in x}
    parts: dict[Any, Any] = {"moves": optax.sgd(0.1), "still": optax.set_to_zero()}
    rule = IL(5, optimizer=optax.multi_transform(parts, labels))
    found = jax.jit(dendrax.grad(loss, rule=rule))(W, X, Y)
    small = IL(5, gamma=lambda v: 1e-30 if v.name == FIRST else 0.1)
    assert close(found, jax.jit(dendrax.grad(loss, rule=small))(W, X, Y), ulps=256)
    assert dendrax.audit(loss, W, X, Y, rule=rule).local


def test_the_audit_knows_whose_momentum_it_is():
    rule = IL(5, optimizer=optax.sgd(0.1, momentum=0.9))
    assert dendrax.audit(loss, W, X, Y, rule=rule).local
    clipped = optax.chain(optax.clip_by_global_norm(1.0), optax.sgd(0.1, momentum=0.9))
    found = dendrax.audit(loss, W, X, Y, rule=IL(5, optimizer=clipped))
    assert not found.local


def test_what_incremental_pc_advises():
    """The learning rate; gamma only if it is large."""
    said = IncrementalPC(learning_rate=0.01).remedy()
    assert said == "a smaller learning_rate than 0.01, for instance 0.001"
    assert "or a smaller gamma than 0.5, for" in IncrementalPC(gamma=0.5).remedy()
    assert IncrementalPC(gamma=lambda v: 0.1).remedy().endswith("; or a smaller gamma")
    rule = IncrementalPC(learning_rate=5.0)
    with pytest.warns(UserWarning, match=r"diverged[\s\S]*Try a smaller learning_rate than 5"):
        dendrax.grad(loss, rule=rule)(W, X, Y)
