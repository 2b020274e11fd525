"""The runner of documentation sees what is wrong, and is content with what is right."""

import pytest

from tests.documentation.blocks import (
    Block,
    agrees,
    docstring_blocks,
    page_blocks,
    run_block,
    values_without_arrow,
)

RIGHT = """import dendrax

value = dendrax.grad(lambda w: w**3)(2.0)
value  # -> 12.0
print(value, "and", 1.0 / 3.0)
# -> 12.0 and 0.333
"""


@pytest.fixture
def written(tmp_path):
    """A block of code as it is found in a page."""

    def write(code: str) -> Block:
        page = tmp_path / "page.md"
        page.write_text(f"Prose.\n\n```python\n{code}```\n\n```sh\nls\n```\n")
        (block,) = page_blocks(page)
        return block

    return write


def test_what_is_right_passes(written):
    assert run_block(written(RIGHT))["value"] == 12.0


@pytest.mark.parametrize(
    ("right", "wrong", "line"),
    [
        ("-> 12.0\n", "-> 13.0\n", 7),
        ("w**3", "w**4", 7),
        ("0.333", "0.334", 8),
        (" and 0.333", "", 8),
    ],
)
def test_what_is_wrong_is_named_with_its_line(written, right, wrong, line):
    assert right in RIGHT
    with pytest.raises(AssertionError, match=rf"page\.md:{line} .*shows\n.*\nbut it gives\n"):
        run_block(written(RIGHT.replace(right, wrong)))


def test_code_that_fails_fails(written):
    with pytest.raises(AttributeError, match="gradient"):
        run_block(written("import dendrax\n\ndendrax.gradient(lambda w: w)(1.0)\n"))


def test_an_arrow_that_would_not_be_compared_is_refused(written):
    with pytest.raises(AssertionError, match="top level"):
        run_block(written("for k in range(2):\n    print(k)  # -> 0\n    pass\n"))


def test_values_without_an_arrow_are_found(written):
    assert values_without_arrow(written("f(2)  # 12.0\ng()  # [1, 'a']\n")) == [
        "# 12.0",
        "# [1, 'a']",
    ]
    assert values_without_arrow(written("f(2)  # -> 12.0\ng()  # twelve\n")) == []


@pytest.mark.parametrize(
    ("shown", "found", "agree"),
    [
        ("12.0", "12.04", True),
        ("12.0", "12.06", False),
        ("1.5e-3", "0.00152", True),
        ("1.5e-3", "0.0016", False),
        ("[1. 2.]", "[1. 2.4]", False),
        ("3 levels", "3 levels", True),
        ("3 levels", "4 levels", False),
        ("3 levels", "3.0 levels", False),
        ("a ... b", "a long\ntext b", True),
        ("a ... b", "a long\ntext", False),
        ("IL(...): local", "IL(gamma=0.1): local", True),
        ("IL(...): local", "IL(gamma=0.1): NOT local", False),
        ("one two", "one\n   two", True),
        ("w1: 0.1", "w2: 0.1", False),
        ("nan", "0.0", False),
        ("0.0", "nan", False),
    ],
)
def test_agreement(shown, found, agree):
    assert agrees(shown, found) is agree


def test_blocks_of_docstrings_are_found_with_their_lines():
    by_name = {found.where: found for found in docstring_blocks()}
    found = by_name["dendrax._api.value_and_grad"]
    line = found.file.read_text().splitlines()[found.line - 1]
    assert line.strip() == found.code.splitlines()[0] == "import dendrax"
