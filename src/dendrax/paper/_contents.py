"""What a report shows: the findings, and all that is made of them."""

from __future__ import annotations

import pathlib
import shlex
import sys
from collections.abc import Sequence
from dataclasses import dataclass

from dendrax.paper._claims import Claim, all_claims
from dendrax.paper._machine import machine, now, versions
from dendrax.paper._plots import Plot, all_plots
from dendrax.paper._store import Finding
from dendrax.paper._story import Chapter, all_chapters
from dendrax.paper._tables import Table, all_tables

TITLE = "Reverse Differentiation via Predictive Coding, measured by dendrax"
EXPLORER = "explorer.html"
EXPLORER_TEXT = "The explorer: errors run through the network's graph, under Z-IL and under IL"


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

    @property
    def explorer(self) -> str | None:
        """The page of the explorer, if there is one."""
        pages = [f.result["explorer"] for f in self.findings if f.kind == "pictures"]
        return pages[-1] if pages else None

    @property
    def waves(self) -> list[Plot]:
        """The pictures of error waves, Z-IL's before IL's: they come first."""
        waves = [plot for plot in self.plots if plot.wave is not None]
        return sorted(waves, key=lambda plot: plot.wave != "Z-IL")

    @property
    def other_plots(self) -> list[Plot]:
        """All other pictures."""
        return [plot for plot in self.plots if plot.wave is None]


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
