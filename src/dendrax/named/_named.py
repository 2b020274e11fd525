"""What a user names, with settings: ``adam(learning_rate=0.01)``, or a table of a TOML file.

Everything that can be named is a function; its keyword arguments are the settings, which are
literals: nothing that a text holds is ever run.
"""

from __future__ import annotations

import ast
import hashlib
import inspect
import pathlib
import sys
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from dendrax import rules as shipped
from dendrax.named._user_code import attribute_of, imported, rules
from dendrax.rules import Rule
from dendrax.support import ENERGY_NAMES, complain, in_short, is_ours, nearest, shortened

LONGEST = 10_000  # characters of a name with its settings


@dataclass(frozen=True)
class Named:
    """A name and its settings, as they were written. ``section`` says what it names.

    ``beside``: the folder of the file in which it was written, if it was. Such a name reaches the
    files of that folder; a name that the user types or passes reaches everything that Python does.
    """

    section: str
    name: str
    settings: Mapping[str, Any] = field(default_factory=dict)
    beside: pathlib.Path | None = None

    def __str__(self) -> str:
        settings = ", ".join(f"{key}={value!r}" for key, value in self.settings.items())
        return f"{self.name}({settings})"


def read_named(section: str, value: Any, beside: pathlib.Path | None = None) -> Named:
    """From ``"name"``, ``"name(key=value)"`` or ``{"name": ..., key: value}``."""
    if isinstance(value, str):
        return Named(section, *_read_call(section, value), beside)
    if isinstance(value, Mapping) and isinstance(value.get("name"), str):
        # The name may have settings in brackets, too.
        name, settings = _read_call(section, value["name"])
        rest = {key: entry for key, entry in value.items() if key != "name"}
        if _has_sane_numbers(rest):
            return Named(section, name, {**settings, **rest}, beside)
        raise complain(ValueError, f"[{section}] has a number that is too large.")
    raise complain(
        ValueError,
        f"[{section}] needs a name.",
        remedy=f'Write {section} = "NAME", or [{section}] with name = "NAME" and its settings.',
    )


def _read_call(section: str, text: str) -> tuple[str, dict[str, Any]]:
    name, bracket, _ = text.partition("(")
    try:
        if len(text) > LONGEST:
            raise ValueError
        settings = _read_settings(f"_{text[len(name) :].strip()}") if bracket else {}
    # Deep nesting; a set of lists; numbers too long for Python.
    except (SyntaxError, ValueError, RecursionError, MemoryError, TypeError, OverflowError):
        raise complain(
            ValueError,
            f"{section} {shortened(text)!r} cannot be read.",
            remedy='Write a name and its settings as Python would, such as "adam(b1=0.95)".',
        ) from None
    return name.strip(), settings


def _read_settings(text: str) -> dict[str, Any]:
    """The keyword arguments of a call, all of them literals."""
    call = ast.parse(text, mode="eval").body
    if not isinstance(call, ast.Call) or not isinstance(call.func, ast.Name) or call.args:
        raise ValueError
    names = [word.arg for word in call.keywords]
    if None in names or len({*names}) < len(names):  # **settings; the same one twice
        raise ValueError
    settings = {str(w.arg): ast.literal_eval(_Texts().visit(w.value)) for w in call.keywords}
    if not _has_sane_numbers(settings):
        raise ValueError
    return settings


class _Texts(ast.NodeTransformer):
    """Energies, such as ``Huber(delta=0.5)``, stay texts until a rule is made."""

    def visit_Call(self, node: ast.Call) -> ast.AST:
        is_energy = isinstance(node.func, ast.Name) and node.func.id in ENERGY_NAMES
        return ast.Constant(ast.unparse(node)) if is_energy else node


def _has_sane_numbers(value: Any) -> bool:
    """Whether all integers in it are ones that JAX, and a message, can hold."""
    if isinstance(value, Mapping):
        return all(map(_has_sane_numbers, value.values()))
    if isinstance(value, list | tuple | set):
        return all(map(_has_sane_numbers, value))
    return not isinstance(value, int) or abs(value) < 2**63


def find_named(named: Named, known: Mapping[str, Callable[..., Any]]) -> Callable[..., Any]:
    """The function of that name: one of ours, or the user's own."""
    if named.name in known:
        return known[named.name]
    module, colon, attribute = named.name.rpartition(":")
    if colon:
        loaded = imported(_resolve_module(named, module))
        function = attribute_of(loaded, module, attribute)
        if named.beside is not None:
            _check_defined_in(named, loaded, function)
        return function
    raise complain(
        ValueError,
        f"there is no {named.section} {shortened(named.name)!r}.{nearest(named.name, known)}",
        remedy=f"There are: {', '.join(known)}; or your own, as path/to/file.py:function.",
    )


def _resolve_module(named: Named, module: str) -> str:
    """The module or file of that name, as far as the name may reach."""
    if named.beside is None:
        return module
    path = pathlib.PurePath(module)
    inside = _is_below(named.beside / path, named.beside)
    if path.suffix != ".py" or path.is_absolute() or ".." in path.parts or not inside:
        raise complain(
            ValueError,
            f"the file of the plan names the {named.section} {shortened(named.name)!r}, which is "
            "not beside it.",
            remedy=f"In a file, code is named by a file in the same folder, such as "
            f"my_{named.section}.py:function; name other code on the command line or in Python.",
        )
    return str(named.beside / path)


def _is_below(path: pathlib.Path, folder: pathlib.Path) -> bool:
    try:
        return path.resolve().is_relative_to(folder.resolve())
    except (OSError, ValueError, RuntimeError):  # too long, a NUL in it, links in a circle
        return False


def _check_defined_in(named: Named, module: Any, function: Callable[..., Any]) -> None:
    """What the file of a plan names is the file's own, and not what it imports: os.system, say."""
    if getattr(function, "__module__", None) != module.__name__:
        raise complain(
            ValueError,
            f"the file of the plan names the {named.section} {shortened(named.name)!r}, which that "
            "file only imports.",
            remedy="Define a function in the file that calls it, and name that.",
        )


def digest_of(named: Named) -> str | None:
    """SHA-256 of the file of the user's code; ``None`` for what is not in a file of theirs."""
    module, colon, _ = named.name.rpartition(":")
    if not colon:
        return None
    reached = _resolve_module(named, module)
    loaded = sys.modules.get(module)
    file = reached if reached.endswith(".py") else getattr(loaded, "__file__", None)
    if file is None or not pathlib.Path(file).is_file():  # built in, or in an archive
        return None
    return hashlib.sha256(pathlib.Path(file).read_bytes()).hexdigest()


def find_rule(named: Named) -> Rule:
    """The rule of that name."""
    if "energies" in named.settings:
        energies = _energies(named.settings["energies"])
        named = replace(named, settings={**named.settings, "energies": energies})
    rule = call_named(named, find_named(named, rules()))
    if not isinstance(rule, Rule):
        raise complain(TypeError, f"{named.name} made {type(rule).__name__}, which is no rule.")
    return rule


def _energies(written: Any) -> Any:
    """The energies that a text names, as ``"Huber(delta=0.5)"``, or by vertex in a dictionary."""
    if isinstance(written, Mapping):
        return {name: _energies(value) for name, value in written.items()}
    if not isinstance(written, str):
        return written
    named = read_named("energy", written)
    known = {name: getattr(shipped, name) for name in ENERGY_NAMES}
    return call_named(named, find_named(named, known))


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
    try:
        return function(**{**named.settings, **given})
    except Exception as problem:
        if ":" in named.name or is_ours(problem):  # the user's own code speaks for itself
            raise
        raise complain(
            ValueError,
            f"{named.section} {named} cannot be made: {str(problem).rstrip('.')}.",
            remedy="Look at its settings.",
        ) from problem


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
                f"{where} has no setting {in_short(key)}.{nearest(key, allowed)}",
                remedy=f"Its settings: {', '.join(allowed) or 'none'}.",
            )
