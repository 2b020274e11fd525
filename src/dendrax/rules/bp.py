"""Backpropagation, the baseline: reverse differentiation on the graph (Eqs. 1-4)."""

from __future__ import annotations

from dataclasses import dataclass

from dendrax.inference import Rule
from dendrax.walk import exact


@dataclass(frozen=True)
class BP(Rule):
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

    vertices = "primitive"
    batch = "sum"  # the same errors, whatever the loss is
    local = exact
    is_wave = True
    descends = False
