"""The code of docs/pictures.md and concepts.md: it runs, and makes every picture they show."""

import importlib.util
import re

import pytest

import dendrax
from tests.documentation.blocks import ROOT, page_blocks, page_session, run_block

PAGE, CONCEPTS = ROOT / "docs" / "pictures.md", ROOT / "docs" / "concepts.md"
GENERATIVE = ROOT / "docs" / "generative.md"  # its picture is made by an example
*PICTURES, EXPLORER = page_blocks(PAGE)


def _tool():
    spec = importlib.util.spec_from_file_location("make_pictures", ROOT / "tools/make_pictures.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def shown(page):
    return set(re.findall(r"\]\(pictures/([^)]*)\)", page.read_text()))


def test_every_picture_is_there_and_no_other():
    there = {path.name for path in (ROOT / "docs" / "pictures").iterdir()}
    assert shown(PAGE) | shown(CONCEPTS) | shown(GENERATIVE) == there
    assert re.findall(r"\]\(docs/pictures/([^)]*)\)", (ROOT / "README.md").read_text())


@pytest.mark.parametrize("page", [PAGE, CONCEPTS], ids=lambda page: page.name)
def test_the_code_makes_the_pictures(page, tmp_path, monkeypatch):
    """All but the photographs of the explorer."""
    monkeypatch.chdir(tmp_path)
    for block in PICTURES if page == PAGE else [page_session(CONCEPTS)]:
        run_block(block)
    made = {path.name for path in tmp_path.iterdir()}
    assert made == {name for name in shown(page) if not name.startswith("explorer-")}
    for name in made:
        now, before = (tmp_path / name).read_text(), (ROOT / "docs/pictures" / name).read_text()
        if "matplotlib" not in now.lower():  # drawings in docs are up to date
            assert without_lines(now) == without_lines(before)


def without_lines(picture):
    """The tool counts the lines of source from the start of a block, and the test of the page."""
    return re.sub(r"(?<=\.md):\d+", "", picture)


@pytest.mark.slow
def test_the_code_of_the_explorer(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    run_block(EXPLORER)
    assert {path.stem for path in tmp_path.iterdir()} == set(_tool().SCENES)


def test_every_public_name_of_draw_is_shown():
    text = PAGE.read_text()
    names = [name for name in vars(dendrax.draw) if not name.startswith("_") and name.islower()]
    functions = [n for n in names if callable(getattr(dendrax.draw, n)) and n != "notebook_svg"]
    assert functions and all(f"draw.{n}(" in text or f"dendrax.{n}(" in text for n in functions)
