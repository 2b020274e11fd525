"""`check`: is a rule's gradient of this function that of `jax.grad`, and if not, how far off?"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import jax
import numpy as np

from dendrax._api import value_and_grad
from dendrax.rules import ZIL, Rule
from dendrax.support import Vertices, html_table, public
from dendrax.tracing import flatten_models, without_aux


@dataclass(frozen=True)
class Distance:
    """How far one parameter's gradient is from `jax.grad`'s."""

    name: str
    shape: tuple[int, ...]
    dtype: str
    distance: float
    norm: float
    exact: bool


@dataclass(frozen=True)
class Certificate:
    """The distance of a rule's gradient to `jax.grad`'s, by parameter. Print it for a table.

    - ``exact``: whether the value and every gradient are equal, bit for bit (``==``).
    - ``divergence``: the Euclidean distance over all parameters, as in the paper's tables.
    """

    rule: Rule
    rows: tuple[Distance, ...]
    value_exact: bool

    @property
    def exact(self) -> bool:
        return self.value_exact and all(row.exact for row in self.rows)

    @property
    def divergence(self) -> float:
        return float(np.sqrt(sum(row.distance**2 for row in self.rows)))

    def __str__(self) -> str:
        width = max([len(row.name) for row in self.rows] + [9])
        lines = [
            f"{'parameter':<{width}}  {'type':<20}  {'|gradient|':>11}  {'distance':>11}  exact"
        ]
        for row in self.rows:
            kind = f"{row.dtype}[{','.join(map(str, row.shape))}]"
            lines.append(
                f"{row.name:<{width}}  {kind:<20}  {row.norm:>11.4g}  {row.distance:>11.4g}  "
                f"{'yes' if row.exact else 'NO'}"
            )
        verdict = "exact: equal to jax.grad, bit for bit" if self.exact else "NOT exact"
        value = "" if self.value_exact else "; the value itself differs"
        lines.append(f"{self.rule}: {verdict} (divergence {self.divergence:g}{value})")
        return "\n".join(lines)

    __repr__ = __str__

    def _repr_html_(self) -> str:
        headings = ("parameter", "type", "|gradient|", "distance", "exact")
        rows = [
            (
                row.name,
                f"{row.dtype}[{','.join(map(str, row.shape))}]",
                f"{row.norm:.4g}",
                f"{row.distance:.4g}",
                "yes" if row.exact else "NO",
            )
            for row in self.rows
        ]
        return html_table("", headings, rows, below=str(self).splitlines()[-1])


@public("dendrax.check")
def check(
    fun: Callable[..., Any],
    *args: Any,
    rule: Rule = ZIL(),
    argnums: int | Sequence[int] = 0,
    has_aux: bool = False,
    vertices: Vertices | None = None,
) -> Certificate:
    """Compare a rule's gradient with `jax.grad`'s, parameter by parameter, both under `jax.jit`.

    **Arguments:**

    - `fun`: a function that returns a scalar.
    - `args`: its arguments, models of Equinox and Flax NNX among them as they are. Arrays are
      traced, everything else is fixed.
    - `rule`, `argnums`, `has_aux`, `vertices`: as for `dendrax.value_and_grad`.

    **Returns:** a `Certificate`, with `.exact` and `.divergence`; it prints as a table.

    !!! example

        ```python
        import dendrax, jax.numpy as jnp

        print(dendrax.check(lambda w, x: jnp.sum(jnp.tanh(x @ w)), jnp.ones((3, 2)), jnp.ones(3)))
        # -> parameter  type                   |gradient|     distance  exact
        # -> w          float32[3,2]               0.0242            0  yes
        # -> ZIL(...): exact: equal to jax.grad, bit for bit (divergence 0)
        ```
    """
    arguments = flatten_models(fun, args, argnums)
    learned, others = arguments.parted()

    @functools.wraps(fun)
    def loss(learned: Mapping[str, Any], others: Sequence[Any]) -> Any:
        return arguments.call(without_aux(fun, has_aux), arguments.joined(learned, others))

    def under_jit(transform: Callable[..., Any]) -> tuple[Any, Mapping[str, Any]]:
        return jax.jit(transform)(learned, others)

    value, found = under_jit(value_and_grad(loss, 0, rule=rule, vertices=vertices))
    expected_value, expected = under_jit(jax.value_and_grad(loss))
    names = [name for i in arguments.learning() for name in arguments.names_of(i)]
    rows = tuple(_distance(n, found[n], expected[n]) for n in names if n in learned)
    return Certificate(rule, rows, _same(value, expected_value))


def _distance(name: str, found: Any, expected: Any) -> Distance:
    kind = np.complex128 if np.iscomplexobj(expected) else np.float64
    wide, reference = np.asarray(found).astype(kind), np.asarray(expected).astype(kind)
    exact = _same(found, expected)
    distance = 0.0 if exact else float(np.linalg.norm(np.ravel(wide - reference)))
    norm = float(np.linalg.norm(np.ravel(reference)))
    return Distance(name, expected.shape, str(expected.dtype), distance, norm, exact)


def _same(found: Any, expected: Any) -> bool:
    """Equal type and equal numbers; NaN where both are NaN."""
    a, b = np.asarray(found), np.asarray(expected)
    alike = a.shape == b.shape and a.dtype == b.dtype
    return alike and bool(np.all((a == b) | ((a != a) & (b != b))))
