"""What the public functions check first: the function, the rule, the choice of vertices."""

from __future__ import annotations

from typing import Any

from dendrax.inference import check_wave
from dendrax.rules import Rule
from dendrax.support import ON_DIVERGENCE, RULE_NAMES, VERTICES, close_words, complain, one_of


def check_settings(fun: Any, rule: Any, vertices: Any) -> None:
    check_callable(fun)
    check_rule(rule)
    if vertices is not None:
        one_of("vertices", vertices, VERTICES)


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
    one_of(f"{type(rule).__name__}: vertices", rule.vertices, VERTICES)
    one_of(f"{type(rule).__name__}: on_divergence", rule.on_divergence, ON_DIVERGENCE)
    check_wave(rule)


def _rule_meant(rule: Any) -> str:
    """The rule whose name is nearest to a class, or to a word; else the default."""
    name = rule.__name__ if isinstance(rule, type) else rule
    return next(iter(close_words(name, RULE_NAMES)), "ZIL")
