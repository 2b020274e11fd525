"""``dendrax explore``: the page of a function that the user names."""

from __future__ import annotations

import pathlib
import webbrowser
from collections.abc import Sequence

from rich.console import Console

from dendrax.cli._function import evaluated, find_function
from dendrax.cli._speaking import say, speaking
from dendrax.draw import explore
from dendrax.named import BadInput, find_rule, read_named
from dendrax.rules import Rule
from dendrax.support import Vertices, shortened, speaking_as

NOT_TRACED = "the function cannot be traced. "


def run(
    spec: str,
    *,
    arguments: str | None,
    target: str | None,
    argnums: str,
    rules: Sequence[str],
    vertices: Vertices | None,
    out: pathlib.Path,
    show: bool,
) -> None:
    """Write the page, say where it is, and open it if asked to."""
    console = Console(stderr=True, highlight=False)
    with speaking(console, NOT_TRACED):  # `explore` itself shows how far it is
        chosen = tuple(_rule(text) for text in rules)
        found = find_function(spec, arguments)
        clamped = None if target is None else evaluated(target, found.names, "--target")
        page = explore(
            found.fun,
            *found.args,
            argnums=numbers(argnums),
            rule=chosen,
            vertices=vertices,
            target=clamped,
            path=out,
            title=found.name,
        )
    size = page.stat().st_size / 1e6
    say(console, f"The page: {page} ({size:.1f} MB)")
    if show:
        webbrowser.open(page.absolute().as_uri())


def _rule(text: str) -> Rule:
    with speaking_as("dendrax explore"):
        return find_rule(read_named("rule", text))


def numbers(text: str) -> int | tuple[int, ...]:
    """``"0"`` or ``"0,1"``: which arguments are parameters."""
    try:
        found = tuple(int(part) for part in text.split(","))
    except ValueError:
        raise BadInput(
            f"--argnums '{shortened(text)}' is not a number, or numbers with commas."
        ) from None
    return found[0] if len(found) == 1 else found
