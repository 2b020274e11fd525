"""What is said when inference goes wrong, and to whom.

`dendrax.run` hands it out, and shows it. `dendrax.infer` and `dendrax.value_and_grad` speak up. In
a compiled program that takes a call to the host, which is made only when it happens; but JAX starts
a program with such a call 40 μs later, and neither caches nor exports it. So the default there is a
gradient of NaN, if inference has run away. (After a small rise nets still learn; a gradient of NaN
would end that.)
"""

from __future__ import annotations

import functools
import math
import warnings
from typing import Any

import jax
import numpy as np

from dendrax import _compat
from dendrax.graph import Graph
from dendrax.inference._descent import Descent
from dendrax.inference._rule import Rule
from dendrax.support import complain, speaker, warn


def step_of(descent: Descent | None) -> Any:
    """The time step at which inference diverged; ``None`` if all is well."""
    if descent is None:
        return None
    found = np.asarray(descent.diverged_at)
    if found.ndim:  # of `jax.vmap`: each has a course of its own
        return found if (found >= 0).any() else None
    return None if found < 0 else int(found)


def advice(
    rule: Rule, descent: Descent | None, converged: Any, num_steps: Any, graph: Graph | None = None
) -> str:
    """What to try if inference diverged or did not converge; empty if all is well."""
    step = step_of(descent)
    if isinstance(step, np.ndarray):
        return f"Inference diverged in {(step >= 0).sum()} of {step.size}. Try {rule.remedy()}."
    if descent is not None and step is not None:
        return _how_it_diverged(rule, descent, graph)
    return _no_convergence(converged, num_steps)


def _how_it_diverged(rule: Rule, descent: Descent, graph: Graph | None = None) -> str:
    """What happened, and what to try."""
    start, end, lowest = (float(x) for x in (descent.start, descent.end, descent.lowest))
    at = int(descent.diverged_at)
    if not math.isfinite(start):
        lost = [name for name, part in descent.starts.items() if not math.isfinite(float(part))]
        return (
            f"The energy is {start} from the start: that of {', '.join(lost[:4])} is not finite "
            "where the value nodes begin. Try init='forward', or look at the function's values "
            "there."
        )
    remedy = f"Try {_other_vertices(rule, graph)}{rule.remedy()}."
    if not descent.is_watched:
        return (
            f"Inference diverged: it began with the energy {start:.4g} and ended with {end:.4g}. "
            f"{remedy}"
        )
    if lowest >= start or at <= 1:
        return (
            f"Inference diverged: from step {at} on the energy is larger than at the start "
            f"({start:.4g}), and at the end it is {end:.4g}. {remedy}"
        )
    return (
        f"Inference diverged: the energy fell from {start:.4g} to {lowest:.4g}, from step {at} on "
        f"it rose, and at the end it is {end:.4g}. {remedy}"
    )


def _other_vertices(rule: Rule, graph: Graph | None) -> str:
    """With every operation a vertex there are many more errors than a rule is meant for."""
    chosen = None if graph is None else graph.chosen
    if chosen != "primitive" or rule.vertices == "primitive":
        return ""
    return f"vertices={rule.vertices!r} (every operation is a vertex here), then "


def _no_convergence(converged: Any, num_steps: Any) -> str:
    """What to try if a rule with a tol was not done; empty if it was."""
    if converged is None or np.all(converged):
        return ""
    return (
        f"Inference did not converge in {int(np.max(num_steps))} steps. Try a larger num_steps or "
        "tol, a larger gamma, or, if the energy goes up and down, a smaller."
    )


def notice(rule: Rule, descent: Descent | None) -> None:
    """Speak up if inference diverged, as the rule says (``on_divergence``)."""
    how = rule.on_divergence
    if descent is None or how == "ignore":
        return
    if not any(map(_compat.is_tracer, jax.tree.leaves(descent))):
        if int(descent.diverged_at) >= 0:
            said = _how_it_diverged(rule, descent)
            if how == "raise":
                raise complain(FloatingPointError, said)
            warn(said)
        return
    if how == "nan":
        return  # a call to the host takes longer than a small update
    call = functools.partial(_from_program, rule, speaker(), how)

    def tell() -> None:
        jax.debug.callback(call, descent)

    jax.lax.cond(descent.diverged_at >= 0, tell, lambda: None)


def _from_program(rule: Rule, name: str, how: str, descent: Descent) -> None:
    """Called by a compiled program; under `jax.vmap` also when all is well."""
    if int(descent.diverged_at) < 0:
        return
    said = f"{name}: {_how_it_diverged(rule, descent)}"
    if how == "raise":
        raise FloatingPointError(said)
    warnings.warn(said, stacklevel=2)
