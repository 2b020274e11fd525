"""Other weights on the way back: what a product sends down need not be turned by its own weight."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import jax

from dendrax import _compat
from dendrax.local import Applied
from dendrax.support import complain
from dendrax.walk._regions import Linearise, run_fast
from dendrax.walk._wave import PARAMETER, Run, Sender

Array = Any
Draw = Callable[[Array, int], Array]
BILINEAR = ("dot_general", "conv_general_dilated")


@dataclass(frozen=True)
class _Feedback(Linearise):
    """``draw`` makes the other weights."""

    draw: Draw
    names_parameters = True

    def vertex(self, operation: Applied, values: Sequence[Any], active: Sequence[int]) -> Run:
        weights = [k for k, which in enumerate(active) if which >= PARAMETER]
        if operation.primitive.name not in BILINEAR or len(weights) != 1 or not all(active):
            return run_fast(operation, values, list(map(bool, active)))
        (weight,) = weights
        fixed = list(values)
        fixed[weight] = self._drawn(values[weight], active[weight] - PARAMETER)
        flags = [[k == place for k in (0, 1)] for place in (weight, 1 - weight)]
        own, back = run_fast(operation, values, flags[0]), run_fast(operation, fixed, flags[1])
        senders = (own.sender, back.sender) if weight == 0 else (back.sender, own.sender)
        return Run(own.outputs, [2], _Parted(senders), operation)

    def _drawn(self, weight: Array, which: int) -> Array:
        found, aval = self.draw(weight, which), jax.typeof(weight)
        given = jax.typeof(found)
        if (given.shape, given.dtype) != (aval.shape, aval.dtype):
            raise complain(
                ValueError,
                f"feedback: draw returned {given.dtype} of shape {given.shape} for a weight of "
                f"{aval.dtype} and shape {aval.shape}.",
                remedy="Return an array like the weight.",
            )
        return found


@jax.tree_util.register_pytree_node_class
@dataclass(frozen=True, eq=False)
class _Parted:
    """One way back for each of two inputs."""

    senders: tuple[Any, Any]

    def tree_flatten(self) -> Any:
        return (self.senders,), None

    @classmethod
    def tree_unflatten(cls, _: None, children: tuple[tuple[Sender, Sender]]) -> _Parted:
        return cls(*children)

    def send(self, errors: Sequence[Any], sums: Sequence[_compat.Sum]) -> None:
        for sender, total in zip(self.senders, sums, strict=True):
            sender.send(errors, [total])

    def reach(self, errors: Sequence[bool]) -> Sequence[bool]:
        return [bool(errors[0])] * 2


def feedback(draw: Draw) -> Linearise:
    """The ``local`` of a rule whose errors go back through other weights than those of the network.

    In each product and convolution of a value with a parameter (as it is, or reshaped, transposed,
    cast), the message to the value is turned by ``draw(weight, k)`` in place of the weight. The
    message to the weight is its own. With ``draw=lambda weight, k: weight`` nothing changes. The
    slices of one parameter, over which a `scan` goes layer by layer, have the same ``k``.

    **Arguments:** `draw`: a function of the weight and of its number ``k`` among the parameters,
    which returns an array like it; for feedback alignment a random one, the same at each call.

    !!! example

        ```python
        import dataclasses, dendrax, jax, jax.numpy as jnp


        @dataclasses.dataclass(frozen=True)
        class FeedbackAlignment(dendrax.BP):
            seed: int = 0

            @property
            def local(self):
                return dendrax.feedback(self.draw)

            def draw(self, weight, k):
                key = jax.random.fold_in(jax.random.key(self.seed), k)
                return jax.random.normal(key, weight.shape, weight.dtype)


        def loss(w, x):
            return jnp.sum(jnp.tanh(x @ w[0]) @ w[1])


        w, x = [jnp.full((3, 4), 0.2), jnp.full((4, 2), 0.2)], jnp.ones((5, 3))
        gradient = dendrax.grad(loss, rule=FeedbackAlignment())(w, x)
        bool((gradient[1] == jax.grad(loss)(w, x)[1]).all())  # -> True
        bool((gradient[0] == jax.grad(loss)(w, x)[0]).any())  # -> False
        ```
    """
    return _Feedback(draw)
