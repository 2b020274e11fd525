"""The second half of ``dendrax demo``: one network, real data, every rule."""

from __future__ import annotations

import functools
import time
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from rich.table import Table

import dendrax
from dendrax.data import fashion_mnist
from dendrax.models import MLP, cross_entropy_loss
from dendrax.rules import Rule

BATCH = 20
RATE = 0.1
RULES: tuple[Rule, ...] = (
    dendrax.BP(),
    dendrax.ZIL(),
    dendrax.FixedPrediction(),
    dendrax.IL(num_steps=20, gamma=0.2, batch="mean"),
    dendrax.ErrorPC(num_steps=10, gamma=0.3, batch="mean"),
    dendrax.IncrementalPC(num_steps=10, gamma=0.2, learning_rate=RATE / 10, batch="mean"),
)


@dataclass(frozen=True)
class Row:
    """One rule: is it local, how far is its first gradient from backprop's, what has it learned."""

    rule: str
    local: bool
    distance: float
    accuracy: float
    milliseconds: float


def measure(rule: Rule) -> Row:
    """Train a 784-128-128-10 MLP for one pass over the 5000 images that ship with dendrax."""
    model = MLP(key=jax.random.key(0))
    batches, images, labels = _data()
    first = model, *batches[0]
    step = jax.jit(functools.partial(_update, rule))
    model = jax.block_until_ready(step(*first))[0]
    distance = _relative_distance(step(*first)[1], jax.jit(jax.grad(cross_entropy_loss))(*first))
    start = time.perf_counter()
    for x, y in batches[1:]:
        model, _ = step(model, x, y)
    jax.block_until_ready(model)
    seconds = time.perf_counter() - start
    accuracy = float(np.mean(np.asarray(jnp.argmax(model(images), -1)) == labels))
    local = dendrax.audit(cross_entropy_loss, *first, rule=rule).local
    return Row(type(rule).__name__, local, distance, accuracy, 1e3 * seconds / (len(batches) - 1))


def _update(rule: Rule, model: Any, x: Any, y: Any) -> tuple[Any, Any]:
    gradient = dendrax.grad(cross_entropy_loss, rule=rule)(model, x, y)
    rate = getattr(rule, "learning_rate", RATE)
    return jax.tree.map(lambda w, g: w - rate * g, model, gradient), gradient


@functools.cache
def _data() -> tuple[list[tuple[Any, Any]], Any, np.ndarray]:
    images = fashion_mnist()
    order = np.random.default_rng(0).permutation(len(images.train_labels)).reshape(-1, BATCH)
    x = jnp.asarray(images.train_images.reshape(-1, 784) / 255.0, jnp.float32)
    y = jax.nn.one_hot(images.train_labels, 10, dtype=jnp.float32)
    test = jnp.asarray(images.test_images.reshape(-1, 784) / 255.0, jnp.float32)
    return [(x[i], y[i]) for i in order], test, images.test_labels


def _relative_distance(found: Any, expected: Any) -> float:
    pairs = list(zip(jax.tree.leaves(found), jax.tree.leaves(expected), strict=True))
    off = sum(float(jnp.sum((a - b) ** 2)) for a, b in pairs)
    return float(np.sqrt(off / sum(float(jnp.sum(b**2)) for _, b in pairs)))


def table(rows: list[Row]) -> Table:
    """The rules side by side."""
    found = Table(
        title="One pass over 5000 images of FashionMNIST, MLP 784-128-128-10",
        caption="local: dendrax.audit, from the data flow of one step; distance: of the first "
        "gradient to jax.grad's, relative (IncrementalPC's is a sum over its steps); accuracy: on "
        "1000 test images",
    )
    found.add_column("rule")
    for title in ("local", "distance", "accuracy", "ms/update"):
        found.add_column(title, justify="right")
    for row in rows:
        found.add_row(
            row.rule,
            "[green]yes[/]" if row.local else "no",
            f"{row.distance:.1e}",
            f"{100 * row.accuracy:.1f} %",
            f"{row.milliseconds:.2f}",
        )
    return found
