"""Names of vertices and leaves as users write them: whole, in part, or with ``*``."""

from __future__ import annotations

import re
from collections.abc import Iterable


def matching(pattern: str, names: Iterable[str]) -> list[str]:
    """The names that a pattern means.

    ``*`` stands for anything. The name of a tree means all its leaves (``w`` means ``w['a']`` and
    ``w.b[0]``), and ``w['a']`` means the layer ``layer(w['a'])``, too.
    """
    text = ".*".join(map(re.escape, pattern.split("*")))
    wanted = re.compile(rf"(.*/)?({text}([.\[].*)?|layer\({text}([.\[].*)?\))")
    return [name for name in names if wanted.fullmatch(name)]
