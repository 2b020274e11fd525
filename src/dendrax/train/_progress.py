"""How far a run is, as its checkpoints keep it."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any


@dataclass
class Progress:
    """How far a run is.

    - ``losses``: of the updates since the last line of the journal.
    - ``best``, ``best_step``: the best evaluation; ``since``: how many came after it.
    - ``seconds``: spent so far.
    """

    losses: list[float] = field(default_factory=list)
    best: float | None = None
    best_step: int = 0
    since: int = 0
    seconds: float = 0.0
    skipped: int = 0


def read_progress(found: Any) -> Progress:
    """From what a checkpoint's record holds; raises ``ValueError`` if that is something else."""
    known = {entry.name for entry in dataclasses.fields(Progress)}
    if not isinstance(found, Mapping) or set(found) != known:
        raise ValueError("its progress is incomplete.")
    losses, best, *numbers = (found[name] for name in ("losses", "best", *_NUMBERS))
    if not isinstance(losses, list) or not all(
        map(_is_number, [*losses, *numbers, *([] if best is None else [best])])
    ):
        raise ValueError("its progress holds something else than numbers.")
    if not all(isinstance(found[name], int) and found[name] >= 0 for name in _COUNTS):
        raise ValueError("its progress holds counts that are none.")
    return Progress(**found)


_COUNTS = ("best_step", "since", "skipped")
_NUMBERS = ("best_step", "since", "seconds", "skipped")


def _is_number(value: Any) -> bool:
    if not isinstance(value, int | float) or isinstance(value, bool):
        return False
    return isinstance(value, float) or abs(value) < 2**63
