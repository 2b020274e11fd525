"""The public functions that differentiate: `value_and_grad`, `grad`, `vjp`."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Literal, NamedTuple

import jax
import jax.numpy as jnp

from dendrax import _compat, inference
from dendrax._settings import check_callable, check_settings
from dendrax.graph import Graph, checked
from dendrax.inference import (
    Clamp,
    Outcome,
    Pull,
    check_no_memory,
    clamp_for,
    evaluate,
    flat_target,
    learn,
)
from dendrax.rules import ZIL, Rule
from dendrax.support import Vertices, complain, one_of, speaking_as
from dendrax.tracing import (
    Arguments,
    Call,
    check_parameters,
    check_scalar,
    flatten_arguments,
    normalise_argnums,
    trace_call,
)
from dendrax.walk import Tape, record_call, send_back


class _Conditions(NamedTuple):
    """What is free, what is held, and at what; see `dendrax.infer`."""

    free: Any = ()
    hold: Any = None
    tie: Any = None
    prior: Any = None
    target: Any = None
    mask: Any = None

    @property
    def is_plain(self) -> bool:
        """Whether nothing is said, and the result is a loss."""
        said = (self.hold, self.tie, self.prior, self.target, self.mask)
        return self.free in (None, (), []) and all(part is None for part in said)

    @property
    def has_loss(self) -> bool:
        """Whether the network is held by a loss."""
        return self.target is None and self.tie is None and self.mask is None


def value_and_grad(
    fun: Callable[..., Any],
    argnums: int | Sequence[int] = 0,
    has_aux: bool = False,
    *,
    rule: Rule = ZIL(),
    vertices: Vertices | None = None,
    memory: Any = None,
    has_result: bool | Literal["energy"] = False,
    free: Any = (),
    hold: Mapping[str, Any] | None = None,
    tie: Any = None,
    prior: Any = None,
    target: Any = None,
    mask: Any = None,
) -> Callable[..., tuple[Any, Any]]:
    """As `jax.value_and_grad`, with the gradient found by a predictive-coding rule.

    **Arguments:**

    - `fun`: a function that returns a scalar (or, with `has_aux`, a scalar and anything else).
    - `argnums`: which positional arguments to differentiate.
    - `has_aux`: whether `fun` returns a pair `(loss, aux)`.
    - `rule`: how errors spread. The default, `dendrax.ZIL()`, gives backpropagation's gradient.
    - `vertices`: which functions count as elementary, see `dendrax.trace`. By default what the
      rule is meant for: `"primitive"` for `dendrax.BP` and `dendrax.ZIL` (whose result does not
      depend on it), `"layer"` for all others (whose result does).
    - `memory`: what the rule is to start from, if it remembers anything from update to update:
      `result.memory` of the last one. `None` at the first.
    - `has_result`: whether to hand out what inference left besides the gradient, too: the energy
      where it has settled, `num_steps`, the largest `slope`, `diverged`, the `memory`, and
      `args`, in which free arguments are settled. `"energy"` asks for its `course`, too.
    - `free`, `hold`, `tie`, `prior`, `target`, `mask`: as for `dendrax.infer`. Latent variables
      (`free`) settle together with the value nodes, and the parameters learn from that. With a
      `target` or a `tie` the function need not return a loss.

    **Returns:** a function with the same arguments that returns `(fun(...), gradient)` (with `hold`
    the value is that of the forward pass through what is held); with
    `has_result`, `((value, result), gradient)`, or `((value, aux, result), gradient)`.

    !!! example

        ```python
        import dendrax

        dendrax.value_and_grad(lambda w, x: (w * x) ** 2)(2.0, 3.0)  # -> (36.0, 36.0)
        ```
    """
    name = "dendrax.value_and_grad"
    conditions = _Conditions(free, hold, tie, prior, target, mask)
    one_of(f"{name}: has_result", has_result, (True, False, "energy"))
    both = _value_and_grad(
        name, fun, argnums, has_aux, rule, vertices, memory, has_result, conditions
    )

    @functools.wraps(fun)
    def value_and_gradient(*args: Any, **kwargs: Any) -> tuple[Any, Any]:
        value, aux, result, gradient = both(*args, **kwargs)
        found = (value, *aux, result) if has_result else (value, *aux)
        return found if len(found) > 1 else value, gradient

    return value_and_gradient


def first_memory(
    fun: Callable[..., Any],
    *args: Any,
    has_aux: bool = False,
    rule: Rule,
    vertices: Vertices | None = None,
) -> Any:
    """The ``memory`` for the first update, where that must have the form of all others."""
    chosen = check_settings(fun, rule, vertices) or rule.vertices
    graph, call = _trace(fun, args, {}, 0, has_aux, chosen)
    graph = replace(graph, call=call)
    return inference.first_memory(graph, rule, chosen, call.leaves())


def grad(
    fun: Callable[..., Any],
    argnums: int | Sequence[int] = 0,
    has_aux: bool = False,
    *,
    rule: Rule = ZIL(),
    vertices: Vertices | None = None,
) -> Callable[..., Any]:
    """As `jax.grad`, with the gradient found by a predictive-coding rule.

    **Arguments:** as for `dendrax.value_and_grad`.

    **Returns:** a function with the same arguments that returns the gradient (or, with `has_aux`,
    a pair of gradient and auxiliary data).

    !!! example

        ```python
        import dendrax

        dendrax.grad(lambda w: w**3)(2.0)  # -> 12.0
        ```
    """
    both = _value_and_grad("dendrax.grad", fun, argnums, has_aux, rule, vertices)

    @functools.wraps(fun)
    def gradient(*args: Any, **kwargs: Any) -> Any:
        _, aux, _, gradient = both(*args, **kwargs)
        return (gradient, *aux) if has_aux else gradient

    return gradient


def _value_and_grad(
    name: str,
    fun: Any,
    argnums: Any,
    has_aux: bool,
    rule: Rule,
    vertices: Vertices | None,
    memory: Any = None,
    has_result: Any = False,
    conditions: _Conditions = _Conditions(),
) -> Callable[..., tuple[Any, tuple[Any, ...], Outcome, Any]]:
    """``(value, aux, if any, outcome, gradient)``."""
    with speaking_as(name):
        chosen = check_settings(fun, rule, vertices) or rule.vertices

    @functools.wraps(fun)
    def both(*args: Any, **kwargs: Any) -> tuple[Any, tuple[Any, ...], Outcome, Any]:
        with speaking_as(name):
            if rule.is_wave and conditions.is_plain:
                check_no_memory(rule, memory)
                outputs, found, call = _by_wave(fun, args, kwargs, argnums, has_aux, rule)
                outcome = Outcome(energy=outputs[0])
            else:
                graph, call = _trace(fun, args, kwargs, argnums, has_aux, chosen, conditions)
                graph = replace(graph, call=call)
                clamp = _clamp(graph, call, conditions)
                record = ("energy",) if has_result == "energy" else ()
                learned = learn(graph, rule, chosen, call.leaves(), clamp, memory, record)
                outputs, found = learned.outputs, learned.gradients
                outcome = learned.outcome(call) if has_result else Outcome()
            count = call.out_tree.num_leaves
            value = jax.tree.unflatten(call.out_tree, outputs[:count])
            aux = (call.aux(outputs[count:]),) if has_aux else ()
            return value, aux, outcome, call.gradient(found)

    return both


def _clamp(graph: Graph, call: Call, conditions: _Conditions) -> Clamp:
    """What holds the network: a loss, unless something else does."""
    is_scalar = len(_root_avals(graph)) == 1 and not _root_avals(graph)[0].shape
    if conditions.has_loss and (is_scalar or not conditions.hold):
        check_scalar(_root_avals(graph), call, graph[graph.outputs[0].vertex].source)
        errors = [1.0] + [None] * (len(graph.outputs) - 1)
        return Pull(errors, hold=conditions.hold or {}, prior=conditions.prior)
    target = flat_target(graph, conditions.target)
    return clamp_for(
        graph,
        target,
        conditions.mask,
        hold=conditions.hold,
        prior=conditions.prior,
        otherwise=Clamp,
    )


def _by_wave(
    fun: Any, args: tuple[Any, ...], kwargs: dict[str, Any], argnums: Any, has_aux: bool, rule: Rule
) -> tuple[list[Any], list[Any], Call]:
    """The results of a loss and the errors at what is differentiated, by one pass."""
    arguments, chosen = _arguments(fun, args, kwargs, argnums)
    outputs, tape, call = record_call(fun, arguments, chosen, rule.local, has_aux=has_aux)
    count = call.out_tree.num_leaves
    check_scalar(list(map(_compat.aval_of, outputs[:count])), call, tape.layout.source_of_output())
    return outputs, send_back(tape, [jax.lax.full_like(outputs[0], 1)]), call


def _root_avals(graph: Graph) -> list[Any]:
    pairs = zip(graph.outputs, graph.roots, strict=True)
    return [graph[port.vertex].outputs[port.output] for port, root in pairs if root]


def vjp(
    fun: Callable[..., Any],
    *primals: Any,
    has_aux: bool = False,
    rule: Rule = ZIL(),
    vertices: Vertices | None = None,
) -> Any:
    """As `jax.vjp`, with the pullback found by a predictive-coding rule.

    **Arguments:**

    - `fun`: the function to differentiate; any number of outputs.
    - `primals`: where to differentiate it.
    - `has_aux`, `rule`, `vertices`: as for `dendrax.value_and_grad`.

    **Returns:** `(fun(*primals), vjp_fun)`, or `(fun(*primals), vjp_fun, aux)` with `has_aux`.
    `vjp_fun` takes a cotangent shaped like the result and returns a tuple of gradients.

    !!! example

        ```python
        import dendrax

        y, pullback = dendrax.vjp(lambda w, x: w * x, 2.0, 3.0)
        y  # -> 6.0
        pullback(1.0)  # -> (3.0, 2.0)
        ```
    """
    with speaking_as("dendrax.vjp"):
        chosen = check_settings(fun, rule, vertices) or rule.vertices
        argnums = tuple(range(len(primals)))
        if rule.is_wave:
            arguments, _ = _arguments(fun, primals, {}, argnums, allow_int=True)
            outputs, tape, call = record_call(fun, arguments, argnums, rule.local, has_aux=has_aux)
            pull, kept = _pull_wave, tape
        else:
            graph, call = _trace(fun, primals, {}, argnums, has_aux, chosen, allow_int=True)
            kept = call.leaves()
            values = evaluate(graph, kept)
            outputs = [values[port] for port in graph.outputs]
            pull = functools.partial(_pull_dynamics, graph, rule, chosen)
        count = call.out_tree.num_leaves
        avals = tuple(map(_compat.aval_of, outputs[:count]))
        pull = functools.partial(pull, call.without_values(), avals)
        value = jax.tree.unflatten(call.out_tree, outputs[:count])
        pullback = jax.tree_util.Partial(pull, kept)
        return (value, pullback, call.aux(outputs[count:])) if has_aux else (value, pullback)


def _pull_wave(call: Call, avals: tuple[Any, ...], tape: Tape, cotangent: Any) -> Any:
    with speaking_as("dendrax.vjp"):
        return call.gradient(send_back(tape, _output_errors(call, avals, cotangent)))


def _pull_dynamics(
    graph: Graph,
    rule: Rule,
    vertices: Vertices,
    call: Call,
    avals: tuple[Any, ...],
    leaves: Any,
    cotangent: Any,
) -> Any:
    with speaking_as("dendrax.vjp"):
        errors = _output_errors(call, avals, cotangent)
        errors += [None] * (len(graph.outputs) - len(errors))
        pairs = zip(errors, graph.outputs, strict=True)
        errors = [error if graph.carries(port) else None for error, port in pairs]
        pull = Pull(errors, is_mean=False)
        return call.gradient(learn(graph, rule, vertices, leaves, pull).gradients)


def _output_errors(call: Call, avals: tuple[Any, ...], cotangent: Any) -> list[Any]:
    """A cotangent as one error per result, checked as JAX checks it."""
    leaves, tree = jax.tree.flatten(cotangent)
    if tree != call.out_tree:
        raise complain(
            ValueError,
            f"the cotangent's tree {tree} is not that of the function's result {call.out_tree}.",
            remedy="Pass one cotangent shaped like the result.",
        )
    errors = []
    for leaf, aval in zip(leaves, avals, strict=True):
        expected = aval.to_tangent_aval()
        if expected.dtype == jax.dtypes.float0:
            errors.append(None)
            continue
        given = jax.typeof(leaf if _compat.is_tracer(leaf) else jnp.asarray(leaf))
        if given.shape != expected.shape or given.dtype != expected.dtype:
            raise complain(
                ValueError,
                f"a cotangent has type {given.dtype} and shape {given.shape}, but the result "
                f"calls for {expected.dtype} and shape {expected.shape}.",
                remedy="Pass one cotangent shaped like the result, of the same dtype.",
            )
        errors.append(jnp.asarray(leaf))
    return errors


def _trace(
    fun: Any,
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    argnums: Any,
    has_aux: bool,
    vertices: Vertices,
    conditions: _Conditions = _Conditions(),
    *,
    allow_int: bool = False,
) -> tuple[Graph, Call]:
    arguments, chosen = _arguments(fun, args, kwargs, argnums, allow_int, conditions)
    graph, call = trace_call(fun, arguments, chosen, has_aux=has_aux, vertices=vertices)
    return checked(graph), call


def _arguments(
    fun: Any,
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    argnums: Any,
    allow_int: bool = False,
    conditions: _Conditions = _Conditions(),
) -> tuple[Arguments, int | tuple[int, ...]]:
    check_callable(fun)
    chosen = normalise_argnums(argnums, len(args))
    indices = (chosen,) if isinstance(chosen, int) else chosen
    arguments = flatten_arguments(
        fun, args, kwargs, indices, trace_data=False, free=conditions.free, tie=conditions.tie
    )
    check_parameters(arguments, allow_int=allow_int)
    return arguments, chosen
