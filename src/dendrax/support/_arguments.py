"""Numbers and paths that callers pass: Python's or NumPy's enter, Python's leave, or an error."""

from __future__ import annotations

import math
import numbers
import operator
import os
import pathlib
from typing import Any

from dendrax.support._errors import complain, in_short


def integer(name: str, value: Any, least: int = 1, most: int | None = None) -> int:
    """The argument ``name``, a whole number within bounds. A truth value is none."""
    number = _index(value)
    if number is None or number < least or (most is not None and number > most):
        bounds = f", at least {least}" if most is None else f" from {least} to {most}"
        raise complain(ValueError, f"{name}={in_short(value)} must be an integer{bounds}.")
    return number


def seed_number(value: Any) -> int:
    """The argument ``seed``: NumPy's generators and JAX's keys take 32 bits alike."""
    return integer("seed", value, 0, 2**32 - 1)


def positive(name: str, value: Any, *, finite: bool = True) -> float:
    """The argument ``name``, a number above 0."""
    number = _real(value)
    if not number > 0 or (finite and number == math.inf):
        kind = "a finite number" if finite else "a number"
        raise complain(ValueError, f"{name}={in_short(value)} must be {kind} above 0.")
    return number


def fraction(name: str, value: Any, *, below_one: bool = False) -> float:
    """The argument ``name``, a number from 0 to 1."""
    number = _real(value)
    if not 0 <= number <= 1 or (below_one and number == 1):
        bounds = "at least 0 and below 1" if below_one else "from 0 to 1"
        raise complain(ValueError, f"{name}={in_short(value)} must be a number {bounds}.")
    return number


def expanded(name: str, value: Any) -> pathlib.Path:
    """The argument ``name``, a path in which ``~`` is the home folder."""
    if not isinstance(value, str | os.PathLike) or not os.fspath(value):
        problem = f"{name}={in_short(value)} is not a path."
        raise complain(ValueError, problem, remedy='The current folder is ".".')
    written = os.fspath(value)
    if "\0" in written:
        raise complain(ValueError, f"{name}={in_short(written)} is not a path: it has a NUL in it.")
    path = os.path.expanduser(written)
    if path.startswith("~"):
        user = pathlib.Path(path).parts[0]
        raise complain(
            ValueError,
            f"{name}={in_short(written)}: there is no home folder {user}.",
            remedy=f"A folder of that name is ./{user}.",
        )
    return pathlib.Path(path)


def _index(value: Any) -> int | None:
    try:
        return None if isinstance(value, bool) else operator.index(value)
    except TypeError:
        return None


def _real(value: Any) -> float:
    """Not a number for what is none: no bound admits it."""
    if isinstance(value, bool) or not isinstance(value, numbers.Real):
        return math.nan
    try:
        return float(value)
    except OverflowError:  # an integer, longer than any float
        return math.inf if operator.gt(value, 0) else -math.inf
