"""The demonstration as a newcomer meets it: sentences, tables that fit, one page at the end."""

import io
import re

import pytest
from rich.console import Console

from dendrax.cli._measurements import show_claims, show_table
from dendrax.paper import _published as published
from dendrax.paper._brief import relative
from dendrax.paper._claims import Claim
from dendrax.paper._run import progress_line
from dendrax.paper._store import Cell
from dendrax.paper._story import INTRODUCTION, OPENING, all_chapters
from tests.paper import findings as made

RULES = ("BP", "Z-IL", "IL", "BP, dendrax", "FixedPrediction", "ErrorPC", "IncrementalPC")


def measured():
    """Findings with the widest entries that a demo can have."""
    found = []
    for row in published.ROWS:
        for column in ("original", "wavefront", "dynamics", "timing", "noise", "gamma"):
            found.append(made.divergence(column, 1.234e-100, row))
        found.append(made.speed(row, zil=12.345, il=1234.5, noise=2.0))
    course = {"course": "MLP, 2 layers of 128", "data": "FashionMNIST subset (5000 + 1000)"}
    return found + [made.run(rule, ["a"] * 20, 1.0, **course) for rule in RULES]


@pytest.fixture
def demo(dendrax, monkeypatch, tmp_path):
    """The command with findings that take no time."""
    cells = [Cell(f.kind, f.name, f.settings, lambda work, f=f: f.result) for f in measured()]
    monkeypatch.setattr("dendrax.paper.Paper.missing", lambda self: [])
    monkeypatch.setattr(
        "dendrax.paper.Paper.cells",
        lambda self, part: cells if part in ("demo", "training") else [],
    )

    def run(columns, *words):
        monkeypatch.setenv("COLUMNS", str(columns))
        return dendrax("demo", "--out", tmp_path / "new", *words)

    return run


def shown(show, width):
    stream = io.StringIO()
    show(Console(file=stream, width=width))
    return stream.getvalue().splitlines()


def test_every_table_is_a_table_at_80_columns():
    chapters = all_chapters(measured())
    assert len(chapters) == 4
    for chapter in chapters:
        lines = shown(lambda console, c=chapter: show_table(c.table, console), 80)
        assert any("┃" in line for line in lines), f"{chapter.title} fell apart into a list"
        for row in chapter.table.rows:
            assert any(all(entry in line for entry in row) for line in lines)
        assert max(map(len, lines)) <= 80


def test_names_of_columns_tell_them_apart():
    """In a narrow terminal a column is a line of its own, far from its neighbours."""
    others = [made.run(rule, ["a"], course="CNN") for rule in RULES]
    tables = [chapter.table for chapter in all_chapters([*measured(), *others])]
    assert len(tables) == 5
    assert all(len(set(table.columns)) == len(table.columns) for table in tables)


@pytest.mark.parametrize("width", [40, 80, 120])
def test_no_line_of_the_demo_is_wider_than_the_terminal(demo, width):
    lines = demo(width).stdout.splitlines()
    path = lines.pop()
    assert path.endswith("report.html")  # whole, however long, to be copied
    assert max(map(len, lines)) <= width


@pytest.mark.parametrize("width", [0, 1, 2, 5, 10, "wide", "-3"])
def test_a_terminal_that_is_much_too_narrow(demo, width):
    result = demo(width)
    assert result.stderr == "" and "report.html" in result.stdout.splitlines()[-1]


def test_the_story_is_told_in_order(demo):
    text = " ".join(demo(80).stdout.split())
    parts = [*OPENING, "about three minutes", "Table 1: is", "as far off as no update"]
    parts += [
        "Table 2: what",
        "Table 3: which",
        "Training: MLP",
        "What this run found",
        "Open this",
    ]
    places = [text.find(part) for part in parts]
    assert -1 not in places and places == sorted(places)


def test_what_is_measured_already_is_said(demo):
    assert "only shown again" not in demo(80).stdout
    assert "only shown again" in " ".join(demo(80).stdout.split())


@pytest.mark.parametrize(
    ("word", "said"),
    [("--seeds", "Did you mean '--seed'?"), ("all", "unexpected")],
)
def test_words_that_the_demo_does_not_know(demo, word, said):
    result = demo(40, word)
    assert result.code == 2 and result.stdout == "" and "Traceback" not in result.stderr
    assert said in re.sub(r"[│\s]+", " ", result.stderr)


def test_claims_hang_and_give_their_evidence_where_they_fail():
    claims = [Claim("long " * 30, True, "fine"), Claim("short", False, "3 of 7 fail")]
    lines = shown(lambda console: show_claims(claims, console, evidence=False), 80)
    assert lines[0].startswith("yes  long") and lines[1].startswith("     long")
    assert any("3 of 7 fail" in line for line in lines) and not any("fine" in x for x in lines)


def line_at(width, encoding="utf-8"):
    """What the progress bar draws in a terminal of some width."""
    stream = io.TextIOWrapper(io.BytesIO(), encoding=encoding)
    console = Console(file=stream, width=width, force_terminal=True, color_system=None)
    progress = progress_line(console)
    task = progress.add_task("", total=87)
    name = "Transformer (1 layer of 32, 8 positions), float64: Z-IL, full dynamics"
    progress.update(task, completed=12.5, description=f"{name}  [dim]tracing[/]")
    with console.capture() as captured:
        console.print(progress.get_renderable())
    return captured.get()


@pytest.mark.parametrize("width", [20, 30, 40, 59, 60, 80, 120])
def test_progress_is_one_line(width):
    (line,) = line_at(width).splitlines()
    assert len(line) <= width and "12/87" in line and "0:00:00" in line
    assert ("━" in line) == (width >= 60)
    assert width < 40 or "Transformer" in line


def test_progress_without_letters_beyond_ascii():
    assert line_at(80, "ascii").isascii()


@pytest.mark.parametrize(
    ("distance", "norm", "text"),
    [
        (0.0, 2.0, "0"),
        (0.0, 0.0, "0"),
        (1.0, 2.0, "0.50"),
        (9e3, 2.0, "4,500"),
        (1e12, 2.0, "5.0e+11"),
        (1e-300, 1.0, "1.0e-300"),
        (1.0, 0.0, "inf"),
        (None, 2.0, "overflow"),
        (1.0, None, "overflow"),
    ],
)
def test_distances_are_relative(distance, norm, text):
    found = made.divergence("gamma", distance)
    found.result["norm"] = norm
    assert relative([found], "gamma") == text


def test_tables_say_which_distances_are_relative():
    titles = [c.table.title for c in all_chapters(measured())]
    assert sum("Relative distance" in title for title in titles) == 2
    narrow = all_chapters([made.divergence("original", 1.0, dtype="float32")])
    assert [c.table.title for c in narrow] == ["Relative distance to BP's update (float32)"]


@pytest.mark.parametrize("column", ["original", "timing"])
def test_tables_say_what_overflow_is_where_it_occurs(column):
    (without,) = all_chapters([made.divergence(column, 1.0)])
    (chapter,) = all_chapters([made.divergence(column, None)])
    assert "overflow" in chapter.table.rows[0] and "overflow" not in without.table.note
    assert chapter.table.note.endswith("overflow: the value nodes left the range of the numbers.")
    assert chapter.table.note.startswith(without.table.note)


def test_bp_first_then_z_il_then_the_others():
    (*_, training) = all_chapters(measured())
    rules = [row[0] for row in training.table.rows]
    assert rules[:3] == ["BP", "BP, dendrax", "Z-IL"] and rules[3:] == list(RULES[2:3] + RULES[4:])


def test_the_introduction_has_five_sentences():
    assert len(INTRODUCTION) == 5
    assert all(re.fullmatch(r"[^.]+\.", sentence) for sentence in INTRODUCTION)
