"""What a user names: a rule; a function, ``module:function`` or ``path/to/file.py:function``."""

from __future__ import annotations

import contextlib
import hashlib
import importlib
import importlib.util
import os
import pathlib
import re
import sys
import sysconfig
import traceback
from collections.abc import Callable, Iterator
from typing import Any

import dendrax
from dendrax.rules import Rule
from dendrax.support import RULE_NAMES


class BadInput(Exception):
    """What the user wrote cannot be used; the text says why and what to do."""


def rules() -> dict[str, type[Rule]]:
    """The rules by name."""
    return {name: getattr(dendrax.rules, name) for name in RULE_NAMES}


def imported(name: str) -> Any:
    """The module of that name, or in that file."""
    path = pathlib.Path(name)
    is_file = path.suffix == ".py"
    if is_file and not os.path.isfile(path):  # a path too long, or with a NUL, is none either
        raise BadInput(f"there is no file {path}.")
    try:
        with _reaching(pathlib.Path.cwd()):
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
    """The module in a file. Pickle, dataclasses and type hints find it in ``sys.modules``."""
    name = _own_name(path)
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None and spec.loader is not None
    module = sys.modules[name] = importlib.util.module_from_spec(spec)
    try:
        with _reaching(path.parent.absolute()):
            spec.loader.exec_module(module)
    except BaseException:
        sys.modules.pop(name, None)
        raise
    return module


def _own_name(path: pathlib.Path) -> str:
    """What the module in a file is called: always the same, and like no other module.

    A file ``random.py`` must not become ``random`` for everybody else.
    """
    digest = hashlib.sha256(os.fsencode(path.resolve())).hexdigest()[:8]
    return f"{re.sub(r'[^0-9A-Za-z_]', '_', path.stem)}_{digest}"


@contextlib.contextmanager
def _reaching(folder: pathlib.Path) -> Iterator[None]:
    """While something is imported, what lies in its folder comes first, as in a script.

    Afterwards it comes last: a function may import it late, and it hides nothing from others.
    """
    known, entry = list(sys.path), str(folder)
    sys.path.insert(0, entry)
    try:
        yield
    finally:
        if entry in sys.path:
            sys.path.remove(entry)
        if entry not in known and entry not in sys.path:
            sys.path.append(entry)


def attribute_of(module: Any, module_name: str, attribute: str) -> Callable[..., Any]:
    """A function of a module."""
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


def told(problem: BaseException) -> str:
    """What went wrong, and on which line of the user's."""
    place = users_line(problem)
    return f"{type(problem).__name__}: {problem}" + f"\n  at {place}" * bool(place)


def ended(problem: SystemExit) -> str:
    """That the user's code ended the program, and on which line."""
    place = users_line(problem)
    return f"your code ended the program (SystemExit: {problem})." + f"\n  at {place}" * bool(place)


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
