"""Every block of Python in README.md, docs/*.md and the docstrings runs, and shows what it does."""

import inspect
import pathlib
import re
import types

import pytest

import dendrax
import dendrax.models
from tests.documentation.blocks import (
    PAGES,
    ROOT,
    docstring_blocks,
    page_blocks,
    run_block,
    values_without_arrow,
)

# What is not run, and why.
EXCEPTIONS = {
    "dendrax.data._mnist.mnist": "the full data set is not here; tests/data/test_full_sets.py",
    "dendrax.data._cifar10.cifar10": "likewise",
    "dendrax.data._get.get": "it fetches; tests/data/test_get.py",
    "dendrax.train._distributed.connect": "it is for the whole process; tests/train",
    "dendrax.data._photographs.imagenet_photographs": "likewise",
}
# Pages of which the code is run, and looked at more closely, by other tests.
ELSEWHERE = {
    "docs/concepts.md": "tests/draw/test_documentation.py",
    "docs/pictures.md": "tests/draw/test_documentation.py",
    "docs/integrations.md": "tests/integrations/test_documentation.py",
}

BLOCKS = [block for page in PAGES for block in page_blocks(page)] + docstring_blocks()
HERE = [block for block in BLOCKS if block.where not in EXCEPTIONS | ELSEWHERE]


@pytest.mark.parametrize("block", HERE, ids=str)
def test_the_code_runs_and_shows_what_it_does(block, readers_folder):
    run_block(block)


def test_what_is_not_run_is_there_and_little():
    assert set(EXCEPTIONS | ELSEWHERE) <= {block.where for block in BLOCKS}
    assert len(EXCEPTIONS) <= 5
    assert len(HERE) > 60


def unknown_languages(page: pathlib.Path) -> set[str]:
    """What a page's blocks are said to be written in, if no test knows it."""
    fences = re.findall(r"^ *```(.*)$", page.read_text(), re.MULTILINE)
    return {*fences[::2]} - {"python", "sh", "toml", "diff", "bibtex"}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_block_says_what_it_is(page):
    assert unknown_languages(page) == set()


def test_a_block_that_no_test_would_run_is_found(tmp_path):
    page = tmp_path / "page.md"
    page.write_text("```python\n1\n```\n\n```py\n1\n```\n\n```\n1\n```\n")
    assert unknown_languages(page) == {"py", ""}


def dead_links(page: pathlib.Path) -> set[str]:
    """Links of a page to files that are not there."""
    links = re.findall(r"\]\((?!https?:|#)([^)#]*)", page.read_text())
    return {link for link in links if not (page.parent / link).exists()}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_lead_somewhere(page):
    assert dead_links(page) == set()


def test_a_link_to_nowhere_is_found(tmp_path):
    page = tmp_path / "page.md"
    page.write_text("[a](page.md), [b](nothing.md#there), [c](https://nothing.there), [d](#e)")
    assert dead_links(page) == {"nothing.md"}


def test_the_readme_can_be_read_standing():
    text = (ROOT / "README.md").read_text()
    assert len(text.splitlines()) <= 150
    assert len(text.split()) <= 1300


def test_values_in_comments_are_compared():
    assert {str(block): found for block in BLOCKS if (found := values_without_arrow(block))} == {}


def without_example(package: types.ModuleType, *exceptions: str) -> set[str]:
    """The public functions and classes of a package that have no example."""
    documented = {block.where.rsplit(".", 1)[-1] for block in docstring_blocks()}
    public = inspect.getmembers(
        package, lambda value: inspect.isfunction(value) or inspect.isclass(value)
    )
    return {name for name, _ in public if name[0] != "_"} - documented - {*exceptions}


def test_every_public_name_has_an_example():
    """Results are shown where they are made."""
    results = ("Result", "Settled", "Graph", "Vertex", "LevelledGraph", "Audit", "Certificate")
    assert without_example(dendrax, *results) == set()
    assert without_example(dendrax.models) == set()


def test_a_name_without_an_example_is_found():
    package = types.ModuleType("package")
    package.grad, package.undocumented = dendrax.grad, lambda: None
    assert without_example(package) == {"undocumented"}
