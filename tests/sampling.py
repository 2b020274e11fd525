"""Which rows of an exhaustive table `make test` takes; `make test-all` takes them all."""

import itertools
from collections.abc import Iterable
from typing import Any

import pytest
from _pytest.mark import ParameterSet


def rotating(*columns: Iterable[Any]) -> list[ParameterSet]:
    """All combinations of the columns' entries, most of them marked slow.

    What is left to `make test` is the same at every run: a diagonal of the table, in which every
    entry of every column has its turn. A mapping gives its keys as ids; an entry that is marked
    slow itself stays so.
    """
    entries = [list(_entries(column)) for column in columns]
    quick = [[entry for entry in column if not entry.marks] for column in entries]
    period = min(map(len, quick))
    rows = []
    for row in itertools.product(*entries):
        marks = [mark for entry in row for mark in entry.marks]
        if not marks:
            place = sum(column.index(entry) for column, entry in zip(quick, row, strict=True))
            marks = [pytest.mark.slow] if place % period else []
        ids = [entry.id for entry in row if entry.id is not None]
        name = "-".join(map(str, ids)) if len(ids) == len(row) else None
        rows.append(pytest.param(*(entry.values[0] for entry in row), marks=marks, id=name))
    return rows


def every(count: int, entries: Iterable[Any]) -> list[ParameterSet]:
    """All entries, of which `make test` takes the first and then every so-many-th."""
    rows = list(_entries(entries))
    quick = {id(row) for row in [row for row in rows if not row.marks][::count]}
    slow = [pytest.mark.slow]
    return [row if row.marks or id(row) in quick else row._replace(marks=slow) for row in rows]


def _entries(column: Iterable[Any]) -> Iterable[ParameterSet]:
    if isinstance(column, dict):
        return [pytest.param(value, id=str(key)) for key, value in column.items()]
    entries = [e if isinstance(e, ParameterSet) else pytest.param(e) for e in column]
    return [entry._replace(id=entry.id or _name(entry.values[0])) for entry in entries]


def _name(entry: Any) -> str | None:
    return entry if isinstance(entry, str) else getattr(entry, "__name__", None)
