"""What a report shows: the findings, and all that is made of them."""

from __future__ import annotations

import dataclasses
import json
import pathlib
import shlex
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from dendrax.paper._claims import Claim, all_claims
from dendrax.paper._machine import machine, now, versions
from dendrax.paper._page import html_page
from dendrax.paper._plots import all_plots
from dendrax.paper._report import Document, Frame, Plot, Section, Table, write_document
from dendrax.paper._store import Finding
from dendrax.paper._story import INTRODUCTION, Chapter, all_chapters
from dendrax.paper._tables import all_tables

TITLE = "Reverse Differentiation via Predictive Coding, measured by dendrax"
EXPLORED = "An error runs through a network"
EXPLORER_TEXT = "The explorer: errors run through the network's graph, under Z-IL and under IL"
EXPLORER_HOW = (
    "Predictive coding at work: the graph of a small network, a plain JAX function, its output on "
    "top. Press play (▶): the error runs from there to the weights, on the left under Z-IL, on the "
    "right under IL. A click on a vertex shows its source line and its error; drag to move, Ctrl "
    "and the wheel to zoom."
)
FULL = "In full, beside the paper's figures"
IN_FULL = (
    "The same measurements with everything that was measured, beside the figures that the paper "
    "prints. The paper's distances are not relative, and so are not comparable from network to "
    "network; ours stand beside them in the same form."
)


@dataclass(frozen=True)
class Report:
    """Everything that a report shows.

    ``chapters`` tell the story in narrow tables; ``tables`` have every figure, the paper's too.
    """

    facts: dict[str, str]
    claims: list[Claim]
    chapters: list[Chapter]
    tables: list[Table]
    plots: list[Plot]
    findings: list[Finding]

    def document(self) -> Document:
        """The sections: what moves first, how it was made last; those with nothing are left out."""
        # The pictures of error waves come first, Z-IL's before IL's.
        waves = sorted((p for p in self.plots if p.wave), key=lambda plot: plot.wave != "Z-IL")
        claims = [("yes" if c.holds else "no", c.text, c.evidence) for c in self.claims]
        settings = [
            (f"{f.name} ({f.seconds:.1f} s)", json.dumps(dict(f.settings), indent=1))
            for f in self.findings
        ]
        explorers = [f.result["explorer"] for f in self.findings if f.kind == "pictures"]
        sections = [
            *(
                Section(EXPLORED, EXPLORER_HOW, frame=Frame("explorer.html", EXPLORER_TEXT, page))
                for page in explorers[-1:]
            ),
            *_if(waves, Section("The error wave", plots=waves)),
            Section("What this is", " ".join(INTRODUCTION)),
            *_if(claims, Section("Claims", rows=claims)),
            *(Section(c.title, c.text, tables=[c.table]) for c in self.chapters),
            *_if(
                others := [p for p in self.plots if not p.wave], Section("Pictures", plots=others)
            ),
            *_if(self.tables, Section(FULL, IN_FULL, tables=self.tables)),
            *_if(settings, Section("Every measurement", details=settings)),
            Section("How it was measured", rows=[*self.facts.items()]),
        ]
        data = {
            "facts": self.facts,
            "claims": [dataclasses.asdict(claim) for claim in self.claims],
            "findings": [_plain(found) for found in self.findings],
        }
        return Document(TITLE, sections, data)


def _if(parts: Sequence[Any], section: Section) -> list[Section]:
    return [section] if parts else []


def _plain(found: Finding) -> dict[str, Any]:
    return {
        "kind": found.kind,
        "name": found.name,
        "settings": dict(found.settings),
        "result": {} if found.kind == "pictures" else dict(found.result),  # they are files
        "seconds": round(found.seconds, 3),
        "date": found.date,
        "machine": found.machine,
    }


def write_report(report: Report, folder: pathlib.Path) -> pathlib.Path:
    """Write it; the path of the HTML page."""
    document = report.document()
    return write_document(document, folder, html_page(document))


def make_report(
    findings: Sequence[Finding], *, seed: int, quick: bool, missing: Sequence[str]
) -> Report:
    """The report on some findings; ``missing`` says what was left out, and why."""
    form = "quick: small networks, short runs" if quick else "full"
    facts = {
        **_facts(findings, seed),
        "form": form,
        **({"left out": "; ".join(missing)} if missing else {}),
    }
    found = list(findings)
    return Report(
        facts, all_claims(found), all_chapters(found), all_tables(found), all_plots(found), found
    )


def _command(words: Sequence[str]) -> str:
    """What was typed; ``python -m`` leaves only the name of a file."""
    name = pathlib.Path(words[0]).name
    program = ["python", "-m", "dendrax.cli"] if name == "__main__.py" else [name]
    return shlex.join([*program, *words[1:]])


def _facts(findings: Sequence[Finding], seed: int) -> dict[str, str]:
    """What has to be known to do it again, and when and where it was done."""
    dates = sorted(found.date for found in findings) or [now()]
    return {
        "command": _command(sys.argv),
        "date": now(),
        "measured": f"from {dates[0]} to {dates[-1]}",
        "seed": str(seed),
        "versions": versions(),
        "machine": "; ".join(sorted({found.machine for found in findings} or {machine()})),
    }
