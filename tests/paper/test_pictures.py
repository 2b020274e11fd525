"""The pictures of a network at work, and where a report puts them."""

import json
import xml.etree.ElementTree as ElementTree

import pytest

from dendrax.paper import Library
from dendrax.paper._contents import make_report, write_report
from dendrax.paper._pictures import DRAWINGS, picture_cells
from dendrax.paper._store import Finding, Work

SVG = '<?xml version="1.0"?><svg xmlns="http://www.w3.org/2000/svg"><text>a wave</text></svg>'


def report(*findings):
    return make_report(list(findings), seed=0, quick=True, missing=[])


@pytest.fixture
def pictures():
    result = {"plots": {"wave-under-il": SVG}, "explorer": "<!doctype html>the page"}
    return Finding("pictures", "in pictures", {"model": "FC-ResNet"}, result, 1.0)


def test_a_report_holds_the_pictures_and_names_the_explorer(pictures, tmp_path):
    page = write_report(report(pictures), tmp_path).read_text()
    assert 'href="explorer.html"' in page and "<text>a wave</text>" in page and "<?xml" not in page
    assert (tmp_path / "explorer.html").read_text() == "<!doctype html>the page"
    assert "a wave" in (tmp_path / "plots" / "wave-under-il.svg").read_text()
    assert "(explorer.html)" in (tmp_path / "report.md").read_text()
    index = json.loads((tmp_path / "results.json").read_text())
    assert "explorer.html" in index["files"]
    assert index["findings"][0]["result"] == {}  # they are files of their own


def test_a_report_without_pictures_has_no_explorer(pictures, tmp_path):
    write_report(report(pictures), tmp_path)
    page = write_report(report(), tmp_path).read_text()
    assert "explorer.html" not in page and not (tmp_path / "explorer.html").exists()


@pytest.mark.slow  # make demo draws it, too
def test_the_network_is_drawn(tmp_path):
    (cell,) = picture_cells(Library(full=False), seed=0)
    result = cell.measure(Work(tmp_path))
    assert result["plots"].keys() == DRAWINGS.keys()
    for svg in result["plots"].values():
        ElementTree.fromstring(svg)
    assert "ZIL(): exactly 0" in result["plots"]["distance-by-parameter"]
    assert result["explorer"].startswith("<!doctype html>")
    assert json.loads(json.dumps(result)) == result
