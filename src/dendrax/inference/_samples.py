"""Which axis of each value node counts the samples.

It is found, not guessed from sizes: the function is traced once more, for data that are longer by
one along some axis, and what changes in a value node is the axis of its samples. Nothing is
computed. What does not change is shared by all samples.

Samples come first by convention: an axis that is the first of some data is taken before all others.
If none of these will do, and several others would, it has to be said which is meant.
"""

from __future__ import annotations

import itertools
import math
import warnings
import weakref
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from dendrax.graph import Graph, Port, Vertex, level_graph
from dendrax.inference._reduction import sums_samples
from dendrax.inference._view import View, view_of
from dendrax.support import is_of_dendrax
from dendrax.tracing import Resizable
from dendrax.vertices import with_vertices

Axes = Mapping[int, int]  # of the data: along which axis each is to be longer
Candidate = tuple[int, Axes]  # a number of samples, and what may count them
_KNOWN: weakref.WeakKeyDictionary[Any, dict[Any, Samples]] = weakref.WeakKeyDictionary()
LAST = 2  # the rank of axes of which none is a first one
MOST_WAYS = 64  # in which axes of one size are tried together
MOST_KNOWN = 64  # of one function


@dataclass(frozen=True)
class Samples:
    """How many samples there are, and the ``axes`` that count them, by value node in their order.

    - ``size``: ``None`` if nothing counts samples: there is one.
    - ``is_sum``: whether the loss certainly is a sum over them.
    - ``factors``: by how much an axis of the data may multiply the size, where someone counts
      tokens, say, in place of sequences.
    - ``problem``: why it cannot be told, if it cannot.
    """

    size: int | None = None
    axes: tuple[int | None, ...] = ()
    is_sum: bool = False
    factors: frozenset[int] = frozenset()
    problem: str = ""

    def of(self, view: View) -> dict[Port, int | None]:
        """The axes by value node."""
        axes = self.axes or (None,) * len(view.nodes)
        return dict(zip(view.nodes, axes, strict=True))


def samples_of(rule: Any, view: View) -> Samples:
    """What counts the samples in a network; worked out once for a function and its types."""
    call = view.shown.call
    if call is None or call.fun is None or not view.nodes:
        return Samples()
    data = Resizable(call)
    shapes = tuple(view.aval(port).shape for port in view.nodes)
    chosen = view.shown.chosen or rule.vertices
    known, key = _known(call.fun), (data.types, rule.levelled, chosen, shapes)
    try:
        if key in known:
            return known[key]
    except TypeError:  # settings inside a tree that have no hash
        return _Search(rule, view, data).found()
    if len(known) >= MOST_KNOWN:
        known.clear()
    known[key] = _Search(rule, view, data).found()
    return known[key]


def _known(fun: Any) -> dict[Any, Samples]:
    """What is known of a function; of one that dendrax makes at each call, of the user's in it."""
    while is_of_dendrax(fun) and hasattr(fun, "__wrapped__"):
        fun = fun.__wrapped__
    try:
        return {} if hasattr(fun, "__func__") else _KNOWN.setdefault(fun, {})
    except TypeError:  # without a hash, or a weak reference
        return {}


class _Search:
    def __init__(self, rule: Any, view: View, data: Resizable):
        self.rule, self.view, self.data = rule, view, data
        self._choice: Any = view.shown.chosen or rule.vertices
        self.own = [p for p in view.nodes if not is_shared(view, view.vertex(p))]

    def found(self) -> Samples:
        ranks = sorted(_candidates(self.data.shapes), key=lambda c: _rank(c[1]))
        for rank, candidates in itertools.groupby(ranks, key=lambda c: _rank(c[1])):
            found = self._qualified(candidates, is_first=rank < LAST)
            if len(found) > 1:
                return Samples(problem=self._several(found))
            if found:
                return found[0]
        return Samples(problem=self._suspicion())

    def _qualified(
        self, candidates: Iterable[tuple[int, Axes]], *, is_first: bool
    ) -> list[Samples]:
        """Those that count samples, each something else. Of first axes one that counts those of all
        value nodes is the one."""
        found: dict[tuple[int | None, ...], Samples] = {}
        known: list[Axes] = []
        for size, axes in candidates:
            is_part = any(axes.items() <= larger.items() for larger in known)
            samples = None if is_part or not self._may_be(size) else self._tried(size, axes)
            if samples is None:
                continue
            counted = {p for p, axis in samples.of(self.view).items() if axis is not None}
            if is_first and counted >= {*self.own}:
                return [samples]
            known.append(axes)
            found.setdefault(samples.axes, samples)
        return list(found.values())

    def _may_be(self, size: int) -> bool:
        """Whether some value node has an axis that so many samples could have made."""
        sizes = [n for port in self.own for n in self._shape(port)]
        return any(n % size == 0 if size else n == 0 for n in sizes)

    def _shape(self, port: Port) -> tuple[int, ...]:
        """The shape of a value node, without the axes of loops."""
        return self.view.aval(port).shape[len(self.view.loops(port)) :]

    def _tried(self, size: int, axes: Axes) -> Samples | None:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            found = self.data.traced(axes, self._choice)
            again = None if found is None else self._view_again(found[0])
        if found is None or again is None:
            return None
        resized = {again.shown.leaves[i] for i in found[1]}
        changed = _changed_axes(self.view, again, resized, size)
        if changed is None:
            return None
        others = {n for k in axes for n in self.data.shapes[k]}
        is_sum = size > 1 and sums_samples(self.view.graph, again.graph, self.view.nodes, size)
        return Samples(size, changed, is_sum=is_sum, factors=frozenset(others))

    def _view_again(self, traced: Graph) -> View | None:
        """The value nodes of the function as it was traced again; they are the same ones."""
        for unrolled, expanded in ((False, False), (True, False), (True, True)):
            if self.rule.levelled and not expanded:
                continue
            try:
                shown = self._chosen(traced, unrolled=unrolled, expanded=expanded)
            except Exception:  # a choice that this graph does not allow
                continue
            again = view_of(shown, clamped=bool(self.view.roots))
            if _are_alike(self.view, again):
                return again
        return None

    def _chosen(self, traced: Graph, *, unrolled: bool, expanded: bool) -> Graph:
        chosen = self._choice
        shown = replace(with_vertices(traced, chosen, unrolled=unrolled), chosen=chosen)
        return level_graph(shown).expand() if expanded else shown

    # ---- what to ask -----------------------------------------------------------------------------

    def _several(self, found: Sequence[Samples]) -> str:
        sizes = sorted({samples.size or 0 for samples in found})
        return f"several axes of the data could be it, of the sizes {', '.join(map(str, sizes))}"

    def _suspicion(self) -> str:
        """Why there may well be samples though no axis counts them; empty if there is one."""
        firsts = {self._shape(port)[:1] for port in self.own}
        if len(firsts) != 1 or firsts <= {(), (0,), (1,)}:
            return ""
        ((size,),) = firsts
        stacked = any(map(self.view.loops, self.own))
        if any(size in (c.shape if stacked else c.shape[:1]) for c in self.data.closed_over):
            return (
                f"all value nodes begin with an axis of {size}, as arrays do that the function has "
                "from elsewhere than its arguments, and these cannot be looked into (pass them as "
                "arguments)"
            )
        weights = {n for leaf in self.view.graph.parameters for n in leaf.shape}
        given = {n for shape in self.data.shapes.values() for n in shape}
        if size in given and size not in weights:
            return (
                f"all value nodes begin with an axis of {size}, as the data do, but with another "
                "size in its place the function does not work, or makes other value nodes"
            )
        return ""


def _rank(axes: Axes) -> int:
    """First axes go before others."""
    return 0 if not any(axes.values()) else LAST if all(axes.values()) else 1


def _candidates(shapes: Mapping[int, tuple[int, ...]]) -> Iterator[Candidate]:
    """Sizes, and the axes of the data that may count so many samples.

    Not all data of this size need be samples: there may be as many classes.
    """
    depth = max(map(len, shapes.values()), default=0)
    seen: set[Any] = set()
    for place in range(depth):
        for size in dict.fromkeys(shape[place] for shape in shapes.values() if len(shape) > place):
            here = {k: place for k, s in shapes.items() if len(s) > place and s[place] == size}
            away = {k: s.index(size) for k, s in shapes.items() if size in s and k not in here}
            without = [{k: a for k, a in here.items() if k != out} for out in here]
            alone = [{k: a} for k, a in here.items()]
            for axes in (here, {**here, **away}, *without, *alone):
                key = frozenset(axes.items())
                if axes and key not in seen:
                    seen.add(key)
                    yield size, axes
    for size, axes in _mixtures(shapes):
        key = frozenset(axes.items())
        if key not in seen:
            seen.add(key)
            yield size, axes


def _mixtures(shapes: Mapping[int, tuple[int, ...]]) -> Iterator[Candidate]:
    """All other ways in which data may have so many samples: in some along one axis, in others
    along another, where several of their axes are of one size."""
    for size in dict.fromkeys(n for shape in shapes.values() for n in shape):
        places = {k: [a for a, n in enumerate(s) if n == size] for k, s in shapes.items()}
        ways = [[(k, a) for a in (*found, None)] for k, found in places.items() if found]
        if math.prod(map(len, ways)) <= MOST_WAYS:
            for chosen in itertools.product(*ways):
                axes = {k: a for k, a in chosen if a is not None}
                if axes:
                    yield size, axes


def _are_alike(view: View, again: View) -> bool:
    """Whether two views have the same value nodes, but for their sizes."""
    if len(view.nodes) != len(again.nodes):
        return False
    return all(
        view.vertex(one).name == again.vertex(other).name
        and view.aval(one).dtype == again.aval(other).dtype
        and view.aval(one).ndim == again.aval(other).ndim
        and view.loops(one) == again.loops(other)
        for one, other in zip(view.nodes, again.nodes, strict=True)
    )


def _changed_axes(
    view: View, again: View, resized: set[int], size: int
) -> tuple[int | None, ...] | None:
    """The axis of each value node that grew with the data, by a sample; ``None`` if that is not
    one and the same thing for all that is made of them."""
    reached = _made_of(again.shown, resized)
    found: list[int | None] = []
    for one, other in zip(view.nodes, again.nodes, strict=True):
        pairs = list(enumerate(zip(view.aval(one).shape, again.aval(other).shape, strict=True)))
        changed = [k for k, (old, new) in pairs if old != new]
        if len(changed) > 1 or (not changed and again.nodes[other].vertex in reached):
            return None
        for k in changed:
            old, new = view.aval(one).shape[k], again.aval(other).shape[k]
            if k < len(view.loops(one)) or new * size != old * (size + 1):
                return None
        found.append(changed[0] if changed else None)
    return tuple(found) if any(axis is not None for axis in found) else None


def _made_of(graph: Graph, leaves: set[int]) -> set[int]:
    """The vertices that are made of some leaves."""
    reached = set(leaves)
    for v in graph.vertices:
        if any(port.vertex in reached for port in v.inputs):
            reached.add(v.index)
    return reached


def is_shared(view: View, vertex: Vertex) -> bool:
    """Whether all samples share a value node: it is made of parameters alone."""
    graph, todo, seen = view.shown, [vertex], set()
    while todo:
        v = todo.pop()
        if v.kind != "parameter" and not v.inputs and v.shape:
            return False
        fresh: Sequence[Vertex] = [s for s in graph.inputs(v) if s.index not in seen]
        seen.update(source.index for source in fresh)
        todo += fresh
    return True
