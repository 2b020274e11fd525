"""Tables 1 and 3: how far one weight update is from backpropagation's.

The paper's setting: the output is clamped to the target, so the loss is 1/2 Σ (output − target)²,
and a vertex is a layer. The distance is the Euclidean one between updates, learning rate times
gradient, over all weights. The dynamics, original Z-IL and the ablations run operation by
operation, which leaves no rounding to the compiler, and are compared with `jax.grad` run the same
way; the wavefront is compiled, and so is the `jax.grad` that it is compared with.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp

import dendrax
from dendrax import ZIL
from dendrax.paper._store import Cell, Work
from dendrax.paper._subjects import Batch, Subject
from dendrax.rules import Rule
from dendrax.support import Vertices

RULES: dict[str, Rule] = {
    "original": ZIL(levelled=False),
    "wavefront": ZIL(),
    "dynamics": ZIL(),
    "timing": ZIL(timing="end"),
    "noise": ZIL(init="noise"),
    "gamma": ZIL(gamma=0.5),
}
COLUMNS1 = ("original", "wavefront", "dynamics")
COLUMNS3 = ("wavefront", "dynamics", "timing", "noise", "gamma")
SPOKEN = {
    "original": "original Z-IL",
    "wavefront": "Z-IL",
    "dynamics": "Z-IL, full dynamics",
    "timing": "no level-timed update",
    "noise": "initial error not zero",
    "gamma": "gamma = 0.5",
}


def divergence_cells(
    subjects: Sequence[Subject], columns: Sequence[str], *, seed: int, dtype: str
) -> list[Cell]:
    """One measurement per subject and column."""
    return [_cell(subject, column, seed, dtype) for subject in subjects for column in columns]


def _cell(subject: Subject, column: str, seed: int, dtype: str) -> Cell:
    name = f"{subject.row} ({subject.name}), {dtype}: {SPOKEN[column]}"
    vertices = _vertices(subject, column)
    settings = {
        **subject.settings,
        "column": column,
        "rule": repr(RULES[column]),
        "vertices": vertices,
        "seed": seed,
        "dtype": dtype,
    }

    def measure(work: Work) -> Mapping[str, Any]:
        work.on_progress(0.0, "tracing")
        with jax.enable_x64(dtype == "float64"):
            batch = subject.batch(seed, dtype)
            found, expected = _gradients(column, vertices, batch)
            distance = subject.learning_rate * distance_between(found, expected)
            norm = subject.learning_rate * distance_between(expected, None)
        return {"distance": distance, "norm": norm, "num_weights": _size(expected)}

    return Cell("divergence", name, settings, measure)


def _vertices(subject: Subject, column: str) -> Vertices:
    """The original Z-IL is of a graph that has a residual stream beside its layers."""
    return subject.graph if column == "dynamics" else "parameter"


def _gradients(column: str, vertices: Vertices, batch: Batch) -> tuple[Any, Any]:
    """The gradient of the rule in this column, and backpropagation's."""
    graph = dendrax.trace(predict, batch.model, batch.inputs, vertices=vertices)
    record = ("energy",) if column == "dynamics" else ()

    def ours(model: Any, inputs: Any, target: Any) -> Any:
        rule = RULES[column]
        return dendrax.run(graph, rule, model, inputs, target=target, record=record).gradient

    backprop = jax.grad(half_squared_error)
    if column == "wavefront":
        return jax.jit(ours)(*batch), jax.jit(backprop)(*batch)
    with jax.disable_jit():
        return ours(*batch), backprop(*batch)


def half_squared_error(model: Any, inputs: Any, target: Any) -> Any:
    """The energy of a clamped output, 1/2 Σ (output − target)²."""
    return jnp.sum(jnp.square(model(inputs) - target)) / 2


def distance_between(found: Any, expected: Any | None) -> float:
    """The Euclidean distance of two trees (to the origin, if the second is None), in float64."""
    pairs = zip(
        jax.tree.leaves(found),
        jax.tree.leaves(jax.tree.map(jnp.zeros_like, found) if expected is None else expected),
        strict=True,
    )
    with jax.enable_x64(True):
        squares = (jnp.sum(jnp.square(_wide(a) - _wide(b))) for a, b in pairs)
        return float(jnp.sqrt(functools.reduce(jnp.add, squares)))


def _wide(array: Any) -> jax.Array:
    return jnp.asarray(array).astype(jnp.float64)


def predict(model: Any, inputs: Any) -> Any:
    """What is traced in the paper's setting: the output, to be clamped to a target."""
    return model(inputs)


def _size(tree: Any) -> int:
    return sum(leaf.size for leaf in jax.tree.leaves(tree))
