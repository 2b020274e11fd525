"""What JAX says of a derivative that does not exist, with the user's line and a remedy."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from typing import Any

import jax

from dendrax import _compat
from dendrax.support import complain, is_ours


class explaining:
    """What JAX says of a derivative that does not exist gets the user's line and a remedy.

    Only that, and so only what JAX said while it was `asking_jax`: a mistake in the operation
    itself (wrong shapes), in a rule or in a function of the user's stays as it is. ``operation`` is
    ``None`` where the user's functions run.
    """

    def __init__(self, operation: Any, source: Any, inputs: Sequence[Any] | None = None):
        self.operation, self.source, self.inputs = operation, source, inputs

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: Any, error: BaseException | None, traceback: Any) -> None:
        if not isinstance(error, _NOT_DIFFERENTIABLE) or _OF_JAX not in error.__dict__:
            return
        if self.operation is None or is_ours(error):
            return
        name = self.operation.primitive.name
        if _compat.carries_function(self.operation.params) and name not in _WITHOUT_USER_CODE:
            return
        if self.inputs is not None:
            try:
                jax.eval_shape(self.operation, *self.inputs)
            except Exception:
                return
        source = self.source if isinstance(self.source, str) else _compat.source_line(self.source)
        raise cannot_differentiate(name, error, source) from error


@contextlib.contextmanager
def asking_jax() -> Iterator[None]:
    """While JAX differentiates an operation, or transposes it at errors of the right types."""
    try:
        yield
    except _NOT_DIFFERENTIABLE as error:
        error.__dict__[_OF_JAX] = True
        raise


_OF_JAX = "_dendrax_of_jax"
_NOT_DIFFERENTIABLE = (NotImplementedError, ValueError, TypeError, AssertionError)


_WITHOUT_USER_CODE = ("while", "pure_callback", "io_callback")


def cannot_differentiate(name: str, error: Exception, source: str) -> Exception:
    """JAX's error for a vertex that has no derivative, with the user's line and a remedy."""
    kind = type(error) if type(error) in (TypeError, ValueError) else NotImplementedError
    problem, remedy = _NO_DERIVATIVE.get(name, _NO_DERIVATIVE_OF_OTHERS)
    return complain(kind, problem.format(name=name, error=error), source=source, remedy=remedy)


_NO_DERIVATIVE_OF_OTHERS = (
    "JAX has no reverse derivative for '{name}': {error}",
    "Wrap the operation in jax.custom_vjp or jax.custom_jvp, or cut it off with "
    "jax.lax.stop_gradient.",
)


_NO_DERIVATIVE = {
    "while": (
        "reverse-mode differentiation does not work through lax.while_loop, or lax.fori_loop with "
        "bounds that are not fixed: the number of steps is unknown when tracing.",
        "Use lax.scan, lax.fori_loop with Python integers as bounds, or jax.lax.stop_gradient if "
        "the loop should not learn.",
    )
}
