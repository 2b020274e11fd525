"""One network at work, to look at: plots by `dendrax.draw`, and the explorer's page."""

from __future__ import annotations

import pathlib
import tempfile
from collections.abc import Mapping
from typing import Any

import jax

import dendrax
from dendrax import IL, ZIL, draw
from dendrax.draw._explore import page_of_results
from dendrax.experiments._beyond import case
from dendrax.experiments._library import Library
from dendrax.experiments._store import Cell, Work

# The loss is a mean over the batch: taken as such, errors are large enough to see IL relax.
RULES = (ZIL(), IL(num_steps=40, batch="mean"))
MODEL = "FC-ResNet"


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
            page = _draw(library, seed, pathlib.Path(folder), work)
            plots = sorted(pathlib.Path(folder).glob("*.svg"))
            texts = {plot.stem: plot.read_text(encoding="utf-8") for plot in plots}
            return {"plots": texts, "explorer": page}

    return [Cell("pictures", f"{MODEL} in pictures", settings, measure)]


def _draw(library: Library, seed: int, folder: pathlib.Path, work: Work) -> str:
    """Write the plots; the explorer's page."""
    loss, arguments = case(library, MODEL, seed)
    work.report(0.0, "recording every error")
    graph = dendrax.trace(loss, *arguments, vertices="layer")
    zil, il = (dendrax.run(graph, rule, record=("energy", "statistics")) for rule in RULES)
    draw.graph(dendrax.level(graph), folder / "levelled-graph.svg", layout="own")
    draw.wave(zil, folder / "wave-under-zil.svg")
    draw.wave(il, folder / "wave-under-il.svg")
    draw.energy(il, folder / "energy-under-il.svg")
    draw.traces(il, path=folder / "errors-under-il.svg")
    work.report(0.5, "comparing with backpropagation")
    found = [dendrax.check(loss, *arguments, rule=rule) for rule in RULES]
    draw.distances(found, folder / "distance-by-parameter.svg")
    return page_of_results(graph, (zil, il), MODEL)
