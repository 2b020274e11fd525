"""The recipes of docs/integrations.md run, and changing the line back changes nothing."""

import math
import re
from dataclasses import replace

import pytest

from tests.documentation.blocks import ARROW, ROOT, page_blocks, run_block

PAGE = ROOT / "docs" / "integrations.md"
BLOCKS = page_blocks(PAGE)
LINE = re.compile(r"^( *)# (.*value_and_grad.*)\n(.*dendrax\..*value_and_grad\(loss)", re.MULTILINE)
RECIPES = [block for block in BLOCKS if LINE.search(block.code)]
TITLES = ["Equinox", "Flax NNX", "Flax linen", "Haiku", "Optax and plain pytrees"]


def test_every_library_has_a_recipe():
    titles = re.findall(r"^## (.*)$", PAGE.read_text(), re.MULTILINE)
    assert titles[: len(TITLES)] == TITLES and len(RECIPES) == len(TITLES)


def final_value(recipe, code=None):
    """The last loss of a recipe, or of another code in its place, which shows nothing."""
    if code is not None:
        recipe = replace(recipe, code=re.sub(rf"{ARROW}.*", "", code))
    return float(run_block(recipe)["value"])


@pytest.mark.parametrize("recipe", RECIPES, ids=TITLES)
def test_the_recipes_run(recipe):
    assert math.isfinite(final_value(recipe))


@pytest.mark.slow
@pytest.mark.parametrize("recipe", RECIPES, ids=TITLES)
def test_the_line_before_gives_the_same(recipe):
    line = re.compile(r"^( *)# (.*value_and_grad.*)\n.*dendrax.*$", re.MULTILINE)
    before, count = line.subn(r"\1\2", recipe.code)
    assert count == 1
    assert final_value(recipe) == final_value(recipe, before)


@pytest.mark.slow
@pytest.mark.parametrize("recipe", RECIPES, ids=TITLES)
def test_one_more_word_is_predictive_coding(recipe):
    word = re.search(r"one more word: `(.*?)`", PAGE.read_text())
    assert word is not None
    found = final_value(recipe, LINE.sub(rf"\3, {word[1]}", recipe.code))
    assert math.isfinite(found) and found != final_value(recipe)


@pytest.mark.parametrize("block", [block for block in BLOCKS if block not in RECIPES], ids=str)
def test_the_other_code_runs(block):
    run_block(block)
