"""A small problem of learning, and the loop that a user would write by hand for it."""

import dataclasses
import textwrap

import jax
import jax.numpy as jnp
import numpy as np
import optax

from dendrax import BP, IL, ZIL, train

RULES = {
    "BP": BP(),
    "ZIL": ZIL(),
    "IL": IL(num_steps=8, gamma=0.1, batch="mean"),
}


def samples(count=96, size=6, classes=3, seed=0):
    """Inputs and classes that a small network can learn."""
    random = np.random.default_rng(seed)
    x = random.normal(size=(count, size)).astype(np.float32)
    y = np.argmax(x[:, :classes] + 0.3 * x[:, classes : 2 * classes], axis=1).astype(np.int32)
    return x, y


def network(seed=0, sizes=(6, 16, 3)):
    """Weights and biases."""
    keys = jax.random.split(jax.random.key(seed), len(sizes) - 1)
    shapes = zip(keys, sizes[:-1], sizes[1:], strict=True)
    return [
        {"w": jax.random.normal(k, (m, n), jnp.float32) / m**0.5, "b": jnp.zeros(n, jnp.float32)}
        for k, m, n in shapes
    ]


def logits(params, x):
    for layer in params[:-1]:
        x = jnp.tanh(x @ layer["w"] + layer["b"])
    return x @ params[-1]["w"] + params[-1]["b"]


def loss(params, x, y):
    target = jax.nn.one_hot(y, 3, dtype=x.dtype)
    return -jnp.mean(jnp.sum(target * jax.nn.log_softmax(logits(params, x)), axis=-1))


def measure(params, x, y):
    right = jnp.argmax(logits(params, x), axis=-1) == y
    return {"loss": loss(params, x, y), "accuracy": jnp.mean(right.astype(jnp.float32))}


OPTIMIZER = optax.adam(0.01)
SETTINGS = train.Settings(epochs=4, batch_size=16, log_every=3, checkpoint_every=5, seed=7)


def bits(tree):
    """All bits of a tree of arrays."""
    return [np.asarray(leaf).tobytes() for leaf in jax.tree.leaves(tree)]


def fit(
    folder, *, resume=False, model=None, optimizer=OPTIMIZER, watch=None, about=None, **changes
):
    """A run of 24 updates."""
    return train.fit(
        network() if model is None else model,
        loss,
        samples(),
        optimizer=optimizer,
        settings=dataclasses.replace(SETTINGS, **changes),
        folder=folder,
        resume=resume,
        watch=watch,
        about=about,
    )


def contents(folder):
    """Every file below a folder."""
    return {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}


# A module as users write them: data, and a model.
OWN = """
import jax, jax.numpy as jnp, numpy as np
from typing import NamedTuple

def load(count=40):
    x = np.random.default_rng(0).normal(size=(count, 5))
    y = (x[:, 0] > 0).astype(int)
    return x, y, x, y

class Net(NamedTuple):
    a: jax.Array
    b: jax.Array

    def __call__(self, x):
        return jnp.tanh(x @ self.a) @ self.b

def build(key, width=4):
    k1, k2 = jax.random.split(key)
    return Net(jax.random.normal(k1, (5, width)), jax.random.normal(k2, (width, 2)))

def wrong(key):
    return lambda x: x

def returned(what):
    x, y, a, b = load()
    if what == "none":
        return x[:0], y[:0], a, b
    if what == "negative":
        return x, y - 1, a, b
    if what == "shapes":
        return x, y, a[:, :3], b
    if what == "floats":
        return x, y / 2, a, b
    return 1, 2
"""


def file(tmp_path, text, name="plan.toml"):
    """Write a plan, or a module."""
    path = tmp_path / name
    path.write_text(textwrap.dedent(text))
    return path
