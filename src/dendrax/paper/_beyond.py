"""Beyond the paper: how far IL is from backpropagation, on what that depends, and the error wave.

Everything here is on real images, in float64. Distances are relative: 0 is backpropagation's
gradient, 1 is as far from it as no gradient at all.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import dendrax
from dendrax import IL, ZIL
from dendrax.draw._plots import wave_sizes
from dendrax.models import MLP, FCResNet, astype, cross_entropy_loss
from dendrax.paper._divergence import distance_between, predict
from dendrax.paper._library import Library
from dendrax.paper._store import Cell, Work
from dendrax.rules import Rule
from dendrax.support import Vertices

BATCH = 20
Loss = Callable[[Any, Any, Any], Any]


@dataclass(frozen=True)
class Series:
    """One line of a plot: a rule for each place on the horizontal axis."""

    plot: str
    label: str
    model: str
    vertices: Vertices
    rules: dict[float, Rule]


def beyond_cells(library: Library, *, seed: int, quick: bool) -> list[Cell]:
    """The sweeps, and the pictures of the error wave."""
    waves = {"Z-IL": ZIL(), "IL": IL(num_steps=10 if quick else 40, gamma=0.1)}
    return [
        *(_sweep(library, series, seed) for series in _all_series(quick)),
        *(_wave(library, name, rule, seed) for name, rule in waves.items()),
    ]


def _all_series(quick: bool) -> list[Series]:
    steps = (1, 5, 20, 100) if quick else (1, 2, 5, 10, 20, 50, 100, 200, 500)
    gammas = (0.05, 0.2) if quick else (0.02, 0.05, 0.1, 0.2, 0.5)
    precisions = (1.0, 100.0) if quick else (0.1, 1.0, 10.0, 100.0, 1e3, 1e4)
    converged = steps[-1]
    return [
        *(
            Series("steps", f"γ = {g}", "MLP", "layer", {t: _il(t, g) for t in steps})
            for g in gammas
        ),
        Series(
            "precision",
            f"T = {converged}",
            "MLP",
            "layer",
            {p: _il(converged, 0.1, p) for p in precisions},
        ),
        *(
            Series("vertices", vertices, "MLP", vertices, {t: _il(t, 0.1) for t in steps})
            for vertices in ("layer", "marked", "primitive")
        ),
        *(
            Series(
                "levels",
                "with delays" if levelled else "without delays",
                "FC-ResNet",
                "layer",
                {t: _il(t, 0.1, levelled=levelled) for t in steps},
            )
            for levelled in (False, True)
        ),
    ]


def _il(num_steps: int, gamma: float, precision: float = 1.0, *, levelled: bool = False) -> IL:
    return IL(num_steps=num_steps, gamma=gamma, precision=precision, batch=BATCH, levelled=levelled)


def _sweep(library: Library, series: Series, seed: int) -> Cell:
    settings = {
        "plot": series.plot,
        "label": series.label,
        "model": series.model,
        "vertices": series.vertices,
        "rules": {str(place): repr(rule) for place, rule in series.rules.items()},
        "data": library.fashion.name,
        "seed": seed,
    }

    def measure(work: Work) -> Mapping[str, Any]:
        with jax.enable_x64(True):
            loss, arguments = case(library, series.model, seed, series.vertices == "marked")
            expected = jax.jit(jax.grad(loss))(*arguments)
            norm, distances = distance_between(expected, None), []
            for place, rule in series.rules.items():
                work.on_progress(len(distances) / len(series.rules), f"{series.plot} = {place:g}")
                gradient = dendrax.grad(loss, rule=rule, vertices=series.vertices)
                found = jax.jit(gradient)(*arguments)
                distances.append(distance_between(found, expected) / norm)
        return {"places": list(series.rules), "distances": distances}

    return Cell("beyond", f"IL by {series.plot}: {series.label}", settings, measure)


def case(
    library: Library, model: str, seed: int, marked: bool = False
) -> tuple[Loss, tuple[Any, ...]]:
    """A loss, and a model and a batch for it, in float64."""
    samples = library.fashion
    chosen = np.random.default_rng(seed).permutation(len(samples.train_labels))[:BATCH]
    inputs = samples.train_inputs[chosen].reshape(BATCH, -1).astype(np.float64)
    target = np.eye(10)[samples.train_labels[chosen]]
    make = {"MLP": MLP, "FC-ResNet": FCResNet}[model]
    drawn = astype(make(key=jax.random.key(seed)), jnp.float64)
    return (_marked_loss if marked else cross_entropy_loss), (
        drawn,
        jnp.asarray(inputs),
        jnp.asarray(target),
    )


def _marked_loss(model: MLP, inputs: Any, target: Any) -> Any:
    """The same loss with value nodes *after* the nonlinearity."""

    def forward(x: Any) -> Any:
        for layer in model.layers[:-1]:
            x = dendrax.vertex(lambda layer, x: jnp.tanh(layer(x)))(layer, x)
        return model.layers[-1](x)

    return cross_entropy_loss(forward, inputs, target)


def _wave(library: Library, name: str, rule: Rule, seed: int) -> Cell:
    settings = {
        "plot": "wave",
        "label": name,
        "rule": repr(rule),
        "model": "FC-ResNet",
        "data": library.fashion.name,
        "seed": seed,
    }

    def measure(work: Work) -> Mapping[str, Any]:
        work.on_progress(0.0, "recording every error")
        with jax.enable_x64(True):
            _, (model, inputs, target) = case(library, "FC-ResNet", seed)
            return {"sizes": error_wave(predict, (model, inputs), target, rule)}

    return Cell("beyond", f"the error wave of {name}", settings, measure)


def error_wave(fun: Any, arguments: Sequence[Any], target: Any, rule: Rule) -> list[list[float]]:
    """The root mean square of the errors of each level (row) at each time (column)."""
    graph = dendrax.trace(fun, *arguments, vertices="layer")
    return wave_sizes(dendrax.run(graph, rule, target=target, record="statistics")).tolist()
