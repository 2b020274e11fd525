"""A data set that does not ship with dendrax: in which forms it is read, where it is looked for.

Where: in ``data_dir`` if the caller names one, and then nowhere else. Otherwise in the folder that
``DENDRAX_DATA`` names, in the cache folder, and where other tools keep the same files.
"""

from __future__ import annotations

import os
import pathlib
import shlex
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from dendrax.data._files import BadFile
from dendrax.support import complain, expanded

T = TypeVar("T")
DataDir = str | os.PathLike[str] | None


@dataclass(frozen=True)
class Form(Generic[T]):
    """One packaging of a data set: the pattern of its file's name, and how to read that file."""

    pattern: str
    read: Callable[[pathlib.Path], T]


@dataclass(frozen=True)
class DataSet(Generic[T]):
    """What there is to know about a data set before a file of it is opened."""

    name: str
    about: str
    get: str  # its name to `dendrax data get`
    accepts: str  # the files that are read, in words
    forms: tuple[Form[T], ...]  # the first that is found in a folder is read
    subfolders: tuple[str, ...] = ("",)
    usual: tuple[str, ...] = ()  # where other tools keep it; ~ is the home folder
    packages: tuple[str, ...] = ()  # what `dendrax data get --from` unpacks
    pickles: tuple[str, ...] = ()  # known only to say that they are not read


def cache_folder() -> pathlib.Path:
    """Where `dendrax data get` writes."""
    root = os.environ.get("XDG_CACHE_HOME", "")
    # The XDG specification: a path that is not absolute is to be ignored.
    return _path(root if os.path.isabs(root) else "~/.cache") / "dendrax"


def command_for(data_set: DataSet[T], data_dir: DataDir = None, source: Any = None) -> str:
    """The shell command that puts the files where they are then found first."""
    words = ["dendrax", "data", "get", data_set.get]
    words += [] if source is None else ["--from", str(source)]
    words += [] if data_dir is None else ["--data-dir", str(_path(data_dir))]
    return shlex.join(words)


def own_folder(data_dir: DataDir = None) -> pathlib.Path:
    """The folder that is looked into first."""
    chosen = data_dir if data_dir is not None else os.environ.get("DENDRAX_DATA")
    return _path(chosen) if chosen else cache_folder()


def find(data_set: DataSet[T], data_dir: DataDir = None) -> tuple[Form[T], pathlib.Path] | None:
    """The form that will be read, and its file. Looks at names only, and opens nothing."""
    for folder in _folders(data_set, data_dir):
        for form in data_set.forms:
            for path in _matches(folder, form.pattern):
                return form, path
    return None


def load(data_set: DataSet[T], data_dir: DataDir = None) -> T:
    """Find a data set and read it, or raise an error that says which command gets it."""
    found = find(data_set, data_dir)
    if found is None:
        raise _missing(data_set, data_dir)
    form, path = found
    try:
        return form.read(path)
    except BadFile as error:
        delete = f"Delete {error.path} and get it again" if error.path.is_file() else "Get it again"
        remedy = f"{delete}: {command_for(data_set, data_dir)}"
        raise complain(ValueError, str(error), remedy=remedy) from error


def _missing(data_set: DataSet[T], data_dir: DataDir) -> Exception:
    folders = list(_folders(data_set, data_dir))
    packages, pickled = (
        [p for folder in folders for name in names for p in _matches(folder, name)]
        for names in (data_set.packages, data_set.pickles)
    )
    get = f"Get it: {command_for(data_set, data_dir)}"
    if packages:
        problem = f"{packages[0]} is a package, which is not read as it is"
        get = f"Unpack it: {command_for(data_set, data_dir, packages[0])}"
    elif pickled:
        problem = f"{pickled[0]} holds pickles, which are not read, since a pickle can run any code"
    elif data_dir is None:
        problem = f"{data_set.name} is in none of: {', '.join(map(str, folders))}"
    elif _path(data_dir).is_dir():
        problem = f"data_dir={str(data_dir)!r} does not hold {data_set.name}"
    else:
        problem = f"data_dir={str(data_dir)!r} is not a folder"
    remedy = f"{get}\n  Or pass data_dir=, a folder that holds {data_set.accepts}."
    return complain(FileNotFoundError, f"{problem}.", remedy=remedy)


def _folders(data_set: DataSet[T], data_dir: DataDir) -> Iterator[pathlib.Path]:
    roots = [_path(data_dir)] if data_dir is not None else _own_folders()
    yield from (root / name for root in roots for name in data_set.subfolders)
    if data_dir is None:
        yield from map(_path, data_set.usual)


def _own_folders() -> list[pathlib.Path]:
    chosen = os.environ.get("DENDRAX_DATA")
    return [*([_path(chosen)] if chosen else []), cache_folder()]


def _matches(folder: pathlib.Path, pattern: str) -> list[pathlib.Path]:
    try:
        # Reversed: of two versions of a package, the newer one.
        return sorted(folder.glob(pattern), reverse=True)
    except OSError:  # a folder that may not be looked into holds nothing for us
        return []


def _path(data_dir: str | os.PathLike[str]) -> pathlib.Path:
    return expanded("data_dir", data_dir)
