"""The code of docs/pictures.md: it runs, and makes every picture that the page shows."""

import importlib.util
import re

import pytest

import dendrax
from tests.documentation.blocks import ROOT, page_blocks, run_block

PAGE = ROOT / "docs" / "pictures.md"
*PICTURES, EXPLORER = page_blocks(PAGE)


def _tool():
    spec = importlib.util.spec_from_file_location("make_pictures", ROOT / "tools/make_pictures.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def shown():
    return set(re.findall(r"\]\(pictures/([^)]*)\)", PAGE.read_text()))


def test_every_picture_is_there_and_no_other():
    assert shown() == {path.name for path in (ROOT / "docs" / "pictures").iterdir()}


def test_the_code_makes_the_pictures(tmp_path, monkeypatch):
    """All but the photographs; of the explorer's pages the small one."""
    monkeypatch.chdir(tmp_path)
    for block in PICTURES:
        run_block(block)
    made = {path.name for path in tmp_path.iterdir()}
    assert made == {name for name in shown() if not name.startswith("explorer-")}
    for name in made:
        if name.startswith("figure-"):  # those in docs are up to date
            made_before = (ROOT / "docs/pictures" / name).read_text()
            assert without_lines((tmp_path / name).read_text()) == without_lines(made_before)


def without_lines(picture):
    """The tool counts the lines of source from the start of a block, and the test of the page."""
    return re.sub(r"(?<=pictures\.md):\d+", "", picture)


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
