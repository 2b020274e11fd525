"""`audit`: is a rule local? Which vertices' quantities does each update read, in one time step?

The answer comes from the data flow of the step itself, traced by JAX: the state of every vertex
goes in as a variable of its own, and for each variable that comes out we follow the equations back
to those that went in.

What is local: a value node may read the quantities of its own vertex, of the vertices it uses, of
those that use it, and of what these use (a prediction error is a function of all inputs of its
vertex, and so is the message that it sends). A parameter may read the vertices that use it, and
what these use. Everything else is far away.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import starmap
from typing import Any

import jax
import jax.numpy as jnp

from dendrax import _compat
from dendrax._graphs import trace
from dendrax._settings import check_settings
from dendrax.certify._loops import mixed_steps
from dendrax.graph import (
    Cone,
    Edge,
    Graph,
    Port,
    Quotient,
    level_graph,
    moving_vertices,
    operations_of,
)
from dendrax.inference import (
    Clamp,
    Cuts,
    Dynamics,
    Hold,
    Network,
    Values,
    clamp_for,
    evaluate,
    keeps_step,
    network_of,
    relaxed_graph,
    view_of,
)
from dendrax.rules import ZIL, Rule
from dendrax.support import Vertices, html_table, public
from dendrax.vertices import unrolled
from dendrax.walk import handed_on, record, send_back

# Where a quantity is: at a vertex (by index), or in the delay line on an edge.
Place = int | Edge
Places = Mapping[int | str, set[Place]]  # of operations by index, and of value nodes by name
SHARED = -1  # at no vertex at all
MOST_NAMES = 6  # of each sort, in a line of the table
TRANSPORT = (
    "(dmu/dx, the slope of a vertex's own function, counts as read at the vertex itself: "
    "weight transport is not seen.)"
)
WAVE = (
    "One time step of the full dynamics. Where nothing is recorded their wave runs instead: each "
    "vertex once, with the same result."
)
UNROLLED = (
    "There is a vertex for each step of a loop here. What runs is one vertex for all its steps."
)
_SHARED: frozenset[Place] = frozenset({SHARED})


@dataclass(frozen=True)
class Update:
    """What one update reads in one time step, by name; ``far`` is what it should not."""

    name: str
    kind: str
    reads: tuple[str, ...]
    far: tuple[str, ...]

    @property
    def local(self) -> bool:
        return not self.far

    def listing(self) -> str:
        """What it reads by name: the neighbourhood, then what is far away."""
        near = [name for name in self.reads if name not in self.far]
        parts = [_listed(near)] if near else []
        parts += [f"far away: {_listed(self.far)}"] if self.far else []
        return "; ".join(parts)


def _listed(names: Sequence[str]) -> str:
    more = f", and {len(names) - MOST_NAMES} more" * (len(names) > MOST_NAMES)
    return ", ".join(names[:MOST_NAMES]) + more


@dataclass(frozen=True)
class Audit:
    """Which vertices each update of a rule reads. Print it for a table.

    - ``local``: whether every update reads only its neighbourhood.
    - ``offenders``: the updates that do not.
    - ``note``: in what the step that is audited differs from the program that runs, if it does.
    """

    rule: Rule
    updates: tuple[Update, ...]
    note: str = ""

    @property
    def local(self) -> bool:
        return all(update.local for update in self.updates)

    @property
    def offenders(self) -> tuple[Update, ...]:
        return tuple(update for update in self.updates if not update.local)

    def __str__(self) -> str:
        width = max([len(update.name) for update in self.updates] + [6])
        lines = [f"{'update':<{width}}  {'of a':<10}  local  reads"]
        for update in self.updates:
            answer = "yes" if update.local else "NO"
            reads = f"{update.name:<{width}}  {update.kind:<10}  {answer:<5}  {update.listing()}"
            lines.append(reads.rstrip())
        notes = [f"({self.note})"] if self.note else []
        return "\n".join([*lines, TRANSPORT, *notes, f"{self.rule}: {self.verdict}"])

    @property
    def verdict(self) -> str:
        """In a few words."""
        if self.local:
            return "local"
        count = len(self.offenders)
        who = "1 update reads" if count == 1 else f"{count} updates read"
        return f"NOT local: {who} what is far away"

    __repr__ = __str__

    def _repr_html_(self) -> str:
        rows = [
            (update.name, update.kind, "yes" if update.local else "NO", update.listing())
            for update in self.updates
        ]
        note = f" ({self.note})" if self.note else ""
        below = f"{TRANSPORT}{note} {self.rule}: {self.verdict}"
        return html_table("", ("update", "of a", "local", "reads"), rows, below=below)


@public("dendrax.audit")
def audit(
    fun: Callable[..., Any],
    *args: Any,
    rule: Rule = ZIL(),
    argnums: int | Sequence[int] = 0,
    has_aux: bool = False,
    vertices: Vertices | None = None,
) -> Audit:
    """Which vertices' quantities each update of a rule reads in one time step.

    What is traced is the start of the rule, one time step, and the learning. For `dendrax.ZIL` the
    step is that of the full dynamics, which the wavefront reproduces. `dendrax.BP` has no time: its
    step is the whole backward pass, from the values of all vertices to the gradients. When to stop
    (a rule's `tol`) is not part of the step.

    **Arguments:**

    - `fun`: a function that returns a scalar loss, or an output to be clamped to a target.
    - `args`: its arguments, models of Equinox and Flax NNX among them as they are.
    - `rule`, `argnums`, `has_aux`, `vertices`: as for `dendrax.value_and_grad`.

    **Returns:** an `Audit`, with `.local` and `.offenders`; it prints as a table.

    !!! example

        ```python
        import dendrax, jax.numpy as jnp


        def loss(w, x):
            return jnp.sum(jnp.tanh(jnp.tanh(x @ w[0]) @ w[1]) @ w[2])


        args = [jnp.ones((2, 2))] * 3, jnp.ones((3, 2))
        print(dendrax.audit(loss, *args, rule=dendrax.IL(batch="sum")))
        # -> update       of a        local  reads
        # -> w[0]         parameter   yes    layer(w[0]), w[0], x
        # -> ...
        # -> IL(...): local
        print(dendrax.audit(loss, *args, rule=dendrax.BP()))
        # -> update  of a        local  reads
        # -> w[0]    parameter   NO     dot_general, x; far away: dot_general_1, w[1], w[2]
        # -> w[1]    parameter   NO     dot_general_1, tanh; far away: w[2]
        # -> w[2]    parameter   yes    tanh_1
        # -> (dmu/dx, ...
        # -> BP(): NOT local: 2 updates read what is far away
        ```
    """
    chosen = check_settings(fun, rule, vertices) or rule.vertices
    shown = trace(fun, *args, argnums=argnums, has_aux=has_aux, vertices=chosen)
    graph = unrolled(shown)
    notes = [WAVE] if rule.is_wave and rule.keeps_time else []
    notes += [UNROLLED] if graph is not shown and not keeps_step(rule) else []
    found = _audit_rule(rule, graph, graph.call.leaves())
    if graph is not shown and rule.relaxes and not keeps_step(rule):
        mixed = mixed_steps(rule, shown, shown.call.leaves(), _some_clamp(shown))
        found = replace(found, updates=(*found.updates, *starmap(_mixing, mixed.items())))
    return replace(found, note=" ".join(notes))


def _mixing(name: str, sources: Sequence[str]) -> Update:
    """What is to say of a value node in a loop to which a rule brings other steps."""
    far = tuple(f"other steps of {source}" for source in sources)
    return Update(name, "value node", far, far)


def _some_clamp(graph: Graph) -> Clamp:
    clamp = clamp_for(graph, None)
    return clamp if clamp.holds() else Hold([_zeros(graph, port) for port in graph.outputs])


def _audit_rule(rule: Rule, graph: Graph, leaves: Sequence[Any]) -> Audit:
    clamp = _some_clamp(graph)
    if rule.keeps_time:
        return _audit_dynamics(rule, graph, leaves, clamp)
    if rule.is_wave:
        return _audit_backward(rule, graph, leaves, clamp)
    return _audit_relaxation(rule, relaxed_graph(rule, graph), leaves, clamp)


def _zeros(graph: Graph, port: Port) -> Any:
    aval = graph[port.vertex].outputs[port.output]
    return jnp.zeros(aval.shape, aval.dtype)


# ---- one step of each kind of rule ---------------------------------------------------------------


def _audit_relaxation(rule: Rule, graph: Graph, leaves: Sequence[Any], clamp: Clamp) -> Audit:
    step, args = relaxation_step(rule, graph, leaves, clamp)
    at = dict(_places_of_operations(graph))
    at.update((name, at[port.vertex]) for name, port in view_of(graph).names.items())
    owned = dict(zip(map(Port, operations_of(graph).leaves), leaves, strict=True))
    if isinstance(clamp, Hold):
        owned.update(zip(operations_of(graph).outputs, clamp.targets, strict=True))
    return _audit_step(rule, _Surroundings(graph), step, args, at, owned)


def relaxation_step(
    rule: Rule, graph: Graph, leaves: Sequence[Any], clamp: Clamp
) -> tuple[Callable[..., Any], tuple[Any, ...]]:
    """The start, one step and the learning of a rule that relaxes, as a function of the values of
    all operations and the state; and the types of these."""
    view = view_of(graph)

    def network(forward: Values) -> Network:
        given = [forward[Port(leaf)] for leaf in view.graph.leaves]
        net = network_of(rule, graph, given, clamp, view)
        return replace(net, values={port: forward[port] for port in view.nodes})

    def start(forward: Values) -> Any:
        return rule.start(network(forward))

    def step(forward: Values, state: Any) -> Any:
        net = network(forward)
        return rule.start(net), rule.step(net, state), rule.gradient(net, state)

    forward = evaluate(view.graph, leaves)
    return step, (forward, jax.eval_shape(start, forward))


def _still(graph: Graph, forward: Values, nodes: Iterable[Port]) -> list[Port]:
    """The values that are computed once: no value node reaches them."""
    moving = moving_vertices(graph, nodes)
    return [p for p in forward if p.vertex not in moving and graph[p.vertex].function is not None]


def _audit_dynamics(rule: Rule, graph: Graph, leaves: Sequence[Any], clamp: Clamp) -> Audit:
    levelled = level_graph(graph)
    schedule = rule.schedule(levelled)

    def start(forward: Any) -> Any:
        return Dynamics(graph, schedule, forward, clamp).start()

    def step(forward: Any, state: Any) -> Any:
        return Dynamics(graph, schedule, forward, clamp).step(state, jnp.asarray(0))[0]

    forward = evaluate(graph, leaves)
    state = jax.eval_shape(start, forward)
    lines = [edge for edge, delay in schedule.delays.items() if delay]
    at: Places = {v.index: {v.index} for v in graph}
    return _audit_step(rule, _Surroundings(graph, lines), step, (forward, state), at)


def _audit_backward(rule: Rule, graph: Graph, leaves: Sequence[Any], clamp: Clamp) -> Audit:
    """The way back through the values of all vertices, which are given."""
    view = view_of(graph)
    operations = view.graph
    forward = evaluate(operations, leaves)
    given = {*view.nodes, *_still(operations, forward, view.nodes)}
    active = [operations.carries(Port(leaf)) for leaf in operations.leaves]

    def step(forward: Values) -> Values:
        def function(*leaves: Any) -> list[Any]:
            env = evaluate(operations, leaves, cuts=Cuts({p: forward[p] for p in given}, handed_on))
            return [env[port] for port in operations.outputs]

        inputs = [forward[Port(leaf)] for leaf in operations.leaves]
        outputs, tape = record(function, inputs, active, rule.local)
        found = send_back(tape, [clamp.error(o, mu) for o, mu in enumerate(outputs)])
        pairs = zip(map(Port, operations.leaves), found, strict=True)
        return {port: error for port, error in pairs if error is not None}

    at = _places_of_operations(graph)
    return _audit_step(rule, _Surroundings(graph), step, (forward,), at)


def _places_of_operations(graph: Graph) -> Places:
    """For each operation the vertices to which it belongs: one, or all that share it."""
    if not isinstance(graph, Quotient):
        return {v.index: {v.index} for v in graph}
    places: dict[int | str, set[Place]] = {v.index: set() for v in graph.operations}
    for v in graph:
        if isinstance(v.function, Cone):
            for member in v.function.members:
                places[member.index].add(v.index)
    for port, shown in graph.at.items():
        places[port.vertex] = {shown.vertex}
    return places


# ---- who reads whom ------------------------------------------------------------------------------


def _audit_step(
    rule: Rule,
    surroundings: _Surroundings,
    step: Callable[..., Any],
    args: tuple[Any, ...],
    at: Places,
    owned: Mapping[Port, Any] | None = None,
) -> Audit:
    """Trace a step and see what each of its results reads.

    ``owned`` are the arrays that a rule could lay its hands on past the arguments of the step.
    """
    jaxpr, results = jax.make_jaxpr(step, return_shape=True)(*args)
    owners: dict[int, set[Place]] = {}
    for port, value in (owned or {}).items():
        owners.setdefault(id(value), set()).update(at[port.vertex])
    sources = [owners.get(id(value), set()) for value in jaxpr.consts]
    sources += [_places(path, at) for path, _ in jax.tree_util.tree_leaves_with_path(args)]
    reads: dict[Place, set[frozenset[Place]]] = {}
    bits = [1 << i if places else 0 for i, places in enumerate(sources)]
    masks = _compat.dependencies(jaxpr.jaxpr, bits, into_branches=True)
    for (path, _), mask in zip(jax.tree_util.tree_leaves_with_path(results), masks, strict=True):
        found = {frozenset(places) for i, places in enumerate(sources) if mask >> i & 1}
        for place in _places(path, at):
            reads.setdefault(place, set()).update(found)
    if reads.get(SHARED, set()) <= {_SHARED}:  # a clock, which reads nothing but itself
        reads = {place: found - {_SHARED} for place, found in reads.items() if place != SHARED}
    rows = sorted(((p, found) for p, found in reads.items() if found), key=lambda r: _order(r[0]))
    return Audit(rule, tuple(surroundings.update(place, found) for place, found in rows))


def _places(path: tuple[Any, ...], at: Places) -> set[Place]:
    """The vertex (or delay line) that an entry of the state belongs to, from its key or name."""
    for entry in path:
        key = getattr(entry, "key", None)
        if isinstance(key, Edge):
            return {key.source.vertex} if _is_learned(path) else {key}
        if isinstance(key, Port):
            return at[key.vertex]
    keys = (getattr(entry, "key", None) for entry in reversed(path))
    named = [at[key] for key in keys if isinstance(key, str) and key in at]
    return named[0] if named else {SHARED}


def _is_learned(path: tuple[Any, ...]) -> bool:
    return any(getattr(entry, "name", None) == "learned" for entry in path)


def _order(place: Place) -> tuple[int, int]:
    return (place.user, 1) if isinstance(place, Edge) else (place, 0)


class _Surroundings:
    """The graph with its delay lines as places of their own: who is next to whom."""

    def __init__(self, graph: Graph, lines: Iterable[Edge] = ()):
        self.graph = graph
        self.inputs: dict[Place, set[Place]] = {}
        self.users: dict[Place, set[Place]] = {v.index: set() for v in graph}
        lines = set(lines)
        for v in graph:
            self.inputs[v.index] = {
                Edge(port, v.index) if Edge(port, v.index) in lines else port.vertex
                for port in v.inputs
            }
        for edge in lines:
            self.inputs[edge] = {edge.source.vertex}
            self.users[edge] = set()
        for place, inputs in self.inputs.items():
            for source in inputs:
                self.users[source].add(place)
        self._read = self._reads(lines)

    def near(self, place: Place) -> set[Place]:
        """The neighbourhood of a place."""
        users = self.users[place]
        blanket = {place, *users, *self._read[place]}
        return blanket.union(*(self._read[user] for user in users))

    def _reads(self, lines: Iterable[Edge]) -> dict[Place, frozenset[Place]]:
        """What each place uses, seen through the vertices that have no error of their own."""
        loud = {v.index for v in self.graph.active} | set(self.graph.leaves)
        found: dict[Place, frozenset[Place]] = {
            edge: frozenset(self.inputs[edge]) for edge in lines
        }
        for v in self.graph:
            inputs = self.inputs[v.index]
            behind = [found[i] for i in inputs if isinstance(i, int) and i not in loud]
            found[v.index] = frozenset(inputs).union(*behind)
        return found

    def update(self, place: Place, reads: set[frozenset[Place]]) -> Update:
        near = self.near(place) if place != SHARED else set()
        far = {self._name(places) for places in reads if not places & near and places}
        if place != SHARED:
            kind = "delay" if isinstance(place, Edge) else self._kind(place)
        else:
            kind = "shared"
        return Update(
            self._name(frozenset({place})),
            kind,
            tuple(sorted({self._name(places) for places in reads if places})),
            tuple(sorted(far)),
        )

    def _kind(self, place: int) -> str:
        kind = self.graph[place].kind
        return "value node" if kind in ("internal", "delay") else kind

    def _name(self, places: frozenset[Place]) -> str:
        (place, *_) = sorted(places, key=_order)
        if isinstance(place, Edge):
            names = self.graph[place.source.vertex].name, self.graph[place.user].name
            return "->".join(names)
        return "(shared state)" if place == SHARED else self.graph[place].name
