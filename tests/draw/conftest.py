"""A real browser, for the tests of the explorer's page.

It needs Chromium (Debian: ``apt install chromium``; or name one in DENDRAX_CHROMIUM).
"""

import os
import pathlib
import shutil

import pytest

import dendrax
from dendrax import IL, ZIL
from dendrax.models import problem
from tests.draw.browser import open_all

NAMES = ("chromium", "chromium-browser", "google-chrome", "chrome")
FOUND = [os.environ.get("DENDRAX_CHROMIUM"), *map(shutil.which, NAMES)]
CHROMIUM = next((path for path in FOUND if path), None)


@pytest.fixture(scope="module")
def chromium():
    sync_api = pytest.importorskip("playwright.sync_api")
    if CHROMIUM is None:
        pytest.skip("Chromium is not installed")
    with sync_api.sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield browser
        browser.close()


@pytest.fixture
def visit(chromium):
    """Opens a page, and sees to it that nothing was asked of the network and nothing went wrong."""
    contexts, troubles = [], []

    def opened(path, before="", **options):
        context = chromium.new_context(**{"viewport": {"width": 1200, "height": 800}} | options)
        contexts.append(context)
        page = context.new_page()
        page.add_init_script(before)
        own = pathlib.Path(path).absolute().as_uri()
        page.on("console", lambda m: troubles.append(m.text) if m.type != "log" else None)
        page.on("pageerror", lambda error: troubles.append(str(error)))
        page.on("request", lambda r: troubles.append(r.url) if r.url != own else None)
        page.goto(own)
        page.wait_for_selector("body[data-ready=yes]", timeout=60_000)
        return page

    yield opened
    assert not troubles
    for context in contexts:
        context.close()


@pytest.fixture
def note(chromium):
    """What a page that cannot be shown says instead."""

    def found(path, before="", selector="#note", **options):
        context = chromium.new_context(**options)
        page = context.new_page()
        page.add_init_script(before)
        page.goto(pathlib.Path(path).absolute().as_uri())
        page.wait_for_selector(selector, timeout=60_000)
        text = page.inner_text(selector)
        context.close()
        return text

    return found


@pytest.fixture(scope="module")
def pages(tmp_path_factory):
    """The page of a model, made once."""
    folder, made = tmp_path_factory.mktemp("pages"), {}

    def page(name, *rules):
        if (name, rules) not in made:
            p = problem(name, small=True)
            path = folder / f"{name}{len(made)}.html"
            args = (p.model, p.inputs, p.target)
            made[name, rules] = dendrax.explore(p.loss, *args, rule=rules, path=path)
        return made[name, rules]

    return page


@pytest.fixture
def mlp(visit, pages):
    return open_all(visit(pages("mlp", ZIL(), IL(num_steps=12, batch="sum"))))
