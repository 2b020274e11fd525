"""The public functions: `value_and_grad`, `grad`, `vjp`, `trace`, `level`, `run`."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp

from dendrax import _compat, inference
from dendrax.graph import Graph, LevelledGraph, checked, level_graph
from dendrax.inference import (
    Outcome,
    Result,
    as_flat,
    check_no_memory,
    check_wave,
    evaluate,
    flat_target,
    graph_for,
    learn,
    run_rule,
)
from dendrax.rules import ZIL, Rule
from dendrax.support import (
    QUANTITIES,
    RULE_NAMES,
    VERTICES,
    Quantity,
    Vertices,
    close_words,
    complain,
    one_of,
    public,
    speaking_as,
)
from dendrax.tracing import (
    Arguments,
    Call,
    check_parameters,
    check_scalar,
    flatten_arguments,
    flatten_models,
    normalise_argnums,
    trace_call,
    without_aux,
)
from dendrax.vertices import with_vertices
from dendrax.walk import Tape, record_call, send_back


def value_and_grad(
    fun: Callable[..., Any],
    argnums: int | Sequence[int] = 0,
    has_aux: bool = False,
    *,
    rule: Rule = ZIL(),
    vertices: Vertices | None = None,
    memory: Any = None,
    has_result: bool = False,
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
    - `has_result`: whether to hand out what inference left besides the gradient, too.

    **Returns:** a function with the same arguments that returns `(fun(...), gradient)`; with
    `has_result`, `((value, result), gradient)`, or `((value, aux, result), gradient)`.

    !!! example

        ```python
        import dendrax

        dendrax.value_and_grad(lambda w, x: (w * x) ** 2)(2.0, 3.0)  # -> (36.0, 36.0)
        ```
    """
    name = "dendrax.value_and_grad"
    both = _value_and_grad(name, fun, argnums, has_aux, rule, vertices, memory)

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
    graph, call = _trace(fun, args, {}, 0, has_aux)
    return inference.first_memory(graph, rule, vertices or rule.vertices, call.leaves())


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
) -> Callable[..., tuple[Any, tuple[Any, ...], Outcome, Any]]:
    """``(value, aux, if any, outcome, gradient)``."""
    with speaking_as(name):
        check_settings(fun, rule, vertices)

    @functools.wraps(fun)
    def both(*args: Any, **kwargs: Any) -> tuple[Any, tuple[Any, ...], Outcome, Any]:
        with speaking_as(name):
            if rule.is_wave:
                check_no_memory(rule, memory)
                outputs, found, call = _by_wave(fun, args, kwargs, argnums, has_aux, rule)
                outcome = Outcome()
            else:
                graph, call = _trace(fun, args, kwargs, argnums, has_aux)
                check_scalar(_root_avals(graph), call, graph[graph.outputs[0].vertex].source)
                errors = [1.0] + [None] * (len(graph.outputs) - 1)
                chosen = vertices or rule.vertices
                outputs, found, outcome = learn(graph, rule, chosen, call.leaves(), errors, memory)
            value = jax.tree.unflatten(call.out_tree, outputs[:1])
            aux = (call.aux(outputs[1:]),) if has_aux else ()
            return value, aux, outcome, call.gradient(found)

    return both


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
        check_settings(fun, rule, vertices)
        argnums = tuple(range(len(primals)))
        if rule.is_wave:
            arguments, _ = _arguments(fun, primals, {}, argnums, allow_int=True)
            outputs, tape, call = record_call(fun, arguments, argnums, rule.local, has_aux=has_aux)
            pull, kept = _pull_wave, tape
        else:
            graph, call = _trace(fun, primals, {}, argnums, has_aux, allow_int=True)
            kept = call.leaves()
            values = evaluate(graph, kept)
            outputs = [values[port] for port in graph.outputs]
            pull = functools.partial(_pull_dynamics, graph, rule, vertices or rule.vertices)
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
        return call.gradient(learn(graph, rule, vertices, leaves, errors).gradients)


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


@public("dendrax.trace")
def trace(
    fun: Callable[..., Any],
    *args: Any,
    argnums: int | Sequence[int] = 0,
    has_aux: bool = False,
    vertices: Vertices | None = None,
) -> Graph:
    """The computational graph of a function: inner jits opened, scans unrolled.

    **Arguments:**

    - `fun`: any JAX function.
    - `args`: example arguments, models of Equinox and Flax NNX among them as they are. Arrays
      become leaves of the graph: the floating-point ones of `argnums` parameters, all others data.
      Everything else (functions, flags) is fixed.
    - `argnums`: which arguments are parameters.
    - `has_aux`: whether `fun` returns a pair `(result, aux)`. What is auxiliary is left out.
    - `vertices`: which functions count as elementary. By default the graph shows every operation,
      and `dendrax.run` groups them as the rule is meant to be used.
        - `"primitive"`: every operation is a vertex.
        - `"layer"`: the textbook network, in which a vertex ends where an operation uses a
          parameter (a bias that follows directly, or a sum of such operations, joins it). What lies
          between belongs to the next vertex, and what follows the last layer to the output.
        - `"marked"`: the functions marked with `dendrax.vertex`, and nothing else.

    **Returns:** a `Graph`; print it to see its vertices with their names, shapes and source lines.

    !!! example

        ```python
        import dendrax, jax.numpy as jnp

        print(dendrax.trace(lambda z1, z2: (jnp.sqrt(z1) + z2) ** 2, 3.0, 4.0, argnums=(0, 1)))
        # -> Graph: 5 vertices, 4 edges that carry errors
        # ->   2 parameters, 0 data, 3 internal vertices with an error, 0 without
        # ->       0 parameter  z1           float32[]
        # ->       1 parameter  z2           float32[]
        # ->       2 internal   sqrt         float32[] ...
        # ->       3 internal   add          float32[] ...
        # ->       4 internal   integer_pow  float32[] ...
        ```
    """
    _check_callable(fun)
    if vertices is not None:
        one_of("vertices", vertices, VERTICES)
    arguments = flatten_models(fun, args, argnums)
    assert arguments.opened is not None
    graph, call = trace_call(without_aux(fun, has_aux), arguments, arguments.opened.argnums)
    shown = with_vertices(replace(checked(graph), call=call), vertices or "primitive")
    return replace(shown, chosen=vertices)


@public("dendrax.level")
def level(graph: Graph) -> LevelledGraph:
    """Level a graph: the level of each vertex and the delay of each edge (Algorithm 2, corrected).

    **Arguments:** `graph`: from `dendrax.trace`.

    **Returns:** a `LevelledGraph` with `.levels`, `.level_of`, `.delays` and `.expand()`.

    !!! example

        ```python
        import dendrax, jax.numpy as jnp

        print(dendrax.level(dendrax.trace(lambda x: x + jnp.sin(jnp.cos(x)), 1.0)))
        # -> LevelledGraph: 4 vertices, 4 of them with an error, in 4 levels
        # ->   1 parameter, 4 edges, 2 delays (identity vertices) on 1 edge
        # ->   S_0   add
        # ->   S_1   sin
        # ->   S_2   cos
        # ->   S_3   x
        ```
    """
    if not isinstance(graph, Graph):
        raise complain(
            TypeError,
            f"expected a Graph, got {type(graph).__name__}.",
            remedy="Make one with dendrax.trace(fun, *args).",
        )
    return checked(level_graph(graph))


@public("dendrax.run")
def run(
    graph: Graph | LevelledGraph,
    rule: Rule,
    *args: Any,
    target: Any = None,
    record: Quantity | Sequence[Quantity] = (),
) -> Result:
    """Run a rule on a traced graph and look inside.

    With a scalar output the output is a loss and its error is 1. With a `target` the output is
    clamped to it, and the energy is the paper's, quadratic in every error. With neither, nothing is
    clamped: the value nodes settle towards the forward pass (prediction by inference).

    **Arguments:**

    - `graph`: from `dendrax.trace` or `dendrax.level`. If its vertices were not chosen there, the
      rule runs on those that it is meant for; `.graph` of the result is the graph that ran.
    - `rule`: for instance `dendrax.ZIL()`.
    - `args`: new arguments for the traced function; by default those that it was traced with.
    - `target`: what the output should be; a tree like the function's result.
    - `record`: any of `"energy"`, `"x"`, `"mu"`, `"epsilon"`, to be kept at every time step; of
      large models `"statistics"`, the root mean squares of the last three.

    **Returns:** a `Result` with `.output`, `.gradient` and the records: `.energy[t]`,
    `.epsilon[t][vertex]`; `.num_steps`, `.converged` and `.diverged_at`. Print it for a summary,
    with advice if inference went wrong.

    !!! example

        ```python
        import dendrax, jax.numpy as jnp

        graph = dendrax.trace(lambda w, x: jnp.tanh(x @ w), jnp.ones((3, 2)), jnp.ones((5, 3)))
        result = dendrax.run(graph, dendrax.ZIL(), target=jnp.zeros((5, 2)), record="energy")
        result.energy  # -> [4.951, 4.950]
        ```
    """
    if not isinstance(graph, (Graph, LevelledGraph)):
        raise complain(
            TypeError,
            f"expected a Graph, got {type(graph).__name__}.",
            remedy="Make one with dendrax.trace(fun, *args).",
        )
    check_rule(rule)
    record = (record,) if isinstance(record, (str, bool)) or record is None else tuple(record)
    for name in record:
        one_of("record", name, QUANTITIES)
    graph = graph_for(rule, graph)
    flat = as_flat(graph)
    call: Call = flat.call
    leaves = call.leaves(call.arguments.replaced(args) if args else None)
    return run_rule(graph, rule, leaves, flat_target(flat, target), record)


def _trace(
    fun: Any,
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    argnums: Any,
    has_aux: bool = False,
    *,
    allow_int: bool = False,
) -> tuple[Graph, Call]:
    arguments, chosen = _arguments(fun, args, kwargs, argnums, allow_int)
    graph, call = trace_call(fun, arguments, chosen, has_aux=has_aux)
    return checked(graph), call


def _arguments(
    fun: Any, args: tuple[Any, ...], kwargs: dict[str, Any], argnums: Any, allow_int: bool = False
) -> tuple[Arguments, int | tuple[int, ...]]:
    _check_callable(fun)
    chosen = normalise_argnums(argnums, len(args))
    indices = (chosen,) if isinstance(chosen, int) else chosen
    arguments = flatten_arguments(fun, args, kwargs, indices, trace_data=False)
    check_parameters(arguments, allow_int=allow_int)
    return arguments, chosen


def check_settings(fun: Any, rule: Any, vertices: Any) -> None:
    _check_callable(fun)
    check_rule(rule)
    if vertices is not None:
        one_of("vertices", vertices, VERTICES)


def _check_callable(fun: Any) -> None:
    if not callable(fun):
        raise complain(
            TypeError,
            f"expected a function, got {type(fun).__name__}.",
            remedy="Pass the function itself, not its result.",
        )


def check_rule(rule: Any) -> None:
    if not isinstance(rule, Rule):
        is_class = isinstance(rule, type)
        shown = f"the class {rule.__name__}" if is_class else repr(rule)
        is_own = is_class and issubclass(rule, Rule) and rule.__name__ not in RULE_NAMES
        meant = rule.__name__ if is_own else f"dendrax.{_rule_meant(rule)}"
        raise complain(
            TypeError, f"rule must be a rule, got {shown}.", remedy=f"Write rule={meant}()."
        )
    try:
        hash(rule)
    except TypeError as problem:
        name = type(rule).__name__
        raise complain(
            TypeError,
            f"the rule {name} cannot be hashed: {problem}.",
            remedy=f"Write @dataclasses.dataclass(frozen=True) above class {name}, and give it "
            "settings that can be hashed: numbers, texts, tuples.",
        ) from None
    one_of(f"{type(rule).__name__}: vertices", rule.vertices, VERTICES)
    check_wave(rule)


def _rule_meant(rule: Any) -> str:
    """The rule whose name is nearest to a class, or to a word; else the default."""
    name = rule.__name__ if isinstance(rule, type) else rule
    return next(iter(close_words(name, RULE_NAMES)), "ZIL")
