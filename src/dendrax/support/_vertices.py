"""What ``vertices=`` takes: a word, modules by name or class, a function from a graph to nodes."""

from collections.abc import Callable, Iterable
from typing import Any

from dendrax.support._words import VerticesWord

Modules = tuple[str | type, ...]
Vertices = VerticesWord | type | Modules | list[str | type] | Callable[[Any], Iterable[Any]]
