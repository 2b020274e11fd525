"""``dendrax data``: which data sets are on this machine, and how to get the others."""

from __future__ import annotations

import pathlib

from rich.console import Console
from rich.markup import escape

from dendrax.data import sources


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
