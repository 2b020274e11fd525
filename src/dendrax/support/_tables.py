"""Tables as a notebook shows them: headings and rows of text enter, HTML leaves."""

from __future__ import annotations

import html
from collections.abc import Sequence

MOST_ROWS = 60
_LEFT = ' style="text-align: left"'


def html_table(
    caption: str, headings: Sequence[str], rows: Sequence[Sequence[str]], below: str = ""
) -> str:
    """A table with text above and below it; of a long one the head and the tail."""
    half = MOST_ROWS // 2
    lines = [_row(row) for row in rows]
    if len(rows) > MOST_ROWS:
        left_out = f"... {len(rows) - 2 * half} more ..."
        lines = [*lines[:half], _row([left_out]), *lines[-half:]]
    head = "".join(f"<th{_LEFT}>{html.escape(text)}</th>" for text in headings)
    table = f"<table><thead><tr>{head}</tr></thead><tbody>{''.join(lines)}</tbody></table>"
    return f"<div>{_paragraph(caption)}{table}{_paragraph(below)}</div>"


def html_text(text: str) -> str:
    """A text with its lines and columns as they are."""
    return f"<pre>{html.escape(text)}</pre>"


def _row(cells: Sequence[str]) -> str:
    return f"<tr>{''.join(f'<td{_LEFT}>{html.escape(cell)}</td>' for cell in cells)}</tr>"


def _paragraph(text: str) -> str:
    return f"<p>{html.escape(text)}</p>" if text else ""
