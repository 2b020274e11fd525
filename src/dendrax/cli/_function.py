"""What the user names on the command line -> a function and its arguments.

- ``module:function`` or ``path/to/file.py:function``, with ``--args`` (a Python expression that
  sees the module's names, and ``jax``, ``jnp`` and ``np``), or with defaults for all arguments.
- A function without arguments that returns ``(fun, *args)``.
- ``mlp``, ``resnet18``, ...: a model of `dendrax.models` with random data.
"""

from __future__ import annotations

import importlib
import importlib.util
import inspect
import pathlib
import sys
import sysconfig
import traceback
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import dendrax
from dendrax.models import PROBLEMS, problem
from dendrax.rules import Rule


class BadInput(Exception):
    """What the user wrote cannot be used; the text says why and what to do."""


@dataclass(frozen=True)
class Function:
    """A function with arguments, and the names that expressions may use."""

    name: str
    fun: Callable[..., Any]
    args: tuple[Any, ...]
    names: Mapping[str, Any]


def find_function(spec: str, arguments: str | None) -> Function:
    """The function that the user names, and its arguments."""
    if spec in PROBLEMS:
        p = problem(spec, small=True)
        return Function(spec, p.loss, (p.model, p.inputs, p.target), {})
    module_name, _, attribute = spec.rpartition(":")
    if not module_name or not attribute:
        raise BadInput(
            f"'{spec}' names no function. Write module:function or path/to/file.py:function, or "
            f"one of dendrax' own models: {', '.join(PROBLEMS)}."
        )
    module = _imported(module_name)
    fun = _attribute(module, module_name, attribute)
    names = {"jax": jax, "jnp": jnp, "np": np, "dendrax": dendrax, **vars(module)}
    if arguments is None:
        return _with_own_arguments(spec, attribute, fun, names)
    found = evaluated(arguments, names, "--args")
    args = found if isinstance(found, tuple) else (found,)
    _check_arguments(spec, fun, args)
    return Function(attribute, fun, args, names)


def _imported(name: str) -> Any:
    here = str(pathlib.Path.cwd())
    if here not in sys.path:
        sys.path.insert(0, here)
    path = pathlib.Path(name)
    is_file = path.suffix == ".py"
    if is_file and not path.is_file():
        raise BadInput(f"there is no file {path}.")
    try:
        return _loaded(path) if is_file else importlib.import_module(name)
    except Exception as problem:
        missing = problem.name if isinstance(problem, ModuleNotFoundError) else None
        if not is_file and missing is not None and f"{name}.".startswith(f"{missing}."):
            remedy = "Is it installed, or in this folder? A file is named path/to/file.py:function."
            raise BadInput(f"there is no module '{name}'. {remedy}") from None
        raise BadInput(f"importing '{name}' failed: {told(problem)}") from problem
    except SystemExit as problem:
        raise BadInput(
            f"importing '{name}' ended the program (SystemExit: {problem}). Let only what is "
            "needed run at import; keep the rest below if __name__ == '__main__'."
        ) from None


def _loaded(path: pathlib.Path) -> Any:
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[path.stem] = module
    sys.path.insert(0, str(path.parent.absolute()))
    spec.loader.exec_module(module)
    return module


def _attribute(module: Any, module_name: str, attribute: str) -> Callable[..., Any]:
    found = module
    for part in attribute.split("."):
        if not hasattr(found, part):
            functions = [n for n, v in vars(module).items() if callable(v) and n[0] != "_"]
            raise BadInput(
                f"'{module_name}' has no '{attribute}'. It has: {', '.join(functions[:12])}."
            )
        found = getattr(found, part)
    if not callable(found):
        raise BadInput(f"'{module_name}:{attribute}' is {type(found).__name__}, not a function.")
    return found


def _with_own_arguments(
    spec: str, attribute: str, fun: Callable[..., Any], names: Mapping[str, Any]
) -> Function:
    try:
        parameters = list(inspect.signature(fun).parameters.values())
    except (TypeError, ValueError):
        parameters = [inspect.Parameter("x", inspect.Parameter.POSITIONAL_ONLY)]
    needed = [p.name for p in parameters if p.default is p.empty and p.kind != p.VAR_KEYWORD]
    if needed:
        raise BadInput(
            f"'{spec}' needs arguments ({', '.join(needed)}). Give them as Python, for instance "
            f"--args 'jnp.ones((3, 2)), jnp.ones(3)'; names of its module can be used. Or name a "
            "function without arguments that returns (fun, *args)."
        )
    defaults = tuple(p.default for p in parameters if p.kind in _POSITIONAL)
    if defaults:
        return Function(attribute, fun, defaults, names)
    found = _called(spec, fun)
    if not isinstance(found, tuple) or not found or not callable(found[0]):
        raise BadInput(
            f"'{spec}' takes no arguments, so it should return (fun, *args), a function and what "
            f"to call it with; it returned {type(found).__name__}."
        )
    return Function(attribute, found[0], found[1:], names)


_POSITIONAL = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)


def _check_arguments(spec: str, fun: Callable[..., Any], args: tuple[Any, ...]) -> None:
    try:
        signature = inspect.signature(fun)
    except (TypeError, ValueError):
        return
    try:
        signature.bind(*args)
    except TypeError as problem:
        raise BadInput(
            f"'{spec}' takes {signature}; --args gives {len(args)} by position: {problem}."
        ) from None


def _called(spec: str, fun: Callable[..., Any]) -> Any:
    try:
        return fun()
    except Exception as problem:
        raise BadInput(f"calling '{spec}' failed: {told(problem)}") from problem


def evaluated(text: str, names: Mapping[str, Any], option: str) -> Any:
    """A Python expression of the user's."""
    try:
        return eval(text, dict(names))
    except Exception as problem:
        raise BadInput(f"{option} '{text}': {told(problem)}") from problem


def find_rule(text: str) -> Rule:
    """``"ZIL"`` or ``"IL(num_steps=30)"`` -> the rule."""
    rules = {name: value for name, value in vars(dendrax).items() if _is_rule(value)}
    try:
        found = evaluated(text, {"__builtins__": {}, **rules}, "--rule")
        found = found() if _is_rule(found) else found
    except BadInput as problem:
        if not isinstance(problem.__cause__, (NameError, SyntaxError)):
            raise
        found = None
    if not isinstance(found, Rule):
        raise BadInput(f"--rule '{text}' is no rule. Rules: {', '.join(rules)}.")
    return found


def _is_rule(value: Any) -> bool:
    return isinstance(value, type) and issubclass(value, Rule)


def told(problem: BaseException) -> str:
    """What went wrong, and on which line of the user's."""
    place = users_line(problem)
    return f"{type(problem).__name__}: {problem}" + f"\n  at {place}" * bool(place)


def users_line(problem: BaseException) -> str:
    """``file:line`` of the user's code in which an error arose; empty if it was none of theirs."""
    frames = reversed(traceback.extract_tb(problem.__traceback__))
    own = (f for f in frames if f.filename[0] != "<" and not f.filename.startswith(_OTHERS))
    return next((f"{f.filename}:{f.lineno}" for f in own), "")


# Where code is not the user's: in dendrax, in installed packages, in Python.
_OTHERS = (
    str(pathlib.Path(dendrax.__file__).parent),
    *{sysconfig.get_path(name) for name in ("stdlib", "purelib", "platlib")},
)
