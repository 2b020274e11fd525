"""``dendrax data``: which data sets are on this machine; ``dendrax data get``: one that is not."""

from __future__ import annotations

import contextlib
import pathlib
import sys
from collections.abc import Iterator

from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from dendrax.cli._speaking import say, speaking
from dendrax.data import Watch, get, sources
from dendrax.support import speaking_as


def run(data_dir: pathlib.Path | None) -> None:
    """One paragraph per data set."""
    console = Console(highlight=False)
    for source in sources(data_dir):
        mark = "[green]found[/]  " if source.found else "[yellow]missing[/]"
        console.print(f"{mark} [bold]{escape(source.name)}[/]  {escape(source.about)}")
        if source.found:
            console.print(f"        {escape(source.where)}", style="dim", soft_wrap=True)
        else:
            console.print(f"        {escape(source.command)}", soft_wrap=True)


def fetch(name: str, source: pathlib.Path | None, data_dir: pathlib.Path | None) -> None:
    """Get a data set, and say where it is."""
    console = Console(stderr=True, highlight=False)
    try:
        with speaking_as("dendrax data get"), speaking(console), _bar(console) as watch:
            place = get(name, source, data_dir=data_dir, watch=watch)
    except KeyboardInterrupt:
        say(console, "Stopped. Nothing was changed.", "red")
        sys.exit(130)
    say(console, f"{name} is in {place}")


@contextlib.contextmanager
def _bar(console: Console) -> Iterator[Watch]:
    """It moves while there is nothing to count, too."""
    columns = (TextColumn("{task.description}", markup=False), BarColumn(), MofNCompleteColumn())
    with Progress(*columns, TimeElapsedColumn(), console=console, transient=True) as progress:
        task = progress.add_task("", total=None)
        yield lambda what, done, total: progress.update(
            task, description=what, completed=done, total=total or None
        )
