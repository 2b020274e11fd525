"""Equinox: `filter_value_and_grad` and `filter_grad`, with the gradient found by a rule of dendrax.

A model enters with all its leaves, and leaves as a gradient with `None` where nothing learns.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from dendrax._api import value_and_grad
from dendrax._settings import check_settings
from dendrax.rules import ZIL, Rule
from dendrax.support import Vertices, complain, require_extra, speaking_as

with require_extra("dendrax.equinox", "models"):
    import equinox as eqx


def filter_value_and_grad(
    fun: Callable[..., Any] | None = None,
    *,
    has_aux: bool = False,
    rule: Rule = ZIL(),
    vertices: Vertices | None = None,
) -> Callable[..., Any]:
    """As `equinox.filter_value_and_grad`, with the gradient found by a predictive-coding rule.

    **Arguments:**

    - `fun`: a function that returns a scalar (or, with `has_aux`, a scalar and anything else). Its
      first argument is differentiated, in all its arrays of floating-point numbers. Without `fun`
      this is a decorator with settings.
    - `has_aux`, `rule`, `vertices`: as for `dendrax.value_and_grad`.

    **Returns:** a function with the same arguments that returns `(fun(...), gradient)`. The
    gradient is like the first argument, with `None` in the place of what cannot learn.

    !!! example

        ```python
        import dendrax.equinox, equinox as eqx, jax, jax.numpy as jnp

        model = eqx.nn.MLP(2, 1, width_size=8, depth=1, key=jax.random.key(0))
        loss = lambda model, x: jnp.mean(jax.vmap(model)(x) ** 2)
        value, gradient = dendrax.equinox.filter_value_and_grad(loss)(model, jnp.ones((4, 2)))
        gradient.layers[0].weight.shape  # -> (8, 2)
        ```
    """
    if fun is None:
        return functools.partial(
            filter_value_and_grad, has_aux=has_aux, rule=rule, vertices=vertices
        )
    return _wrapped(_ValueAndGrad, "filter_value_and_grad", fun, has_aux, rule, vertices)


def filter_grad(
    fun: Callable[..., Any] | None = None,
    *,
    has_aux: bool = False,
    rule: Rule = ZIL(),
    vertices: Vertices | None = None,
) -> Callable[..., Any]:
    """As `equinox.filter_grad`, with the gradient found by a predictive-coding rule.

    **Arguments:** as for `dendrax.equinox.filter_value_and_grad`.

    **Returns:** a function with the same arguments that returns the gradient (or, with `has_aux`,
    a pair of gradient and auxiliary data).

    !!! example

        ```python
        import dendrax.equinox, jax.numpy as jnp


        @dendrax.equinox.filter_grad
        def gradient(model):
            return model["weight"] ** 2


        gradient({"weight": jnp.array(3.0), "name": "w"})  # -> {'name': None, 'weight': 6.0}
        ```
    """
    if fun is None:
        return functools.partial(filter_grad, has_aux=has_aux, rule=rule, vertices=vertices)
    return _wrapped(_Grad, "filter_grad", fun, has_aux, rule, vertices)


class _ValueAndGrad(eqx.Module):
    """A pytree with the leaves of its function, which may itself be a model or a bound method."""

    fun: Callable[..., Any]
    name: str = eqx.field(static=True)
    has_aux: bool = eqx.field(static=True)
    rule: Rule = eqx.field(static=True)
    vertices: Vertices | None = eqx.field(static=True)

    @property
    def __wrapped__(self) -> Callable[..., Any]:
        return self.fun

    def __call__(self, /, *args: Any, **kwargs: Any) -> Any:
        with speaking_as(self.name):
            return self._differentiate(*args, **kwargs)

    def __get__(self, instance: Any, owner: Any) -> Any:
        return self if instance is None else eqx.Partial(self, instance)

    def _differentiate(self, /, *args: Any, **kwargs: Any) -> tuple[Any, Any]:
        _check_first(args, kwargs)
        learned, fixed = eqx.partition(args[0], eqx.is_inexact_array)

        @functools.wraps(self.fun)  # parameters are named after the user's argument
        def of_learned(learned: Any, *rest: Any, **kwargs: Any) -> Any:
            return self.fun(eqx.combine(learned, fixed), *rest, **kwargs)

        both = value_and_grad(
            of_learned, has_aux=self.has_aux, rule=self.rule, vertices=self.vertices
        )
        return both(learned, *args[1:], **kwargs)


class _Grad(_ValueAndGrad):
    def __call__(self, /, *args: Any, **kwargs: Any) -> Any:
        value, gradient = super().__call__(*args, **kwargs)
        return (gradient, value[1]) if self.has_aux else gradient


def _wrapped(
    kind: type[_ValueAndGrad],
    name: str,
    fun: Callable[..., Any],
    has_aux: bool,
    rule: Rule,
    vertices: Vertices | None,
) -> Callable[..., Any]:
    name = f"dendrax.equinox.{name}"
    with speaking_as(name):
        vertices = check_settings(fun, rule, vertices)
    return eqx.module_update_wrapper(kind(fun, name, has_aux, rule, vertices))


def _check_first(args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    if not args:
        raise complain(
            TypeError,
            "the first argument is the one to be differentiated, but the function was called "
            + (f"with {', '.join(kwargs)} by keyword only." if kwargs else "without arguments."),
            remedy="Pass the model first, by position.",
        )
