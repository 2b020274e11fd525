"""How the command line answers words that it does not know, and completes those that it does.

JAX is not imported here: who mistypes, or presses the tabulator key, does not wait.
"""

from __future__ import annotations

import itertools
import re
import sys
from collections.abc import Callable, Iterable
from typing import Any, NoReturn

import typer
from rich.console import Console
from typer.core import TyperCommand, TyperGroup

from dendrax.support import nearest, printable, shortened

_CHOICE = re.compile(r"'(?P<given>[^']*)' is not one of (?P<known>.+)", re.DOTALL)

ANY_CLUSTER = "auto"  # what stands for a --cluster alone
_GONE = {  # commands of earlier versions, and what does their work
    "launch": "start processes by a launcher, as in: mpiexec -n 2 dendrax train --cluster mpi4py"
}
_UNKNOWN = "dendrax.unknown_command"  # in the context of a line


class Commands(TyperGroup):
    """The commands. What is wrong with a line is said in a sentence or two, without a frame."""

    def main(self, *args: Any, standalone_mode: bool = True, **kwargs: Any) -> Any:
        kwargs["prog_name"] = "dendrax"  # also for python -m dendrax.cli
        if not standalone_mode:
            return super().main(*args, standalone_mode=False, **kwargs)
        try:
            code = super().main(*args, standalone_mode=False, **kwargs)
        except typer.Abort:  # the end of the input, where a question was asked
            sys.exit(1)
        except Exception as problem:
            # Typer has a copy of Click inside, or uses Click, by version: classes are not compared.
            if not hasattr(problem, "format_message"):  # not about the line that was typed
                raise
            refuse(problem)
        sys.exit(code or 0)

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        name = args[0]
        if "--out=" in args or ("--out", "") in itertools.pairwise(args):
            ctx.fail("--out '' is not a path. The current folder is '.'.")
        if self.get_command(ctx, name) is None and not name.startswith("-"):
            if name in _GONE and not ctx.resilient_parsing:
                ctx.fail(f"there is no command {name!r} any more: {_GONE[name]}.")
            if not ctx.resilient_parsing:
                ctx.fail(
                    f"there is no command {name!r}. {suggestion(name, self.list_commands(ctx))}"
                )
            ctx.meta[_UNKNOWN] = True  # a shell completes: a sentence would stand in its prompt
        return super().resolve_command(ctx, args)

    def shell_complete(self, ctx: Any, incomplete: str) -> Any:
        return [] if _UNKNOWN in ctx.meta else super().shell_complete(ctx, incomplete)


class TrainCommand(TyperCommand):
    """``--cluster`` may stand alone: what follows is its method, if it is no option and no plan."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        words = []
        for word, following in zip(args, [*args, "-"][1:], strict=True):
            other = following.startswith("-") or following.endswith(".toml")  # a plan
            alone = word == "--cluster" and other
            words += [word, ANY_CLUSTER] if alone else [word]
        return super().parse_args(ctx, words)


def refuse(problem: Any) -> NoReturn:
    """Say what is wrong with the line, and what would be right."""
    if type(problem).__name__ == "NoArgsIsHelpError":  # nothing is wrong
        problem.show()
    else:
        context = getattr(problem, "ctx", None)
        command = "dendrax" if context is None else context.command_path
        text = f"{command}: {sentence(problem, context)}\n  {command} --help shows how it is used."
        console = Console(stderr=True, highlight=False)
        console.print(printable(text), style="red", markup=False, soft_wrap=True)
    sys.exit(problem.exit_code)


def sentence(problem: Any, context: Any) -> str:
    """A sentence, with the nearest of what there is, or else all of it."""
    if hasattr(problem, "possibilities"):
        name = problem.option_name
        return (
            f"there is no option {shortened(name)}. {suggestion(name, _options(context))}".rstrip()
        )
    text = " ".join(problem.format_message().split()).replace(": Value error, ", ": ")
    if found := _CHOICE.search(text):
        known = re.findall(r"'([^']*)'", found["known"])
        text = f"{text[: found.start()]}{found['given']!r} is not known. "
        text += suggestion(found["given"], known)
    return text[0].lower() + text[1:].rstrip(".") + ("." if text[-1] != "?" else "")


def suggestion(word: str, known: Iterable[str]) -> str:
    """The nearest, or all of them; nothing, if there are none."""
    known = list(known)
    if not known:
        return ""
    return nearest(word, known, most=2).strip() or f"There are: {', '.join(known)}."


def _options(context: Any) -> list[str]:
    if context is None:
        return []
    options = [name for p in context.command.get_params(context) for name in p.opts]
    return [name for name in options if name.startswith("--")]


def completer(words: Iterable[str]) -> Callable[[str], list[str]]:
    """What a shell may offer for an option."""

    def complete(incomplete: str) -> list[str]:
        return [word for word in words if word.startswith(incomplete)]

    return complete
