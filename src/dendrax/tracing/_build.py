"""Function and arguments -> jaxpr -> `Graph`: the one loop over equations.

By default an equation becomes a vertex whose local pullback JAX derives. The exceptions are the
``openers``: primitives that have a graph inside (`dendrax.tracing._open` lists them).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from dendrax import _compat
from dendrax.graph import Graph, Port, Vertex
from dendrax.local import Constant, Equation, Reach, reach
from dendrax.support import complain
from dendrax.tracing._mark import as_named, marked_name


class Builder:
    """A graph under construction: the vertices so far, and where each variable's value is."""

    def __init__(self, jaxpr: _compat.Jaxpr, openers: Mapping[str, Opener]):
        self.jaxpr, self.openers = jaxpr, openers
        self.vertices: list[Vertex] = []
        self.env: dict[_compat.Var, Port] = {}

    def add(self, kind: Any, name: str, outputs: Sequence[Any], **fields: Any) -> int:
        index = len(self.vertices)
        self.vertices.append(Vertex(index, kind, name, tuple(outputs), **fields))
        return index

    def leaf(self, var: _compat.Var, name: str, active: bool) -> int:
        kind = "parameter" if active else "data"
        index = self.add(kind, name, [var.aval], depends=(0,), carries=(active,))
        self.env[var] = Port(index)
        return index

    def read(self, atom: _compat.Atom) -> Port:
        if isinstance(atom, _compat.Var):
            return self.env[atom]
        return Port(
            self.add(
                "internal",
                "literal",
                [atom.aval],
                function=Constant(atom.val),
                depends=(0,),
                carries=(False,),
            )
        )

    def write(self, eqn: _compat.JaxprEqn, vertex: int) -> None:
        self.env.update((var, Port(vertex, o)) for o, var in enumerate(eqn.outvars))

    def active(self, ports: Sequence[Port]) -> tuple[bool, ...]:
        return tuple(self.vertices[port.vertex].carries[port.output] for port in ports)

    def apply(
        self, eqn: _compat.JaxprEqn, ports: Sequence[Port], function: Any, reach: Reach
    ) -> None:
        """Add the vertex of an equation and write its results."""
        vertex = self.add(
            "internal",
            equation_name(eqn),
            [var.aval for var in eqn.outvars],
            inputs=tuple(ports),
            function=function,
            depends=reach.depends,
            carries=tuple(mask != 0 for mask in reach.depends),
            alias=reach.alias,
            source=_compat.source_line(eqn.source_info),
        )
        self.write(eqn, vertex)


# opener(builder, equation, ports of its inputs) writes the results of an equation.
Opener = Callable[[Builder, _compat.JaxprEqn, list[Port]], None]


def build_graph(
    jaxpr: _compat.ClosedJaxpr,
    active: Sequence[bool],
    names: Sequence[str],
    roots: Sequence[bool],
    openers: Mapping[str, Opener],
) -> Graph:
    """The graph of a jaxpr. ``active[i]`` says whether argument ``i`` is a parameter.

    The jaxpr's constants come before its arguments among the leaves; they are data.
    """
    builder = Builder(jaxpr.jaxpr, openers)
    variables = [*jaxpr.jaxpr.constvars, *jaxpr.jaxpr.invars]
    flags = [False] * len(jaxpr.jaxpr.constvars) + list(active)
    titles = names or [f"input_{i}" for i in range(len(variables))]
    leaves = [builder.leaf(*leaf) for leaf in zip(variables, titles, flags, strict=True)]
    for eqn in jaxpr.eqns:
        add_equation(builder, eqn)
    outputs = tuple(builder.read(atom) for atom in jaxpr.jaxpr.outvars)
    flags = tuple(roots) or (True,) * len(outputs)
    return Graph(tuple(builder.vertices), tuple(leaves), outputs, tuple(flags))


def add_equation(builder: Builder, eqn: _compat.JaxprEqn) -> None:
    """Add one equation: silent if no parameter reaches it, opened if it has a graph inside."""
    opener = builder.openers.get(eqn.primitive.name)
    active = builder.active([builder.env[var] for var in _compat.unique_vars(eqn.invars)])
    if opener is None or not any(active):
        add_elementary(builder, eqn)
    else:
        opener(builder, eqn, [builder.read(atom) for atom in eqn.invars])


def add_elementary(builder: Builder, eqn: _compat.JaxprEqn) -> None:
    """Add an equation as one vertex, whatever it has inside."""
    alone = _compat.one_equation(builder.jaxpr, eqn)
    equation = as_named(Equation(alone, _compat.source_line(eqn.source_info)))
    ports = [builder.env[var] for var in equation.jaxpr.jaxpr.invars]
    active = builder.active(ports)
    silent = not any(active) or _compat.is_debugging(eqn)
    if not silent and _compat.has_references(
        eqn.primitive, [atom.aval for atom in (*eqn.invars, *eqn.outvars)]
    ):
        raise complain(
            NotImplementedError,
            f"'{eqn.primitive.name}' works on a mutable array reference (jax.new_ref), and a graph "
            "has no place for values that change.",
            source=equation.source,
            remedy="Write the update as x.at[...].set(...) on an ordinary array.",
        )
    nowhere = Reach((0,) * len(eqn.outvars), ())
    builder.apply(eqn, ports, equation, nowhere if silent else reach(equation, active))


def equation_name(eqn: _compat.JaxprEqn) -> str:
    """What a reader would call the equation: the user's function if it names one."""
    name = eqn.params.get("name")
    if not isinstance(name, str) and "call_jaxpr" in eqn.params:
        info = getattr(_compat.closed(eqn.params["call_jaxpr"]).jaxpr, "debug_info", None)
        name = getattr(info, "func_name", None)
    name = marked_name(name) or name
    return name if isinstance(name, str) and name.isidentifier() else eqn.primitive.name
