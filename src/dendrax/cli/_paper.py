"""``dendrax paper`` and ``dendrax demo``: run the experiments, show the tables, name the report."""

from __future__ import annotations

import sys

from rich.console import Console
from rich.table import Table as Shown

from dendrax.experiments import Paper
from dendrax.experiments._claims import Claim
from dendrax.experiments._tables import Table


def run(paper: Paper, parts: tuple[str, ...], tables: tuple[str, ...]) -> None:
    """Measure the parts, show the tables whose names begin so, and the claims; write the report."""
    console = Console()
    try:
        paper.run(parts, console)
        report, page = paper.report()
    except OSError as problem:
        console.print(f"dendrax: cannot write to {paper.folder}: {problem}", style="red")
        sys.exit(1)
    except KeyboardInterrupt:
        console.print(
            f"\nStopped. What is measured is kept in {paper.store.folder}; the same command goes "
            "on from there.",
            style="yellow",
        )
        sys.exit(130)
    for table in report.tables:
        if table.name.startswith(tables):
            console.print(_shown(table))
    _show_claims(console, report.claims)
    for text in report.facts.get("left out", "").split("; "):
        console.print(f"Left out: {text}" if text else "", style="yellow", end="\n" * bool(text))
    console.print(f"The report: [bold]{page}[/]", soft_wrap=True)
    if not all(claim.holds for claim in report.claims if claim.exact):
        sys.exit(1)


def _shown(table: Table) -> Shown:
    shown = Shown(title=table.title, caption=table.note, caption_justify="left")
    for index, name in enumerate(table.columns):
        shown.add_column(name, justify="right" if index else "left")
    for row in table.rows:
        shown.add_row(*map(_coloured, row))
    return shown


def _coloured(entry: str) -> str:
    return "[green]0[/]" if entry == "0" else entry


def _show_claims(console: Console, claims: list[Claim]) -> None:
    for claim in claims:
        mark = "[green]yes[/]" if claim.holds else "[bold red]no[/] "
        console.print(f"{mark}  {claim.text}\n     [dim]{claim.evidence}[/]", highlight=False)
    console.print()
