"""Reports: complete, self-contained, and inert whatever the names are."""

import csv
import dataclasses
import json
import re
from html.parser import HTMLParser
from xml.etree import ElementTree

import pytest

from dendrax.paper._contents import make_report, write_report
from dendrax.paper._page import html_page
from dendrax.paper._plots import all_plots
from dendrax.paper._report import Document, Section, Table, is_report, write_document
from tests.paper import findings as made


def written(tmp_path, found, missing=()):
    page = write_report(make_report(found, seed=3, quick=True, missing=missing), tmp_path)
    return page.read_text()


def tags(page):
    found = set()
    parser = HTMLParser()
    parser.handle_starttag = lambda tag, attributes: found.add(tag)
    parser.feed(page)
    return found


def test_all_forms_are_written(tmp_path):
    page = written(tmp_path, made.everything(), ["the moon: see dendrax data"])
    names = {path.name for path in tmp_path.iterdir()}
    assert {"report.html", "report.md", "results.json", "table1-float64.csv", "plots"} <= names
    for text in ("seed", "jax ", "versions", "machine", "command", "the moon", "Table 1"):
        assert text in page
    rows = list(csv.reader((tmp_path / "table1-float64.csv").read_text().splitlines()))
    assert rows[0][0] == "network" and len(rows) == 7
    content = json.loads((tmp_path / "results.json").read_text())
    assert content["facts"]["seed"] == "3" and len(content["findings"]) == len(made.everything())
    markdown = (tmp_path / "report.md").read_text()
    for name in re.findall(r"\]\((.*?)\)", markdown):
        assert (tmp_path / name).is_file()


def files(folder):
    return {path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file()}


def listed(folder):
    return json.loads((folder / "results.json").read_text())["files"]


def test_the_index_lists_every_table_and_plot(tmp_path):
    written(tmp_path, made.everything())
    assert set(listed(tmp_path)) == files(tmp_path) - {"report.html", "report.md", "results.json"}


def test_what_this_report_does_not_have_is_removed_and_nothing_else(tmp_path):
    written(tmp_path, made.everything())
    old = set(listed(tmp_path))
    mine = {"mine.csv", "plots/mine.svg", "notes.txt", "work/table1.csv"}
    for name in mine:
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text("mine")
    written(tmp_path, made.as_published())
    new = set(listed(tmp_path))
    assert {"playing.csv", "plots/score-pong.svg"} <= old - new and "table1-float64.csv" in new
    assert files(tmp_path) == new | mine | {"report.html", "report.md", "results.json"}
    assert all((tmp_path / name).read_text() == "mine" for name in mine)


def test_a_table_that_somebody_removed_before(tmp_path):
    written(tmp_path, made.everything())
    for name in ("playing.csv", "plots/score-pong.svg"):
        (tmp_path / name).unlink()
    written(tmp_path, made.as_published())
    assert "playing.csv" not in listed(tmp_path)


@pytest.mark.parametrize(
    "index",
    [
        "",
        "mine",
        "[" * 100_000,
        "[]",
        "7",
        "{}",
        '{"files": null}',
        '{"files": 7}',
        '{"files": "mine.csv"}',
        '{"files": {"mine.csv": 1}}',
        '{"files": [7, null, ["mine.csv"]]}',
    ],
)
def test_an_index_that_lists_nothing(tmp_path, index):
    """Of an older version, or damaged: nothing is removed, and the report is written."""
    (tmp_path / "results.json").write_text(index)
    (tmp_path / "mine.csv").write_text("mine")
    written(tmp_path, made.as_published())
    assert (tmp_path / "mine.csv").read_text() == "mine"
    assert "table1-float64.csv" in listed(tmp_path)


def test_an_index_cannot_name_what_no_report_writes(tmp_path):
    folder = tmp_path / "out"
    mine = ["notes.txt", "report.csv.txt", "work/a.csv", "a.svg", "plots/a.csv", "../a.csv"]
    mine += ["plots/../b.svg", "plots/deep/a.svg", "../plots/a.svg"]
    for name in mine:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text("mine")
    absolute = str(tmp_path / "a.csv")
    (folder / "results.json").write_text(json.dumps({"files": [*mine, absolute, "..", ""]}))
    written(folder, made.as_published())
    assert all((folder / name).read_text() == "mine" for name in mine)


def test_a_report_that_failed_removes_nothing(tmp_path, monkeypatch):
    """The old files stay until the new index is there, so that no file is forgotten."""
    written(tmp_path, made.everything())
    before = files(tmp_path)

    def full(*args):
        raise OSError("no space left")

    with monkeypatch.context() as disk:
        disk.setattr("os.replace", full)
        with pytest.raises(OSError, match="no space left"):
            written(tmp_path, [])
    assert files(tmp_path) == before
    written(tmp_path, [])
    assert files(tmp_path) == {"report.html", "report.md", "results.json"}


def test_what_tells_a_report_from_other_folders(tmp_path):
    assert not is_report(tmp_path)
    for index in ("mine", "[]", '{"files": []}', '{"facts": {}, "findings": []}'):
        (tmp_path / "results.json").write_text(index)
        assert not is_report(tmp_path)
    written(tmp_path, [])
    assert is_report(tmp_path)


def test_the_page_asks_nothing_of_the_network(tmp_path):
    page = written(tmp_path, made.everything())
    assert not re.search(r"(src|href)\s*=\s*[\"'](?!#|data:)", page)
    assert "<script" not in page and "@import" not in page and "url(http" not in page


def test_names_are_text(tmp_path):
    evil = "<script>alert('x')</script>|"
    found = [dataclasses.replace(f, name=evil) for f in made.as_published()]
    found.append(made.run("BP", ["a"], course=evil, data=evil))
    found.append(made.sweep(label=evil))
    page = written(tmp_path, found, [evil])

    assert "script" not in tags(page) and "alert" in page
    table = [row for row in (tmp_path / "report.md").read_text().splitlines() if "alert" in row]
    assert all("\\|" in row for row in table if row.startswith("|"))


def test_plots_are_xml_and_the_same_each_time():
    first, again = all_plots(made.everything()), all_plots(made.everything())
    assert [plot.name for plot in first] == [
        "curve-mlp",
        "energy-mlp",
        "score-pong",
        "il-steps",
        "wave-z-il",
    ]
    assert first == again
    for plot in first:
        ElementTree.fromstring(plot.svg)


def test_an_empty_report(tmp_path):
    assert "Table" not in written(tmp_path, [])


def test_a_report_on_something_else(tmp_path):
    """The writer knows nothing of the paper: a benchmark has sections, too."""
    table = Table("times", "Times", ("model", "ms"), (("MLP", "3"), ("a|b", "4")), "Medians.")
    unnamed = Table("", "Ratios", ("model", "ratio"), (("MLP", "1"),), "")
    details = Section("Settings", details=[("MLP", "width 3")])
    sections = [Section("Speed", "In turns.", tables=[table, unnamed]), details]
    document = Document("Benchmarks", [*sections, Section("Facts", rows=[("seed", "0")])], {"a": 1})
    page = write_document(document, tmp_path, html_page(document)).read_text()
    assert files(tmp_path) == {"report.html", "report.md", "results.json", "times.csv"}
    for text in ("<h1>Benchmarks</h1>", "<p>In turns.</p>", "Medians.", "<pre>width 3</pre>"):
        assert text in page
    markdown = (tmp_path / "report.md").read_text()
    assert "## Speed\n\nIn turns.\n\n**Times**\n\n| model | ms |\n| --- | --- |\n" in markdown
    assert "| a\\|b | 4 |\n\nMedians.\n" in markdown and "- seed: 0" in markdown
    assert "Settings" not in markdown
    assert json.loads((tmp_path / "results.json").read_text()) == {"a": 1, "files": ["times.csv"]}
