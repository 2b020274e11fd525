"""`graph` and `circuit`: drawings that show themselves in a notebook and save themselves."""

from __future__ import annotations

import contextlib
import os
import pathlib
from dataclasses import dataclass
from typing import Any

from dendrax.draw._circuit import check_small, circuit_scene
from dendrax.draw._dot import dot_places, has_dot
from dendrax.draw._drawing import Places, drawn, own_places
from dendrax.draw._file import file_kind, write
from dendrax.draw._paint import painted
from dendrax.draw._plan import Plan, plan
from dendrax.draw._scene import Scene, as_svg
from dendrax.graph import Graph, LevelledGraph
from dendrax.support import GRAPH_LAYOUTS, GraphLayout, complain, one_of, public

MOST_SHAPES = 60  # of a larger graph the shapes would cover the picture
MOST_IN_NOTEBOOK = 400
MOST_EXTENT = 100_000
MOST_FOR_DOT = 500  # vertices and delays; dot takes long over more


@dataclass(frozen=True, repr=False)
class Picture:
    """A drawing. A notebook shows it; ``save`` writes it as SVG, PNG or PDF."""

    scene: Scene

    def __repr__(self) -> str:
        width, height = round(self.scene.width), round(self.scene.height)
        return f"Picture of {width} x {height} points: .save('name.svg') writes it, or .png or .pdf"

    @property
    def svg(self) -> str:
        """The text of an SVG file."""
        return as_svg(self.scene)

    def _repr_svg_(self) -> str:
        return self.svg

    def save(self, path: str | os.PathLike[str]) -> pathlib.Path:
        """Write the drawing; the end of the path says as what."""
        kind = file_kind(path)
        return write(path, self.svg.encode() if kind == "svg" else painted(self.scene, kind))


@public("dendrax.draw.graph")
def graph(
    graph: Graph | LevelledGraph,
    path: str | os.PathLike[str] | None = None,
    *,
    layout: GraphLayout = "auto",
    shapes: bool | None = None,
    silent: bool = False,
) -> Picture:
    """Draw a graph with the paper's conventions: levels as rows, the output on top.

    Leaves are blue, internal vertices red, identity vertices (delays) green, data grey. Arrows are
    those of the forward pass.

    **Arguments:**

    - `graph`: from `dendrax.trace`; from `dendrax.level`, then with its delays (more than a
      thousand are drawn as one box for each line, with their number).
    - `path`: if given, where to save it; ends in `.svg`, `.png` or `.pdf`.
    - `layout`: `"dot"` asks graphviz, `"own"` needs nothing, `"auto"` is `"dot"` if it is
      installed and the graph is not too large for it.
    - `shapes`: whether to write shapes at the edges; by default for small graphs.
    - `silent`: whether to show what carries no error (constants, integers, `stop_gradient`).

    **Returns:** a `Picture`, with `.svg` and `.save(path)`.

    !!! example

        ```python
        import dendrax, jax.numpy as jnp

        graph = dendrax.trace(lambda z1, z2: (jnp.sqrt(z1) + z2) ** 2, 3.0, 4.0, argnums=(0, 1))
        dendrax.draw.graph(dendrax.level(graph)).save("figure-1.svg")
        ```
    """
    _check_graph(graph)
    one_of("layout", layout, GRAPH_LAYOUTS)
    if path is not None:
        file_kind(path)
    planned = plan(graph, silent=silent)
    _check_size(planned)
    places = _places(planned, layout)
    small = len(planned.seen) <= MOST_SHAPES
    return _done(drawn(planned, places, shapes=small if shapes is None else shapes), path)


@public("dendrax.draw.circuit")
def circuit(graph: Graph | LevelledGraph, path: str | os.PathLike[str] | None = None) -> Picture:
    """Draw a small graph as the predictive-coding circuit of value nodes and error nodes.

    **Arguments:**

    - `graph`: from `dendrax.trace` or `dendrax.level`, of at most 24 vertices.
    - `path`: if given, where to save it; ends in `.svg`, `.png` or `.pdf`.

    **Returns:** a `Picture`, with `.svg` and `.save(path)`.

    !!! example

        ```python
        import dendrax, jax.numpy as jnp

        graph = dendrax.trace(lambda z1, z2: (jnp.sqrt(z1) + z2) ** 2, 3.0, 4.0, argnums=(0, 1))
        dendrax.draw.circuit(graph).save("circuit.svg")
        ```
    """
    _check_graph(graph)
    if path is not None:
        file_kind(path)
    planned = plan(graph, silent=False, as_vertices=True)
    check_small(planned)
    return _done(circuit_scene(planned), path)


def _places(planned: Plan, layout: GraphLayout) -> Places:
    if layout == "dot":
        return dot_places(planned)
    if layout == "auto" and len(planned.seen) + planned.num_delays <= MOST_FOR_DOT and has_dot():
        with contextlib.suppress(RuntimeError):  # a dot that does not work was not asked for
            return dot_places(planned)
    return own_places(planned)


def notebook_svg(graph: Graph | LevelledGraph) -> str | None:
    """How a notebook shows a graph; ``None``, its text, if it is large."""
    planned = plan(graph, silent=False)
    if len(planned.seen) > MOST_IN_NOTEBOOK or planned.extent > MOST_EXTENT:
        return None
    scene = drawn(planned, own_places(planned), shapes=len(planned.seen) <= MOST_SHAPES)
    return as_svg(scene)


def _done(scene: Scene, path: Any) -> Picture:
    picture = Picture(scene)
    if path is not None:
        picture.save(path)
    return picture


def _check_size(planned: Plan) -> None:
    if planned.extent > MOST_EXTENT:
        raise complain(
            ValueError,
            f"a drawing of {len(planned.seen)} vertices, whose lines pass "
            f"{planned.extent - len(planned.seen)} rows, would be unreadable.",
            remedy="Trace with vertices='layer', or look at the graph with dendrax.explore.",
        )


def _check_graph(graph: Any) -> None:
    if not isinstance(graph, (Graph, LevelledGraph)):
        raise complain(
            TypeError,
            f"expected a Graph, got {type(graph).__name__}.",
            remedy="Make one with dendrax.trace(fun, *args).",
        )
