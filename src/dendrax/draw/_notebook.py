"""The explorer inside a notebook: a page and its path enter, a frame with the page is displayed."""

from __future__ import annotations

import html
import importlib
import os
import pathlib
import sys
import urllib.parse

MOST_EMBEDDED = 4_000_000  # bytes of a page; a notebook keeps what it shows
HEIGHT = 640


def show_page(path: pathlib.Path) -> None:
    """In a notebook, display a page and print where it is. Elsewhere nothing happens."""
    if not _in_notebook():
        return
    print(f"The page: {path}")
    frame = page_frame(path)
    if frame is not None:
        display = importlib.import_module("IPython.display").display
        display({"text/html": frame, "text/plain": f"The page: {path}"}, raw=True)


def page_frame(path: pathlib.Path) -> str | None:
    """A frame with the page in it; of a large page with its path, if a notebook can reach it."""
    page = path.read_bytes()
    if len(page) <= MOST_EMBEDDED:
        source = f'srcdoc="{html.escape(page.decode())}"'
    else:
        place = pathlib.PurePath(os.path.relpath(path)).as_posix()
        if place.startswith("../"):
            return None  # servers of notebooks hand out nothing from outside
        source = f'src="{urllib.parse.quote(place)}"'
    return (
        f'<iframe title="explorer" width="100%" height="{HEIGHT}" style="border: 1px solid #ccc" '
        f'sandbox="allow-scripts allow-forms" {source}></iframe>'
    )


def _in_notebook() -> bool:
    """Whether somebody sees more than text: a kernel, not IPython in a terminal."""
    get_shell = getattr(sys.modules.get("IPython"), "get_ipython", None)
    return get_shell is not None and getattr(get_shell(), "kernel", None) is not None
