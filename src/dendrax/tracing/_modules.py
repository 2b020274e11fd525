"""Modules as value nodes: while a function is traced, what chosen modules return is named.

What enters: names and classes of modules (of Equinox, Flax NNX, linen, Haiku, or any class with a
``__call__``). While `naming` is open, each array in the result of a call passes through an identity
operation of JAX (`jax.ad_checkpoint.checkpoint_name`) that carries the name of the module's class.
It survives ``jit``, ``vmap``, ``scan``, ``remat`` and derivatives, and modules may change their
state, as no function is made of them. What leaves: programs with these names (`named_by`).

A call is named where it is looked up: the class in whose ``__dict__`` the ``__call__`` is has it
replaced while any trace that wants it runs, in any thread. Which modules are meant is known to the
thread that traces alone. Linen has interceptors for this.
"""

from __future__ import annotations

import contextlib
import contextvars
import functools
import re
import sys
import threading
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import jax
from jax.ad_checkpoint import checkpoint_name

from dendrax import _compat
from dendrax.local import is_inexact
from dendrax.support import Modules, complain, in_short, matching, nearest
from dendrax.tracing._mark import asked_inside, name_of_result

_LIBRARIES = ("equinox.Module", "flax.nnx.Module", "flax.linen.Module", "haiku.Module")
_STATES = ("equinox.nn.State", "flax.nnx.Variable", "flax.nnx.Module", "flax.nnx.State")
_IMMUTABLE = 1 << 8  # Py_TPFLAGS_IMMUTABLETYPE
MOST_NAMES = 12  # in an error


class _Calls:
    """Which classes were called, each with whether a result had an array of floats."""

    def __init__(self) -> None:
        self.floats: dict[str, bool] = {}

    def note(self, kind: str, has_floats: bool) -> None:
        self.floats[kind] = self.floats.get(kind, False) or has_floats


@dataclass(frozen=True)
class _Asked:
    """Which modules are meant, and who wants to know what is called.

    Equal ones share what JAX keeps of functions under ``jit``.
    """

    modules: Modules
    calls: _Calls | None = None

    def meaning(self, kind: type) -> list[int]:
        """The positions of those that mean a class."""
        return [i for i, asked in enumerate(self.modules) if means(asked, kind)]


_asked: contextvars.ContextVar[_Asked | None] = contextvars.ContextVar("modules", default=None)


def means(asked: str | type, kind: type) -> bool:
    """Whether a class, or one that it is made of, is meant by a name or a class."""
    if isinstance(asked, type):
        return issubclass(kind, asked)
    return any(matching(asked, [_title(base, asked)]) for base in kind.__mro__)


def _title(kind: type, asked: str) -> str:
    """The name of a class; with as many modules and classes around it as were asked for."""
    whole = f"{kind.__module__}.{kind.__qualname__}".replace("<locals>.", "")
    if "." not in asked:
        return kind.__name__
    if _exported(asked) is kind:  # ``equinox.nn.Linear`` is at home elsewhere
        return asked
    return ".".join(whole.split(".")[-asked.count(".") - 1 :])


def _exported(dotted: str) -> Any:
    """What is known by a dotted name, in a module that was imported."""
    module, _, name = dotted.rpartition(".")
    return getattr(sys.modules.get(module), name, None)


# ---- naming --------------------------------------------------------------------------------------


@contextlib.contextmanager
def naming(modules: Any) -> Iterator[None]:
    """While a function is traced: name what these modules return, and what no others do."""
    asked = _Asked(modules) if isinstance(modules, tuple) else None
    with _naming(asked):
        yield


@contextlib.contextmanager
def _naming(asked: _Asked | None) -> Iterator[None]:
    if asked is None and _asked.get() is None:
        yield
        return
    token = _asked.set(asked)
    try:
        with contextlib.ExitStack() as stack:
            # What JAX keeps of functions under jit must not be what it kept of other modules.
            stack.enter_context(_compat.apart(asked))
            for owner in _owners(asked) if asked else ():
                stack.enter_context(_replaced(owner))
            if asked and (linen := sys.modules.get("flax.linen")):
                stack.enter_context(linen.intercept_methods(_intercept))
            yield
    finally:
        _asked.reset(token)


def _owners(asked: _Asked) -> set[type]:
    """The classes whose ``__call__`` is that of a module that is meant."""
    classes = {base for base in asked.modules if isinstance(base, type)}
    roots = {*_bases(_LIBRARIES), *classes}
    meant = {kind for kind in _with_subclasses(roots) if asked.meaning(kind)}
    linen = _bases(["flax.linen.Module"])
    owners = {owner_of(kind) for kind in meant if not issubclass(kind, linen)}
    return {owner for owner in owners if owner is not None and _can_change(owner)}


def _bases(names: Iterable[str]) -> tuple[type, ...]:
    """Those classes of libraries that were imported."""
    found = map(_exported, names)
    return tuple(kind for kind in found if isinstance(kind, type))


def _with_subclasses(roots: Iterable[type]) -> set[type]:
    found: set[type] = set()
    todo = list(roots)
    while todo:
        kind = todo.pop()
        if kind not in found:
            found.add(kind)
            todo += type.__subclasses__(kind)
    return found


def owner_of(kind: type) -> type | None:
    """The class that has the ``__call__`` of a class."""
    return next((base for base in kind.__mro__ if "__call__" in base.__dict__), None)


def _can_change(kind: type) -> bool:
    return not kind.__flags__ & _IMMUTABLE


_lock = threading.Lock()
_counts: dict[type, int] = {}  # how many traces want the call of a class to be replaced
_originals: dict[type, Any] = {}


@contextlib.contextmanager
def _replaced(owner: type) -> Iterator[None]:
    """The ``__call__`` of a class replaced by one that names results."""
    with _lock:
        _counts[owner] = _counts.get(owner, 0) + 1
        if _counts[owner] == 1:
            _originals[owner] = owner.__dict__["__call__"]
            type.__setattr__(owner, "__call__", _naming_call(owner, _originals[owner]))
    try:
        yield
    finally:
        with _lock:
            _counts[owner] -= 1
            if not _counts[owner]:
                type.__setattr__(owner, "__call__", _originals.pop(owner))
                del _counts[owner]


def _naming_call(owner: type, original: Any) -> Callable[..., Any]:
    @functools.wraps(original)
    def call(module: Any, /, *args: Any, **kwargs: Any) -> Any:
        bind = getattr(original, "__get__", None)
        bound = original if bind is None else bind(module, type(module))
        result = bound(*args, **kwargs)
        # A class may call that of its base: then it is not the module's result.
        return _named(module, result) if owner_of(type(module)) is owner else result

    return call


def _intercept(call: Any, args: Any, kwargs: Any, context: Any) -> Any:
    """The same for linen, whose lifted transformations keep the methods of a class."""
    result = call(*args, **kwargs)
    if context.method_name != "__call__":
        return result
    method = type(context.module).__call__
    while method is not context.orig_method.func:
        method = getattr(method, "__wrapped__", None)
        if method is None:
            return result
    return _named(context.module, result)


def _named(module: Any, result: Any) -> Any:
    """The result of a module, whose arrays have its name if it is meant."""
    asked = _asked.get()
    meaning = asked.meaning(type(module)) if asked else []
    if asked is None or not meaning:
        return result
    kind = re.sub(r"\W", "_", type(module).__name__)
    leaves, tree = jax.tree.flatten(result, is_leaf=_is_state)
    floats = {id(leaf): leaf for leaf in leaves if _is_float(leaf)}  # a state may be there twice
    name = name_of_result(kind, meaning)
    named = {key: checkpoint_name(leaf, name) for key, leaf in floats.items()}
    if asked.calls is not None and not _is_wrapper(type(module)):
        asked.calls.note(kind, bool(named))
    return tree.unflatten([named.get(id(leaf), leaf) for leaf in leaves]) if named else result


def _is_wrapper(kind: type) -> bool:
    """Whether it is what ``equinox.filter_jit`` and the like make of a function."""
    return kind.__module__.startswith("equinox._") and kind.__name__.startswith("_")


def _is_state(x: Any) -> bool:
    """Whether something in a result is a module or its state, and no value."""
    return isinstance(x, _bases(_STATES))


def _is_float(leaf: Any) -> bool:
    return isinstance(leaf, jax.Array) and is_inexact(jax.typeof(leaf))


# ---- what was not called -------------------------------------------------------------------------


def check_called(modules: Any, jaxpr: _compat.Jaxpr, again: Callable[[], Any]) -> None:
    """Each of the modules that are meant must have a result in a program.

    ``again`` traces it once more, to find out what was called.
    """
    if not isinstance(modules, tuple):
        return
    found = {i for positions in asked_inside(jaxpr) for i in positions}
    missing = [asked for i, asked in enumerate(modules) if i not in found]
    if not missing:
        return
    calls = _Calls()
    classes = (asked for asked in modules if isinstance(asked, type))
    with _naming(_Asked(("*", *classes), calls)):
        again()
    raise _not_called(missing[0], calls.floats)


def _not_called(asked: str | type, calls: dict[str, bool]) -> Exception:
    name = asked.__name__ if isinstance(asked, type) else asked
    last = name.rpartition(".")[2]
    shown = f"the class {name}" if isinstance(asked, type) else in_short(name)
    without = [kind for kind, has_floats in calls.items() if not has_floats]
    if found := matching(last, without):
        return complain(
            ValueError,
            f"vertices names {shown}, but what {found[0]} returns has no array of floating-point "
            "numbers, so it cannot be a value node.",
            remedy="Leave it out, or name a module that calls it.",
        )
    called = ", ".join(list(calls)[:MOST_NAMES]) + ", ..." * (len(calls) > MOST_NAMES)
    return complain(
        ValueError,
        f"vertices names {shown}, but no module of it is called.{nearest(last, calls)}",
        remedy=(f"Called are {called}. " if called else "")
        + "Names are those of modules of Equinox, Flax NNX, linen and Haiku; of other classes give "
        "the class itself.",
    )


# ---- what may be asked for -----------------------------------------------------------------------


def check_modules(setting: str, modules: Modules) -> None:
    """Names, and classes whose instances can be called."""
    if not modules:
        raise complain(
            ValueError,
            f"{setting}=() names no module.",
            remedy="Name some, such as ('Block',), or leave vertices out.",
        )
    for asked in modules:
        if isinstance(asked, str):
            continue
        if not isinstance(asked, type):
            kind = type(asked).__name__
            example = kind if isinstance(asked, _bases(_LIBRARIES)) else "Block"
            raise complain(
                TypeError,
                f"{setting} has {in_short(asked)} in it, of type {kind}.",
                remedy=f"Give names and classes of modules, such as {example!r}.",
            )
        _check_class(setting, asked)


def _check_class(setting: str, asked: type) -> None:
    owner = owner_of(asked)
    if (owner is not None and _can_change(owner)) or issubclass(asked, _bases(_LIBRARIES)):
        return
    lack = "has no __call__" if owner is None else f"is called by {owner.__name__}, not by Python"
    raise complain(
        TypeError,
        f"{setting} has the class {asked.__name__} in it, which {lack}.",
        remedy="Name the classes of modules that are called, or mark functions with dendrax.vertex "
        "and write vertices='marked'.",
    )
