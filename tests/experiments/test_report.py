"""Reports: complete, self-contained, and inert whatever the names are."""

import csv
import dataclasses
import json
import re
from html.parser import HTMLParser
from xml.etree import ElementTree

from dendrax.experiments._plots import all_plots
from dendrax.experiments._report import make_report, write_report
from tests.experiments import findings as made


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
