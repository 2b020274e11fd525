"""What every learning rule is; `dendrax._relax` and `dendrax.rules` say more."""

from __future__ import annotations

from typing import ClassVar

from dendrax._words import Vertices


class Rule:
    """A way to assign errors to the vertices of a graph and gradients to its leaves.

    A rule is either `dendrax.rules.Timed`, or a `dendrax._relax.Relaxation`. ``vertices`` is the
    choice of vertices that it is meant for.
    """

    vertices: ClassVar[Vertices] = "layer"
