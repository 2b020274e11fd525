"""The public functions to look inside with: `trace`, `level`, `run`."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from dendrax._settings import check_callable, check_rule, check_vertices
from dendrax.graph import Graph, LevelledGraph, checked, level_graph
from dendrax.inference import (
    Clamp,
    Free,
    Result,
    as_flat,
    clamp_for,
    flat_target,
    graph_for,
    refuse_cycle,
    run_rule,
)
from dendrax.rules import Rule
from dendrax.support import QUANTITIES, Quantity, Vertices, complain, one_of, public
from dendrax.tracing import Call, trace_models
from dendrax.vertices import with_vertices


@public("dendrax.trace")
def trace(
    fun: Callable[..., Any],
    *args: Any,
    argnums: int | Sequence[int] = 0,
    has_aux: bool = False,
    vertices: Vertices | None = None,
    free: Any = (),
    tie: Any = None,
) -> Graph:
    """The computational graph of a function, inner jits opened. A `scan` stays a loop under
    `"layer"`, `"marked"` and modules, and is unrolled otherwise.

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
        - `"layer"`: the network that a paper would draw. A layer begins at a product with a weight
          and ends before its activation, at the sum of a residual block, or at the states of a
          recurrent cell; norms, biases, gates and pooling belong to it or to the next. What
          follows the last layer belongs to the output. In a `scan` there is one value node for all
          steps, with time as its first axis.
        - `"parameter"`: a vertex ends wherever an operation uses a parameter.
        - `"marked"`: the functions marked with `dendrax.vertex`, and nothing else.
        - `("Block", "Embed")`: the results of modules, by the names of their classes (`*` stands
          for anything) or by the classes themselves, and nothing else. Names are those of modules
          of Equinox, Flax NNX, linen and Haiku; subclasses count. Each array of floats that a call
          returns is one value node.
        - a function `graph -> nodes`: it gets the graph of operations, scans unrolled, and returns
          vertices of it, or their indices, names or ports.

    - `free`, `tie`: arguments that relax, and outputs that predict them, as for `dendrax.infer`.

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
    check_callable(fun)
    vertices = check_vertices("vertices", vertices)
    graph, _ = trace_models(
        fun, args, argnums, has_aux=has_aux, free=free, tie=tie, vertices=vertices
    )
    shown = with_vertices(checked(graph), vertices or "primitive")
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
    refuse_cycle(graph)
    return checked(level_graph(graph))


@public("dendrax.run")
def run(
    graph: Graph | LevelledGraph,
    rule: Rule,
    *args: Any,
    target: Any = None,
    mask: Any = None,
    hold: Mapping[str, Any] | None = None,
    prior: Any = None,
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
    - `mask`, `hold`, `prior`: what is held, and where; as for `dendrax.infer`.
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
    otherwise = Clamp if flat.free or hold else Free
    held = flat_target(flat, target)
    clamp = clamp_for(flat, held, mask, hold=hold, prior=prior, otherwise=otherwise)
    return run_rule(graph, rule, leaves, clamp, record)
