"""One network at work, to look at: plots by `dendrax.draw`, and the explorer's page."""

from __future__ import annotations

import pathlib
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import jax

import dendrax
from dendrax import IL, ZIL, Graph, Result, draw
from dendrax.certify import Certificate
from dendrax.draw._explore import page_of_results
from dendrax.paper._beyond import case
from dendrax.paper._library import Library
from dendrax.paper._store import Cell, Work

# The loss is a mean over the batch: taken as such, errors are large enough to see IL relax.
RULES = (ZIL(), IL(num_steps=40, batch="mean"))
MODEL = "FC-ResNet"
WAVE_CAPTIONS = {
    "Z-IL": "Under Z-IL the error moves on by one level per time step; the weights of a level "
    "learn at the moment when it arrives. Before that, their error is exactly 0.",
    "IL": "Under IL errors spread too, and stay while the value nodes relax; weights learn at the "
    "end.",
}


class Material(NamedTuple):
    """The network at work: its graph, both rules' results, and how far they are from BP."""

    graph: Graph
    zil: Result
    il: Result
    checks: list[Certificate]


@dataclass(frozen=True)
class Drawing:
    """How a picture is drawn to a file, and how it is read.

    ``wave`` is the rule whose error wave it shows; a broad one has names that would be too small
    in half the width of a page.
    """

    draw: Callable[[Material, pathlib.Path], object]
    caption: str
    wave: str | None = None
    is_broad: bool = False


DRAWINGS = {
    "levelled-graph": Drawing(
        lambda material, path: draw.graph(dendrax.level(material.graph), path, layout="own"),
        "The network as a graph in levels; under Z-IL an error takes one time step from a level to "
        "the next, on whatever path it comes.",
        is_broad=True,
    ),
    "wave-under-zil": Drawing(
        lambda material, path: draw.wave(material.zil, path), WAVE_CAPTIONS["Z-IL"], wave="Z-IL"
    ),
    "wave-under-il": Drawing(
        lambda material, path: draw.wave(material.il, path), WAVE_CAPTIONS["IL"], wave="IL"
    ),
    "energy-under-il": Drawing(
        lambda material, path: draw.energy(material.il, path),
        "The energy, the loss and the squared errors of all levels, falls while IL relaxes.",
    ),
    "errors-under-il": Drawing(
        lambda material, path: draw.traces(material.il, path=path),
        "The size of the error of each vertex while IL relaxes.",
    ),
    "distance-by-parameter": Drawing(
        lambda material, path: draw.distances(material.checks, path),
        "How far the gradient of each parameter is from backpropagation's; relative: 0 is the "
        "same, 1 is as far off as no gradient.",
    ),
}


def picture_cells(library: Library, *, seed: int) -> list[Cell]:
    """Z-IL beside IL on a batch of images."""
    settings = {
        "model": MODEL,
        "rules": [repr(rule) for rule in RULES],
        "data": library.fashion.name,
        "seed": seed,
    }

    def measure(work: Work) -> Mapping[str, Any]:
        with tempfile.TemporaryDirectory() as folder, jax.enable_x64(True):
            material = _material(library, seed, work)
            return {
                "plots": {
                    name: _svg(drawing, material, pathlib.Path(folder, f"{name}.svg"))
                    for name, drawing in DRAWINGS.items()
                },
                "explorer": page_of_results(material.graph, (material.zil, material.il), MODEL),
            }

    return [Cell("pictures", f"{MODEL} in pictures", settings, measure)]


def _material(library: Library, seed: int, work: Work) -> Material:
    loss, arguments = case(library, MODEL, seed)
    work.on_progress(0.0, "recording every error")
    graph = dendrax.trace(loss, *arguments, vertices="layer")
    zil, il = (dendrax.run(graph, rule, record=("energy", "statistics")) for rule in RULES)
    work.on_progress(0.5, "comparing with backpropagation")
    return Material(graph, zil, il, [dendrax.check(loss, *arguments, rule=rule) for rule in RULES])


def _svg(drawing: Drawing, material: Material, path: pathlib.Path) -> str:
    drawing.draw(material, path)
    return path.read_text(encoding="utf-8")
