"""Backpropagation, the baseline: reverse differentiation on the graph (Eqs. 1-4)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from dendrax.graph import Edge, LevelledGraph
from dendrax.inference import Schedule, Timed
from dendrax.support import complain


@dataclass(frozen=True)
class BP(Timed):
    r"""Backpropagation on the computational graph.

    $$\delta_i = \sum_{j \in \mathrm{users}(i)} \delta_j \frac{\partial g_j}{\partial z_i}, \qquad
    \Delta z_i = -\alpha \sum_{j \in \mathrm{users}(i)} \delta_j \frac{\partial g_j}{\partial z_i}$$

    One pass over the graph in reverse program order. Z-IL's wavefront does the same arithmetic:
    that is the paper's theorem. What proves it is the other executor, the full dynamics, which
    moves every value node at every time step and knows nothing of this pass.

    !!! example

        ```python
        import dendrax

        dendrax.grad(lambda w: w * w, rule=dendrax.BP())(3.0)  # -> 6.0
        ```
    """

    @property
    def has_time(self) -> bool:
        return False

    @property
    def is_wave(self) -> bool:
        return True

    def delays(self, levelled: LevelledGraph) -> Mapping[Edge, int]:
        raise _no_time()

    def schedule(self, levelled: LevelledGraph) -> Schedule:
        raise _no_time()


def _no_time() -> Exception:
    return complain(
        ValueError,
        "BP has no value nodes that move over time: there is nothing to record, and no prediction "
        "by inference.",
        remedy="Give a scalar loss or a target, and record a predictive-coding rule such as "
        "dendrax.ZIL().",
    )
