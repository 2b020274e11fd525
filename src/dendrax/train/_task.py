"""What is to be learned: a model, a loss, a rule and an optimizer, ready for a compiled update.

Of a model the arrays of floating-point numbers learn. Everything else in it (numbers of layers,
activation functions, integer arrays) is fixed, as for `equinox.filter_grad`.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from dendrax import _api
from dendrax.rules import Rule
from dendrax.support import Vertices, complain


class Parts(NamedTuple):
    """What of a model does not learn, by leaf; ``None`` in the place of what does."""

    fixed: tuple[Any, ...]
    tree: Any

    def join(self, learned: Any) -> Any:
        """The model with these arrays."""
        arrays = iter(jax.tree.leaves(learned))
        leaves = [next(arrays) if leaf is None else leaf for leaf in self.fixed]
        return jax.tree.unflatten(self.tree, leaves)


def take_apart(model: Any) -> tuple[Any, Parts]:
    """What learns, a tree like the model with ``None`` in all other places; and the rest."""
    leaves, tree = jax.tree.flatten(model)
    if not any(map(_learns, leaves)):
        raise complain(
            ValueError,
            f"the model ({type(model).__name__}) has no array of floating-point numbers, so there "
            "is nothing that could learn.",
        )
    learned = [leaf if _learns(leaf) else None for leaf in leaves]
    fixed = tuple(None if _learns(leaf) else leaf for leaf in leaves)
    return jax.tree.unflatten(tree, learned), Parts(fixed, tree)


def _learns(leaf: Any) -> bool:
    return hasattr(leaf, "dtype") and jnp.issubdtype(leaf.dtype, jnp.inexact)


class AfterUpdate(NamedTuple):
    """What an update leaves: the rule's ``memory``, and 1 if inference ``diverged``."""

    memory: Any
    diverged: Any


@dataclass(frozen=True, eq=False)
class Task:
    """A problem of learning, in the words of its user.

    - ``loss(model, *batch)`` is a scalar. With a ``state``, ``loss(model, state, *batch)`` is a
      pair of the scalar and the new state. A loss with an argument ``key`` gets a PRNG key, a new
      one for each update.
    - ``measure(model, *batch)``, or with a state ``measure(model, state, *batch)``, is a
      dictionary of scalars, each a mean over the batch, for evaluation.
    """

    parts: Parts
    loss: Callable[..., Any]
    rule: Rule
    vertices: Vertices | None
    optimizer: Any
    measure: Callable[..., dict[str, Any]] | None
    has_state: bool

    @property
    def is_random(self) -> bool:
        """Whether the loss asks for a key."""
        return _takes_key(self.loss)

    def value_and_grad(
        self, learned: Any, state: Any, batch: Any, key: Any, memory: Any = None
    ) -> Any:
        """``((loss, new state, what the update leaves), gradient)``."""
        both = _api.value_and_grad(
            self.whole_loss,
            has_aux=True,
            rule=self.rule,
            vertices=self.vertices,
            memory=memory,
            has_result=True,
        )
        (loss, new_state, result), gradient = both(learned, state, batch, key)
        diverged = jnp.zeros(()) if result.diverged is None else result.diverged.astype(float)
        return (loss, new_state, AfterUpdate(result.memory, diverged)), gradient

    def first_memory(self, learned: Any, state: Any, batch: Any, key: Any) -> Any:
        """What the rule remembers before the first update."""
        settings = {"rule": self.rule, "vertices": self.vertices}
        return _api.first_memory(
            self.whole_loss, learned, state, batch, key, has_aux=True, **settings
        )

    def whole_loss(self, model: Any, state: Any, batch: Any, key: Any) -> Any:
        """The loss and the new state, as a function of the arrays that learn."""
        whole = self.parts.join(model)
        state = jax.tree.map(lambda leaf: leaf, state)  # a new tree: Flax lets nobody write to ours
        first = (whole, state) if self.has_state else (whole,)
        keyword = {"key": key} if self.is_random else {}
        out = self.loss(*first, *batch, **keyword)
        if not self.has_state:
            return out, None
        _check_pair(state, out)
        return out

    def evaluate(self, model: Any, state: Any, batch: Any, key: Any) -> Any:
        """The measures of one batch."""
        if self.measure is None:
            return {"loss": self.whole_loss(model, state, batch, key)[0]}
        whole = self.parts.join(model)
        first = (whole, state) if self.has_state else (whole,)
        return _checked_measures(self.measure(*first, *batch))


def _check_pair(before: Any, out: Any) -> None:
    """With a state; it keeps its form: what is compiled once is used for all updates."""
    if not isinstance(out, tuple) or len(out) != 2:
        raise complain(
            TypeError,
            f"the loss returned {type(out).__name__}, not a pair.",
            remedy="With a state, the loss returns (loss, new state).",
        )
    if (old := _form(before)) != (new := _form(out[1])):
        raise complain(
            TypeError,
            f"the loss got a state {old} and returned another one, {new}.",
            remedy="The new state has the structure, shapes and types of the old.",
        )


def _form(state: Any) -> str:
    return str(jax.tree.map(lambda leaf: jax.typeof(leaf).str_short(), state))


def _checked_measures(found: Any) -> dict[str, Any]:
    if not isinstance(found, Mapping) or any(jnp.ndim(value) for value in found.values()):
        raise complain(
            TypeError,
            f"measure returned {jax.tree.map(jnp.shape, found)} (shapes), not a dictionary of "
            "scalars.",
            remedy='For instance {"accuracy": jnp.mean(right)}.',
        )
    return dict(found)


def _takes_key(loss: Callable[..., Any]) -> bool:
    try:
        return "key" in inspect.signature(loss).parameters
    except (TypeError, ValueError):  # some callables of C have none
        return False
