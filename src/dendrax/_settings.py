"""What the public functions check first: the function, the rule, the choice of vertices."""

from __future__ import annotations

from typing import Any

from dendrax.inference import check_wave
from dendrax.rules import Rule
from dendrax.support import (
    ON_DIVERGENCE,
    RULE_NAMES,
    VERTICES,
    Vertices,
    close_words,
    complain,
    in_short,
    nearest,
    one_of,
)
from dendrax.tracing import check_modules


def check_settings(fun: Any, rule: Any, vertices: Any) -> Vertices | None:
    """The choice of vertices, in the form that the rest works with."""
    check_callable(fun)
    check_rule(rule)
    return check_vertices("vertices", vertices)


def check_vertices(setting: str, vertices: Any) -> Vertices | None:
    """A word, modules as a tuple, a function, or ``None``."""
    if vertices is None:
        return None
    if isinstance(vertices, (type, tuple, list)):
        modules = (vertices,) if isinstance(vertices, type) else tuple(vertices)
        check_modules(setting, modules)
        return modules
    if callable(vertices):
        return vertices  # pyright: ignore[reportReturnType]
    if not isinstance(vertices, str) or vertices not in VERTICES:
        words = ", ".join(map(repr, VERTICES))
        raise complain(
            ValueError,
            f"{setting}={in_short(vertices)} is not known.{nearest(vertices, VERTICES)}",
            remedy=f"Use one of: {words}; or name modules, such as ('Block',), or give a function "
            "of the graph.",
        )
    return vertices  # pyright: ignore[reportReturnType]


def in_words(vertices: Vertices | None) -> str | list[str] | None:
    """A choice of vertices as it can be written down: functions and classes by their names."""
    if isinstance(vertices, tuple):
        return [asked if isinstance(asked, str) else _full_name(asked) for asked in vertices]
    return _full_name(vertices) if callable(vertices) else vertices  # pyright: ignore


def _full_name(given: Any) -> str:
    return f"{given.__module__}.{getattr(given, '__qualname__', type(given).__name__)}"


def check_callable(fun: Any) -> None:
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
    setting = f"{type(rule).__name__}: vertices"
    chosen = check_vertices(setting, rule.vertices)
    if chosen != rule.vertices:
        raise complain(
            TypeError,
            f"{setting}={in_short(rule.vertices)} is a {type(rule.vertices).__name__}.",
            remedy=f"Write a tuple: vertices={in_short(chosen)}.",
        )
    one_of(f"{type(rule).__name__}: on_divergence", rule.on_divergence, ON_DIVERGENCE)
    check_wave(rule)


def _rule_meant(rule: Any) -> str:
    """The rule whose name is nearest to a class, or to a word; else the default."""
    name = rule.__name__ if isinstance(rule, type) else rule
    return next(iter(close_words(name, RULE_NAMES)), "ZIL")
