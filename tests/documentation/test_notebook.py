"""The lecture notebook runs from top to bottom, and shows what its stored outputs show.

In `make test` with tiny settings, in `make test-all` as it stands. No Jupyter is needed: the code
cells run one after the other in one namespace, and what a cell ends with is what it shows.
"""

import ast
import contextlib
import io
import json
import linecache
import pathlib
import re
from collections.abc import Iterator
from typing import Any, NamedTuple

import jax
import pytest
from matplotlib.figure import Figure

from tests.documentation.blocks import ROOT

NOTEBOOK = ROOT / "examples" / "does_the_brain_do_backprop.ipynb"
TINY = {
    "NUM_IMAGES": 400,
    "BATCH": 20,
    "EPOCHS": 1,
    "WIDTH": 16,
    "LEARNING_RATES": (0.02,),
    "NUM_STEPS": 5,
    "LENGTHS": (1, 2, 20),
    "DEPTH": 3,
}
# Instructions to Jupyter, which mean nothing here.
MAGICS = {"%matplotlib inline", '%config InlineBackend.figure_format = "retina"'}

Cell = dict[str, Any]


class Shown(NamedTuple):
    """What a cell shows: what it prints, and the sort of its picture."""

    text: str
    picture: str | None


def read(path: pathlib.Path = NOTEBOOK) -> list[Cell]:
    return json.loads(path.read_text())["cells"]


def code_of(cells: list[Cell]) -> list[Cell]:
    return [cell for cell in cells if cell["cell_type"] == "code"]


def source(cell: Cell) -> str:
    """The lines of a cell; instructions to Jupyter are left blank."""
    lines = "".join(cell["source"]).splitlines()
    return "\n".join("" if line in MAGICS else line for line in lines)


@contextlib.contextmanager
def readers_settings() -> Iterator[None]:
    """JAX as it is outside of the tests."""
    with jax.enable_x64(False), jax.numpy_dtype_promotion("standard"):
        yield


@contextlib.contextmanager
def quick_compilation() -> Iterator[None]:
    """Small programs that run once are not worth optimizing."""
    before = jax.config.read("jax_disable_most_optimizations")
    jax.config.update("jax_disable_most_optimizations", True)
    try:
        yield
    finally:
        jax.config.update("jax_disable_most_optimizations", before)


def run(cells: list[Cell], settings: dict[str, Any] | None = None) -> tuple[dict, dict[str, Shown]]:
    """The names that the cells define, and what each of them shows."""
    names: dict[str, Any] = {"__name__": "__main__"}
    shown = {}
    with readers_settings():
        for cell in code_of(cells):
            shown[cell["id"]] = run_cell(cell, names)
            if "parameters" in cell["metadata"].get("tags", ()) and settings:
                assert settings.keys() <= names.keys()
                names |= settings
    return names, shown


def run_cell(cell: Cell, names: dict[str, Any]) -> Shown:
    file, code = f"{NOTEBOOK.name}, cell {cell['id']}", source(cell)
    linecache.cache[file] = (len(code), None, code.splitlines(keepends=True), file)
    body, value, output = ast.parse(code).body, None, io.StringIO()
    last = body.pop() if body and isinstance(body[-1], ast.Expr) else None
    with contextlib.redirect_stdout(output):
        exec(compile(ast.Module(body, []), file, "exec"), names)
        if isinstance(last, ast.Expr):
            value = eval(compile(ast.Expression(last.value), file, "eval"), names)
    return Shown(output.getvalue(), picture_of(value))


def picture_of(value: Any) -> str | None:
    """How Jupyter shows the value of a cell's last line."""
    if isinstance(value, Figure):
        value.savefig(io.BytesIO(), format="png", dpi=20)
        return "image/png"
    if hasattr(value, "_repr_svg_"):
        assert value._repr_svg_().lstrip().startswith("<svg")
        return "image/svg+xml"
    assert value is None, f"a cell ends with {value!r}, which is no picture"
    return None


def stored(cell: Cell) -> Shown:
    """What the notebook's file says that a cell shows."""
    text, pictures = "", []
    for output in cell["outputs"]:
        assert output["output_type"] in ("stream", "execute_result"), output
        if output["output_type"] == "stream":
            assert output["name"] == "stdout", output
            text += "".join(output["text"])
        else:
            pictures += [kind for kind in output["data"] if kind.startswith("image/")]
    assert len(pictures) <= 1
    return Shown(text, pictures[0] if pictures else None)


def words(text: str) -> list[str]:
    """A text without its numbers, which may differ from machine to machine."""
    return re.findall(
        r"[A-Za-z_]+", re.sub(r"[-+]?\d[\d.]*(?:e[-+]?\d+)?|\binf\b|\bnan\b", "", text)
    )


# ---- the tests -----------------------------------------------------------------------------------


def test_it_runs():
    """With tiny settings; every claim that a cell asserts holds with those too."""
    cells = read()
    with quick_compilation():
        _, shown = run(cells, TINY)
    kept = {cell["id"]: stored(cell) for cell in code_of(cells)}
    assert {key: one.picture for key, one in shown.items()} == {
        key: one.picture for key, one in kept.items()
    }
    assert {key for key, one in shown.items() if one.text} == {
        key for key, one in kept.items() if one.text
    }


@pytest.mark.slow
def test_it_runs_in_full_and_shows_what_is_stored():
    cells = read()
    names, shown = run(cells)
    for cell in code_of(cells):
        found, kept = shown[cell["id"]], stored(cell)
        assert found.picture == kept.picture, cell["id"]
        assert words(found.text) == words(kept.text), cell["id"]
    with readers_settings():
        scores = {name: names["accuracy"](params) for name, (params, _) in names["best"].items()}
        without_transport = names["accuracy"](names["aligned"])
    assert min(scores.values()) > 0.7, scores
    assert without_transport > 0.5


def up_to(name: str, needed: tuple[str, ...], right: str, wrong: str) -> list[Cell]:
    """A cell with a mistake in it, after those that it needs."""
    cells = {cell["id"]: cell for cell in code_of(read())}
    text = "".join(cells[name]["source"])
    assert text.count(right) == 1
    before = [cells[one] for one in ("setup", "settings", *needed)]
    return [*before, {**cells[name], "source": [text.replace(right, wrong)]}]


@pytest.mark.parametrize(
    ("name", "needed", "right", "wrong"),
    [
        ("by-hand", ("three-layers",), "x - gamma * dx", "x + gamma * dx"),
        ("energy", ("three-layers", "by-hand"), "gamma=gamma)", "gamma=gamma / 2)"),
        ("bear", (), "IL(num_steps=200)", "BP()"),
        ("skip-right", ("skip-graph", "skip-wrong"), "ZIL()", "ZIL(levelled=False)"),
        ("skip-wrong", ("skip-graph",), "show_errors(ZIL(levelled=False))", "show_errors(ZIL())"),
    ],
)
def test_a_cell_with_a_mistake_fails(name, needed, right, wrong):
    with pytest.raises(AssertionError), quick_compilation():
        run(up_to(name, needed, right, wrong), TINY)


def test_a_cell_that_shows_no_picture_any_more_is_seen():
    cells = up_to("three-layers", (), "draw.circuit(graph)", "picture = draw.circuit(graph)")
    assert run(cells, TINY)[1]["three-layers"].picture is None
    assert stored(cells[-1]).picture == "image/svg+xml"


def test_the_lecture_takes_ninety_minutes():
    """The headings say how long each section takes, and so does the table at the beginning."""
    texts = ["".join(cell["source"]) for cell in read() if cell["cell_type"] == "markdown"]
    headings = re.findall(r"^## (\d\. .*) \((\d+) minutes\)$", "\n".join(texts), re.MULTILINE)
    rows = re.findall(r"^\| (\d\. .*) \| (\d+) \|$", texts[0], re.MULTILINE)
    assert headings == rows
    assert sum(int(minutes) for _, minutes in rows) == 90


def test_each_exercise_has_its_solution():
    cells = read()
    (exercises,) = (cell for cell in cells if "## 8. Exercises" in "".join(cell["source"]))
    numbers = re.findall(r"^(\d)\. \*\*", "".join(exercises["source"]), re.MULTILINE)
    solved = [cell["id"] for cell in cells if "solution" in cell["metadata"].get("tags", ())]
    assert solved == [f"solution-{number}" for number in numbers]
    assert 6 <= len(solved) <= 8


def test_the_file_is_as_jupyter_leaves_it_after_a_run_from_top_to_bottom():
    cells = code_of(read())
    assert [cell["execution_count"] for cell in cells] == list(range(1, len(cells) + 1))
    assert NOTEBOOK.stat().st_size < 1_500_000
