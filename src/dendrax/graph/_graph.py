"""The computational graph: vertices in program order, and who uses whom. No array maths here.

The paper draws the reverse pass: the output is the root, `P(i)` are the vertices that *use* vertex
`i` and `C(i)` its inputs. In code these are ``users`` and ``inputs``.

A vertex may have several outputs (``jnp.linalg.eigh`` has two), so an edge starts at a `Port`: a
vertex and one of its outputs. Its value node, prediction and error are then tuples.
"""

from __future__ import annotations

import functools
import importlib
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, Literal, NamedTuple

from dendrax.support import Vertices, counted, html_text, nearest

Kind = Literal["parameter", "free", "data", "internal", "delay"]
MOST_NAMES = 30  # in an error


class Port(NamedTuple):
    """One output of one vertex, by index: where an edge starts."""

    vertex: int
    output: int = 0


class Edge(NamedTuple):
    """The error-carrying connection from an output of one vertex to the vertex that uses it."""

    source: Port
    user: int


@dataclass(frozen=True, eq=False)
class Vertex:
    """One elementary function of the graph, or one of its leaves.

    - ``inputs``: the ports it reads, each once.
    - ``outputs``: shape and dtype of each output.
    - ``function``: the local function ``inputs -> outputs``; ``None`` for a leaf.
    - ``depends``: for each output a bit mask: bit ``k`` is set if an error at that output sends a
      message to input ``k``.
    - ``alias``: for each output the input whose tangent it hands on untouched, if any; empty means
      none. JAX adds their messages to one sum, and so does the wavefront.
    - ``carries``: for each output, whether it depends on a parameter, or on a free leaf, through
      such connections.
    - ``source``: the line of the user's code it comes from.
    """

    index: int
    kind: Kind
    name: str
    outputs: tuple[Any, ...]
    inputs: tuple[Port, ...] = ()
    function: Callable[..., Sequence[Any]] | None = None
    depends: tuple[int, ...] = ()
    carries: tuple[bool, ...] = ()
    alias: tuple[int | None, ...] = ()
    source: str = ""

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of the first output."""
        return self.outputs[0].shape

    @property
    def dtype(self) -> Any:
        """Dtype of the first output."""
        return self.outputs[0].dtype

    def __repr__(self) -> str:
        types = ", ".join(
            f"{aval.dtype}[{','.join(map(str, aval.shape))}]" for aval in self.outputs
        )
        return f"<{self.kind} {self.name}: {types}>"


class Pictured:
    """A notebook shows it as a picture; `dendrax.draw`, loaded for the first one, says how."""

    picture: ClassVar[Callable[[Any], str | None] | None] = None

    def _repr_svg_(self) -> str | None:
        if type(self).picture is None:  # draw, which knows graphs, hangs the picture up here
            importlib.import_module("dendrax.draw")
        draw = type(self).picture
        return None if draw is None else draw(self)

    def _repr_html_(self) -> str | None:
        """Its text, if it is too large for a picture."""
        return html_text(repr(self)) if self._repr_svg_() is None else None


@dataclass(frozen=True, eq=False)
class Graph(Pictured):
    """A function as vertices in topological (program) order.

    - ``leaves``: indices of the leaves in the order of the function's inputs.
    - ``outputs``: the port of each result.
    - ``roots``: which results start an error (the loss; not auxiliary results).
    - ``chosen``: the vertices that somebody asked for; ``None`` leaves them to the rule.
    - ``traced``: the graph with its regions, of which this one was written out.

    Iterate over a graph for its vertices; index it by position or by name. ``graph.users(v)`` are
    the vertices that use ``v``.
    """

    vertices: tuple[Vertex, ...]
    leaves: tuple[int, ...]
    outputs: tuple[Port, ...]
    roots: tuple[bool, ...]
    call: Any = field(default=None, repr=False)
    chosen: Vertices | None = None
    traced: Graph | None = field(default=None, repr=False)

    def __iter__(self) -> Iterator[Vertex]:
        return iter(self.vertices)

    def __len__(self) -> int:
        return len(self.vertices)

    def __getitem__(self, key: int | str) -> Vertex:
        if isinstance(key, int):
            return self.vertices[key]
        if key not in self._by_name:
            raise KeyError(f"the graph has no vertex named {key!r}. {self._near(key)}")
        return self.vertices[self._by_name[key]]

    def _near(self, name: str) -> str:
        names = list(self._by_name)
        more = f", and {len(names) - MOST_NAMES} more" * (len(names) > MOST_NAMES)
        listed = f"Its vertices are {', '.join(names[:MOST_NAMES])}{more}."
        return nearest(name, names, most=3).strip() or listed

    @functools.cached_property
    def _by_name(self) -> dict[str, int]:
        return {v.name: v.index for v in self.vertices}

    @functools.cached_property
    def flow(self) -> Flow:
        """Where errors flow when every root has one."""
        return self.flow_from(self.roots)

    @property
    def starts(self) -> tuple[Port, ...]:
        """Ports that have an error although no root sends one, see `dendrax.graph.Quotient`."""
        return ()

    @functools.cached_property
    def memo(self) -> dict[Any, Any]:
        """What has been worked out about this graph, by whom and for which settings."""
        return {}

    def flow_from(self, seeded: tuple[bool, ...], preset: tuple[bool, ...] = ()) -> Flow:
        """Where errors flow that start at the ``seeded`` outputs; see `flow_of`."""
        key = ("flow", seeded, preset)
        if key not in self.memo:
            self.memo[key] = flow_of(self, seeded, preset)
        return self.memo[key]

    @functools.cached_property
    def _origins(self) -> dict[Port, Port]:
        origins: dict[Port, Port] = {}
        for v in self.vertices:
            for o, k in enumerate(v.alias):
                if k is not None and v.carries[o]:
                    origins[Port(v.index, o)] = origins.get(v.inputs[k], v.inputs[k])
        return origins

    def carries(self, port: Port) -> bool:
        """Whether an error at the port reaches a parameter."""
        return self.vertices[port.vertex].carries[port.output]

    def origin(self, port: Port) -> Port:
        """The port whose sum an alias shares; any other port is its own origin."""
        return self._origins.get(port, port)

    @functools.cached_property
    def edges(self) -> tuple[Edge, ...]:
        """The connections that carry errors, by user in program order."""
        flow = self.flow
        return tuple(
            Edge(v.inputs[k], v.index) for v in self.vertices for k in flow.received[v.index]
        )

    @functools.cached_property
    def _users(self) -> tuple[tuple[int, ...], ...]:
        users: list[list[int]] = [[] for _ in self.vertices]
        for v in self.vertices:
            for index in dict.fromkeys(port.vertex for port in v.inputs):
                users[index].append(v.index)
        return tuple(map(tuple, users))

    def users(self, v: Vertex | int) -> tuple[Vertex, ...]:
        """The vertices that use ``v``, in program order."""
        index = v.index if isinstance(v, Vertex) else v
        return tuple(self.vertices[user] for user in self._users[index])

    def inputs(self, v: Vertex | int) -> tuple[Vertex, ...]:
        """The vertices that ``v`` uses."""
        vertex = v if isinstance(v, Vertex) else self.vertices[v]
        return tuple(self.vertices[port.vertex] for port in vertex.inputs)

    @property
    def parameters(self) -> tuple[Vertex, ...]:
        """The leaves that learn."""
        return tuple(self.vertices[i] for i in self.leaves if self[i].kind == "parameter")

    @property
    def data(self) -> tuple[Vertex, ...]:
        """The leaves that are clamped."""
        return tuple(self.vertices[i] for i in self.leaves if self[i].kind == "data")

    @property
    def free(self) -> tuple[Vertex, ...]:
        """The leaves that relax, as value nodes do."""
        return tuple(self.vertices[i] for i in self.leaves if self[i].kind == "free")

    @property
    def ties(self) -> Mapping[int, int]:
        """Which output predicts which free leaf; both are counted."""
        return {} if self.call is None else self.call.ties

    @functools.cached_property
    def active(self) -> tuple[Vertex, ...]:
        """The internal vertices that have a value node and an error, in program order."""
        emitted = self.flow.emitted
        return tuple(v for v in self.vertices if v.function is not None and emitted[v.index])

    @functools.cached_property
    def nodes(self) -> tuple[Vertex, ...]:
        """The vertices with a value node that inference moves: the active ones but the output."""
        clamped = {p.vertex for p, root in zip(self.outputs, self.roots, strict=True) if root}
        return tuple(v for v in self.active if v.index not in clamped)

    def __repr__(self) -> str:
        counts = Counter(v.kind for v in self.vertices)
        silent = counts["internal"] + counts["delay"] - len(self.active)
        head = (
            f"Graph: {counted(len(self), 'vertex', 'vertices')}, "
            f"{counted(len(self.edges), 'edge that carries', 'edges that carry')} errors\n"
            f"  {counted(counts['parameter'], 'parameter')}, {self._free()}{counts['data']} data, "
            f"{counted(len(self.active), 'internal vertex', 'internal vertices')} with an error, "
            f"{silent} without"
        )
        return "\n".join([head + self._summary(), *self._listing()])

    def _free(self) -> str:
        return f"{len(self.free)} free, " if self.free else ""

    def _summary(self) -> str:
        """What else there is to say about the graph as a whole."""
        return ""

    def _rows(self) -> list[tuple[Vertex, str, str]]:
        """The vertices to list, each with its kind, and what it reads."""
        return [(v, v.kind, "") for v in self.vertices]

    def _listing(self, most: int = 24) -> list[str]:
        """One line a vertex; of a long list the head and the tail."""
        rows = self._rows()
        width = max((len(v.name) for v, _, _ in rows), default=0)
        lines = []
        for v, kind, reads in rows:
            types = " ".join(f"{a.dtype}[{','.join(map(str, a.shape))}]" for a in v.outputs)
            line = f"  {v.index:>5} {kind:<10} {v.name:<{width}}  {types:<18} {reads}{v.source}"
            lines.append(line.rstrip())
        half = most // 2
        if len(lines) > most:
            lines = [*lines[:half], f"  ... {len(lines) - 2 * half} more ...", *lines[-half:]]
        return lines


def with_unique_names(vertices: Sequence[Vertex]) -> list[Vertex]:
    """The vertices, numbered where several have the same name."""
    taken = {v.name for v in vertices}  # a function of the user's may be called ``sin_1``
    seen: Counter[str] = Counter()
    named = []
    for v in vertices:
        name = v.name
        if v.name in seen:
            while (name := f"{v.name}_{seen[v.name]}") in taken:
                seen[v.name] += 1
            taken.add(name)
        seen[v.name] += 1
        named.append(replace(v, name=name))
    return named


@dataclass(frozen=True, eq=False)
class Flow:
    """Where errors flow, for a given set of outputs at which they start; all by vertex index.

    - ``emitted``: the outputs of the vertex that have an error.
    - ``received``: the input positions to which the vertex sends a message.
    - ``summed``: those of them at which other messages have already been added up when this one
      comes (messages are added in reverse program order, as JAX does).
    """

    emitted: tuple[tuple[int, ...], ...]
    received: tuple[tuple[int, ...], ...]
    summed: tuple[tuple[int, ...], ...]


def flow_of(graph: Graph, seeded: tuple[bool, ...], preset: tuple[bool, ...] = ()) -> Flow:
    """The flow of errors that start at the ``seeded`` outputs.

    ``preset[i]`` says that leaf ``i`` already holds a sum when the errors come (a weight inside
    the body of a scan does: the sum of the later time steps).
    """
    count = len(graph.vertices)
    emitted: list[tuple[int, ...]] = [()] * count
    received: list[tuple[int, ...]] = [()] * count
    summed: list[tuple[int, ...]] = [()] * count
    present = {port for port, seed in zip(graph.outputs, seeded, strict=True) if seed}
    present |= {Port(leaf) for leaf, given in zip(graph.leaves, preset, strict=False) if given}
    present.update(graph.starts)

    for v in reversed(graph.vertices):
        ports = [Port(v.index, o) for o in range(len(v.outputs))]
        emitted[v.index] = tuple(
            port.output for port in ports if graph.carries(port) and port in present
        )
        if v.function is None:
            continue
        mask = functools.reduce(int.__or__, (v.depends[o] for o in emitted[v.index]), 0)
        targets = [k for k, port in enumerate(v.inputs) if mask >> k & 1 and graph.carries(port)]
        first = {v.inputs[k]: k for k in reversed(targets)}
        received[v.index] = tuple(targets)
        summed[v.index] = tuple(k for port, k in first.items() if port in present)
        present.update(first)
    return Flow(tuple(emitted), tuple(received), tuple(summed))


def reaches(graph: Graph) -> tuple[int, ...]:
    """For each output a bit mask of the leaves that an error at that output reaches."""
    masks: dict[Port, int] = {Port(leaf): 1 << i for i, leaf in enumerate(graph.leaves)}
    for v in (v for v in graph.vertices if v.function is not None):
        for o, depends in enumerate(v.depends):
            ports = (port for k, port in enumerate(v.inputs) if depends >> k & 1)
            masks[Port(v.index, o)] = functools.reduce(int.__or__, map(masks.__getitem__, ports), 0)
    return tuple(masks.get(port, 0) for port in graph.outputs)


def identity(*inputs: Any) -> list[Any]:
    """The function of delays and ports."""
    return list(inputs)
