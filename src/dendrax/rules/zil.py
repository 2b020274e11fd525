"""Z-IL, zero-divergence inference learning: the paper's Algorithms 1 and 3, and its ablations."""

# What a rule says of itself may be a setting of it, or follow from its settings.
# pyright: reportIncompatibleVariableOverride=false

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from dendrax.graph import LevelledGraph, Vertex
from dendrax.inference import Rule, Schedule
from dendrax.rules._base import check_gamma, check_num_steps, learning_edges
from dendrax.rules._start import check_init, start_at
from dendrax.support import LEARNING_TIMES, LearningTime, Start, complain, one_of
from dendrax.walk import exact


@dataclass(frozen=True)
class ZIL(Rule):
    r"""Zero-divergence inference learning on the levelled graph.

    Start at the forward pass, so that every error is zero; clamp the output; then, for
    $t = 0, 1, \ldots$, let the leaves of level $t + 1$ learn from $\varepsilon_t$ and move every
    value node by

    $$\Delta x_i = \gamma \Big(\varepsilon_i - \sum_{j \in \mathrm{users}(i)}
    \varepsilon_j \frac{\partial \mu_j}{\partial x_i}\Big), \qquad \gamma = 1.$$

    The gradient is that of backpropagation, bit for bit. With the default settings only the front
    of the wave is computed, which costs the same as backpropagation; asking `dendrax.run` for a
    record, or changing a setting, runs the full dynamics.

    **Arguments:**

    - `gamma`: the integration step $\gamma$. Exact only at 1.
    - `levelled`: whether errors are kept in step by delays (Algorithm 3). `False` is the original
      Z-IL (Algorithm 1): no delays, and each use of a parameter learns at the time of the vertex
      that uses it. Exact on chains only.
    - `timing`: `"level"`, or `"end"` for all parameters at the last step.
    - `init`: where value nodes start: `"forward"` (zero error), `"zeros"`, `"noise"` (the forward
      pass plus standard normal noise from a fixed seed), or a function `(vertex, mu) -> x`.
    - `num_steps`: how long to run; by default until the last parameter has learned.

    !!! example

        ```python
        import dendrax

        dendrax.grad(lambda w: w * w, rule=dendrax.ZIL())(3.0)  # -> 6.0
        ```
    """

    gamma: float = 1.0
    levelled: bool = True
    timing: LearningTime = "level"
    init: Start | Callable[[Vertex, Any], Any] = "forward"
    num_steps: int | None = None

    vertices = "primitive"
    batch = "sum"  # the same errors, whatever the loss is
    local = exact
    keeps_time = True
    descends = False

    def __post_init__(self) -> None:
        check_gamma("ZIL", self.gamma)
        one_of("ZIL: levelled", self.levelled, (True, False))
        one_of("ZIL: timing", self.timing, LEARNING_TIMES)
        check_init("ZIL", self.init)
        if self.num_steps is not None:
            remedy = "Leave it out to run until the last parameter has learned."
            check_num_steps("ZIL", self.num_steps, remedy)

    @property
    def is_wave(self) -> bool:
        return self == ZIL()

    def schedule(self, levelled: LevelledGraph) -> Schedule:
        edges, level_of = learning_edges(levelled), levelled.level_of
        if self.levelled:
            learn_at = {edge: level_of[edge.source.vertex] - 1 for edge in edges}
        else:
            learn_at = {edge: level_of[edge.user] for edge in edges}
        needed = max(learn_at.values(), default=0) + 1
        num_steps = self.num_steps or needed
        if num_steps < needed and self.timing == "level":
            raise complain(
                ValueError,
                f"ZIL: num_steps={num_steps} ends before the last parameter learns; this graph "
                f"needs {needed} steps.",
                remedy="Leave num_steps out, or use timing='end'.",
            )
        if self.timing == "end":
            learn_at = dict.fromkeys(edges, num_steps - 1)
        delays = levelled.delays if self.levelled else {}
        init = start_at(self.init)
        return Schedule(float(self.gamma), num_steps, learn_at, level_of, init, delays)
