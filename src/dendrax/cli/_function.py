"""What the user names on the command line -> a function and its arguments.

- ``module:function`` or ``path/to/file.py:function``, with ``--args`` (a Python expression that
  sees the module's names, and ``jax``, ``jnp`` and ``np``), or with defaults for all arguments.
- A function without arguments that returns ``(fun, *args)``.
- ``mlp``, ``resnet18``, ...: a model of `dendrax.models` with random data.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import dendrax
from dendrax.models import PROBLEMS, problem
from dendrax.named import BadInput, attribute_of, ended, imported, told
from dendrax.support import nearest, shortened


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
            f"'{shortened(spec)}' names no function.{nearest(spec, PROBLEMS)} Write "
            "module:function or path/to/file.py:function, or one of dendrax' own models: "
            f"{', '.join(PROBLEMS)}."
        )
    module = imported(module_name)
    fun = attribute_of(module, module_name, attribute)
    names = {"jax": jax, "jnp": jnp, "np": np, "dendrax": dendrax, **vars(module)}
    if arguments is None:
        return _with_own_arguments(spec, attribute, fun, names)
    found = evaluated(arguments, names, "--args")
    args = found if isinstance(found, tuple) else (found,)
    _check_arguments(spec, fun, args)
    return Function(attribute, fun, args, names)


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
    except SystemExit as problem:
        raise BadInput(f"calling '{spec}': {ended(problem)}") from None
    except Exception as problem:
        raise BadInput(f"calling '{spec}' failed: {told(problem)}") from problem


def evaluated(text: str, names: Mapping[str, Any], option: str) -> Any:
    """A Python expression of the user's."""
    try:
        return eval(text, dict(names))
    except SystemExit as problem:
        raise BadInput(f"{option} '{shortened(text)}': {ended(problem)}") from None
    except Exception as problem:
        raise BadInput(f"{option} '{shortened(text)}': {told(problem)}") from problem
