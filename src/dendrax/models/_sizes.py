"""Sizes that a caller gives: whole numbers above 0, Python's or NumPy's, enter; Python's leave."""

import operator
from typing import Any


def checked_sizes(model: str, **sizes: Any) -> tuple[int, ...]:
    """Arguments of a model by name: how many units, layers or classes."""
    for name, value in sizes.items():
        if _size(value) is None:
            raise ValueError(
                f"dendrax.models.{model}: {name}={value!r} must be an integer, at least 1."
            )
    return tuple(map(int, sizes.values()))


def checked_shape(model: str, name: str, shape: Any, length: int | None = None) -> tuple[int, ...]:
    """The argument `name` of a model: several sizes, and `length` of them if that is given."""
    try:
        found: tuple[Any, ...] = tuple(shape)
    except TypeError:
        found = (None,)
    if None in map(_size, found) or length not in (None, len(found)):
        many = "integers" if length is None else f"{length} integers"
        raise ValueError(
            f"dendrax.models.{model}: {name}={shape!r} must be a tuple of {many}, each at least 1."
        )
    return tuple(map(int, found))


def _size(value: Any) -> int | None:
    try:
        number = 0 if isinstance(value, bool) else operator.index(value)
    except TypeError:
        return None
    return number if number >= 1 else None
