"""`infer`: where a network settles, with some arguments free and some values held."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal

import jax
import jax.numpy as jnp

from dendrax import _compat
from dendrax._settings import check_settings
from dendrax.graph import checked
from dendrax.inference import (
    Clamp,
    Descent,
    advice,
    check_settles,
    clamp_for,
    flat_target,
    keeps_step,
    largest,
    notice,
    relax,
    relaxed_graph,
    settled_arguments,
    step_of,
    view_names,
)
from dendrax.rules import IL, Rule
from dendrax.support import Vertices, complain, html_table, public
from dendrax.tracing import trace_models
from dendrax.vertices import with_vertices


@jax.tree_util.register_dataclass
@dataclass(frozen=True, eq=False, repr=False)
class Settled:
    """Where a network has settled. A pytree; print it for a summary.

    - ``args``: the arguments, with the free ones where they have settled.
    - ``output``: the function's result there: what it predicts, also where a target holds it.
    - ``energy``: the energy there; ``energies`` by the name of the value node or output.
    - ``x``: the value nodes, by name; free arguments among them.
    - ``slope``: the largest slope of a value node; 0 where all have settled.
    - ``num_steps``: the time steps used. ``converged``: whether the rule was done before its last;
      ``None`` if it has no ``tol``.
    - ``course``: the energy at every time step, if ``record="energy"`` asked for it.
    - ``descent``: the energy at the start, at the end, and the lowest.

    ``diverged_at`` is the time step from which on the energy rose, or was not finite; ``None`` if
    all is well. ``advice`` says what to do then. Both are for outside of `jax.jit`.
    """

    args: tuple[Any, ...]
    output: Any
    energy: Any
    energies: dict[str, Any]
    x: dict[str, Any]
    slope: Any
    num_steps: Any
    converged: Any
    course: Any
    descent: Descent | None
    rule: Rule = field(metadata={"static": True})

    @property
    def diverged_at(self) -> Any:
        return step_of(self.descent)

    @property
    def advice(self) -> str:
        """What to try if inference diverged or did not converge; empty if all is well."""
        return advice(self.rule, self.descent, self.converged, self.num_steps)

    def __repr__(self) -> str:
        lines = [f"  {name}: {text}" for name, text in self._facts()]
        return "\n".join([f"Settled by {self.rule}", *lines])

    def _repr_html_(self) -> str:
        return html_table(f"Settled by {self.rule}", (), self._facts())

    def _facts(self) -> list[tuple[str, str]]:
        names = ", ".join(list(self.x)[:8]) + ", ..." * (len(self.x) > 8)
        facts = [("value nodes", names or "none")]
        if any(map(_compat.is_tracer, jax.tree.leaves(self))):
            return [*facts, ("numbers", "not known yet, inside jax.jit")]
        if jnp.ndim(self.energy):
            facts.append(("energy", f"{jnp.shape(self.energy)} of them"))
            return [*facts, ("advice", self.advice)] if self.advice else facts
        start = "" if self.descent is None else f"{float(self.descent.start):.6g} -> "
        facts.append(("energy", f"{start}{float(self.energy):.6g} in {int(self.num_steps)} steps"))
        facts.append(("largest slope", f"{float(self.slope):.3g}"))
        return [*facts, ("advice", self.advice)] if self.advice else facts


@public("dendrax.infer")
def infer(
    fun: Callable[..., Any],
    *args: Any,
    free: Any = (),
    target: Any = None,
    mask: Any = None,
    hold: Mapping[str, Any] | None = None,
    tie: Any = None,
    prior: Any = None,
    rule: Rule = IL(num_steps=200),
    vertices: Vertices | None = None,
    argnums: int | Sequence[int] = 0,
    has_aux: bool = False,
    start: Settled | Mapping[str, Any] | None = None,
    record: Literal["energy"] | None = None,
) -> Settled:
    r"""Let a network settle, with some arguments free and some values held.

    Value nodes and free arguments descend the energy $F = L + \sum_i E_i(\mu_i, x_i)$ by the steps
    of a rule, while parameters stay. With a generative network, free latents and a held output,
    that infers the latents.

    **Arguments:**

    - `fun`, `args`: a function and its arguments, models of Equinox and Flax NNX as they are.
    - `free`: which arguments relax: a position, a name, a part of one (`"batch['z']"`, `"z[*]"`),
      or several of these. They start where `args` says.
    - `target`: what the function's result is held at. Without one, a scalar result is a loss,
      which pulls; any other is free. A tree like the result; `None` in a place holds nothing there.
    - `mask`: where the target holds, as booleans. Elsewhere it says nothing, and may be NaN.
    - `hold`: value nodes or outputs held at a value, `{name: value}`, or in part, `{name: (value,
      mask)}`. `dendrax.trace` prints the names; `*` stands for anything.
    - `tie`: a free argument that an output predicts: its energy then holds it to that output.
      `{"h": 0}` ties `h` to the first result, `{"h": "state"}` to the one of that key, `{"h":
      function}` to what the function picks from the result; `"h"` alone ties it to the whole. So a
      graph may have cycles: a function `state -> prediction of the state` is never unrolled.
    - `prior`: the energy of free arguments: an energy, which holds them to 0, or a pair `(energy,
      mean)`, or a dictionary from names to these. Without one they cost nothing.
    - `rule`, `vertices`: as for `dendrax.value_and_grad`; a rule whose value nodes settle. The
      `energies` are settings of the rule.
    - `argnums`: which arguments are parameters, as for `dendrax.trace`; value nodes are where
      layers use them.
    - `has_aux`: whether `fun` returns a pair `(result, aux)`.
    - `start`: where value nodes start, by name, or what has settled before, in place of the rule's
      own start.
    - `record`: `"energy"` keeps the energy at every time step, as `.course`.

    **Returns:** `Settled`, with `.args`, `.output`, `.energy`, `.x`, `.converged`. Under `jax.jit`
    (do that, to call it often), `jax.vmap` and `jax.grad` it is like any function of JAX.

    !!! example

        ```python
        import dendrax, jax.numpy as jnp


        def decode(w, z):
            return w * z


        # A latent with a prior, seen through a weight of 2 as 4: it settles at 8 / 5.
        settled = dendrax.infer(decode, 2.0, 0.0, free="z", target=4.0, prior=dendrax.Gaussian())
        settled.args[1]  # -> 1.6
        settled.output  # -> 3.2
        ```
    """
    chosen = check_settings(fun, rule, vertices) or rule.vertices
    if rule.moves_parameters:
        raise complain(
            ValueError,
            f"{type(rule).__name__} moves parameters, which here stay as they are.",
            remedy="Use a rule that moves value nodes alone, such as rule=dendrax.IL(200).",
        )
    graph, call = trace_models(
        fun,
        args,
        argnums,
        has_aux=has_aux,
        free=free,
        tie=tie,
        must_learn=False,
        vertices=chosen,
    )
    shown = replace(with_vertices(checked(graph), chosen, unrolled=keeps_step(rule)), chosen=chosen)
    held = flat_target(shown, target)
    clamp = clamp_for(shown, held, mask, hold=hold, prior=prior, otherwise=Clamp)
    check_settles(rule, shown, clamp)
    found = relax(
        rule,
        relaxed_graph(rule, shown),
        call.leaves(),
        clamp,
        _recorded(record),
        watched=True,
        start=start.x if isinstance(start, Settled) else start,
    )
    look = found.look
    notice(rule, found.descent)
    return Settled(
        settled_arguments(call, found),
        jax.tree.unflatten(call.out_tree, look.outputs),
        look.energy,
        view_names(look.net, look.energies),
        view_names(look.net, look.x),
        largest(look.slope),
        jnp.asarray(found.num_steps),
        found.done,
        found.records.get("energy"),
        found.descent,
        rule,
    )


def _recorded(record: Any) -> tuple[str, ...]:
    if record not in (None, "energy"):
        raise complain(
            ValueError,
            f"record={record!r} is not known.",
            remedy="record='energy' keeps its course; to look at value nodes over time, use "
            "dendrax.run(dendrax.trace(fun, *args, free=...), rule, record=...).",
        )
    return ("energy",) if record else ()
