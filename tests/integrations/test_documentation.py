"""The recipes of docs/integrations.md run, and changing the line back changes nothing."""

import math
import pathlib
import re

import pytest

PAGE = pathlib.Path(__file__).resolve().parents[2] / "docs" / "integrations.md"
BLOCKS = re.findall(r"^```python\n(.*?)^```$", PAGE.read_text(), re.MULTILINE | re.DOTALL)
LINE = re.compile(r"^( *)# (.*value_and_grad.*)\n(.*dendrax\..*value_and_grad\(loss)", re.MULTILINE)
RECIPES = [block for block in BLOCKS if LINE.search(block)]
TITLES = ["Equinox", "Flax NNX", "Flax linen", "Haiku", "Optax and plain pytrees"]


def run(code):
    names = {"__name__": "__main__"}
    exec(compile(code, str(PAGE), "exec"), names)
    return names


def test_every_library_has_a_recipe():
    titles = re.findall(r"^## (.*)$", PAGE.read_text(), re.MULTILINE)
    assert titles[: len(TITLES)] == TITLES and len(RECIPES) == len(TITLES)


@pytest.mark.parametrize("code", RECIPES, ids=TITLES)
def test_the_recipes_run(code):
    assert math.isfinite(run(code)["value"])


@pytest.mark.slow
@pytest.mark.parametrize("code", RECIPES, ids=TITLES)
def test_the_line_before_gives_the_same(code):
    before = re.sub(r"^( *)# (.*value_and_grad.*)\n.*dendrax.*$", r"\1\2", code, flags=re.MULTILINE)
    assert before != code
    assert float(run(code)["value"]) == float(run(before)["value"])


@pytest.mark.slow
@pytest.mark.parametrize("code", RECIPES, ids=TITLES)
def test_one_more_word_is_predictive_coding(code):
    word = re.search(r"one more word: `(.*?)`", PAGE.read_text())
    assert word is not None
    found = run(LINE.sub(rf"\3, {word[1]}", code))["value"]
    assert math.isfinite(found) and found != run(code)["value"]


@pytest.mark.parametrize("code", [block for block in BLOCKS if block not in RECIPES])
def test_the_other_code_runs(code):
    run(code)
