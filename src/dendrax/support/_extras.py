"""What is optional: who needs it, and what to type where it is missing."""

from __future__ import annotations

import contextlib
import importlib.metadata
import re
import shlex
from collections.abc import Iterator

from dendrax.support._errors import complain

_REQUIREMENT = re.compile(r"(?P<name>[\w.-]+)(\[(?P<extras>[\w,-]+)\])?(?P<versions>[^;]*)")


@contextlib.contextmanager
def require_extra(user: str, extra: str) -> Iterator[None]:
    """While ``user`` imports what is in an extra: what is missing is named, with the remedy."""
    try:
        yield
    except ImportError as problem:
        if problem.name is not None and problem.name.split(".")[0] == "dendrax":
            raise
        raise complain(
            type(problem),
            f"{user} needs what is not installed: {problem}.",
            remedy=install_command(extra),
        ) from problem


def install_command(extra: str) -> str:
    """Names what is missing itself: dendrax need not be on a package index."""
    try:
        wanted = requirements(extra)
    except importlib.metadata.PackageNotFoundError:  # a checkout that was not installed
        return f"pyproject.toml of dendrax lists it, under the extra {extra}."
    missing = [line for line in wanted if not _is_installed(line)] or wanted
    return f"pip install {' '.join(map(shlex.quote, missing))}"


def _is_installed(requirement: str) -> bool:
    parts = _REQUIREMENT.match(requirement)
    assert parts is not None, requirement
    try:
        importlib.metadata.distribution(parts["name"])
    except importlib.metadata.PackageNotFoundError:
        return False
    return True


def requirements(extra: str) -> list[str]:
    """The requirements of an extra, as pip takes them; an extra of ours stands for its own."""
    found: list[str] = []
    for line in importlib.metadata.requires("dendrax") or ():
        if not re.search(rf"""extra == ['"]{extra}['"]""", line):
            continue
        parts = _REQUIREMENT.match(line)
        assert parts is not None, line
        if parts["name"] == "dendrax":
            found += [one for name in parts["extras"].split(",") for one in requirements(name)]
        else:
            found.append(f"{parts['name']}{parts['versions'].strip()}")
    return list(dict.fromkeys(found))
