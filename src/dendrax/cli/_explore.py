"""``dendrax explore``: the page of a function that the user names."""

from __future__ import annotations

import contextlib
import pathlib
import sys
import webbrowser
from collections.abc import Iterator, Sequence

from rich.console import Console

from dendrax._errors import is_ours
from dendrax.cli._function import evaluated, find_function, find_rule
from dendrax.draw import explore
from dendrax.train._user_code import BadInput, told, users_line


def run(
    spec: str,
    *,
    arguments: str | None,
    target: str | None,
    argnums: str,
    rules: Sequence[str],
    vertices: str | None,
    out: pathlib.Path,
    show: bool,
) -> None:
    """Write the page, say where it is, and open it if asked to."""
    console = Console(stderr=True, highlight=False)
    with speaking(console), console.status("tracing, running and recording"):
        found = find_function(spec, arguments)
        clamped = None if target is None else evaluated(target, found.names, "--target")
        page = explore(
            found.fun,
            *found.args,
            argnums=numbers(argnums),
            rule=tuple(map(find_rule, rules)),
            vertices=vertices,
            target=clamped,
            path=out,
            title=found.name,
        )
    size = page.stat().st_size / 1e6
    console.print(f"The page: {page} ({size:.1f} MB)", style="bold", soft_wrap=True, markup=False)
    if show:
        webbrowser.open(page.absolute().as_uri())


def numbers(text: str) -> int | tuple[int, ...]:
    """``"0"`` or ``"0,1"``: which arguments are parameters."""
    try:
        found = tuple(int(part) for part in text.split(","))
    except ValueError:
        raise BadInput(f"--argnums '{text}' is not a number, or numbers with commas.") from None
    return found[0] if len(found) == 1 else found


@contextlib.contextmanager
def speaking(console: Console) -> Iterator[None]:
    """What the user can mend is told in a few lines; anything else keeps its traceback."""
    try:
        yield
    except BadInput as problem:
        _stop(console, f"dendrax: {problem}")
    except Exception as problem:
        if is_ours(problem):
            _stop(console, str(problem.args[0]))
        if not users_line(problem):
            raise
        _stop(console, f"dendrax: the function cannot be traced. {told(problem)}")


def _stop(console: Console, text: str) -> None:
    console.print(text, style="red", markup=False, soft_wrap=True)
    sys.exit(1)
