"""The explorer inside another page, as in a report, and in a window that changes its size."""

import pathlib

import pytest

from dendrax import IL, ZIL
from dendrax.paper._contents import make_report
from dendrax.paper._page import html_page
from dendrax.paper._store import Finding
from tests.draw.browser import wait_until

CAMERA = "({ ...explorer.camera })"


@pytest.fixture
def framed(chromium, pages, tmp_path):
    """A report that begins with the explorer: the page, and the frame in it."""
    text = pathlib.Path(pages("mlp", ZIL(), IL(num_steps=12, batch="sum"))).read_text()
    result = {"plots": {}, "explorer": text}
    found = Finding("pictures", "in pictures", {"model": "MLP"}, result, 1.0)
    path = tmp_path / "report.html"
    text = html_page(make_report([found], seed=0, quick=True, missing=[]))
    # A browser may start what is in a frame before the frame has its size: here it always does.
    path.write_text(text.replace("<iframe ", '<iframe style="display: none" '))
    context = chromium.new_context(viewport={"width": 1200, "height": 500})
    troubles, page = [], context.new_page()
    page.on("pageerror", lambda error: troubles.append(str(error)))
    page.on("request", lambda r: troubles.append(r.url) if r.url != path.as_uri() else None)
    page.goto(path.as_uri())
    frame = page.frames[1]
    wait_until(frame, "document.body.dataset.ready === 'yes'")
    page.evaluate("document.querySelector('iframe').style.display = ''")
    wait_until(frame, "innerWidth > 500")
    yield page, frame
    context.close()
    assert [url for url in troubles if not url.startswith("about:srcdoc")] == []


# How much of its pane the graph takes, in width or in height, whichever is more.
SHARE_OF_PANE = """() => {
    const box = explorer.panes[0].view.getBoundingClientRect(), { scene, camera } = explorer;
    return camera.zoom * Math.max(scene.width / box.width, scene.height / box.height);
}"""


def test_it_fills_its_frame_and_plays(framed):
    _, frame = framed
    wait_until(frame, f"({SHARE_OF_PANE})() > 0.5")
    assert frame.evaluate(SHARE_OF_PANE) <= 1.0
    frame.click("#play")
    wait_until(frame, "explorer.state.time > 0")


def test_the_wheel_scrolls_the_page_around_it_and_zooms_with_control(framed):
    page, frame = framed
    frame.locator(".pane canvas").first.hover()
    before, top = frame.evaluate(CAMERA), page.evaluate("scrollY")
    page.mouse.wheel(0, 100)
    wait_until(page, f"scrollY > {top}")
    assert frame.evaluate(CAMERA) == before
    frame.locator(".pane canvas").first.hover()
    page.keyboard.down("Control")
    page.mouse.wheel(0, -100)
    wait_until(frame, f"explorer.camera.zoom > {before['zoom']}")


def test_it_is_fitted_again_until_somebody_moves_it(mlp):
    first = mlp.evaluate(CAMERA)
    mlp.set_viewport_size({"width": 700, "height": 800})
    wait_until(mlp, f"explorer.camera.zoom !== {first['zoom']}")
    mlp.keyboard.press("+")
    moved = mlp.evaluate(CAMERA)
    mlp.set_viewport_size({"width": 1000, "height": 800})
    wait_until(mlp, "innerWidth === 1000")
    mlp.wait_for_timeout(200)
    assert mlp.evaluate(CAMERA) == moved
