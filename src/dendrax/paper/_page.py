"""The report as one HTML page that needs no network: what moves first, how it was made last."""

from __future__ import annotations

import html
import json
from collections.abc import Iterable, Sequence

from dendrax.paper._claims import Claim
from dendrax.paper._contents import EXPLORER, EXPLORER_TEXT, TITLE, Report
from dendrax.paper._plots import Plot
from dendrax.paper._store import Finding
from dendrax.paper._story import INTRODUCTION, Chapter
from dendrax.paper._tables import Table

EXPLORER_HOW = (
    "Predictive coding at work: the graph of a small network, a plain JAX function, its output on "
    "top. Press play (▶): the error runs from there to the weights, on the left under Z-IL, on the "
    "right under IL. A click on a vertex shows its source line and its error; drag to move, Ctrl "
    "and the wheel to zoom."
)
IN_FULL = (
    "The same measurements with everything that was measured, beside the figures that the paper "
    "prints. The paper's distances are not relative, and so are not comparable from network to "
    "network; ours stand beside them in the same form."
)

_STYLE = """
:root { color-scheme: light dark; --line: #8884; --soft: #8881; }
body { font: 15px/1.5 system-ui, sans-serif; margin: 2rem auto; max-width: 68rem; padding: 0 1rem; }
h2 { margin: 2rem 0 .4rem; }
p { max-width: 50rem; }
iframe { width: 100%; height: 36rem; border: 1px solid var(--line); border-radius: 6px; }
table { border-collapse: collapse; margin: .5rem 0; font-variant-numeric: tabular-nums; }
caption { text-align: left; font-style: italic; }
th, td { border-bottom: 1px solid var(--line); padding: .25rem .7rem; text-align: right; }
th:first-child, td:first-child { text-align: left; }
.facts td, .claims td { text-align: left; vertical-align: top; }
.wide { overflow-x: auto; }
.yes { color: #2a9d4a; font-weight: bold; } .no { color: #d62728; font-weight: bold; }
.note { color: #888; }
.plots { display: grid; grid-template-columns: repeat(auto-fit, minmax(min(100%, 26rem), 1fr));
  gap: 1rem; align-items: start; }
.plots figure { margin: 0; background: #fff; color: #222; border-radius: 6px; padding: .4rem; }
.plots figure.broad { grid-column: 1 / -1; }
.plots svg { max-width: 100%; height: auto; }
.plots figcaption { padding: 0 .5rem; font-size: 13px; }
pre { overflow-x: auto; background: var(--soft); padding: .5rem; }
"""


def html_page(report: Report) -> str:
    """The page. Sections that have nothing to show are left out."""
    sections = (
        _explorer(report.explorer),
        _plots("The error wave", report.waves),
        _section("What this is", _paragraph(" ".join(INTRODUCTION))),
        _claims(report.claims),
        "".join(map(_chapter, report.chapters)),
        _plots("Pictures", report.other_plots),
        _in_full(report.tables),
        _settings(report.findings),
        _facts(report.facts),
    )
    return (
        '<!doctype html><html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>{_text(TITLE)}</title><style>{_STYLE}</style></head>"
        f"<body><h1>{_text(TITLE)}</h1>{''.join(sections)}</body></html>\n"
    )


def _text(text: str) -> str:
    return html.escape(text)


def _section(heading: str, *parts: str) -> str:
    return f"<section><h2>{_text(heading)}</h2>{''.join(parts)}</section>"


def _explorer(page: str | None) -> str:
    """The explorer inside the page, so that the page can be sent alone.

    The sandbox keeps it from the page around it, its own Content-Security-Policy from the network.
    """
    if page is None:
        return ""
    frame = (
        f'<iframe title="{_text(EXPLORER_TEXT)}" sandbox="allow-scripts allow-forms" '
        f'srcdoc="{_text(page)}"></iframe>'
    )
    link = f'<p class="note"><a href="{EXPLORER}">The explorer in a window of its own</a></p>'
    return _section("An error runs through a network", _paragraph(EXPLORER_HOW), frame, link)


def _paragraph(text: str, kind: str = "") -> str:
    return f'<p class="{kind}">{_text(text)}</p>' if kind else f"<p>{_text(text)}</p>"


def _plots(heading: str, plots: Sequence[Plot]) -> str:
    figures = "".join(map(_figure, plots))
    return _section(heading, f'<div class="plots">{figures}</div>') if figures else ""


def _figure(plot: Plot) -> str:
    caption = f"<figcaption>{_text(plot.caption)}</figcaption>" if plot.caption else ""
    kind = ' class="broad"' if plot.is_broad else ""
    return f"<figure{kind}>{plot.svg}{caption}</figure>"


def _claims(claims: Sequence[Claim]) -> str:
    rows = "".join(
        f'<tr><td class="{"yes" if c.holds else "no"}">{"yes" if c.holds else "no"}</td>'
        f"<td>{_text(c.text)}</td><td>{_text(c.evidence)}</td></tr>"
        for c in claims
    )
    return _section("Claims", f'<table class="claims">{rows}</table>') if rows else ""


def _chapter(chapter: Chapter) -> str:
    return _section(chapter.title, _paragraph(chapter.text), *_table(chapter.table))


def _in_full(tables: Sequence[Table]) -> str:
    if not tables:
        return ""
    return _section(
        "In full, beside the paper's figures",
        _paragraph(IN_FULL),
        *(part for table in tables for part in _table(table)),
    )


def _table(table: Table) -> Iterable[str]:
    head = "".join(f"<th>{_text(name)}</th>" for name in table.columns)
    rows = "".join(
        f"<tr>{''.join(f'<td>{_text(text)}</td>' for text in row)}</tr>" for row in table.rows
    )
    caption = f"<caption>{_text(table.title)}</caption>"
    yield f'<div class="wide"><table>{caption}<tr>{head}</tr>{rows}</table></div>'
    if table.note:
        yield _paragraph(table.note, "note")


def _settings(findings: Sequence[Finding]) -> str:
    """Every measurement and its settings, for those who want to do it again."""
    entries = "".join(
        f"<details><summary>{_text(f.name)} ({f.seconds:.1f} s)</summary>"
        f"<pre>{_text(json.dumps(dict(f.settings), indent=1))}</pre></details>"
        for f in findings
    )
    return _section("Every measurement", entries) if entries else ""


def _facts(facts: dict[str, str]) -> str:
    rows = "".join(
        f"<tr><td>{_text(name)}</td><td>{_text(text)}</td></tr>" for name, text in facts.items()
    )
    return _section("How it was measured", f'<table class="facts">{rows}</table>')
