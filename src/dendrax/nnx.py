"""Flax NNX: `value_and_grad` and `grad`, with the gradient found by a rule of dendrax.

Modules enter; inside they are taken apart into what learns and the rest, and put together again
where the function runs. What the function did to them (statistics, counters of random numbers, sown
values, new attributes) is done to the caller's own modules afterwards.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax

from dendrax import _api, _settings
from dendrax.rules import ZIL, Rule
from dendrax.support import Vertices, complain, require_extra, speaking_as
from dendrax.tracing import as_pair, normalise_argnums

with require_extra("dendrax.nnx", "nnx"):
    from flax import nnx
    from flax.errors import TraceContextError

_TAG = "dendrax.nnx"
Argnums = int | nnx.DiffState | Sequence[int | nnx.DiffState]


def value_and_grad(
    f: Callable[..., Any] | None = None,
    *,
    argnums: Argnums = 0,
    has_aux: bool = False,
    rule: Rule = ZIL(),
    vertices: Vertices | None = None,
) -> Callable[..., Any]:
    """As `flax.nnx.value_and_grad`, with the gradient found by a predictive-coding rule.

    **Arguments:**

    - `f`: a function of modules, arrays and trees of them that returns a scalar (or, with
      `has_aux`, a scalar and anything else). It may change its modules. Without `f` this is a
      decorator with settings.
    - `argnums`: which arguments to differentiate: an integer, for all the `nnx.Param` of that
      argument, `nnx.DiffState(argument, filter)` for other variables, or a sequence of both.
    - `has_aux`, `rule`, `vertices`: as for `dendrax.value_and_grad`.

    **Returns:** a function with the same arguments that returns `(f(...), gradient)`. The
    gradient of a module is an `nnx.State`.

    !!! example

        ```python
        import dendrax.nnx, jax.numpy as jnp
        from flax import nnx

        model = nnx.Linear(2, 1, rngs=nnx.Rngs(0))
        loss = lambda model, x: jnp.mean(model(x) ** 2)
        value, gradient = dendrax.nnx.value_and_grad(loss)(model, jnp.ones((4, 2)))
        gradient.kernel[...].shape  # -> (2, 1)
        ```
    """
    if f is None:
        settings = {"argnums": argnums, "has_aux": has_aux, "rule": rule, "vertices": vertices}
        return functools.partial(value_and_grad, **settings)
    return _value_and_grad("dendrax.nnx.value_and_grad", f, argnums, has_aux, rule, vertices)


def grad(
    f: Callable[..., Any] | None = None,
    *,
    argnums: Argnums = 0,
    has_aux: bool = False,
    rule: Rule = ZIL(),
    vertices: Vertices | None = None,
) -> Callable[..., Any]:
    """As `flax.nnx.grad`, with the gradient found by a predictive-coding rule.

    **Arguments:** as for `dendrax.nnx.value_and_grad`.

    **Returns:** a function with the same arguments that returns the gradient (or, with `has_aux`,
    a pair of gradient and auxiliary data).

    !!! example

        ```python
        import dendrax.nnx, jax.numpy as jnp
        from flax import nnx

        lora = nnx.LoRA(2, 1, 2, base_module=nnx.Linear(2, 2, rngs=nnx.Rngs(0)), rngs=nnx.Rngs(1))
        loss = lambda model, x: jnp.mean(model(x) ** 2)
        only_lora = nnx.DiffState(0, nnx.LoRAParam)
        gradient = dendrax.nnx.grad(loss, argnums=only_lora)(lora, jnp.ones((4, 2)))
        ```
    """
    if f is None:
        settings = {"argnums": argnums, "has_aux": has_aux, "rule": rule, "vertices": vertices}
        return functools.partial(grad, **settings)
    both = _value_and_grad("dendrax.nnx.grad", f, argnums, has_aux, rule, vertices)

    @functools.wraps(f)
    def gradient(*args: Any, **kwargs: Any) -> Any:
        value, gradient = both(*args, **kwargs)
        return (gradient, value[1]) if has_aux else gradient

    return gradient


def functional(
    f: Callable[..., Any], *args: Any, argnums: Argnums = 0
) -> tuple[Callable[..., Any], tuple[Any, ...]]:
    """A function of modules as a function of trees: what `dendrax.trace` and its kin look into.

    `dendrax.trace`, `check`, `audit` and `explore` do this themselves where an argument holds a
    module. Inside, the function gets modules of its own: the caller's stay as they are.

    **Arguments:**

    - `f`: a function of modules, arrays and trees of them.
    - `args`: its arguments.
    - `argnums`: which of them learn, as for `dendrax.nnx.value_and_grad`.

    **Returns:** `(function, arguments)`. The arguments are those that were given, with an
    `nnx.State` in place of each module: of what learns, its parameters. The last one, if any module
    that learns has them, are its other variables (statistics, random numbers).

    !!! example

        ```python
        import dendrax.nnx, jax.numpy as jnp
        from flax import nnx

        model = nnx.Linear(2, 1, rngs=nnx.Rngs(0))
        loss = lambda model, x: jnp.mean(model(x) ** 2)
        function, arguments = dendrax.nnx.functional(loss, model, jnp.ones((4, 2)))
        float(function(*arguments)) == float(loss(model, jnp.ones((4, 2))))  # -> True
        ```
    """
    with speaking_as("dendrax.nnx.functional"):
        _check_unbound(f)
        trees, close, _ = open_modules(args, argnums)

    @functools.wraps(f)
    def function(*trees: Any) -> Any:
        return f(*close(trees))

    return function, trees


def spell_path(path: tuple[Any, ...]) -> str:
    """The path to a variable as one writes it: ``.layers[0].kernel``."""
    spelt = ""
    for entry in path:
        key = getattr(entry, "key", None)
        if isinstance(key, str) and key.isidentifier():
            spelt += f".{key}"
        elif entry != jax.tree_util.GetAttrKey("value"):  # of the variable itself
            spelt += jax.tree_util.keystr((entry,))
    return spelt


def has_modules(tree: Any) -> bool:
    """Whether there is a module, or a variable, somewhere in a tree."""
    return bool(_modules(tree))


def open_modules(
    args: tuple[Any, ...], argnums: Any
) -> tuple[tuple[Any, ...], Callable[[Sequence[Any]], list[Any]], int | tuple[int, ...]]:
    """Trees in place of modules, how to make the arguments of them again, and which of them learn.

    What belongs to a module that learns and does not learn itself comes last.
    """
    _check_graph_mode()
    chosen, filters = _filters(argnums, len(args))
    everything = {i: nnx.All(...) for i in range(len(args))}
    learned, fixed, rebuild = _take_apart(list(args), everything | filters, None)
    more = [fixed] if jax.tree.leaves(fixed) else []

    def close(trees: Sequence[Any]) -> list[Any]:
        values = list(trees)
        return rebuild(values[: len(args)], values[len(args)] if more else fixed)

    return (*learned, *more), close, chosen


def _value_and_grad(
    name: str, f: Any, argnums: Argnums, has_aux: bool, rule: Rule, vertices: Vertices | None
) -> Callable[..., tuple[Any, Any]]:
    with speaking_as(name):
        vertices = _settings.check_settings(f, rule, vertices)
        _check_unbound(f)
        _check_graph_mode()

    @functools.wraps(f)
    @nnx.update_context(_TAG)
    def both(*args: Any, **kwargs: Any) -> tuple[Any, Any]:
        with speaking_as(name):
            arguments, named = _by_position(f, args, kwargs)
            chosen, filters = _filters(argnums, len(arguments))
            learned, fixed, rebuild = _take_apart([*arguments, named], filters, _TAG)

            @functools.wraps(f)  # parameters are named after the user's arguments
            def pure(*trees: Any) -> Any:
                *learned, fixed = trees
                *arguments, named = rebuild(learned, fixed)
                out = f(*arguments, **named)
                with speaking_as(name):
                    loss, aux = as_pair(out) if has_aux else (out, None)
                return loss, _split((_modules([arguments, named]), aux))

            differentiated = _api.value_and_grad(
                pure, chosen, has_aux=True, rule=rule, vertices=vertices
            )
            (loss, changed), gradient = differentiated(*learned, fixed)
            _, aux = _merge(changed)  # the caller's own modules change here
            return ((loss, aux) if has_aux else loss), gradient

    return both


def _by_position(
    f: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """The arguments as `argnums` counts them: by position wherever the signature allows it."""
    try:
        signature = inspect.signature(f)
    except ValueError:  # some callables of C have none
        return args, kwargs
    bound = signature.bind(*args, **kwargs)
    bound.apply_defaults()
    return bound.args, bound.kwargs


def _filters(argnums: Argnums, num_args: int) -> tuple[int | tuple[int, ...], dict[int, Any]]:
    """`argnums` as integers, and by integer which variables are wanted."""
    several = isinstance(argnums, Sequence)
    each = tuple(argnums) if several else (argnums,)
    numbers = tuple(x.argnum if isinstance(x, nnx.DiffState) else x for x in each)
    chosen = normalise_argnums(numbers if several else numbers[0], num_args)
    indices = (chosen,) if isinstance(chosen, int) else chosen
    if len(set(indices)) < len(indices):
        raise complain(
            ValueError,
            f"argnums={argnums!r} names an argument twice.",
            remedy="Join the filters: nnx.DiffState(argnum, nnx.Any(first, second)).",
        )
    wanted = [x.filter if isinstance(x, nnx.DiffState) else nnx.Param for x in each]
    # `All` makes a predicate of every filter: `None`, which filters can be, here means unwanted.
    return chosen, {i: nnx.All(filter) for i, filter in zip(indices, wanted, strict=True)}


Rebuild = Callable[[Sequence[Any], Sequence[Any]], list[Any]]


def _take_apart(
    arguments: list[Any], filters: dict[int, Any], tag: str | None
) -> tuple[list[Any], list[Any], Rebuild]:
    """What of each argument learns, what does not, and how to make the arguments of both again."""
    flat = [jax.tree.flatten(argument, is_leaf=_is_node) for argument in arguments]
    _check_variables([leaves for leaves, _ in flat], filters)
    with nnx.split_context(tag) as context:
        parts = [
            [_part(context, leaf, filters.get(i)) for leaf in leaves]
            for i, (leaves, _) in enumerate(flat)
        ]
    learned = [
        tree.unflatten([part.learned for part in argument])
        for argument, (_, tree) in zip(parts, flat, strict=True)
    ]
    fixed = [[part.fixed for part in argument] for argument in parts]

    def rebuild(learned: Sequence[Any], fixed: Sequence[Any]) -> list[Any]:
        made = []
        with nnx.merge_context(tag, None if tag is None else True) as context:
            for values, rest, argument, (_, tree) in zip(learned, fixed, parts, flat, strict=True):
                triples = zip(argument, tree.flatten_up_to(values), rest, strict=True)
                made.append(tree.unflatten([part.join(context, *new) for part, *new in triples]))
        return made

    return learned, fixed, rebuild


class _Part(NamedTuple):
    """A leaf of the arguments: what of it learns, what does not, and how to join the two."""

    learned: Any
    fixed: Any
    join: Callable[[nnx.MergeContext, Any, Any], Any]


def _part(context: nnx.SplitContext, leaf: Any, wanted: Any) -> _Part:
    if not _is_node(leaf):
        if wanted is None:
            return _Part(None, leaf, lambda _, __, fixed: fixed)
        return _Part(leaf, None, lambda _, learned, __: learned)
    if wanted is None:
        definition, fixed = context.split(leaf)
        return _Part(None, fixed, lambda context, _, fixed: context.merge(definition, fixed))
    if isinstance(leaf, nnx.Variable):  # named by itself, it is wanted whatever its type
        definition, learned = context.split(leaf)
        return _Part(learned, None, lambda context, learned, _: context.merge(definition, learned))
    definition, learned, fixed = context.split(leaf, wanted, ...)
    return _Part(learned, fixed, lambda context, *parts: context.merge(definition, *parts))


class _Split(NamedTuple):
    definition: Any
    state: Any


def _split(tree: Any) -> Any:
    """Modules in a tree as their definitions and arrays, which can leave a trace."""
    with nnx.split_context(_TAG) as context:
        take = lambda leaf: _Split(*context.split(leaf)) if _is_node(leaf) else leaf  # noqa: E731
        return jax.tree.map(take, tree, is_leaf=_is_node)


def _merge(tree: Any) -> Any:
    """Modules again: those that the caller has, changed in place, and new ones."""
    is_split = lambda x: isinstance(x, _Split)  # noqa: E731
    with nnx.merge_context(_TAG, False) as context:
        make = lambda leaf: context.merge(*leaf) if is_split(leaf) else leaf  # noqa: E731
        return jax.tree.map(make, tree, is_leaf=is_split)


def _modules(tree: Any) -> list[Any]:
    return [leaf for leaf in jax.tree.leaves(tree, is_leaf=_is_node) if _is_node(leaf)]


def _is_node(x: Any) -> bool:
    return isinstance(x, nnx.Variable) or nnx.graph.is_graph_node(x)


def _check_variables(leaves: list[list[Any]], filters: dict[int, Any]) -> None:
    """Every variable can be changed, and is wanted in all its places or in none."""
    seen: dict[int, bool] = {}
    for i, nodes in enumerate(leaves):
        for node in filter(_is_node, nodes):
            for path, variable in nnx.iter_graph(node):
                if isinstance(variable, nnx.Variable):
                    wanted = i in filters and (node is variable or filters[i](path, variable))
                    place = f"argument {i}" + "".join(f".{name}" for name in path)
                    _check_trace(variable, place)
                    _check_shared(seen.setdefault(id(variable), wanted) == wanted, variable, place)


def _check_trace(variable: nnx.Variable[Any], place: str) -> None:
    try:
        variable.set_raw_value(variable.get_raw_value())  # fails where nothing may be changed
    except TraceContextError as error:
        raise complain(
            ValueError,
            f"the {type(variable).__name__} at {place} was made outside of the jit or vmap that "
            "runs, and cannot be changed inside.",
            remedy="Hand the module to nnx.jit or nnx.vmap as an argument.",
        ) from error


def _check_shared(consistent: bool, variable: nnx.Variable[Any], place: str) -> None:
    if not consistent:
        raise complain(
            ValueError,
            f"the {type(variable).__name__} at {place} is shared with another argument, and "
            "differentiated in only one of them.",
            remedy="Name both arguments in argnums, or pass the module once.",
        )


def _check_unbound(f: Any) -> None:
    while isinstance(f, functools.partial):
        f = f.func
    if inspect.ismethod(f) and isinstance(f.__self__, nnx.Module):
        raise complain(
            ValueError,
            f"{f.__qualname__} is bound to a module, which would not be differentiated.",
            remedy=f"Pass {f.__func__.__qualname__} and call the result with the module first.",
        )


def _check_graph_mode() -> None:
    switches = ("set_graph_mode", "set_graph_updates")  # older versions have graph mode only
    for name in filter(nnx.__dict__.get, switches):
        if not getattr(nnx, name).current_value():
            raise complain(
                NotImplementedError,
                f"NNX is in tree mode (nnx.{name} is off).",
                remedy="Use nnx.split and nnx.merge with dendrax.value_and_grad, or switch it on.",
            )
