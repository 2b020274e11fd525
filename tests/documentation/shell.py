"""Lines for the shell in the documentation: find them, and hold them against what is there.

A line of ``dendrax`` goes to the command line's own parser, which knows every command, option and
type; it is parsed, not run. ``make`` needs such a target, ``pip install`` such an extra, and
``python`` such a file.
"""

import functools
import pathlib
import re
import shlex
import tomllib
from typing import Any

import typer

from dendrax.cli._main import app
from tests.documentation.blocks import ROOT, Block, page_blocks

_SPAN = re.compile(r"(?<!`)`((?:[A-Z_]+=\S+ )?(?:dendrax|make|pip|python) [^`\n]+)`(?!`)")
_UsageError: Any = typer.BadParameter.__base__  # click's, which newer typers have inside them


# ---- finding -------------------------------------------------------------------------------------


def shell_lines(page: pathlib.Path) -> list[Block]:
    """The lines of a page that are meant for the shell: in blocks, and within the text."""
    within = re.sub(r"^```.*?^```$", _blank, page.read_text(), flags=re.MULTILINE | re.DOTALL)
    where = str(page.relative_to(ROOT))
    return [line for block in page_blocks(page, "sh") for line in _lines(block)] + [
        Block(where, page, within.count("\n", 0, match.start()) + 1, match[1])
        for match in _SPAN.finditer(within)
    ]


def _lines(block: Block) -> list[Block]:
    """The lines of a block; one that ends with a backslash goes on in the next."""
    return [
        Block(
            block.where,
            block.file,
            block.line + block.code.count("\n", 0, match.start()),
            match[0].replace("\\\n", " "),
        )
        for match in re.finditer(r"(?:.*\\\n)*.+", block.code)
    ]


def _blank(match: re.Match[str]) -> str:
    return "\n" * match[0].count("\n")


def help_lines() -> list[Block]:
    """The lines that the help of a command shows."""
    return [
        Block(f"dendrax {name} --help", pathlib.Path(), k, line)
        for name, command in _commands().items()
        for k, line in enumerate((command.help or "").splitlines(), 1)
        if line.startswith("dendrax ")
    ]


@functools.cache
def _commands() -> dict[str, Any]:
    group: Any = typer.main.get_command(app)
    return group.commands


# ---- checking ------------------------------------------------------------------------------------


def check_line(line: str) -> None:
    """Raise ValueError if the line asks for a command, option, target, extra or file we lack."""
    for command in line.split("&&"):
        words = shlex.split(command, comments=True)
        while words and re.fullmatch(r"[A-Z_]+=.*", words[0]):
            words.pop(0)
        _check_words(words)


def _check_words(words: list[str]) -> None:
    program = words[0] if words else ""
    if program not in _CHECKS:
        raise ValueError(f"nothing is known of {program!r}")
    _CHECKS[program](words[1:])


def _after_options(words: list[str]) -> list[str]:
    """What a launcher runs: the words after its own, of which short ones have a value."""
    while words and words[0].startswith("-"):
        words = words[1 if words[0].startswith("--") else 2 :]
    return words


def _check_dendrax(arguments: list[str]) -> None:
    name, *rest = arguments
    if name not in _commands():
        raise ValueError(f"there is no command dendrax {name}")
    try:
        _commands()[name].make_context(name, rest)
    except _UsageError as error:
        raise ValueError(f"dendrax {name}: {error.format_message()}") from error


def _check_make(arguments: list[str]) -> None:
    targets = re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE)
    for word in arguments:
        if "=" not in word and word not in targets:
            raise ValueError(f"the Makefile has no target {word}")


def _check_pip(arguments: list[str]) -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    for word in arguments:
        if match := re.fullmatch(r"(?:\.|dendrax)\[(.*)\]", word):
            for extra in match[1].split(","):
                if extra not in project["optional-dependencies"]:
                    raise ValueError(f"pyproject.toml has no extra {extra!r}")


def _check_python(arguments: list[str]) -> None:
    if arguments[:2] == ["-m", "pip"]:
        return _check_pip(arguments[2:])
    for word in arguments:
        if word.startswith(("tests/", "tools/", "benchmarks/")) and not (ROOT / word).exists():
            raise ValueError(f"there is no {word}")


_CHECKS = {
    "dendrax": _check_dendrax,
    "make": _check_make,
    "pip": _check_pip,
    "python": _check_python,
    "srun": lambda arguments: _check_words(_after_options(arguments)),
    "mpiexec": lambda arguments: _check_words(_after_options(arguments)),
}
