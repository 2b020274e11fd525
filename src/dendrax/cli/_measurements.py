"""What the commands that measure share: the folder, the run, tables and claims on the terminal."""

from __future__ import annotations

import pathlib
import sys
from typing import NoReturn

from rich.console import Console
from rich.markup import escape
from rich.table import Table as Shown

from dendrax.paper import Claim, Paper, Report, Table, is_report, is_store

PROBLEMS = (ImportError, OSError, ValueError)  # of the data or the disk; they say what to do
NARROWEST = 20  # columns; below, frames and lists would be nothing but breaks
STOPPED = "Stopped. What is measured is kept in {}; the same command goes on from there."


def console_of_width() -> Console:
    """Standard output, taken to be at least so wide that frames can be drawn."""
    console = Console()
    if console.width < NARROWEST:
        console.width = NARROWEST
    return console


def measure(paper: Paper, parts: tuple[str, ...], console: Console) -> tuple[Report, pathlib.Path]:
    """Measure the parts and write the report; where its page lies."""
    for text in paper.missing():
        console.print(f"Left out: {escape(text)}", style="yellow", highlight=False)
    try:
        paper.run(parts, console)
        return paper.report()
    except KeyboardInterrupt:
        _stop("\n" + STOPPED.format(paper.folder), 130)
    except PROBLEMS as problem:
        _stop(f"dendrax: {problem}")


def exit_if_inexact(report: Report) -> None:
    """A claim of exactness that failed is an error."""
    if not all(claim.holds for claim in report.claims if claim.exact):
        sys.exit(1)


def check_folder(paper: Paper) -> None:
    """A folder that can be written, and that is empty or an earlier run's: nothing gets lost."""
    folder = paper.folder
    try:
        folder.mkdir(parents=True, exist_ok=True)
        own = is_report(folder) or is_store(paper.work_folder)
        foreign = any(folder.iterdir()) and not own
        if not foreign:
            paper.work_folder.mkdir(exist_ok=True)
    except OSError as problem:
        _stop(f"dendrax: cannot write to {folder}: {problem}. Choose another folder with --out.")
    if foreign:
        _stop(
            f"dendrax: {folder} is not empty, and no run of dendrax has written to it. Choose "
            "another folder with --out."
        )


def _stop(text: str, code: int = 1) -> NoReturn:
    style = "red" if code == 1 else "yellow"
    Console(stderr=True).print(text, style=style, markup=False, soft_wrap=True, highlight=False)
    sys.exit(code)


def show_table(table: Table, console: Console) -> None:
    """As a table, or, where the terminal is too narrow for its numbers, row by row."""
    headings = [max(name.split(), key=len) for name in table.columns]
    widths = [max(map(len, column)) for column in zip(headings, *table.rows, strict=True)]
    room = console.width - (sum(widths) + 3 * len(widths) + 1)
    if room >= 0:
        console.print(f"\n{table.title}", style="italic", markup=False, highlight=False)
        console.print(_framed(table, widths, room))
    else:
        _show_rows(table, console)
    if table.note:
        console.print(table.note, style="dim", markup=False, highlight=False)


def _framed(table: Table, widths: list[int], room: int) -> Shown:
    """Headings get the room that is left, and break where it ends: Rich would cut columns off."""
    shown = Shown()
    for index, (name, width) in enumerate(zip(table.columns, widths, strict=True)):
        more = min(room, max(0, len(name) - width))
        room -= more
        shown.add_column(escape(name), justify="right" if index else "left", width=width + more)
    for row in table.rows:
        shown.add_row(*map(_coloured, row))
    return shown


def _show_rows(table: Table, console: Console) -> None:
    console.print(f"\n[italic]{escape(table.title)}[/]")
    for row in table.rows:
        console.print(f"[bold]{escape(row[0])}[/]")
        for name, entry in zip(table.columns[1:], row[1:], strict=True):
            console.print(f"  {escape(name)}: {_coloured(entry)}", highlight=False)


def _coloured(entry: str) -> str:
    return "[green]0[/]" if entry == "0" else escape(entry)


def show_claims(claims: list[Claim], console: Console, *, evidence: bool = True) -> None:
    """Each with yes or no; what it rests on below it, or only where it fails."""
    shown = Shown.grid(padding=(0, 2))
    for claim in claims:
        shown.add_row("[green]yes[/]" if claim.holds else "[bold red]no[/]", escape(claim.text))
        if evidence or not claim.holds:
            shown.add_row("", f"[dim]{escape(claim.evidence)}[/]")
    console.print(shown, highlight=False)
    console.print()
