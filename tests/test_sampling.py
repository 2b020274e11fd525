"""The share of a table that `make test` takes."""

import math

import pytest

from tests.sampling import every, rotating


def quick(rows):
    return [row.values for row in rows if not row.marks]


@pytest.mark.parametrize("sizes", [(4, 3), (3, 4), (5, 5), (7, 2, 3), (1, 4)])
def test_every_entry_has_its_turn(sizes):
    columns = [[f"{n}.{k}" for k in range(size)] for n, size in enumerate(sizes)]
    rows = rotating(*columns)
    assert len(rows) == math.prod(sizes)
    chosen = quick(rows)
    assert len(chosen) <= math.ceil(len(rows) / min(sizes))
    for k, column in enumerate(columns):
        assert {row[k] for row in chosen} == set(column)


def test_every_other_one():
    rows = every(2, {"a": 1, "b": 2, "c": 3})
    assert [row.id for row in rows] == ["a", "b", "c"]
    assert quick(rows) == [(1,), (3,)]
    marked = every(2, [pytest.param("a", marks=pytest.mark.slow), "b", "c", "d"])
    assert [row.values[0] for row in marked] == ["a", "b", "c", "d"]
    assert quick(marked) == [("b",), ("d",)]


def test_what_is_slow_stays_slow():
    rows = rotating(["a", pytest.param("b", marks=pytest.mark.slow)], {"one": 1, "two": 2})
    assert [row.id for row in rows] == ["a-one", "a-two", "b-one", "b-two"]
    assert quick(rows) == [("a", 1), ("a", 2)]
