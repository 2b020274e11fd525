"""How the commands speak: a line in a colour, and mistakes of the user's in a few."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Iterator

from rich.console import Console

from dendrax.named import BadInput, ended, told, users_line
from dendrax.support import is_ours, printable


def say(console: Console, text: str, style: str = "bold") -> None:
    """A line, as it is."""
    console.print(printable(text), style=style, markup=False, soft_wrap=True)


def stop(console: Console, text: str) -> None:
    """The last word."""
    say(console, text, "red")
    sys.exit(1)


@contextlib.contextmanager
def speaking(
    console: Console, what: str = "", leave: Callable[[Console, str], None] = stop
) -> Iterator[None]:
    """What the user can mend is told in a few lines; anything else keeps its traceback.

    ``what`` failed, if it did in the user's code; ``leave`` ends the program.
    """
    try:
        yield
    except BadInput as problem:
        leave(console, f"dendrax: {problem}")
    except SystemExit as problem:  # nothing of ours ends the program in here
        leave(console, f"dendrax: {what}{ended(problem)}")
    except Exception as problem:
        if is_ours(problem):
            leave(console, str(problem.args[0]))
        if not users_line(problem):
            raise
        leave(console, f"dendrax: {what}{told(problem)}")
