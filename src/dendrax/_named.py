"""What a user names, with settings: ``adam(learning_rate=0.01)``, or a table of a TOML file.

Everything that can be named is a function; its keyword arguments are the settings.
"""

from __future__ import annotations

import ast
import difflib
import inspect
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from dendrax._errors import complain
from dendrax._user_code import attribute_of, imported


@dataclass(frozen=True)
class Named:
    """A name and its settings, as they were written. ``section`` says what it names."""

    section: str
    name: str
    settings: Mapping[str, Any] = field(default_factory=dict)

    def __str__(self) -> str:
        settings = ", ".join(f"{key}={value!r}" for key, value in self.settings.items())
        return f"{self.name}({settings})"


def read_named(section: str, value: Any) -> Named:
    """From ``"name"``, ``"name(key=value)"`` or ``{"name": ..., key: value}``."""
    if isinstance(value, str):
        return _read_call(section, value)
    if isinstance(value, Mapping) and isinstance(value.get("name"), str):
        # The name may have settings in brackets, too.
        named = _read_call(section, value["name"])
        rest = {key: entry for key, entry in value.items() if key != "name"}
        return Named(section, named.name, {**named.settings, **rest})
    raise complain(
        ValueError,
        f"[{section}] needs a name.",
        remedy=f'Write {section} = "NAME", or [{section}] with name = "NAME" and its settings.',
    )


def _read_call(section: str, text: str) -> Named:
    name, bracket, _ = text.partition("(")
    if not bracket:
        return Named(section, text.strip())
    try:
        call = ast.parse(f"_{text[len(name) :].strip()}", mode="eval").body
        if not isinstance(call, ast.Call) or call.args:
            raise ValueError
        settings = {str(word.arg): ast.literal_eval(word.value) for word in call.keywords}
    except (SyntaxError, ValueError):
        raise complain(
            ValueError,
            f"{section} {text!r} cannot be read.",
            remedy='Write a name and its settings as Python would, such as "adam(b1=0.95)".',
        ) from None
    return Named(section, name.strip(), settings)


def find_named(named: Named, known: Mapping[str, Callable[..., Any]]) -> Callable[..., Any]:
    """The function of that name: one of ours, or the user's own."""
    if named.name in known:
        return known[named.name]
    module, colon, attribute = named.name.rpartition(":")
    if colon:
        return attribute_of(imported(module), module, attribute)
    raise complain(
        ValueError,
        f"there is no {named.section} {named.name!r}.{nearest(named.name, known)}",
        remedy=f"There are: {', '.join(known)}; or your own, as path/to/file.py:function.",
    )


def check_settings(
    named: Named, function: Callable[..., Any], more: Iterable[str] = (), given: Iterable[str] = ()
) -> None:
    """Raise unless the settings are arguments of the function (or ``more``), and not ``given``."""
    parameters = _parameters(function)
    if parameters is not None:
        allowed = [name for name in [*parameters, *more] if name not in {*given}]
        check_keys(f"{named.section} {named.name}", named.settings, allowed)


def call_named(named: Named, function: Callable[..., Any], **given: Any) -> Any:
    """Call it with the user's settings, and with what is ``given``, as far as it wants that."""
    check_settings(named, function, given=given)
    parameters = _parameters(function)
    if parameters is not None:
        given = {name: value for name, value in given.items() if name in parameters}
        _check_complete(named, parameters, given)
    return function(**{**named.settings, **given})


def _parameters(function: Callable[..., Any]) -> Mapping[str, inspect.Parameter] | None:
    """By name; ``None`` if anything goes."""
    try:
        parameters = inspect.signature(function).parameters
    except (TypeError, ValueError):
        return None
    anything = any(p.kind is p.VAR_KEYWORD for p in parameters.values())
    return None if anything else parameters


def _check_complete(
    named: Named, parameters: Mapping[str, inspect.Parameter], given: Mapping[str, Any]
) -> None:
    needed = [p.name for p in parameters.values() if p.default is p.empty and p.kind not in _MANY]
    missing = [name for name in needed if name not in given and name not in named.settings]
    if missing:
        raise complain(
            ValueError,
            f"{named.section} {named.name} needs {', '.join(missing)}.",
            remedy=f"Write, for instance, {named.name}({missing[0]}=...).",
        )


_MANY = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)


def check_keys(where: str, keys: Iterable[str], allowed: Iterable[str]) -> None:
    """Raise at the first key that is not allowed, and name the nearest that is."""
    allowed = list(allowed)
    for key in keys:
        if key not in allowed:
            raise complain(
                ValueError,
                f"{where} has no setting {key!r}.{nearest(key, allowed)}",
                remedy=f"Its settings: {', '.join(allowed) or 'none'}.",
            )


def nearest(word: str, words: Iterable[str]) -> str:
    """A question, if one of the words is close."""
    lower = {known.lower(): known for known in words}
    close = difflib.get_close_matches(word.lower(), lower, n=1, cutoff=0.5)
    return f" Did you mean {lower[close[0]]!r}?" if close else ""
