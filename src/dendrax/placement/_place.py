"""`place`: the public way to put the levels of a function on several devices."""

from __future__ import annotations

import contextlib
import itertools
import operator
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any

import jax
import numpy as np

from dendrax._settings import check_settings
from dendrax.graph import Graph, checked, operations_of
from dendrax.inference import relaxed_graph
from dendrax.placement._blocks import partition
from dendrax.placement._cut import work
from dendrax.placement._inputs import Inputs, piece_of
from dendrax.placement._placed import Placed
from dendrax.placement._relaxation import Relaxing
from dendrax.placement._wave import Wave
from dendrax.rules import ZIL, Rule
from dendrax.support import Vertices, complain, public
from dendrax.tracing import (
    check_parameters,
    check_scalar,
    flatten,
    flatten_arguments,
    normalise_argnums,
    trace_call,
)
from dendrax.vertices import with_vertices


@public("dendrax.placement.place")
def place(
    fun: Callable[..., Any],
    *args: Any,
    devices: int | Sequence[Any] | None = None,
    argnums: int | Sequence[int] = 0,
    has_aux: bool = False,
    rule: Rule = ZIL(),
    vertices: Vertices | None = None,
    micro_batches: int = 1,
    batch_argnums: int | Sequence[int] | None = None,
    cuts: Sequence[int] | None = None,
) -> Placed:
    """Put contiguous blocks of levels of a function on different devices.

    Each device holds the parameters, values and errors of its vertices. Values are handed up to
    the next device and errors down to the one before, and to no other; a parameter learns when the
    wave has passed its block. There is no backward pass over the whole function.

    **Arguments:**

    - `fun`: a function that returns a scalar loss (or, with `has_aux`, a loss and anything else).
    - `args`: its arguments, or others of the same shapes.
    - `devices`: a list of devices, or how many of this process's; by default all of them.
    - `argnums`, `has_aux`, `vertices`: as for `dendrax.value_and_grad`. Of several micro-batches,
      arrays in `aux` that grow with the batch are put together; of others, those of floating-point
      numbers are the mean, and the rest is that of the first.
    - `rule`: `dendrax.ZIL()`, `dendrax.BP()` (which is the same wave) or a `dendrax.IL`.
    - `micro_batches`: into how many pieces the batch is cut, which follow each other through the
      devices. The loss must be a mean over the batch. The value is the mean of the pieces' losses.
    - `batch_argnums`: the arguments that are cut, along their first axis; by default all that are
      not differentiated.
    - `cuts`: the lowest level of each block but the last, from the input on, if you want to choose
      them. By default blocks are about equal work, and cut where XLA's rounding does not notice.

    **Returns:** a `Placed`: call `.value_and_grad(*args)`, or train with `.init(optimizer,
    params)` and `.update(learner, *data)`; `.audit()` follows every array of an update.

    !!! example

        ```python
        import jax, jax.numpy as jnp
        from dendrax import placement


        def loss(w, x, y):
            return jnp.mean((jnp.tanh(x @ w[0]) @ w[1] - y) ** 2)


        args = [jnp.ones((3, 4)), jnp.ones((4, 2))], jnp.ones((8, 3)), jnp.zeros((8, 2))
        placed = placement.place(loss, *args, devices=[jax.devices()[0]] * 2, micro_batches=4)
        value, gradient = placed.value_and_grad(*args)
        print(placed.audit())
        # -> device  own parameters read  sends to
        # ->      0                    1  1: 4 arrays, 128 bytes
        # ->      1                    1  0: 4 arrays, 128 bytes
        # -> placement: local
        ```
    """
    kinds = check_settings(fun, rule, vertices) or rule.vertices
    chosen = _devices(devices)
    numbers = normalise_argnums(argnums, len(args))
    batched = _batched(batch_argnums, numbers, len(args), micro_batches)
    pieces = piece_of(args, batched, micro_batches, alike=batch_argnums is None)
    learned = (numbers,) if isinstance(numbers, int) else numbers
    arguments = flatten_arguments(fun, pieces, {}, learned, trace_data=True)
    check_parameters(arguments)
    with _explaining(micro_batches):
        named = None if rule.is_wave else kinds
        graph, call = trace_call(fun, arguments, numbers, has_aux=has_aux, vertices=named)
    roots = [port for port, root in zip(graph.outputs, graph.roots, strict=True) if root]
    avals = [graph[port.vertex].outputs[port.output] for port in roots]
    check_scalar(avals, call, graph[roots[0].vertex].source if roots else "")
    if rule.is_wave:
        shown = checked(_opened(graph, len(chosen)))
        parts = partition(shown, len(chosen), shares_sums=True, cuts=_cuts(cuts, len(chosen)))
        runner = Wave(parts, micro_batches, rule.local)
    else:
        _check_relaxes(rule)
        shown = with_vertices(replace(graph, call=call), kinds, unrolled=True)
        shown = relaxed_graph(rule, replace(shown, chosen=kinds))
        parts = partition(
            operations_of(shown), len(chosen), shares_sums=False, cuts=_cuts(cuts, len(chosen))
        )
        runner = Relaxing(parts, rule, shown, micro_batches)
    inputs = Inputs(parts.graph, call, batched, micro_batches)
    grows = None
    if has_aux and micro_batches > 1:
        whole = flatten_arguments(fun, args, {}, learned, trace_data=True)
        grows = _growing(graph, trace_call(fun, whole, numbers, has_aux=True)[0])
    return Placed(parts, runner, inputs, rule, chosen, has_aux=has_aux, grows=grows)


def _growing(piece: Graph, whole: Graph) -> list[int | None]:
    """For each result the axis along which it grows with the batch, if there is one."""
    axes: list[int | None] = []
    for small, large in zip(piece.outputs, whole.outputs, strict=False):
        shapes = [g[p.vertex].outputs[p.output].shape for g, p in ((piece, small), (whole, large))]
        pairs = enumerate(zip(*shapes, strict=False))
        axes.append(next((axis for axis, (a, b) in pairs if a != b), None))
    return axes


@contextlib.contextmanager
def _explaining(micro_batches: int) -> Iterator[None]:
    """What goes wrong in the user's function may come from the shapes of a micro-batch."""
    try:
        yield
    except Exception as problem:
        if micro_batches > 1:
            problem.add_note(
                f"dendrax.placement.place calls the function with one of {micro_batches} "
                "micro-batches: the first axis of the arguments in batch_argnums (by default, of "
                "all that are not differentiated) is that much shorter."
            )
        raise


def _opened(graph: Graph, num_blocks: int) -> Graph:
    """The graph with those regions written out that are too much for one device."""
    total = sum(map(work, graph))
    return flatten(graph, lambda v: 2 * num_blocks * work(v) > total and num_blocks > 1)


def _devices(devices: Any) -> tuple[Any, ...]:
    local = jax.local_devices()
    if devices is None:
        return tuple(local)
    if isinstance(devices, (list, tuple, np.ndarray)):
        devices = list(np.ravel(devices))
        if not devices or any(device not in local for device in devices):
            raise complain(
                ValueError,
                f"devices={list(devices)!r} are not devices of this process.",
                remedy=f"It has: {', '.join(map(str, local))}.",
            )
        return tuple(devices)
    try:
        count = operator.index(devices)
    except TypeError:
        raise complain(TypeError, f"devices={devices!r} is neither a list nor a number.") from None
    if count < 1:
        raise complain(ValueError, f"devices={count}, but it takes one at least.")
    if count > len(local):
        raise complain(
            ValueError,
            f"devices={count}, but this process has {len(local)}.",
            remedy="A CPU can be several devices: set "
            f"XLA_FLAGS=--xla_force_host_platform_device_count={count} before JAX starts.",
        )
    return tuple(local[:count])


def _batched(
    batch_argnums: Any, argnums: int | tuple[int, ...], count: int, micro_batches: Any
) -> tuple[int, ...]:
    if isinstance(micro_batches, bool) or not isinstance(micro_batches, int | np.integer):
        raise complain(TypeError, f"micro_batches={micro_batches!r} is not an integer.")
    if micro_batches < 1:
        raise complain(ValueError, f"micro_batches={micro_batches!r} is not a positive integer.")
    learned = {argnums} if isinstance(argnums, int) else {*argnums}
    if batch_argnums is None:
        return tuple(i for i in range(count) if i not in learned) if micro_batches > 1 else ()
    chosen = (batch_argnums,) if isinstance(batch_argnums, int) else tuple(batch_argnums)
    if wrong := [i for i in chosen if not isinstance(i, int) or not -count <= i < count]:
        raise complain(
            ValueError,
            f"batch_argnums={batch_argnums!r}: the function has no argument {wrong[0]!r}.",
            remedy=f"Its {count} arguments are counted from 0.",
        )
    chosen = tuple(i % count for i in chosen)
    if both := learned.intersection(chosen):
        raise complain(
            ValueError, f"argument {min(both)} is differentiated, and cannot be cut as a batch."
        )
    return chosen if micro_batches > 1 else ()


def _check_relaxes(rule: Rule) -> None:
    if not rule.is_placeable:
        raise complain(
            NotImplementedError,
            f"{rule} cannot be placed over devices.",
            remedy="dendrax.ZIL() and dendrax.IL(...) can; the others train on many devices by "
            "dendrax.train.",
        )
    if rule.tol is not None:
        raise complain(
            ValueError,
            f"IL: tol={rule.tol} needs somebody who looks at the value nodes of all devices.",
            remedy="Leave tol out: num_steps steps are then made.",
        )


def _cuts(cuts: Sequence[int] | None, num_blocks: int) -> tuple[int, ...] | None:
    if cuts is None:
        return None
    try:
        chosen = tuple(operator.index(cut) for cut in cuts)
    except TypeError:
        raise complain(TypeError, f"cuts={cuts!r} are not a list of levels.") from None
    falling = all(a > b for a, b in itertools.pairwise(chosen))
    if len(chosen) != num_blocks - 1 or not falling or min(chosen, default=1) < 1:
        raise complain(
            ValueError,
            f"cuts={list(chosen)} do not cut a function into {num_blocks} blocks.",
            remedy="Give the lowest level of each block but the last: falling numbers, above 0.",
        )
    return chosen
