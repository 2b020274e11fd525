"""Photograph the explorer, for people to look at: three models, screens, light and dark.

    python tools/make_screenshots.py FOLDER [MODEL ...]

Each model has a page with one pane (Z-IL) and one that compares two rules (Z-IL and IL), opened as
a reader finds it and photographed half way through the time; and once with a vertex chosen. The
pages stay beside the photographs. Chromium is needed (or name one in DENDRAX_CHROMIUM).
"""

import os
import pathlib
import shutil
import sys
from typing import Any

import dendrax
from dendrax import IL, ZIL
from dendrax.models import problem

MODELS = ("mlp", "transformer", "resnet18")
RULES = {"one": (ZIL(),), "compare": (ZIL(), IL())}
SCREENS = {"1280": (1280, 800), "1024": (1024, 768), "390": (390, 780)}
HALFWAY = "() => explorer.setTime(Math.ceil(explorer.lastTime() / 2))"
CHOOSE = """() => {
    explorer.setTime(explorer.lastTime());
    const inside = explorer.data.vertices.filter((v) => v.slot >= 0 && v.below.length > 1);
    explorer.goTo(inside[Math.floor(inside.length / 2)].index);
}"""


def make_pages(folder: pathlib.Path, models: list[str]) -> list[pathlib.Path]:
    """One page for each model and number of panes."""
    pages = []
    for name in models:
        p = problem(name, small=True)
        for panes, rules in RULES.items():
            path = folder / f"{name}-{panes}.html"
            pages.append(
                dendrax.explore(p.loss, p.model, p.inputs, p.target, rule=rules, path=path)
            )
    return pages


def photograph(browser: Any, page: pathlib.Path) -> None:
    """The page at first view on every screen, light and dark; half way; a vertex chosen."""
    for screen, (width, height) in SCREENS.items():
        for scheme in ("light", "dark"):
            tab = browser.new_page(viewport={"width": width, "height": height}, color_scheme=scheme)
            tab.goto(page.absolute().as_uri())
            tab.wait_for_selector("body[data-ready=yes]", timeout=60_000)
            shots = {"first": "() => 0"}
            if scheme == "light":
                shots |= {"halfway": HALFWAY, "chosen": CHOOSE}
            for shot, action in shots.items():
                tab.evaluate(action)
                tab.wait_for_timeout(300)
                tab.screenshot(path=page.with_name(f"{page.stem}-{screen}-{scheme}-{shot}.png"))
            tab.close()


def main(folder: str, *models: str) -> None:
    """Make the pages, then photograph all of them."""
    from playwright.sync_api import sync_playwright

    path = pathlib.Path(folder)
    path.mkdir(parents=True, exist_ok=True)
    pages = make_pages(path, list(models) or list(MODELS))
    chromium = os.environ.get("DENDRAX_CHROMIUM") or shutil.which("chromium")
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        for page in pages:
            photograph(browser, page)
        browser.close()
    print(f"{len(list(path.glob('*.png')))} photographs in {path}")


if __name__ == "__main__":
    main(*sys.argv[1:])
