"""Print the oldest versions that pyproject.toml allows, as constraints for pip.

    python tools/oldest_versions.py test > constraints.txt
    python -m pip install --constraint constraints.txt --editable ".[test]"

What has a lower bound in the dependencies, or in one of the extras given, is pinned to that bound.
`make test-oldest` installs by this list, so what is tested is what pyproject.toml promises.
"""

import pathlib
import re
import sys
import tomllib
from collections.abc import Iterator
from typing import Any

PROJECT = pathlib.Path(__file__).parents[1] / "pyproject.toml"
REQUIREMENT = re.compile(r"(?P<name>[\w.-]+)(\[(?P<extras>[\w,-]+)\])?(>=(?P<oldest>[\w.]+))?")


def constraints(project: dict[str, Any], lines: list[str]) -> Iterator[str]:
    """One constraint per requirement; an extra of our own stands for the requirements in it."""
    for line in lines:
        found = REQUIREMENT.match(line)
        assert found is not None, line
        if found["name"] == project["name"]:
            yield from constraints(project, in_extras(project, found["extras"]))
        elif found["oldest"] is None:
            sys.exit(f"pyproject.toml: {line!r} has no lower bound, so there is no oldest version.")
        else:
            yield f"{found['name']}=={found['oldest']}"


def in_extras(project: dict[str, Any], extras: str) -> list[str]:
    """The requirements in some extras, which are named as pip wants them: ``paper,train``."""
    return [line for name in extras.split(",") for line in project["optional-dependencies"][name]]


def main(extras: str) -> None:
    """Read, pin, print."""
    project = tomllib.loads(PROJECT.read_text())["project"]
    lines = project["dependencies"] + in_extras(project, extras)
    print(*sorted(set(constraints(project, lines))), sep="\n")


if __name__ == "__main__":
    main(sys.argv[1])
