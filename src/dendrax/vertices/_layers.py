"""Where the layers of a graph end, as a paper on predictive coding would draw its value nodes.

A *weight operation* (a product with a weight, a convolution, a table look-up) begins a layer. The
*depth* of a value is the number of layers on the longest way to it. A layer hands on what a deeper
one reads, and there its value node is: before the activation, `μ_k = W f(x_{k-1}) + b`; at the sum
of a residual block, `μ_k = x_{k-1} + W f(x_{k-1})`; at both states of an LSTM, for its gates end in
them. So a layer reads its neighbours, and no value node is made of all that came before.

What joins a layer: biases, scales and normalisations, before it or after it; pooling; a branch that
only a sum or a product reads (a shortcut's convolution, an input's part of a recurrent layer, a
gate); whatever else has no weight of its own. Query, key and value of an attention are inside of
the vertex that mixes them. What follows the last layer (the loss) belongs to the output.

A flat graph of operations enters; the ports at which its layers end leave.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Iterator, Sequence

from dendrax.graph import Graph, Port, Vertex, is_marked
from dendrax.tracing import is_stack
from dendrax.vertices._origins import (
    CONTRACTIONS,
    ELEMENTWISE,
    PRODUCTS,
    STRUCTURAL,
    SUMS,
    Origin,
    active_ports,
    operation,
    origins,
    scalar_tail,
    uses_weight,
)

# These put arrays side by side: who reads the result reads each of them.
GATHERING = ("concatenate", "stack", "pad", "dynamic_update_slice")
SLICES = ("slice", "dynamic_slice", "split", "unstack")
JOINING = (*ELEMENTWISE, *STRUCTURAL, *GATHERING, "select_n")
LINEAR = (*SUMS, *PRODUCTS, *STRUCTURAL, "select_n")


class Layers:
    """Depths, and what every value of a depth has to pass: a tree of dominators for each depth."""

    def __init__(self, graph: Graph):
        self.graph = graph
        self.origin = origins(graph)
        self.users: dict[Port, list[Vertex]] = {}
        for edge in graph.edges:
            self.users.setdefault(edge.source, []).append(graph[edge.user])
        self.depth: dict[Port, int] = {}
        self.unbroken: dict[Port, bool] = {}  # linear in what its layer begins with
        self.scaled: dict[Port, int] = {}  # a bit for each parameter that has joined on the way
        self.before: dict[Port, Port | None] = {}  # the nearest port that it has to pass
        self.height: dict[Port, int] = {}
        self.begins: set[int] = set()
        self.roots = {p for p, root in zip(graph.outputs, graph.roots, strict=True) if root}
        for v in graph.vertices:
            self._visit(v)

    def ends(self) -> set[Port]:
        """The ports at which a layer ends, without the output's own."""
        found = {port for handed in self._handed_on() for port in self._nodes_of(handed)}
        found &= set(active_ports(self.graph))
        scalars = scalar_tail(self.graph)
        ends = {port for port in found if port.vertex not in scalars}
        if not all(v.shape == () for v in self.graph.active):  # a number is no layer of a network
            ends = {port for port in ends if self.graph[port.vertex].outputs[port.output].shape}
        # What is made of another end alone, as a normalised stream is, belongs to its readers.
        return {port for port in ends if ends.isdisjoint(self._chain(port)[:-1])}

    # ---- depths ----------------------------------------------------------------------------------

    def _visit(self, v: Vertex) -> None:
        ports = [Port(v.index, o) for o in range(len(v.outputs))]
        if v.function is None:
            self.depth.update(dict.fromkeys(ports, 0))
            return
        depth = max((self.depth[port] for port in v.inputs), default=0)
        own = self._own(v, depth)
        before = self._common(v, own, depth)
        unbroken = self._stays_unbroken(v, own, before, depth)
        scaled = functools.reduce(int.__or__, (self.scaled.get(port, 0) for port in own), 0)
        scaled |= 1 << v.index if self._has(v, "parameter", "product") else 0
        if self._begins_a_layer(v, unbroken):
            self.begins.add(v.index)
            depth, unbroken, before, scaled = depth + 1, True, None, 0
        for port in ports:
            self.depth[port], self.unbroken[port], self.scaled[port] = depth, unbroken, scaled
            self.before[port] = before
            self.height[port] = 0 if before is None else self.height[before] + 1

    def _has(self, v: Vertex, *kinds: Origin) -> bool:
        return any(self.origin[port] in kinds for port in v.inputs)

    def _is_signal(self, port: Port) -> bool:
        """Whether data have gone into a value, or a layer has made it of parameters."""
        return self.origin[port] in ("signal", "product") and self.graph[port.vertex].kind != "data"

    def _own(self, v: Vertex, depth: int) -> list[Port]:
        """The inputs of the same depth that are made by some operation."""
        return [p for p in v.inputs if self.depth[p] == depth and p in self.before]

    def _begins_a_layer(self, v: Vertex, unbroken: bool) -> bool:
        name = operation(v)
        if is_marked(v):
            return self._has(v, "parameter", "product")
        given: list[Origin] = [self.origin[port] for port in v.inputs]
        if name in CONTRACTIONS:
            return uses_weight(given)
        if "signal" not in given or not self._has(v, "parameter"):
            return False
        if name not in JOINING:
            return True
        # A scale that neither follows a layer nor precedes one is a layer of its own.
        scales = name in ELEMENTWISE and name not in SUMS and not unbroken
        return scales and not self._meets(v) and not self._is_applied(v)

    def _stays_unbroken(
        self, v: Vertex, own: Sequence[Port], before: Port | None, depth: int
    ) -> bool:
        if operation(v) not in LINEAR:
            return False
        inner = [port for port in v.inputs if self._is_signal(port) and port in self.before]
        if any(self.depth[port] < depth for port in inner):
            return True
        whole = all(self.unbroken[port] for port in own)
        return bool(own) and (
            whole or (any(map(self.unbroken.get, own)) and self._norms(v, before))
        )

    def _norms(self, v: Vertex, base: Port | None) -> bool:
        """Whether what comes together here was normalised, by means of what it was made of. Else it
        is an activation, such as ``z * sigmoid(z)``."""
        todo, seen = list(v.inputs), {base}
        while todo:
            port = todo.pop()
            if port in seen or port not in self.before:
                continue
            seen.add(port)
            between = self.graph[port.vertex]
            if operation(between).startswith("reduce_"):
                return True
            todo += between.inputs
        return False

    def _meets(self, v: Vertex) -> bool:
        """Whether a value comes to a weight operation as it is, but for biases and scales."""
        todo, seen = [v], {v.index}
        while todo:
            for user in self._users(todo.pop()):
                given: list[Origin] = [self.origin[port] for port in user.inputs]
                if operation(user) in CONTRACTIONS and uses_weight(given):
                    return True
                if operation(user) in (*LINEAR, "reduce_sum") and user.index not in seen:
                    seen.add(user.index)
                    todo.append(user)
        return False

    def _is_applied(self, v: Vertex) -> bool:
        """Whether a scaled factor is multiplied with what it was made of, as in a normalisation
        written with its factor first."""
        made_of = set().union(*map(self._bases, v.inputs))
        port, users = Port(v.index), list(self._users(v))
        while len(users) == 1 and operation(users[0]) in (*PRODUCTS, *STRUCTURAL):
            if any(made_of & self._bases(p) for p in users[0].inputs if p != port):
                return True
            port, users = Port(users[0].index), list(self._users(users[0]))
        return False

    def _bases(self, port: Port) -> set[Port]:
        """What a value is made of, where its depth began; also if it has not been visited yet."""
        todo, seen, found = [port], {port}, set()
        while todo:
            at = todo.pop()
            if at in self.before:
                found.add(self._chain(at)[0])
            elif at not in self.depth:
                fresh = [p for p in self.graph[at.vertex].inputs if p not in seen]
                seen.update(fresh)
                todo += fresh
        return found

    def _users(self, v: Vertex) -> Iterator[Vertex]:
        for o in range(len(v.outputs)):
            yield from self.users.get(Port(v.index, o), ())

    # ---- what a value has to pass ----------------------------------------------------------------

    def _common(self, v: Vertex, own: Sequence[Port], depth: int) -> Port | None:
        """The nearest port of this depth through which all of a value has come."""
        others = [p for p in v.inputs if self._is_signal(p) and p not in own]
        if others or not own:
            return None
        found: Port | None = own[0]
        for port in own[1:]:
            found = self._meeting(found, port)
        return found

    def _meeting(self, one: Port | None, other: Port | None) -> Port | None:
        while one != other:
            if one is None or other is None:
                return None
            if self.height[one] >= self.height[other]:
                one = self.before[one]
            else:
                other = self.before[other]
        return one

    def _chain(self, port: Port) -> list[Port]:
        """What a value has passed since its layer began, and the value itself."""
        chain, at = [port], self.before[port]
        while at is not None:
            chain.append(at)
            at = self.before[at]
        return chain[::-1]

    # ---- what layers hand on ---------------------------------------------------------------------

    def _handed_on(self) -> Iterator[Port]:
        """What deeper layers read."""
        for port, users in self.users.items():
            if port not in self.before or not self._is_signal(port):
                continue
            if self.origin[port] == "product":  # as a weight it is no value of a layer
                users = [user for user in users if not self._has(user, "signal")]
            deeper = any(self._depth_of(user) > self.depth[port] for user in users)
            if is_marked(self.graph[port.vertex]) or (deeper and not self._is_private(port)):
                yield port

    def _depth_of(self, v: Vertex) -> int:
        return self.depth[Port(v.index)]

    def _is_private(self, port: Port) -> bool:
        """Whether a value is read as a part of one sum or product alone, or each slice of it is."""
        todo, seen = [port], {port}
        while operation(self.graph[port.vertex]) in STRUCTURAL:  # as a carry that is cast
            own = [p for p in self.graph[port.vertex].inputs if p in self.before]
            if len(own) != 1 or len(self.users[own[0]]) > 1:
                return not own
            (port,) = own
        while todo:
            ways = self._ways_on(todo.pop())
            if ways is None:
                return False
            fresh = [p for p in ways if p not in seen]
            seen.update(fresh)
            todo += fresh
        return True

    def _ways_on(self, port: Port) -> list[Port] | None:
        """Where a value goes on to that only one part of the graph reads; nowhere, where it becomes
        a part of something. ``None``: others read it, or a layer does."""
        users = self.users.get(port, [])
        if port in self.roots or not users:
            return None
        if len(users) == 1:
            (user,) = users
            if user.index in self.begins or is_marked(user):
                return None
            merges = sum(self._is_signal(p) for p in user.inputs) > 1
            if merges and operation(user) not in GATHERING:
                return []
        elif not all(operation(user) in SLICES for user in users):
            return None
        results = (Port(v.index, o) for v in users for o in range(len(v.outputs)))
        return [result for result in results if result in self.users] or None

    def _nodes_of(self, port: Port) -> Iterator[Port]:
        """Where the value nodes behind a value are."""
        todo, seen = [port], {port}
        while todo:
            chain = self._chain(todo.pop())
            base = chain[0]
            v = self.graph[base.vertex]
            if is_marked(v):
                yield base
            elif v.index in self.begins:
                yield self._with_scales(chain)
            elif operation(v) in GATHERING or is_stack(v):
                parts = [p for p in v.inputs if p in self.before and self._is_signal(p)]
                todo += [p for p in parts if p not in seen]
                seen.update(parts)
            elif self.depth[base] and self._is_made_here(v):
                yield self._with_bias(chain)

    def _is_made_here(self, v: Vertex) -> bool:
        """Whether a value is more than a reshaped part of a shallower one."""
        return v.index in self.begins or operation(v) not in (*STRUCTURAL, *SLICES)

    def _with_scales(self, chain: Sequence[Port]) -> Port:
        """The end of a layer that a weight operation begins: behind biases and normalisations."""
        end = chain[0]
        for before, port in itertools.pairwise(chain):
            v = self.graph[port.vertex]
            comes_together = len(self._own(v, self.depth[port])) > 1
            if operation(v) not in LINEAR or (comes_together and not self._norms(v, before)):
                break
            if self.scaled[port] != self.scaled[end]:
                end = port
        return end

    def _with_bias(self, chain: Sequence[Port]) -> Port:
        """The end of a layer at a sum of several: behind a bias that follows directly."""
        end = chain[0]
        for port in chain[1:]:
            v = self.graph[port.vertex]
            if operation(v) not in SUMS or not self._has(v, "parameter") or end not in v.inputs:
                break
            end = port
        return end
