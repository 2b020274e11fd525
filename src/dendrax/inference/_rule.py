"""What every learning rule is; `dendrax.inference._relax` and `dendrax.rules` say more."""

from __future__ import annotations

from typing import ClassVar

from dendrax.support import Vertices


class Rule:
    """A way to assign errors to the vertices of a graph and gradients to its leaves.

    A rule is either a `dendrax.inference.Timed` or a `dendrax.inference.Relaxation`. ``vertices``
    is the choice of vertices that it is meant for.
    """

    vertices: ClassVar[Vertices] = "layer"
