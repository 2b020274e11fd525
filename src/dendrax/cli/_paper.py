"""``dendrax paper``: run the experiments, show the tables, name the report."""

from __future__ import annotations

from dendrax.cli._measurements import (
    check_folder,
    console_of_width,
    exit_if_inexact,
    measure,
    show_claims,
    show_table,
)
from dendrax.paper import Paper


def run(paper: Paper, parts: tuple[str, ...], tables: tuple[str, ...]) -> None:
    """Measure the parts, show the tables whose names begin so, and the claims; write the report."""
    console = console_of_width()
    check_folder(paper)
    report, page = measure(paper, parts, console)
    for table in report.tables:
        if table.name.startswith(tables):
            show_table(table, console)
    show_claims(report.claims, console)
    console.print(f"The report: {page}", style="bold", soft_wrap=True, markup=False)
    exit_if_inexact(report)
