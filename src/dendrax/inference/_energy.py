"""Energies: what holds a value node `x` to its prediction `μ`.

Each is one small class with an `energy`; its derivatives are JAX's, of that local function, but for
the Gaussian's, which are the paper's equations. Which value node has which energy is decided in
`dendrax.inference._energies`.
"""

from __future__ import annotations

import math
import numbers
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from dendrax import _compat
from dendrax.inference._equations import energy, prediction_error, value_change
from dendrax.local import derivative
from dendrax.support import complain

Array = Any


class Energy:
    r"""What it costs a value node to be away from its prediction, $E(\mu, x)$.

    Subclass it, as a frozen dataclass of settings, and define `energy`. A plain function
    `(mu, x) -> energy` does as well.

    - `energy(mu, x)`: elementwise, or one number for the whole node.
    - `held(mu, value)`: the same where something holds the node at a value (a target, `hold=`), if
      that is another. By default it is `energy(mu, value)`.
    - `error(mu, x)`: $\partial E / \partial \mu$, which is what the vertex sends to its inputs.
    - `pull(mu, x)`: $\partial E / \partial x$.
    - `of_error`: whether $E$ depends on $\mu - x$ alone.

    !!! example

        ```python
        import dataclasses, dendrax, jax.numpy as jnp


        @dataclasses.dataclass(frozen=True)
        class Cauchy(dendrax.Energy):
            width: float = 1.0
            of_error = True

            def energy(self, mu, x):
                return jnp.log1p(((mu - x) / self.width) ** 2)


        Cauchy().error(mu=jnp.array([1.0, 10.0]), x=jnp.zeros(2))  # -> [1.0, 0.198]
        ```
    """

    of_error: bool = False

    def energy(self, mu: Array, x: Array) -> Array:
        raise NotImplementedError

    def held(self, mu: Array, value: Array) -> Array:
        return self.energy(mu, value)

    def error(self, mu: Array, x: Array) -> Array:
        return derivative(lambda mu: total(self.energy(mu, x)), mu)

    def pull(self, mu: Array, x: Array) -> Array:
        return derivative(lambda x: total(self.energy(mu, x)), x)

    def slope(self, mu: Array, x: Array, message: Array | None) -> Array:
        """What the value node moves along: ``-∂E/∂x`` less the ``message`` that has come from its
        users (``None``: none), in units of the energy itself."""
        pull = self.pull(mu, x)
        return -pull if message is None else -(pull + message)

    def over(self, samples: int) -> Energy:
        """The same for a loss that is a mean over samples."""
        return Weighted(self, 1 / samples)

    def problem(self, aval: Any) -> str:
        """Why a value node of this type cannot have this energy; empty if it can."""
        if jnp.issubdtype(aval.dtype, jnp.complexfloating):
            return "is complex, and only dendrax.Gaussian is an energy of complex values"
        return ""

    @property
    def units(self) -> float:
        """The weight in whose units the slope is."""
        return 1.0

    @property
    def is_held_alike(self) -> bool:
        """Whether it is the same function where a value is held."""
        return type(self).held is Energy.held


def total(energies: Array) -> Array:
    """An energy as one number, added up in float32 at least."""
    energies = jnp.asarray(energies)
    if not energies.shape:
        return energies
    if jnp.finfo(energies.dtype).bits < 32:
        energies = energies.astype(jnp.float32)
    return jnp.sum(energies)


def sum_of(energies: Iterable[Array]) -> Array:
    """The energy of a network, of those of its parts."""
    kind = jnp.result_type(float)
    return jnp.asarray(sum(energy.astype(kind) for energy in energies), kind)


@dataclass(frozen=True, eq=False)
class Gaussian(Energy):
    r"""$E = \frac{\pi}{2} |\mu - x|^2$, with $\partial E / \partial \mu = \pi \varepsilon$.

    The slope is $\varepsilon$ less the messages over $\pi$: so precision weighs the errors against
    the loss, and does not change the speed of inference.

    **Arguments:** `precision`: $\pi$, a number, or an array with one for each neuron.

    !!! example

        ```python
        import dendrax, jax.numpy as jnp

        dendrax.Gaussian(precision=2.0).energy(mu=jnp.ones(3), x=jnp.zeros(3))  # -> 3.0
        ```
    """

    precision: Any = 1.0
    of_error = True

    def __post_init__(self) -> None:
        check_precision("dendrax.Gaussian: precision", self.precision)
        if isinstance(self.precision, (list, tuple)):
            object.__setattr__(self, "precision", np.asarray(self.precision, float))

    def energy(self, mu: Array, x: Array) -> Array:
        epsilon = prediction_error(mu, x)
        if self.is_number:
            return self.precision * energy(epsilon)
        return energy(jnp.sqrt(jnp.asarray(self.precision, epsilon.real.dtype)) * epsilon)

    def error(self, mu: Array, x: Array) -> Array:
        epsilon = prediction_error(mu, x)
        return epsilon if self.is_plain else self._weighed(epsilon)

    def pull(self, mu: Array, x: Array) -> Array:
        return -self.error(mu, x)

    def slope(self, mu: Array, x: Array, message: Array | None) -> Array:
        if message is not None and not self.is_plain:
            message = message / self._like(message)
        return value_change(1, prediction_error(mu, x), message)

    def _like(self, values: Array) -> Any:
        return self.precision if self.is_number else jnp.asarray(self.precision, values.real.dtype)

    def _weighed(self, epsilon: Array) -> Array:
        return self._like(epsilon) * epsilon

    @property
    def is_number(self) -> bool:
        return isinstance(self.precision, (int, float))

    @property
    def is_plain(self) -> bool:
        """Whether the precision is 1, which then does nothing at all."""
        return self.is_number and self.precision == 1

    def over(self, samples: int) -> Gaussian:
        return Gaussian(self.precision / samples)

    def problem(self, aval: Any) -> str:
        shape = np.shape(self.precision)
        try:
            fits = np.broadcast_shapes(shape, aval.shape) == tuple(aval.shape)
        except ValueError:
            fits = False
        return "" if fits else f"has shape {aval.shape}, and the precision has shape {shape}"

    # Arrays have no hash of their own; two of the same numbers are the same setting.
    def _key(self) -> Any:
        if self.is_number:
            return self.precision
        if _compat.is_tracer(self.precision):
            return id(self.precision)
        array = np.asarray(self.precision)
        return array.shape, array.dtype.str, array.tobytes()

    def __eq__(self, other: object) -> bool:
        return type(other) is type(self) and self._key() == other._key()  # pyright: ignore

    def __hash__(self) -> int:
        return hash((type(self), self._key()))


def check_precision(setting: str, precision: Any) -> None:
    """A precision is a positive number, or an array of them; a tracer's values are not known."""
    if _compat.is_tracer(precision):
        return
    try:
        values = np.asarray(precision, float)
        good = not isinstance(precision, bool) and bool(np.all((values > 0) & np.isfinite(values)))
    except (TypeError, ValueError):
        good = False
    if not good:
        raise complain(
            ValueError,
            f"{setting}={precision!r} is not a positive number, or an array of them.",
            remedy="Larger than 1 holds a value node nearer to its prediction.",
        )


def _check_width(setting: str, value: Any) -> None:
    is_number = isinstance(value, numbers.Real) and not isinstance(value, bool)
    if not is_number or not 0 < float(value) < math.inf:
        raise complain(ValueError, f"{setting}={value!r} is not a positive number.")


@dataclass(frozen=True)
class Laplace(Energy):
    r"""$E = \sum |\mu - x| / b$: errors count by their size, so that few are large.

    **Arguments:** `scale`: $b$.

    !!! example

        ```python
        import dendrax, jax.numpy as jnp

        dendrax.Laplace(scale=2.0).error(
            mu=jnp.array([3.0, -0.5]), x=jnp.zeros(2)
        )  # -> [0.5, -0.5]
        ```
    """

    scale: float = 1.0
    of_error = True

    def __post_init__(self) -> None:
        _check_width("dendrax.Laplace: scale", self.scale)

    def energy(self, mu: Array, x: Array) -> Array:
        return jnp.abs(mu - x) / self.scale


@dataclass(frozen=True)
class Huber(Energy):
    r"""$\tfrac12 \varepsilon^2$ up to $|\varepsilon| = \delta$, then a straight line: large errors
    pull no harder than those of size $\delta$.

    **Arguments:** `delta`: $\delta$.

    !!! example

        ```python
        import dendrax, jax.numpy as jnp

        dendrax.Huber(delta=1.0).error(mu=jnp.array([0.5, 7.0]), x=jnp.zeros(2))  # -> [0.5, 1.0]
        ```
    """

    delta: float = 1.0
    of_error = True

    def __post_init__(self) -> None:
        _check_width("dendrax.Huber: delta", self.delta)

    def energy(self, mu: Array, x: Array) -> Array:
        size = jnp.abs(mu - x)
        inside = jnp.minimum(size, self.delta)
        return inside * (size - inside / 2)


@dataclass(frozen=True)
class Bernoulli(Energy):
    r"""For values that are 0 or 1, or probabilities; $\mu$ are logits.

    Held at $y$, it is the cross-entropy $-y \log \sigma(\mu) - (1 - y) \log (1 - \sigma(\mu))$. A
    value node that moves holds logits, as what reads it expects, and its energy is the divergence
    of what the prediction says from what it says, $\mathrm{KL}(\sigma(x) \| \sigma(\mu))$.

    !!! example

        ```python
        import dendrax, jax.numpy as jnp

        dendrax.Bernoulli().held(mu=jnp.array([0.0, 3.0]), value=jnp.ones(2))  # -> [0.6931, 0.0486]
        ```
    """

    def energy(self, mu: Array, x: Array) -> Array:
        p = jax.nn.sigmoid(x)
        return jax.nn.softplus(mu) - jax.nn.softplus(x) + p * (x - mu)

    def held(self, mu: Array, value: Array) -> Array:
        return jax.nn.softplus(mu) - value * mu


@dataclass(frozen=True)
class Categorical(Energy):
    r"""For one of several classes, along an axis; $\mu$ are logits.

    Held at $y$ (one-hot, or probabilities), it is the cross-entropy
    $-\sum_k y_k \log \mathrm{softmax}(\mu)_k$. A value node that moves holds logits, as what reads
    it expects, and its energy is $\mathrm{KL}(\mathrm{softmax}(x) \| \mathrm{softmax}(\mu))$
    (Pinchetti et al. 2022, arXiv:2211.03481).

    **Arguments:** `axis`: the axis of the classes.

    !!! example

        ```python
        import dendrax, jax.numpy as jnp

        logits, label = jnp.array([2.0, 0.0, 0.0]), jnp.array([1.0, 0.0, 0.0])
        dendrax.Categorical().held(mu=logits, value=label).sum()  # -> 0.2395
        ```
    """

    axis: int = -1

    def energy(self, mu: Array, x: Array) -> Array:
        log_p = jax.nn.log_softmax(x, self.axis)
        return jnp.exp(log_p) * (log_p - jax.nn.log_softmax(mu, self.axis))

    def held(self, mu: Array, value: Array) -> Array:
        return -value * jax.nn.log_softmax(mu, self.axis)

    def problem(self, aval: Any) -> str:
        count = len(aval.shape)
        if not -count <= self.axis < count or aval.shape[self.axis] < 2:
            return f"has shape {aval.shape}, without classes along axis {self.axis}"
        return super().problem(aval)


@dataclass(frozen=True)
class FunctionEnergy(Energy):
    """A user's function as an energy."""

    function: Callable[[Array, Array], Array]

    def energy(self, mu: Array, x: Array) -> Array:
        return jnp.asarray(self.function(mu, x))


@dataclass(frozen=True)
class Weighted(Energy):
    """An energy with a weight. Its slope is that of the energy itself, in its own units."""

    inner: Energy
    weight: float

    @property
    def of_error(self) -> bool:  # pyright: ignore[reportIncompatibleVariableOverride]
        return self.inner.of_error

    @property
    def is_held_alike(self) -> bool:
        return self.inner.is_held_alike

    @property
    def units(self) -> float:
        return self.weight

    def energy(self, mu: Array, x: Array) -> Array:
        return self.weight * self.inner.energy(mu, x)

    def held(self, mu: Array, value: Array) -> Array:
        return self.weight * self.inner.held(mu, value)

    def error(self, mu: Array, x: Array) -> Array:
        return self.weight * self.inner.error(mu, x)

    def pull(self, mu: Array, x: Array) -> Array:
        return self.weight * self.inner.pull(mu, x)

    def slope(self, mu: Array, x: Array, message: Array | None) -> Array:
        return self.inner.slope(mu, x, None if message is None else message / self.weight)


@dataclass(frozen=True)
class Prior(Energy):
    """The energy of a free argument. How fast that moves does not depend on it: a weak prior, in
    units of its own, would make large steps."""

    inner: Energy

    @property
    def of_error(self) -> bool:  # pyright: ignore[reportIncompatibleVariableOverride]
        return self.inner.of_error

    def energy(self, mu: Array, x: Array) -> Array:
        return self.inner.energy(mu, x)

    def error(self, mu: Array, x: Array) -> Array:
        return self.inner.error(mu, x)

    def pull(self, mu: Array, x: Array) -> Array:
        return self.inner.pull(mu, x)

    def problem(self, aval: Any) -> str:
        return self.inner.problem(aval)


class Unpredicted(Energy):
    """A value node without a prediction, which is at rest wherever it is: a free argument."""

    def energy(self, mu: Array, x: Array) -> Array:
        return jnp.zeros_like(x).real

    def error(self, mu: Array, x: Array) -> Array:
        return jnp.zeros_like(mu)

    def pull(self, mu: Array, x: Array) -> Array:
        return jnp.zeros_like(x)

    def slope(self, mu: Array, x: Array, message: Array | None) -> Array:
        return jnp.zeros_like(x) if message is None else -jnp.conj(message)

    def problem(self, aval: Any) -> str:
        return ""
