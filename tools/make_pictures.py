"""Make the pictures of docs: run the code of pictures.md and concepts.md, photograph the explorer.

    python tools/make_pictures.py

The code runs in docs/pictures: of pictures.md each block by itself, of concepts.md all in one
session. Pages of the explorer are photographed by Chromium and removed; where there is no Chromium
the photographs stay as they are.
"""

import contextlib
import os
import pathlib
import re
import shutil

DOCS = pathlib.Path(__file__).resolve().parent.parent / "docs"
# What to do on each page before the photograph is taken.
SCENES = {
    "explorer-residual": "explorer.setTime(2);",
    "explorer-transformer": "explorer.setTime(6);",
    "explorer-resnet18": "explorer.setTime(120);",
}


def code_blocks(page: pathlib.Path) -> list[str]:
    """The blocks of Python on a page."""
    return re.findall(r"^```python\n(.*?)^```$", page.read_text(), re.MULTILINE | re.DOTALL)


def photograph(pages: list[pathlib.Path], chromium: str) -> None:
    """A PNG of each page, as SCENES say, and no page any more."""
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        for page in pages:
            small = page.stem == "explorer-residual"  # to be read in README.md, too
            size = {"width": 1000, "height": 640} if small else {"width": 1280, "height": 800}
            tab = browser.new_page(viewport=size)
            tab.goto(page.as_uri())
            tab.wait_for_selector("body[data-ready=yes]")
            tab.evaluate(f"() => {{ {SCENES[page.stem]} }}")
            tab.wait_for_timeout(500)
            tab.screenshot(path=page.with_suffix(".png"))
            page.unlink()
        browser.close()


def main() -> None:
    """Run the page's code, then photograph."""
    folder = DOCS / "pictures"
    folder.mkdir(exist_ok=True)
    with contextlib.chdir(folder):
        for block in code_blocks(DOCS / "pictures.md"):
            exec(compile(block, "docs/pictures.md", "exec"), {"__name__": "__main__"})
        session = "\n".join(code_blocks(DOCS / "concepts.md"))
        exec(compile(session, "docs/concepts.md", "exec"), {"__name__": "__main__"})
    chromium = os.environ.get("DENDRAX_CHROMIUM") or shutil.which("chromium")
    pages = sorted(folder.glob("*.html"))
    if chromium:
        photograph(pages, chromium)
    else:
        print("Chromium was not found: the photographs of the explorer are the earlier ones.")
        for page in pages:
            page.unlink()
    print(f"{len(list(folder.iterdir()))} pictures in {folder}")


if __name__ == "__main__":
    main()
