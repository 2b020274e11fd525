"""The report: what was found, for people (HTML, Markdown) and for programs (JSON, CSV)."""

from __future__ import annotations

import csv
import dataclasses
import html
import io
import json
import pathlib
import re
import shlex
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from dendrax._atomic import write_atomically
from dendrax.experiments._claims import Claim, all_claims
from dendrax.experiments._machine import machine, now, versions
from dendrax.experiments._plots import Plot, all_plots
from dendrax.experiments._store import Finding
from dendrax.experiments._tables import Table, all_tables

TITLE = "Reverse Differentiation via Predictive Coding, measured by dendrax"
INDEX = "results.json"
EXPLORER = "explorer.html"
EXPLORER_TEXT = "The explorer: errors run through the network's graph, under Z-IL and under IL"


@dataclass(frozen=True)
class Report:
    """Everything that a report shows."""

    facts: dict[str, str]
    claims: list[Claim]
    tables: list[Table]
    plots: list[Plot]
    findings: list[Finding]

    @property
    def explorer(self) -> str | None:
        """The page of the explorer, if there is one."""
        pages = [f.result["explorer"] for f in self.findings if f.kind == "pictures"]
        return pages[-1] if pages else None


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
    return Report(facts, all_claims(found), all_tables(found), all_plots(found), found)


def write_report(report: Report, folder: pathlib.Path) -> pathlib.Path:
    """Write all forms; the path of the HTML page.

    Tables and plots that an earlier report wrote here and this one does not have are removed, and
    nothing else is.
    """
    files = {f"{table.name}.csv": _csv(table) for table in report.tables}
    files |= {f"plots/{plot.name}.svg": plot.svg for plot in report.plots}
    if report.explorer is not None:
        files[EXPLORER] = report.explorer
    earlier = _files_of(folder / INDEX)
    for name, text in files.items():
        _write(folder / name, text)
    _write(folder / "report.md", _markdown(report))
    _write(folder / "report.html", _page(report))
    _write(folder / INDEX, _json(report, sorted(files)))
    for name in earlier - set(files):
        (folder / name).unlink(missing_ok=True)
    return folder / "report.html"


def is_report(folder: pathlib.Path) -> bool:
    """Whether a report was written to this folder: others too call a file ``results.json``."""
    return {"facts", "claims", "findings"} <= _read(folder / INDEX).keys()


def _files_of(index: pathlib.Path) -> set[str]:
    """The tables and plots that the report of this index wrote."""
    names = _read(index).get("files")
    written = re.compile(rf"[^/\\]+\.csv|plots/[^/\\]+\.svg|{re.escape(EXPLORER)}")
    listed = names if isinstance(names, list) else []
    return {name for name in listed if isinstance(name, str) and written.fullmatch(name)}


def _read(index: pathlib.Path) -> dict[str, Any]:
    """What the index says; nothing if there is none, or it is damaged."""
    try:
        content = json.loads(index.read_text())
    except (OSError, ValueError, RecursionError):
        return {}
    return content if isinstance(content, dict) else {}


def _write(path: pathlib.Path, text: str) -> None:
    write_atomically(path, text.encode())


def _facts(findings: Sequence[Finding], seed: int) -> dict[str, str]:
    """What has to be known to do it again, and when and where it was done."""
    dates = sorted(found.date for found in findings) or [now()]
    return {
        "command": shlex.join([pathlib.Path(sys.argv[0]).name, *sys.argv[1:]]),
        "date": now(),
        "measured": f"from {dates[0]} to {dates[-1]}",
        "seed": str(seed),
        "versions": versions(),
        "machine": "; ".join(sorted({found.machine for found in findings} or {machine()})),
    }


def _csv(table: Table) -> str:
    stream = io.StringIO()
    writer = csv.writer(stream, lineterminator="\n")
    writer.writerows([table.columns, *table.rows])
    return stream.getvalue()


def _json(report: Report, files: list[str]) -> str:
    content = {
        "facts": report.facts,
        "files": files,
        "claims": [dataclasses.asdict(claim) for claim in report.claims],
        "findings": [_plain(found) for found in report.findings],
    }
    return json.dumps(content, indent=1, allow_nan=False) + "\n"


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


def _markdown(report: Report) -> str:
    lines = [f"# {TITLE}", "", "Generated by the command below; not edited by hand.", ""]
    lines += [f"- {name}: {_cell_text(text)}" for name, text in report.facts.items()]
    lines += ["", "## Claims", "", "| | claim | found |", "| --- | --- | --- |"]
    lines += [
        f"| {'yes' if c.holds else '**no**'} | {_cell_text(c.text)} | {_cell_text(c.evidence)} |"
        for c in report.claims
    ]
    for table in report.tables:
        lines += ["", f"## {table.title}", "", _markdown_row(table.columns)]
        lines += [_markdown_row(["---"] * len(table.columns))]
        lines += [*map(_markdown_row, table.rows), "", table.note]
    if report.plots:
        lines += ["", "## Pictures", ""]
        lines += [f"![{plot.title}](plots/{plot.name}.svg)" for plot in report.plots]
    if report.explorer is not None:
        lines += ["", f"[{EXPLORER_TEXT}]({EXPLORER})"]
    return "\n".join(lines) + "\n"


def _markdown_row(entries: Sequence[str]) -> str:
    return f"| {' | '.join(map(_cell_text, entries))} |"


def _cell_text(text: str) -> str:
    return text.replace("|", "\\|")


_STYLE = """
:root { color-scheme: light dark; --line: #8884; --soft: #8881; }
body { font: 15px/1.5 system-ui, sans-serif; margin: 2rem auto; max-width: 68rem; padding: 0 1rem; }
table { border-collapse: collapse; margin: .5rem 0; font-variant-numeric: tabular-nums; }
th, td { border-bottom: 1px solid var(--line); padding: .25rem .7rem; text-align: right; }
th:first-child, td:first-child { text-align: left; }
.facts td, .claims td { text-align: left; }
.wide { overflow-x: auto; }
.yes { color: #2a9d4a; font-weight: bold; } .no { color: #d62728; font-weight: bold; }
.note { color: #888; max-width: 50rem; }
.plots { display: flex; flex-wrap: wrap; gap: 1rem; }
.plots figure { margin: 0; background: #fff; border-radius: 6px; padding: .4rem; }
.plots svg { max-width: 100%; height: auto; }
pre { overflow-x: auto; background: var(--soft); padding: .5rem; }
"""


def _page(report: Report) -> str:
    parts = [f"<h1>{html.escape(TITLE)}</h1>", _html_facts(report), _html_claims(report.claims)]
    parts += map(_html_table, report.tables)
    if report.plots:
        figures = "".join(f"<figure>{plot.svg}</figure>" for plot in report.plots)
        parts.append(f'<h2>Pictures</h2><div class="plots">{figures}</div>')
    if report.explorer is not None:
        parts.append(f'<p><a href="{EXPLORER}">{html.escape(EXPLORER_TEXT)}</a></p>')
    parts.append(_html_settings(report.findings))
    return (
        '<!doctype html><html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>{html.escape(TITLE)}</title><style>{_STYLE}</style></head>"
        f"<body>{''.join(parts)}</body></html>\n"
    )


def _html_facts(report: Report) -> str:
    rows = "".join(
        f"<tr><td>{html.escape(name)}</td><td>{html.escape(text)}</td></tr>"
        for name, text in report.facts.items()
    )
    return f'<table class="facts">{rows}</table>'


def _html_claims(claims: Sequence[Claim]) -> str:
    if not claims:
        return ""
    rows = "".join(
        f'<tr><td class="{"yes" if c.holds else "no"}">{"yes" if c.holds else "no"}</td>'
        f"<td>{html.escape(c.text)}</td><td>{html.escape(c.evidence)}</td></tr>"
        for c in claims
    )
    return f'<h2>Claims</h2><table class="claims">{rows}</table>'


def _html_table(table: Table) -> str:
    head = "".join(f"<th>{html.escape(name)}</th>" for name in table.columns)
    rows = "".join(
        f"<tr>{''.join(f'<td>{html.escape(text)}</td>' for text in row)}</tr>" for row in table.rows
    )
    return (
        f'<h2>{html.escape(table.title)}</h2><div class="wide"><table><tr>{head}</tr>{rows}'
        f'</table></div><p class="note">{html.escape(table.note)}</p>'
    )


def _html_settings(findings: Sequence[Finding]) -> str:
    """Every measurement and its settings, for those who want to do it again."""
    entries = "".join(
        f"<details><summary>{html.escape(f.name)} ({f.seconds:.1f} s)</summary>"
        f"<pre>{html.escape(json.dumps(dict(f.settings), indent=1))}</pre></details>"
        for f in findings
    )
    return f"<h2>Every measurement</h2>{entries}"
