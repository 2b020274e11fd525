"""The page: what moves first, how it was made last, all in one file."""

import html
import re
from html.parser import HTMLParser

import pytest

from dendrax.paper._contents import _command, make_report, write_report
from dendrax.paper._page import html_page
from dendrax.paper._pictures import DRAWINGS, WAVE_CAPTIONS
from dendrax.paper._plots import all_plots
from dendrax.paper._store import Finding
from dendrax.paper._story import INTRODUCTION
from tests.paper import findings as made

SVG = '<svg xmlns="http://www.w3.org/2000/svg"><text>{}</text></svg>'
EXPLORER = '<!doctype html><p title="a">x</p><script>alert("1 < 2 & 3")</script>'


def page_of(found):
    return html_page(make_report(found, seed=3, quick=True, missing=[]).document())


def pictures():
    plots = {name: SVG.format(name) for name in DRAWINGS}
    result = {"plots": plots, "explorer": EXPLORER}
    return Finding("pictures", "in pictures", {"model": "FC-ResNet"}, result, 1.0)


@pytest.fixture
def page():
    return page_of([*made.everything(), pictures()])


def in_order(text, *parts):
    places = [text.find(part) for part in parts]
    assert -1 not in places, parts[places.index(-1)]
    assert places == sorted(places)


def test_the_order_of_the_page(page):
    headings = re.findall(r"<h2>(.*?)</h2>", page)
    assert [html.unescape(heading) for heading in headings] == [
        "An error runs through a network",
        "The error wave",
        "What this is",
        "Claims",
        "Table 1: is one update that of backpropagation?",
        "Table 2: what does an update cost?",
        "Table 3: which conditions does Z-IL need?",
        "Training: MLP",
        "Pictures",
        "In full, beside the paper's figures",
        "Every measurement",
        "How it was measured",
    ]
    in_order(page, "<iframe", "<text>wave-under-zil", "<text>wave-under-il", "<text>levelled-graph")


def test_the_metadata_are_last(page):
    last = page[page.index("How it was measured") :]
    for name in ("command", "date", "seed", "versions", "machine"):
        assert f"<td>{name}</td>" in last and f"<td>{name}</td>" not in page.replace(last, "")


def test_the_introduction_is_there_as_written(page):
    assert html.escape(" ".join(INTRODUCTION)) in page


def test_the_explorer_is_inside_and_shut_in(page):
    frames = []
    parser = HTMLParser()
    parser.handle_starttag = lambda tag, given: frames.append(given) if tag == "iframe" else None
    parser.feed(page)
    (frame,) = map(dict, frames)
    assert frame["srcdoc"] == EXPLORER and "allow-same-origin" not in frame["sandbox"]
    assert "<script" not in page


def test_pictures_say_how_to_read_them(page):
    for name, text in (("zil", "Under Z-IL"), ("il", "Under IL")):
        assert f"<text>wave-under-{name}</text></svg><figcaption>{text}" in page
    broad = '<figure class="broad"><svg xmlns="http://www.w3.org/2000/svg">'
    assert page.count(broad) == 1 and f"{broad}<text>levelled-graph" in page


@pytest.mark.parametrize("order", [1, -1])
def test_waves_of_z_il_come_first_with_captions_whoever_drew_them(order):
    """`dendrax paper` measures its waves, the demo draws them: a folder may hold both."""
    found = [made.wave(label="IL"), made.wave(label="Z-IL"), pictures()][::order]
    sections = make_report(found, seed=0, quick=False, missing=[]).document().sections
    waves, others = ([*part.plots] for part in sections if part.plots)
    assert [plot.wave for plot in waves] == ["Z-IL", "Z-IL", "IL", "IL"]
    assert {plot.name for plot in waves[:2]} == {"wave-z-il", "wave-under-zil"}
    assert all(plot.caption == WAVE_CAPTIONS[plot.wave] for plot in waves)
    assert not {plot.name for plot in waves} & {plot.name for plot in others}


def test_every_caption_belongs_to_a_plot():
    plots = all_plots([*made.everything(), made.wave(label="IL"), pictures()])
    captions = {plot.caption for plot in plots} - {""}
    assert captions == {*WAVE_CAPTIONS.values(), *(d.caption for d in DRAWINGS.values())}


def test_every_distance_says_whether_it_is_relative(page):
    titles = re.findall(r"<caption>(.*?)</caption>", page)
    about = [title for title in titles if "distance" in title.lower()]
    assert len(about) == 5 and all("relative" in title.lower() for title in about)


def test_a_page_without_pictures_begins_with_the_wave():
    """As of `dendrax paper all`, which draws waves and no explorer."""
    page = page_of(made.everything())
    assert "<iframe" not in page
    in_order(page, "The error wave", "What this is", "Claims", "Table 1", "How it was measured")


def test_markdown_has_the_order_of_the_page(tmp_path):
    report = make_report(made.everything(), seed=0, quick=True, missing=[])
    write_report(report, tmp_path)
    text = (tmp_path / "report.md").read_text()
    wave = "![The error wave of Z-IL (FC-ResNet)]"
    in_order(text, wave, INTRODUCTION[0], "## Claims", "## Table 1", "## Pictures", "- command:")


@pytest.mark.parametrize(
    ("words", "text"),
    [
        (["/usr/bin/dendrax", "demo", "--out", "a b"], "dendrax demo --out 'a b'"),
        (["/lib/dendrax/cli/__main__.py", "demo"], "python -m dendrax.cli demo"),
    ],
)
def test_the_command_can_be_typed_again(words, text):
    assert _command(words) == text
