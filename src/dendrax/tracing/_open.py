"""The primitives that have a graph inside, and how they are opened: ``jit``, ``remat``, ``scan``.

Each becomes one vertex whose function is a `Region`: it knows the graph of its body. For the
dynamics and for drawing the body is written out (`dendrax.tracing._flatten`).

``cond`` is one vertex, a piecewise function, as are functions with their own derivative rule
(``custom_jvp``, ``custom_vjp``): these need no entry here. A ``while`` with a fixed trip count is
a ``scan``; any other has no reverse derivative.
"""

from __future__ import annotations

import functools
import weakref
from collections.abc import Sequence
from typing import Any

import jax
import numpy as np

from dendrax import _compat
from dendrax.graph import Graph, Jit, Port, Remat, Scan, identity
from dendrax.local import Equation, Reach
from dendrax.tracing._build import Builder, Opener, add_elementary, add_equation, build_graph
from dendrax.tracing._mark import marked_name


def _region_fields(
    builder: Builder, eqn: _compat.JaxprEqn, jaxpr: _compat.ClosedJaxpr, active: Sequence[bool]
) -> dict[str, Any]:
    equation = Equation(
        _compat.one_equation(builder.jaxpr, eqn), _compat.source_line(eqn.source_info)
    )
    positions = [list(eqn.invars).index(var) for var in _compat.unique_vars(eqn.invars)]
    return {
        "body": _body_graph(jaxpr, tuple(active)),
        "constants": tuple(jaxpr.consts),
        "equation": equation,
        "positions": tuple(positions),
    }


def _body_graph(jaxpr: _compat.ClosedJaxpr, active: tuple[bool, ...]) -> Graph:
    """The body's graph. Kept, so that a function under ``jit`` is opened once, not at each call."""
    if any(map(_compat.is_tracer, jaxpr.consts)):
        return open_graph(jaxpr, active)
    known = _body_graphs.setdefault(jaxpr.jaxpr, {})
    key = (*active, *map(id, jaxpr.consts))
    if key not in known:
        body = _compat.ClosedJaxpr(_compat.copied(jaxpr.jaxpr), jaxpr.consts)
        known[key] = open_graph(body, active)
    return known[key]


# Forgotten with the body, to which no graph holds on.
_body_graphs: weakref.WeakKeyDictionary[_compat.Jaxpr, dict[Any, Graph]] = (
    weakref.WeakKeyDictionary()
)


def open_jit(builder: Builder, eqn: _compat.JaxprEqn, ports: list[Port]) -> None:
    """Open an inner ``jit``; a sharding that it asks for becomes a vertex of its own."""
    jaxpr = _compat.called_jaxpr(eqn.params)
    ports = _constrained(builder, ports, eqn.params.get("in_shardings", ()))
    fields = _region_fields(builder, eqn, jaxpr, builder.active(ports))
    region = Jit(**fields, mark=marked_name(eqn.params.get("name")))
    builder.apply(eqn, ports, region, Reach(region.reaches(), ()))
    results = [builder.env[var] for var in eqn.outvars]
    results = _constrained(builder, results, eqn.params.get("out_shardings", ()))
    builder.env.update(zip(eqn.outvars, results, strict=True))


def _constrained(builder: Builder, ports: list[Port], shardings: Sequence[Any]) -> list[Port]:
    ports = list(ports)
    for k, sharding in enumerate(shardings):
        if isinstance(sharding, jax.sharding.Sharding):
            aval = builder.vertices[ports[k].vertex].outputs[ports[k].output]
            constrain = functools.partial(jax.lax.with_sharding_constraint, shardings=sharding)
            ports[k : k + 1] = inline(builder, jax.make_jaxpr(constrain)(aval), [ports[k]])
    return ports


def inline(builder: Builder, jaxpr: _compat.ClosedJaxpr, ports: Sequence[Port]) -> list[Port]:
    """Add the equations of a jaxpr without constants, reading its arguments from ``ports``."""
    builder.env.update(zip(jaxpr.jaxpr.invars, ports, strict=True))
    for eqn in jaxpr.eqns:
        add_equation(builder, eqn)
    return [builder.read(atom) for atom in jaxpr.jaxpr.outvars]


def open_remat(builder: Builder, eqn: _compat.JaxprEqn, ports: list[Port]) -> None:
    """Open a `jax.checkpoint` region."""
    jaxpr = _compat.closed(eqn.params["jaxpr"])
    region = Remat(**_region_fields(builder, eqn, jaxpr, builder.active(ports)))
    builder.apply(eqn, ports, region, Reach(region.reaches(), ()))


def open_scan(builder: Builder, eqn: _compat.JaxprEqn, ports: list[Port]) -> None:
    """Open a ``scan``. One without time steps hands its carries on, and its ys are empty."""
    if eqn.params["length"] == 0:
        add_elementary(builder, eqn)
        first, count = eqn.params["num_consts"], eqn.params["num_carry"]
        for var, port in zip(eqn.outvars[:count], ports[first : first + count], strict=True):
            builder.env[var] = _handed_on(builder, port)
        return
    _add_scan(
        builder,
        eqn,
        ports,
        jaxpr=eqn.params["jaxpr"],
        num_consts=eqn.params["num_consts"],
        num_carry=eqn.params["num_carry"],
        length=eqn.params["length"],
        reverse=eqn.params["reverse"],
    )


def _handed_on(builder: Builder, port: Port) -> Port:
    """An identity vertex after ``port``."""
    (active,), aval = builder.active([port]), builder.vertices[port.vertex].outputs[port.output]
    fields = {"inputs": (port,), "function": identity, "depends": (int(active),)}
    return Port(builder.add("internal", "port", [aval], carries=(active,), **fields))


def _add_scan(
    builder: Builder, eqn: _compat.JaxprEqn, ports: list[Port], *, jaxpr: Any, **fields: Any
) -> None:
    """Add a scan, once it is known which carries depend on a parameter at some time step."""
    first, num_carry = fields["num_consts"], fields["num_carry"]
    active = list(builder.active(ports))
    while True:
        region = Scan(**_region_fields(builder, eqn, jaxpr, active), **fields)
        carried = region.body.outputs[:num_carry]
        becomes = [region.body[port.vertex].carries[port.output] for port in carried]
        grown = [a or b for a, b in zip(active[first : first + num_carry], becomes, strict=True)]
        if grown == active[first : first + num_carry]:
            break
        active[first : first + num_carry] = grown
    builder.apply(eqn, ports, region, Reach(region.reaches(), ()))


def open_while(builder: Builder, eqn: _compat.JaxprEqn, ports: list[Port]) -> None:
    """A ``while`` whose trip count the program fixes is a scan. Otherwise JAX has no way back."""
    given = [atom.val if isinstance(atom, _compat.Literal) else None for atom in eqn.invars]
    length = fixed_trip_count(eqn.params, given)
    if length is None:
        add_elementary(builder, eqn)
        return
    num_cond, num_body = eqn.params["cond_nconsts"], eqn.params["body_nconsts"]
    body = _compat.as_function(eqn.params["body_jaxpr"])

    def counted(*inputs: Any) -> Any:
        consts, init = inputs[:num_body], list(inputs[num_body:])
        return jax.lax.scan(lambda carry, _: (body(*consts, *carry), None), init, length=length)[0]

    avals = [atom.aval for atom in eqn.invars[num_cond:]]
    results = inline(builder, jax.make_jaxpr(counted)(*avals), ports[num_cond:])
    builder.env.update(zip(eqn.outvars, results, strict=True))


def fixed_trip_count(params: dict[str, Any], given: Sequence[Any]) -> int | None:
    """The number of steps of ``while i < n: i += step``, where the program fixes all three.

    ``given`` are the inputs of the loop, of which only numbers of the program itself count.
    """
    cond, body = params["cond_jaxpr"].jaxpr, params["body_jaxpr"].jaxpr
    num_cond, num_body = params["cond_nconsts"], params["body_nconsts"]
    if len(cond.eqns) != 1 or cond.eqns[0].primitive.name != "lt":
        return None
    known = dict(zip(cond.invars[:num_cond], given[:num_cond], strict=True))
    carried = {var: k for k, var in enumerate(cond.invars[num_cond:])}
    initial = given[num_cond + num_body :]
    counter, bound = cond.eqns[0].invars
    if isinstance(counter, _compat.Literal) or counter not in carried:
        return None
    if isinstance(bound, _compat.Literal):
        last = bound.val
    elif bound in carried:  # fori_loop carries its bound along
        k = carried[bound]
        last = initial[k] if body.outvars[k] is body.invars[num_body + k] else None
    else:
        last = known[bound]
    start, step = initial[carried[counter]], _increment(body, num_body, carried[counter])
    numbers: Any = (start, last, step)
    if not all(isinstance(number, (int, np.integer)) for number in numbers):
        return None
    first, last, stride = map(int, numbers)
    return max(0, -((first - last) // stride)) if stride > 0 else None


def _increment(body: _compat.Jaxpr, num_body: int, carry: int) -> Any:
    """The number that the body adds to a carry, if that is all it does to it."""
    counter, result = body.invars[num_body + carry], body.outvars[carry]
    for eqn in body.eqns:
        if eqn.primitive.name == "add" and eqn.outvars[0] is result:
            others = [atom for atom in eqn.invars if atom is not counter]
            if len(others) == 1 and isinstance(others[0], _compat.Literal):
                return others[0].val
    return None


OPENERS: dict[str, Opener] = {
    **dict.fromkeys(_compat.JIT_PRIMITIVES, open_jit),
    **dict.fromkeys(_compat.REMAT_PRIMITIVES, open_remat),
    "scan": open_scan,
    "while": open_while,
}


def open_graph(
    jaxpr: _compat.ClosedJaxpr,
    active: Sequence[bool],
    names: Sequence[str] = (),
    roots: Sequence[bool] = (),
) -> Graph:
    """The graph of a jaxpr, with the primitives that have a graph inside opened."""
    return build_graph(jaxpr, active, names, roots, OPENERS)
