"""The notebook that shows all there is to see: what its file holds, and what its cells show now.

Its file was written by a run in Jupyter's kernel (nbclient). No Jupyter is needed here: a cell's
last value is asked for what Jupyter would ask it for.
"""

import ast
import base64
import contextlib
import html
import io
import re
import sys
import types
from typing import Any

import pytest

from tests.documentation.blocks import ROOT
from tests.documentation.test_notebook import (
    code_of,
    quick_compilation,
    read,
    readers_settings,
    source,
    words,
)

NOTEBOOK = ROOT / "examples" / "looking_inside.ipynb"
KINDS = {
    "_repr_html_": "text/html",
    "_repr_png_": "image/png",
    "_repr_svg_": "image/svg+xml",
}


def stored() -> dict[str, list[dict[str, Any]]]:
    return {cell["id"]: cell["outputs"] for cell in code_of(read(NOTEBOOK))}


def kinds_of(value: Any) -> set[str]:
    """What Jupyter would show of a value, besides its text."""
    found = {kind: getattr(value, name, lambda: None)() for name, kind in KINDS.items()}
    return {kind for kind, content in found.items() if content is not None}


@pytest.fixture(scope="module")
def shown(tmp_path_factory):
    """What each cell shows today: kinds, the last value, and what is printed."""
    displayed: list[dict[str, str]] = []
    shell = types.SimpleNamespace(kernel=object())
    with pytest.MonkeyPatch.context() as patch, readers_settings(), quick_compilation():
        patch.chdir(tmp_path_factory.mktemp("notebook"))
        ipython = types.SimpleNamespace(get_ipython=lambda: shell, version_info=(9, 0))
        display = types.SimpleNamespace(display=lambda data, raw: displayed.append(data))
        patch.setitem(sys.modules, "IPython", ipython)
        patch.setitem(sys.modules, "IPython.display", display)
        names: dict[str, Any] = {"__name__": "__main__"}
        found = {}
        for cell in code_of(read(NOTEBOOK)):
            body, value, output = ast.parse(source(cell)).body, None, io.StringIO()
            last = body.pop() if isinstance(body[-1], ast.Expr) else None
            with contextlib.redirect_stdout(output):
                exec(compile(ast.Module(body, []), NOTEBOOK.name, "exec"), names)
                if last is not None:
                    expression = ast.Expression(last.value)
                    value = eval(compile(expression, NOTEBOOK.name, "eval"), names)
            kinds = kinds_of(value).union(*displayed) - {"text/plain"}
            displayed.clear()
            found[cell["id"]] = (kinds, value, output.getvalue())
    return found


def test_every_cell_shows_what_is_stored(shown):
    for name, outputs in stored().items():
        kinds, value, printed = shown[name]
        data = [output["data"] for output in outputs if "data" in output]
        assert set().union(*data) - {"text/plain"} == kinds, name
        text = "".join("".join(o["text"]) for o in outputs if o["output_type"] == "stream")
        assert words(text) == words(printed), name
        if value is not None and name not in ("graph",):  # which names files of that run
            (kept,) = data
            assert words("".join(kept["text/plain"])) == words(repr(value)), name


def test_the_file_holds_plots_as_images():
    for name in ("energy", "wave", "distances"):
        (output,) = stored()[name]
        assert base64.b64decode(output["data"]["image/png"]).startswith(b"\x89PNG")
    (output,) = stored()["graph"]
    assert "".join(output["data"]["image/svg+xml"]).startswith("<svg")


def test_the_file_holds_tables():
    for name, rows in (("result", 2), ("moment", 3), ("certificate", 3), ("audit", 3)):
        (output,) = stored()[name]
        table = "".join(output["data"]["text/html"])
        assert table.count("<tr>") == 1 + rows and "</table>" in table


def test_the_file_holds_the_explorer():
    printed, output = stored()["explorer"]
    assert printed["text"] == ["The page: explorer.html\n"]
    frame = "".join(output["data"]["text/html"])
    (inside,) = re.findall(r'<iframe [^>]*srcdoc="([^"]*)"></iframe>', frame)
    page = html.unescape(inside)
    assert page.startswith("<!doctype html>") and "</html>" in page


def test_no_instructions_to_jupyter_and_run_from_top_to_bottom():
    cells = code_of(read(NOTEBOOK))
    assert [cell["execution_count"] for cell in cells] == list(range(1, len(cells) + 1))
    assert not any(line.startswith("%") for cell in cells for line in cell["source"])
    assert NOTEBOOK.stat().st_size < 500_000
