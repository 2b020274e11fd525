"""``dendrax demo``: the paper in three minutes, for somebody who meets it for the first time."""

from __future__ import annotations

from rich.console import Console
from rich.rule import Rule

from dendrax.cli._measurements import (
    check_folder,
    console_of_width,
    exit_if_inexact,
    measure,
    show_claims,
    show_table,
)
from dendrax.paper import OPENING, Chapter, Paper

WAIT = "This takes about three minutes on two idle cores."
AGAIN = "What is measured already is kept in {}, and only shown again."
PAGE = (
    "Open this page in a browser. It begins with the explorer, in which you can watch the error "
    "wave run through a network; tables and plots follow."
)


def run(paper: Paper) -> None:
    """Say what will be shown, measure, and tell it table by table; the page comes last."""
    console = console_of_width()
    check_folder(paper)
    _open(paper, console)
    report, page = measure(paper, ("demo",), console)
    for chapter in report.chapters:
        _tell(chapter, console)
    _head("What this run found", console)
    show_claims(report.claims, console, evidence=False)
    _say(PAGE, console)
    console.print(f"{page}", style="bold", soft_wrap=True, markup=False)
    exit_if_inexact(report)


def _open(paper: Paper, console: Console) -> None:
    for text in OPENING:
        _say(text, console)
        console.print()
    known = any(paper.work_folder.glob("*.json"))
    _say(f"{WAIT} {AGAIN.format(paper.folder)}" if known else WAIT, console)


def _tell(chapter: Chapter, console: Console) -> None:
    _head(chapter.title, console)
    _say(chapter.text, console)
    show_table(chapter.table, console)


def _head(title: str, console: Console) -> None:
    console.print(Rule(style="dim"))
    console.print(title, style="bold", markup=False, highlight=False)


def _say(text: str, console: Console) -> None:
    console.print(text, markup=False, highlight=False)
