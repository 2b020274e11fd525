"""What a layer is called: like the module that its parameters belong to.

model.blocks[3].mlp.weight, model.blocks[3].mlp.bias  ->  blocks[3].mlp
params['params']['Dense_0']['kernel']                 ->  Dense_0
w['h'], params[0][1]                                  ->  layer(w['h']), layer(params[0])
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from dendrax.graph._graph import Vertex

_PART = re.compile(r"^[^.\[]+|\.(\w+)|\[(\d+)\]|\['([^']*)'\]|\[[^\]]*\]")
_COLLECTIONS = ("params", "value", "raw_value")  # names of libraries, not of modules


def layer_name(parameters: Sequence[Vertex], all_names: Sequence[str]) -> str:
    """The name of a layer with these parameters, of which there is one at least."""
    weights = [leaf.name for leaf in parameters if len(leaf.shape) > 1]
    names = weights or [leaf.name for leaf in parameters]
    owners = [owner for owner in map(_module, names) if owner]
    if not owners:
        return _bare(names, [leaf.name for leaf in parameters], all_names)
    # Of several modules the last: what a first layer shares with a block belongs to the block.
    last = _start(owners[-1])
    common = owners[-1]
    for owner in owners:
        if _start(owner) == last:
            same = [a == b for a, b in zip(common, owner, strict=False)]
            common = common[: same.index(False)] if False in same else common[: len(same)]
    return _spelt(common)


def _start(path: Sequence[str]) -> tuple[str, ...]:
    """The outermost module of a path, one of a list or by itself."""
    is_listed = len(path) > 1 and path[1].startswith("[")
    return tuple(path[: 1 + is_listed])


def _module(name: str) -> tuple[str, ...]:
    """The parts of the path to the module of a parameter; empty if no part is a word."""
    parts = []
    for found in list(_PART.finditer(name))[1:]:
        attribute, number, key = found.groups()
        word = attribute or key
        if word not in _COLLECTIONS:
            parts.append(f"[{number}]" if number else word or found.group())
    path = tuple(parts[:-1])
    return path if any(not part.startswith("[") for part in path) else ()


def _spelt(path: Sequence[str]) -> str:
    return ".".join(path).replace(".[", "[")


def _bare(weights: Sequence[str], names: Sequence[str], all_names: Sequence[str]) -> str:
    """``layer(params[0])`` for its weight and bias, if these are all it has; else the weight."""
    owners = {re.sub(r"(\.\w+|\[[^\[\]]*\])$", "", name) for name in names}
    owner = min(owners)
    belonging = [name for name in all_names if name.startswith((f"{owner}.", f"{owner}["))]
    if len(owners) == 1 and set(belonging) == set(names):
        return f"layer({owner})"
    return f"layer({weights[0]})"
