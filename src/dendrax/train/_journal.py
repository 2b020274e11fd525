"""What a run wrote down: one JSON object per line, whole lines only."""

from __future__ import annotations

import json
import pathlib
import re
from collections.abc import Mapping
from typing import Any

from dendrax.support import complain, write_atomically
from dendrax.train._disk import writing

Line = dict[str, Any]
MAX_BYTES = 30_000_000  # some 300,000 lines; read, they take thirty times as much


class Journal:
    """The lines of a run, in memory and, if there is a path, in a file that one process writes."""

    def __init__(self, path: pathlib.Path | None, *, writes: bool = True):
        self.path, self._writes = path, writes
        self.lines: list[Line] = []

    def add(self, line: Mapping[str, Any]) -> None:
        """Write a line. Numbers that are not finite are written as JSON's null."""
        self.lines.append(dict(line))
        if self.path is not None and self._writes:
            with writing(self.path), self.path.open("a", encoding="utf-8") as stream:
                stream.write(_written(line))

    def go_back_to(self, step: int) -> None:
        """Forget what came after an update: the run repeats it."""
        if self.path is None:
            return
        self.lines = [line for line in read_lines(self.path) if 0 < (line["step"] or 0) <= step]
        if self._writes:
            with writing(self.path):
                write_atomically(self.path, "".join(map(_written, self.lines)).encode())


def read_lines(path: pathlib.Path) -> list[Line]:
    """The lines of a file; what was cut off while it was written, or is not ours, is left out."""
    lines = []
    if path.is_file() and path.stat().st_size > MAX_BYTES:
        raise complain(
            ValueError,
            f"{path} has {path.stat().st_size:,} bytes; a journal has at most {MAX_BYTES:,}.",
            remedy="Nothing was changed. Move it elsewhere, and go on with resume.",
        )
    for text in _text_of(path).splitlines():
        try:
            line = json.loads(text)
        except (ValueError, RecursionError):
            continue
        if isinstance(line, dict) and "step" in line and _is_ours(line):
            lines.append(line)
    return lines


def _text_of(path: pathlib.Path) -> str:
    """What is in the file; empty if it is none."""
    try:
        return path.read_text("utf-8", errors="replace") if path.is_file() else ""
    except OSError as problem:
        raise complain(
            ValueError,
            f"{path} cannot be read: {problem.strerror}.",
            remedy="Nothing was changed. Move it elsewhere, and go on with resume.",
        ) from problem


def _is_ours(line: Line) -> bool:
    """Whether it could have been written here: names that are words, and numbers."""
    if not isinstance(line["step"], int | None):
        return False
    words = all(re.fullmatch(r"\w[\w .-]{0,63}", name, re.ASCII) for name in line)
    return words and len(line) <= 100 and all(map(_is_number, line.values()))


def _is_number(value: Any) -> bool:
    if isinstance(value, int):
        return abs(value) < 2**63
    return value is None or isinstance(value, float)


def _written(line: Mapping[str, Any]) -> str:
    finite = {name: None if _is_lost(value) else value for name, value in line.items()}
    return json.dumps(finite) + "\n"


def _is_lost(value: Any) -> bool:
    return isinstance(value, float) and value - value != 0
