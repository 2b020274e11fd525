"""What a run recorded: a quantity over time, at one time, and what to do if it is not there."""

from __future__ import annotations

import operator
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Generic, TypeVar, overload

import numpy as np

from dendrax import _compat
from dendrax.graph import Graph, Port, Quotient, Vertex
from dendrax.support import complain, counted, html_table, speaking_as

MOST_LINES = 24
MOST_NAMES = 8  # in an error
# The word for ``record=``, where it is not the quantity's own name.
ASKED_BY = {"energies": "energy", "waiting": "statistics"}
# What is shown of a quantity at one vertex; of all others, the root mean square.
COLUMNS = {"energies": ("energy",), "statistics": ("error", "value", "prediction")}

_T = TypeVar("_T")


class Moment(Mapping[Any, Any]):
    """A quantity at one time, by vertex (or its name, or its index). Print it for a table.

    Of a value node inside a `scan`, stacked over its steps, ``"scan[3]/cell"`` names one step.
    """

    def __init__(
        self, graph: Graph, values: dict[Port, Any], t: int | slice, quantity: str = "quantity"
    ):
        self._graph, self._values, self._t, self._quantity = graph, values, t, quantity

    def __getitem__(self, key: Vertex | str | int) -> Any:
        vertex, steps = self._asked(key.name if isinstance(key, Vertex) else key)
        if steps and self._quantity in COLUMNS:
            raise KeyError(
                f"the {self._quantity} of {vertex.name!r} are those of all its steps together: for "
                f"{key!r} record 'epsilon', 'x' or 'mu'"
            )
        values = tuple(self._values[port][self._t] for port in self._ports(vertex))
        if steps:
            at = (slice(None), *steps) if isinstance(self._t, slice) else steps
            values = tuple(value[at] for value in values)
        if not values:
            names = [v.name for v in self]
            listed = ", ".join(names[:MOST_NAMES]) + ", ..." * (len(names) > MOST_NAMES)
            raise KeyError(
                f"{vertex.name!r} has no error, so nothing was recorded for it. Recorded: {listed}"
            )
        return values[0] if len(values) == 1 else values

    def _asked(self, key: str | int) -> tuple[Vertex, tuple[int | slice, ...]]:
        """The vertex, and of one that is stacked over time the steps, if the key names any."""
        if isinstance(key, str) and isinstance(self._graph, Quotient):
            found = self._graph.step_of(key)
            if found is not None:
                return found
        try:
            return self._graph[key], ()
        except IndexError:
            raise KeyError(f"the graph has no vertex {key}") from None

    def __iter__(self) -> Iterator[Vertex]:
        return iter(dict.fromkeys(self._graph[port.vertex] for port in self._values))

    def __len__(self) -> int:
        return len({port.vertex for port in self._values})

    def __repr__(self) -> str:
        headings, rows = self._table()
        half = MOST_LINES // 2
        if len(rows) > MOST_LINES:
            left_out = [f"... {len(rows) - 2 * half} more ..."] + [""] * (len(headings) - 1)
            rows = [*rows[:half], left_out, *rows[-half:]]
        columns = zip(headings, *rows, strict=True)
        widths = [max(map(len, column)) for column in columns]
        lines = [
            "  ".join(f"{cell:<{width}}" for cell, width in zip(row, widths, strict=True)).rstrip()
            for row in (headings, *rows)
        ]
        return "\n".join([self._title(), *(f"  {line}" for line in lines)])

    def _repr_html_(self) -> str:
        return html_table(self._title(), *self._table())

    def _ports(self, vertex: Vertex) -> list[Port]:
        ports = (Port(vertex.index, o) for o in range(len(vertex.outputs)))
        return [port for port in ports if port in self._values]

    def _title(self) -> str:
        vertices = counted(len(self), "vertex", "vertices")
        if isinstance(self._t, slice):
            return f"{self._quantity} of {vertices} over time, which is the first axis"
        return f"{self._quantity} of {vertices} at time {self._t}"

    def _table(self) -> tuple[list[str], list[list[str]]]:
        columns = COLUMNS.get(self._quantity, ("root mean square",))
        columns = () if isinstance(self._t, slice) else columns
        rows = []
        for vertex in self:
            arrays = [self._values[port][self._t] for port in self._ports(vertex)]
            types = ", ".join(f"{a.dtype}[{','.join(map(str, a.shape))}]" for a in arrays)
            numbers = self._numbers(vertex, arrays) if columns else []
            rows.append([vertex.name, types, *numbers])
        return ["vertex", "type", *columns], rows

    def _numbers(self, vertex: Vertex, arrays: Sequence[Any]) -> list[str]:
        """The columns of one vertex, over all its outputs."""
        count = len(COLUMNS.get(self._quantity, ("",)))
        if any(map(_compat.is_tracer, arrays)):
            return ["not known inside jax.jit"] * count
        wide = [np.abs(np.asarray(array)).astype(np.float64) for array in arrays]
        if self._quantity == "energies":
            return [f"{sum(float(np.real(array)) for array in arrays):.4g}"]
        sizes = [max(vertex.outputs[port.output].size, 1) for port in self._ports(vertex)]
        with np.errstate(over="ignore"):  # behind the wave of Z-IL errors may grow
            rows = [np.square(array).reshape(-1, count) for array in wide]
            squares = [row.sum(axis=0) / max(len(row), 1) for row in rows]
            found = np.sqrt(np.average(squares, axis=0, weights=sizes))
        return [f"{number:.4g}" for number in found]


class Record(Sequence[Moment]):
    """A quantity over time: ``record[t][vertex]``; ``record[:][vertex]`` has time as first axis."""

    def __init__(
        self, graph: Graph, values: dict[Port, Any], num_steps: int, quantity: str = "quantity"
    ):
        self.graph, self._values, self._num_steps = graph, values, num_steps
        self._quantity = quantity

    def __getitem__(self, t: Any) -> Any:
        if not isinstance(t, slice):
            t = self._time(t)
            if not _compat.is_tracer(self._num_steps):
                if not -len(self) <= t < len(self):
                    raise IndexError(f"time {t} was not recorded; there are {len(self)} time steps")
                t %= len(self)
        return Moment(self.graph, self._values, t, self._quantity)

    def _time(self, t: Any) -> int:
        try:
            return operator.index(t)
        except TypeError:
            raise TypeError(f"a record has time first, got {t!r}: write {self._form()}") from None

    def __len__(self) -> int:
        return self._num_steps

    def of(self, quantity: str) -> Record:
        """The same record with the name of what it is a record of."""
        return Record(self.graph, self._values, self._num_steps, quantity)

    def __repr__(self) -> str:
        return f"{self._usage()}\n{self[:]!r}"

    def _repr_html_(self) -> str:
        return f"<div><p>{self._usage()}</p>{self[:]._repr_html_()}</div>"

    def _usage(self) -> str:
        return f"Record of {self._num_steps} time steps: {self._form()}"

    def _form(self) -> str:
        return f"{self._quantity}[t][vertex], or {self._quantity}[:][vertex]"


class Recorded(Generic[_T]):
    """A field of a result that holds a record; without one it says how to get it."""

    def __set_name__(self, owner: type, name: str) -> None:
        self.name = name

    @overload
    def __get__(self, result: None, owner: type) -> None: ...
    @overload
    def __get__(self, result: object, owner: type) -> _T: ...
    def __get__(self, result: object | None, owner: type) -> _T | None:
        if result is None:
            return None  # the default of the field
        found = vars(result).get(self.name)
        if found is None:
            raise _unrecorded(self.name)
        return found

    def __set__(self, result: object, value: _T | None) -> None:
        vars(result)[self.name] = value.of(self.name) if isinstance(value, Record) else value


def _unrecorded(name: str) -> Exception:
    with speaking_as("dendrax.Result"):
        found = complain(
            AttributeError,
            f"{name} was not recorded.",
            remedy=f"Write dendrax.run(..., record={ASKED_BY.get(name, name)!r}).",
        )
    assert isinstance(found, AttributeError)
    found.name = name  # else Python adds a guess: "Did you mean: 'energies'?"
    return found
