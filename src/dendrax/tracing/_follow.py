"""Following values through a function: the trace and the tracer that ours are made of.

JAX hands every operation to the trace that is running. A `Follower` looks for values that it
follows among the arguments; what none of them goes into it leaves to the trace around. So that is
known: Python may branch on it, as under `jax.grad`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import jax

from dendrax import _compat


class FollowedValue(_compat.Tracer):
    """A value that is followed: ``value`` is what the trace around knows of it.

    ``slot`` is for whoever follows.
    """

    __slots__ = ("slot", "value")

    def __init__(self, trace: _compat.Trace, value: Any, slot: Any):
        super().__init__(trace, *([jax.typeof(value)] if _HAS_AVAL else []))
        self.value, self.slot = value, slot

    def full_lower(self) -> FollowedValue:
        return self

    def to_concrete_value(self) -> Any:
        return _compat.to_concrete_value(self.value)


_HAS_AVAL = "aval" in _compat.Tracer.__slots__
if not _HAS_AVAL:  # JAX before 0.9
    FollowedValue.aval = property(lambda self: jax.typeof(self.value))  # pyright: ignore


class Follower(_compat.Trace):
    """Follows some values through a function, and leaves all else to the trace around.

    So what no followed value goes into is known: Python may branch on it, as under `jax.grad`.
    """

    def __init__(self, parent: _compat.Trace):
        super().__init__()
        self.parent = parent

    def follows(self, value: Any) -> bool:
        return type(value) is FollowedValue and value._trace is self

    def primitive(self, primitive: Any, args: Sequence[Any], params: dict[str, Any]) -> Any:
        """Apply an operation to arguments some of which are followed."""
        raise NotImplementedError

    def rule(self, call: Callable[..., Any], args: Sequence[Any]) -> Any:
        """Call a function that has a derivative rule of its own."""
        raise NotImplementedError

    def function(self, call: Callable[..., Any], args: Sequence[Any]) -> Any:
        """Call a function in which values may be followed that are not among the arguments."""
        raise NotImplementedError

    @staticmethod
    def call_now(call: Callable[..., Any], args: Sequence[Any]) -> Any:
        """Make a call in the trace that is running now."""
        with _compat.take_current_trace() as trace:
            return call(trace, args)

    def stage_call(
        self, call: Callable[..., Any], args: Sequence[Any]
    ) -> tuple[_compat.ClosedJaxpr, Callable[[list[Any]], Any]]:
        """A call as a jaxpr, whose constants are the values that it reads besides its arguments;
        and a function that makes of results what the caller expects."""
        results: list[Any] = []

        def staged(*inputs: Any) -> list[Any]:
            results.append(self.call_now(call, inputs))
            return list(results[0])

        closed = jax.make_jaxpr(staged)(*args)
        return closed, getattr(results[0], "update", list)

    def stage_value(self, val: Any) -> Any:
        if self.follows(val):
            return FollowedValue(self, self.parent.stage_value(val.value), val.slot)
        return self.parent.stage_value(val)

    def process_primitive(self, primitive: Any, args: Any, params: Any, /) -> Any:
        if any(map(self.follows, args)) or primitive.name == "empty_ref":
            return self.primitive(primitive, args, params)
        return self.parent.process_primitive(primitive, args, params)

    def process_custom_jvp_call(self, primitive, fun, jvp, args, /, **params):
        def call(trace, values):
            return trace.process_custom_jvp_call(primitive, fun, jvp, values, **params)

        return self.rule(call, args) if any(map(self.follows, args)) else call(self.parent, args)

    def process_custom_vjp_call(self, primitive, fun, fwd, bwd, args, /, **params):
        def call(trace, values):
            return trace.process_custom_vjp_call(primitive, fun, fwd, bwd, values, **params)

        return self.rule(call, args) if any(map(self.follows, args)) else call(self.parent, args)

    def process_shard_map(self, primitive, fun, args, /, **params):
        def call(trace, values):
            return trace.process_shard_map(primitive, fun, values, **params)

        return self.function(call, args)

    def process_call(self, primitive, fun, args, params, /):
        with _compat.set_current_trace(self):
            return fun.call_wrapped(*args)

    def process_map(self, primitive, fun, args, params, /):  # `jax.pmap`, JAX before 0.9
        def call(trace, values):
            return trace.process_map(primitive, fun, values, params)

        return self.function(call, args)
