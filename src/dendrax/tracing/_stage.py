"""A function -> its jaxpr, as `jax.make_jaxpr`, with values that are known where they can be.

Of a function that is traced eagerly, what does not depend on the traced arguments has a value. It
becomes part of the program like everything else; but if Python asks for the value (to branch on it,
to make an index of it), it is computed.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import jax
import numpy as np

from dendrax import _compat
from dendrax.tracing._follow import FollowedValue, Follower


def stage(function: Callable[..., Sequence[Any]], *args: Any) -> _compat.ClosedJaxpr:
    """The jaxpr of a function with flat arguments and results."""
    with _compat.take_current_trace() as around:

        def staged(*inputs: Any) -> list[Any]:
            with _compat.take_current_trace() as inside:
                stager = Stager(around, inside)
                with _compat.set_current_trace(stager):
                    results = function(*(StagedValue(stager, value, value) for value in inputs))
                return [stager.staged(value) for value in results]

        with _compat.set_current_trace(around):
            return jax.make_jaxpr(staged)(*args)


class StagedValue(FollowedValue):
    """A value of the program; ``slot`` is what JAX knows it by there."""

    __slots__ = ()


class KnownValue(StagedValue):
    """A value of the program that can be computed: one of the results of an `_Operation`."""

    __slots__ = ("index", "operation")

    def __init__(self, trace: Any, value: Any, operation: _Operation, index: int):
        super().__init__(trace, value, value)
        self.operation, self.index = operation, index

    def known(self) -> Any:
        return self.operation.results()[self.index]

    def to_concrete_value(self) -> Any:
        return self.known()

    def __array__(self, *args: Any, **kwargs: Any) -> Any:
        return np.asarray(self.known(), *args, **kwargs)

    def __float__(self) -> float:
        return float(self.known())

    def __complex__(self) -> complex:
        return complex(self.known())

    def __format__(self, spec: str) -> str:
        return format(self.known(), spec)

    def item(self, *args: Any) -> Any:
        return self.known().item(*args)

    def tolist(self) -> Any:
        return self.known().tolist()


class _Operation:
    """An operation that has not been done yet."""

    found: Sequence[Any] | None = None

    def __init__(self, trace: Any, primitive: Any, args: Sequence[Any], params: dict[str, Any]):
        self.trace, self.primitive, self.args, self.params = trace, primitive, args, params

    def results(self) -> Sequence[Any]:
        """Do it, and those before it that it needs."""
        todo: list[_Operation] = [self]
        while todo:
            operation = todo[-1]
            before = [arg.operation for arg in operation.args if isinstance(arg, KnownValue)]
            waiting = [earlier for earlier in before if earlier.found is None]
            if not waiting:
                operation.run()
                todo.pop()
            todo.extend(waiting)
        assert self.found is not None
        return self.found

    def run(self) -> None:
        if self.found is None:
            values = [arg.known() if isinstance(arg, KnownValue) else arg for arg in self.args]
            with _compat.set_current_trace(self.trace):
                found = self.primitive.bind(*values, **self.params)
            self.found = found if self.primitive.multiple_results else [found]


class _Number(_Operation):
    """A number of Python that is to become an array."""

    def run(self) -> None:
        with _compat.set_current_trace(self.trace):
            self.found = [self.trace.stage_value(self.args[0])]


class Stager(Follower):
    """Writes every operation into the program that JAX's own trace ``inside`` makes."""

    def __init__(self, around: Any, inside: Any):
        super().__init__(around)
        self.inside = inside

    def follows(self, value: Any) -> bool:
        return isinstance(value, StagedValue) and value._trace is self

    def staged(self, value: Any) -> Any:
        return value.slot if self.follows(value) else value

    def stage_value(self, val: Any) -> Any:
        if isinstance(val, jax.Array):  # also one that is traced
            return val
        number = _Number(self.parent, None, [val], {})
        return KnownValue(self, self.inside.stage_value(val), number, 0)

    def process_primitive(self, primitive: Any, args: Any, params: Any, /) -> Any:
        found = self.inside.process_primitive(primitive, list(map(self.staged, args)), params)
        results = found if primitive.multiple_results else [found]
        avals = [jax.typeof(arg) for arg in args]
        pure = not _compat.has_effects(primitive, params)
        pure = pure and not _compat.has_references(primitive, avals)
        if pure and all(map(self.is_known, args)):
            operation = _Operation(self.parent, primitive, args, params)
            results = [KnownValue(self, r, operation, i) for i, r in enumerate(results)]
        else:
            results = [StagedValue(self, result, result) for result in results]
        return results if primitive.multiple_results else results[0]

    def is_known(self, value: Any) -> bool:
        return isinstance(value, KnownValue) or not _compat.is_tracer(value)

    def rule(self, call: Callable[..., Any], args: Sequence[Any]) -> Any:
        if all(map(self.is_known, args)):
            values = [arg.known() if isinstance(arg, KnownValue) else arg for arg in args]
            return call(self.parent, values)
        return self.function(call, args)

    def function(self, call: Callable[..., Any], args: Sequence[Any]) -> Any:
        closed, rebuild = self.stage_call(call, args)
        inputs = [self.staged(value) for value in (*closed.consts, *args)]
        with _compat.set_current_trace(self.inside):
            results = _compat.as_open_function(closed.jaxpr)(*inputs)
        return rebuild([StagedValue(self, result, result) for result in results])
