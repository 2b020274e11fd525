"""The explorer in a real browser: opened, played, scrubbed, clicked, searched, collapsed, compared.

They need Chromium (Debian: ``apt install chromium``; or name one in DENDRAX_CHROMIUM).
"""

import os
import pathlib
import shutil

import jax.numpy as jnp
import pytest

import dendrax
from dendrax import IL, ZIL
from dendrax.models import problem

sync_api = pytest.importorskip("playwright.sync_api")

NAMES = ("chromium", "chromium-browser", "google-chrome", "chrome")
FOUND = [os.environ.get("DENDRAX_CHROMIUM"), *map(shutil.which, NAMES)]
CHROMIUM = next((path for path in FOUND if path), None)

pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="Chromium is not installed")


@pytest.fixture(scope="module")
def chromium():
    with sync_api.sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield browser
        browser.close()


@pytest.fixture
def visit(chromium):
    """Opens a page, and sees to it that nothing was asked of the network and nothing went wrong."""
    contexts, troubles = [], []

    def opened(path, **options):
        context = chromium.new_context(**{"viewport": {"width": 1200, "height": 800}} | options)
        contexts.append(context)
        page = context.new_page()
        own = pathlib.Path(path).absolute().as_uri()
        page.on("console", lambda m: troubles.append(m.text) if m.type != "log" else None)
        page.on("pageerror", lambda error: troubles.append(str(error)))
        page.on("request", lambda r: troubles.append(r.url) if r.url != own else None)
        page.goto(own)
        page.wait_for_selector("body[data-ready=yes]", timeout=5000)
        return page

    yield opened
    assert not troubles
    for context in contexts:
        context.close()


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
    return visit(pages("mlp", ZIL(), IL(num_steps=12)))


def state(page, name):
    return page.evaluate(f"explorer.state.{name}")


def picture(page):
    """The picture of the first pane, as the numbers of its pixels."""
    page.evaluate("explorer.draw()")
    return page.evaluate("explorer.panes[0].canvas.toDataURL()")


def wait_until(page, condition):
    """Playwright's own way of waiting would be forbidden by the page's security policy."""
    for _ in range(200):
        if page.evaluate(condition):
            return
        page.wait_for_timeout(50)
    raise TimeoutError(condition)


def index_of(page, name):
    return page.evaluate(f"explorer.data.vertices.findIndex((v) => v.name === {name!r})")


def click(page, index, *, times=1):
    """A click where a vertex is seen."""
    x, y = page.evaluate(f"Object.values(explorer.panes[0].screen({index}))")
    page.mouse.click(x, y, click_count=times)


# ---- time ----------------------------------------------------------------------------------------


def test_it_plays_to_the_end_and_stops(mlp):
    before = picture(mlp)
    mlp.select_option("#speed", "30")
    mlp.click("#play")
    assert state(mlp, "playing") and mlp.get_attribute("#play", "aria-label") == "Pause"
    wait_until(mlp, "!explorer.state.playing && explorer.state.time > 0")
    last = mlp.evaluate("explorer.lastTime()")
    assert state(mlp, "time") == last and mlp.inner_text("#clock") == f"t = {last} of {last}"
    assert picture(mlp) != before
    mlp.click("#play")  # from the start again
    wait_until(mlp, f"explorer.state.time < {last}")
    mlp.click("#play")
    assert not state(mlp, "playing")


def test_scrubbing_moves_everything_in_step(mlp):
    seen = set()
    for t in (0, 2, 4):
        mlp.evaluate(
            f"() => {{ const s = document.getElementById('time'); s.value = {t};"
            " s.dispatchEvent(new Event('input')); }"
        )
        assert mlp.inner_text("#clock").startswith(f"t = {t} ")
        seen.add(picture(mlp))
    assert len(seen) == 3
    box = mlp.locator("#energy").bounding_box()
    mlp.mouse.click(box["x"] + box["width"] - 12, box["y"] + box["height"] / 2)
    assert state(mlp, "time") > 4  # a click on the energy curve is a click on its time


def test_a_wave_is_zero_ahead_of_itself(mlp):
    """What the page shows is what the lemmas say."""
    wrong = mlp.evaluate("""() => {
        const run = explorer.data.runs[0], wrong = [];
        for (const v of explorer.data.vertices) {
            for (let t = 0; v.slot >= 0 && t < v.level; t++)
                if (run.value(v, "error", t) !== 0) wrong.push(v.name);
            if (v.slot >= 0 && !(run.value(v, "error", v.level) > 0)) wrong.push(v.name);
        }
        return wrong; }""")
    assert wrong == []


# ---- choosing ------------------------------------------------------------------------------------


def test_a_click_tells_everything_about_a_vertex(mlp):
    index = index_of(mlp, "model.layers[1].weight")
    click(mlp, index)
    assert state(mlp, "chosen") == index
    told = mlp.inner_text("#panel")
    for part in ("model.layers[1].weight", "float32", "learns at", "Used by"):
        assert part in told
    mlp.click("#panel .links button")  # on to what uses it
    told = mlp.inner_text("#panel")
    for part in ("Source", "Local function", "dot_general", "error ε (ZIL())", "Reads"):
        assert part in told
    before = mlp.inner_text("#panel dl:nth-of-type(2)")
    mlp.keyboard.press("End")
    assert mlp.inner_text("#panel dl:nth-of-type(2)") != before
    mlp.keyboard.press("Escape")
    assert state(mlp, "chosen") is None and mlp.is_hidden("#panel")


def test_search_finds_and_goes_there(mlp):
    mlp.keyboard.press("/")
    mlp.keyboard.type("layers[1] weight")
    assert mlp.locator("#matches li").count() == 1
    mlp.keyboard.press("Enter")
    assert state(mlp, "chosen") == index_of(mlp, "model.layers[1].weight")
    mlp.fill("#query", "nothing is called this")
    assert "no vertex has this" in mlp.inner_text("#matches")


def test_keys(mlp):
    for key, name, value in [
        ("ArrowRight", "time", 1),
        ("End", "time", mlp.evaluate("explorer.lastTime()")),
        ("Home", "time", 0),
        ("c", "compare", False),
        ("c", "compare", True),
        ("s", "silent", True),
    ]:
        mlp.keyboard.press(key)
        assert state(mlp, name) == value, key
    mlp.keyboard.press(" ")
    assert state(mlp, "playing")
    mlp.keyboard.press(" ")
    assert not state(mlp, "playing")
    mlp.keyboard.press("?")
    assert mlp.is_visible("#keys")
    mlp.keyboard.press("Escape")
    assert mlp.is_hidden("#keys")
    mlp.evaluate("explorer.goTo(explorer.data.vertices.findIndex((v) => v.level === 2))")
    mlp.keyboard.press("ArrowUp")
    assert mlp.evaluate("explorer.data.vertices[explorer.state.chosen].level") == 1
    zoom = mlp.evaluate("explorer.camera.zoom")
    mlp.keyboard.press("+")
    assert mlp.evaluate("explorer.camera.zoom") > zoom


# ---- views ---------------------------------------------------------------------------------------


def test_modules_collapse_and_open(visit, pages):
    page = visit(pages("fc_resnet", ZIL()))
    count = page.evaluate("explorer.scene.blocks.length")
    page.select_option("#depth", "1")
    assert page.evaluate("explorer.scene.blocks.length") < count
    assert page.evaluate("explorer.scene.blocks.some((b) => b.kind === 'module')")
    inside = index_of(page, "model.layers[1].weight")
    module = page.evaluate(f"explorer.data.vertices[{inside}].modules[0]")
    click(page, inside)
    assert state(page, "chosenModule") == module and "Open this module" in page.inner_text("#panel")
    click(page, inside, times=2)
    assert not page.evaluate(f"explorer.state.collapsed.has({module!r})")
    page.keyboard.press("m")  # some are still closed: open them
    assert page.evaluate("explorer.scene.blocks.length") == count


def test_delays_are_written_out_and_collapsed(visit, pages):
    page = visit(pages("fc_resnet", ZIL()))
    flat = picture(page)
    page.click("#delays")
    assert page.get_attribute("#delays", "aria-pressed") == "true" and picture(page) != flat
    page.keyboard.press("d")
    assert not state(page, "delays") and picture(page) == flat


def test_two_rules_side_by_side(mlp):
    assert mlp.locator("#panes canvas").count() == 2
    mlp.evaluate("explorer.setTime(3)")
    first, second = (
        mlp.evaluate(f"(explorer.draw(), explorer.panes[{k}].canvas.toDataURL())") for k in (0, 1)
    )
    assert first != second
    mlp.click("#compare")
    assert mlp.locator("#panes canvas").count() == 1


def test_light_and_dark(visit, pages):
    path = pages("mlp", ZIL(), IL(num_steps=12))
    dark, light = (visit(path, color_scheme=scheme) for scheme in ("dark", "light"))
    shade = "getComputedStyle(document.body).backgroundColor"
    assert dark.evaluate(shade) != light.evaluate(shade)
    light.click("#theme")
    assert light.evaluate(shade) == dark.evaluate(shade)


def test_a_phone(visit, pages):
    page = visit(
        pages("mlp", ZIL(), IL(num_steps=12)),
        viewport={"width": 390, "height": 780},
        has_touch=True,
        is_mobile=True,
    )
    assert page.evaluate("document.documentElement.scrollWidth") <= 390
    index = index_of(page, "model.layers[1].weight")
    x, y = page.evaluate(f"Object.values(explorer.panes[0].screen({index}))")
    page.touchscreen.tap(x, y)
    assert state(page, "chosen") == index
    panel = page.locator("#panel").bounding_box()
    assert panel["x"] >= 0 and panel["x"] + panel["width"] <= 390.5
    for name in ("#play", "#time", "#query"):
        assert page.is_visible(name)


# ---- large and wicked ----------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["rnn", "transformer"])
def test_models_open_and_play(name, visit, pages):
    page = visit(pages(name, ZIL()))
    page.keyboard.press("End")
    assert page.evaluate("explorer.drawn") > 0
    page.keyboard.press("m")


def test_a_graph_of_two_thousand_vertices_is_interactive(visit, tmp_path):
    def deep(w, x):
        for _ in range(500):
            x = 0.5 * x + jnp.sin(x @ w)
        return jnp.sum(x**2)

    path = dendrax.explore(deep, 0.1 * jnp.eye(3), jnp.ones((2, 3)), path=tmp_path / "large.html")
    page = visit(path)  # ready within 5 s, or this fails
    assert len(page.evaluate("explorer.data.vertices.map((v) => v.name)")) >= 2000
    assert "as the wave arrives" in page.inner_text("#note")
    page.keyboard.press("End")
    page.fill("#query", "sin_400")
    page.press("#query", "Enter")
    assert state(page, "chosen") == index_of(page, "sin_400")


def test_scripts_in_names_stay_text(visit, tmp_path):
    evil = "</script><script>window.pwned = 1</script><img src=x onerror='window.pwned = 1'>"

    def loss(p):
        return jnp.sum(jnp.sin(p[evil]) ** 2)

    path = dendrax.explore(loss, {evil: jnp.ones(3)}, path=tmp_path / "evil.html", title=evil)
    page = visit(path)
    assert page.inner_text("#title") == evil
    page.fill("#query", "script")
    page.press("#query", "Enter")
    assert evil in page.inner_text("#panel h2")
    assert page.evaluate("window.pwned") is None


def test_a_sampled_record_has_a_visible_note(visit, tmp_path, monkeypatch):
    monkeypatch.setattr("dendrax.draw._explore.MAX_CODES", 300)
    p = problem("mlp", small=True)
    path = tmp_path / "sampled.html"
    dendrax.explore(p.loss, p.model, p.inputs, p.target, rule=IL(num_steps=60), path=path)
    page = visit(path)
    assert "is too large to embed" in page.inner_text("#note") and page.is_visible("#note")
    page.keyboard.press("End")
    assert state(page, "time") == 60
