"""A report as one HTML page that needs no network."""

from __future__ import annotations

import html
from collections.abc import Iterable, Sequence

from dendrax.paper._report import Document, Frame, Plot, Section, Table

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
.list td { text-align: left; vertical-align: top; }
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


def html_page(document: Document) -> str:
    """The page."""
    title = _text(document.title)
    return (
        '<!doctype html><html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>{title}</title><style>{_STYLE}</style></head>"
        f"<body><h1>{title}</h1>{''.join(map(_section, document.sections))}</body></html>\n"
    )


def _text(text: str) -> str:
    return html.escape(text)


def _section(section: Section) -> str:
    parts = [_paragraph(section.text)] if section.text else []
    parts += [] if section.frame is None else _frame(section.frame)
    parts += [_rows(section.rows), _plots(section.plots)]
    parts += [part for table in section.tables for part in _table(table)]
    parts += [
        f"<details><summary>{_text(summary)}</summary><pre>{_text(text)}</pre></details>"
        for summary, text in section.details
    ]
    return f"<section><h2>{_text(section.heading)}</h2>{''.join(parts)}</section>"


def _frame(frame: Frame) -> list[str]:
    """A page inside the page, so that the page can be sent alone.

    The sandbox keeps it from the page around it, its own Content-Security-Policy from the network.
    """
    return [
        f'<iframe title="{_text(frame.title)}" sandbox="allow-scripts allow-forms" '
        f'srcdoc="{_text(frame.page)}"></iframe>',
        f'<p class="note"><a href="{_text(frame.file)}">The same in a window of its own</a></p>',
    ]


def _paragraph(text: str, kind: str = "") -> str:
    return f'<p class="{kind}">{_text(text)}</p>' if kind else f"<p>{_text(text)}</p>"


def _plots(plots: Sequence[Plot]) -> str:
    return f'<div class="plots">{"".join(map(_figure, plots))}</div>' if plots else ""


def _figure(plot: Plot) -> str:
    caption = f"<figcaption>{_text(plot.caption)}</figcaption>" if plot.caption else ""
    kind = ' class="broad"' if plot.is_broad else ""
    return f"<figure{kind}>{plot.svg}{caption}</figure>"


def _rows(rows: Sequence[tuple[str, ...]]) -> str:
    shown = "".join(f"<tr>{''.join(map(_entry, row))}</tr>" for row in rows)
    return f'<table class="list">{shown}</table>' if rows else ""


def _entry(text: str) -> str:
    mark = f' class="{text}"' if text in ("yes", "no") else ""
    return f"<td{mark}>{_text(text)}</td>"


def _table(table: Table) -> Iterable[str]:
    head = "".join(f"<th>{_text(name)}</th>" for name in table.columns)
    rows = "".join(
        f"<tr>{''.join(f'<td>{_text(text)}</td>' for text in row)}</tr>" for row in table.rows
    )
    caption = f"<caption>{_text(table.title)}</caption>"
    yield f'<div class="wide"><table>{caption}<tr>{head}</tr>{rows}</table></div>'
    if table.note:
        yield _paragraph(table.note, "note")
