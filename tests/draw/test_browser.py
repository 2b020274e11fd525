"""The explorer in a real browser: played, scrubbed, clicked, searched, collapsed, compared."""

import jax.numpy as jnp

import dendrax
from dendrax import IL, ZIL
from tests.draw.browser import click, focus, index_of, open_all, picture, state, wait_until

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


def test_choosing_the_other_rule(mlp):
    mlp.click("#compare")
    long, short = (mlp.evaluate(f"explorer.data.runs[{k}].last") for k in (1, 0))
    assert long > short
    mlp.click(".rule button >> nth=1")
    mlp.keyboard.press("End")
    before = picture(mlp)
    button = mlp.locator(".rule button").first
    button.focus()
    mlp.keyboard.press("Enter")
    assert mlp.evaluate("explorer.panes[0].run") == 0 and state(mlp, "run") == 0
    assert mlp.inner_text("#clock") == f"t = {short} of {short}"
    assert mlp.get_attribute("#time", "max") == mlp.input_value("#time") == str(short)
    assert picture(mlp) != before
    assert button.evaluate("(button) => button === document.activeElement")
    pressed = [b.get_attribute("aria-pressed") for b in mlp.locator(".rule button").all()]
    assert pressed == ["true", "false"]


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
    query = mlp.locator("#query")
    assert query.get_attribute("aria-expanded") == "true"
    assert query.get_attribute("role") == "combobox"
    marked = query.get_attribute("aria-activedescendant")
    assert mlp.get_attribute(f"#{marked}", "aria-selected") == "true"
    assert mlp.get_attribute(f"#{query.get_attribute('aria-controls')}", "role") == "listbox"
    mlp.keyboard.press("Enter")
    assert state(mlp, "chosen") == index_of(mlp, "model.layers[1].weight")
    assert focus(mlp) == "CANVAS" and query.get_attribute("aria-expanded") == "false"
    assert query.get_attribute("aria-activedescendant") is None
    mlp.keyboard.press("ArrowUp")  # the keys walk on from there
    assert state(mlp, "chosen") != index_of(mlp, "model.layers[1].weight")
    mlp.fill("#query", "nothing is called this")
    assert "no vertex has this" in mlp.inner_text("#matches")


def test_an_empty_search(mlp):
    for text in ("", "nothing is called this"):
        mlp.fill("#query", text)
        for key in ("Enter", "ArrowDown", "ArrowUp"):
            mlp.press("#query", key)  # an error would be among the troubles
    assert state(mlp, "chosen") is None
    mlp.fill("#query", "layers")
    mlp.press("#query", "ArrowDown")
    assert mlp.get_attribute("#query", "aria-activedescendant") == "match1"


def test_the_matches_close_on_a_click_elsewhere(mlp):
    mlp.fill("#query", "layers[1] weight")
    mlp.click("#summary")
    assert mlp.is_hidden("#matches") and mlp.get_attribute("#query", "aria-expanded") == "false"
    mlp.focus("#query")  # and are there again
    mlp.click("#matches li")
    assert state(mlp, "chosen") == index_of(mlp, "model.layers[1].weight")
    assert mlp.is_hidden("#matches") and focus(mlp) == "CANVAS"


def test_arrows_begin_at_the_output(mlp):
    for key in ("ArrowDown", "ArrowUp"):
        mlp.keyboard.press("Escape")
        mlp.keyboard.press(key)
        assert mlp.evaluate("explorer.data.vertices[explorer.state.chosen].level") == 0


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
    assert mlp.is_visible("#keys") and mlp.get_attribute("#help", "aria-expanded") is None
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
    page = open_all(visit(pages("fc_resnet", ZIL())))
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
    assert page.input_value("#depth") == "some"
    page.select_option("#depth", "1")
    assert page.evaluate(f"explorer.state.collapsed.has({module!r})")
    page.evaluate(f"explorer.goTo({inside})")
    assert page.input_value("#depth") == "some"
    page.keyboard.press("m")  # some are still closed: open them
    assert page.evaluate("explorer.scene.blocks.length") == count
    assert page.input_value("#depth") == "0"
    page.keyboard.press("m")
    assert page.input_value("#depth") == "1"


def test_delays_are_written_out_and_collapsed(visit, pages):
    page = open_all(visit(pages("fc_resnet", ZIL())))
    flat = picture(page)
    page.click("#delays")
    assert page.get_attribute("#delays", "aria-pressed") == "true" and picture(page) != flat
    page.keyboard.press("d")
    assert not state(page, "delays") and picture(page) == flat


def test_delays_of_collapsed_modules_wait_in_their_rows(visit, tmp_path):
    """Seen in the pixels: a place in a delay line is empty until the wave is in its row."""

    def loss(p, x):
        low = x @ p["a"]["u"]  # deep in the first module
        top = low @ p["a"]["v"]
        other = jnp.sin(top @ p["b"]["u"]) @ p["b"]["v"]
        return jnp.sum((0.1 * low + top + other) @ p["c"]["u"])

    w = 0.3 * jnp.ones((3, 3)) + jnp.eye(3)
    p = {"a": {"u": w, "v": w}, "b": {"u": w, "v": w}, "c": {"u": w}}
    page = visit(dendrax.explore(loss, p, jnp.ones((2, 3)), path=tmp_path / "delays.html"))
    page.select_option("#depth", "1")
    page.click("#delays")
    seen = page.evaluate("""() => {
        const { scene, camera, data, colours, panes: [pane] } = explorer, [run] = data.runs;
        const level = (edge) => data.vertices[edge.source].level, seen = [];
        const copy = new OffscreenCanvas(1, 1).getContext("2d", { willReadFrequently: true });
        const colourAt = (x, row, t) => {
            Object.assign(camera, { zoom: 4, x: 200 - 4 * x, y: 200 - 4 * scene.middle(row) });
            explorer.state.time = t;
            pane.draw();
            copy.drawImage(pane.canvas, -200, -200);
            return `rgb(${[...copy.getImageData(0, 0, 1, 1).data].slice(0, 3).join(",")})`;
        };
        for (const wire of scene.wires.filter(({ block }) => block >= 0)) {
            const { x } = scene.blocks[wire.block], edges = wire.edges.filter((e) => e.delay > 0);
            for (let row = wire.to + 1; edges.length && row < wire.from; row++) {
                const sizes = edges.map((edge) => run.waiting(edge, level(edge) - 1 - row, row));
                seen.push({
                    deep: level(edges[0]) > wire.from, worst: sizes.indexOf(Math.max(...sizes)),
                    before: colourAt(x, row, row - 1), then: colourAt(x, row, row),
                    expected: errorColour(Math.max(...sizes), run.range, colours).css,
                });
            }
        }
        return seen; }""")
    assert any(place["deep"] for place in seen) and any(place["worst"] for place in seen)
    for place in seen:
        assert place["before"] == "rgb(255,255,255)" and place["then"] == place["expected"]


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
    path = pages("mlp", ZIL(), IL(num_steps=12, batch="sum"))
    dark, light = (visit(path, color_scheme=scheme) for scheme in ("dark", "light"))
    shade = "getComputedStyle(document.body).backgroundColor"
    assert dark.evaluate(shade) != light.evaluate(shade)
    for page in (dark, light):
        assert min(chip_contrasts(page)) >= 4.5
    light.click("#theme")
    assert light.evaluate(shade) == dark.evaluate(shade)


def chip_contrasts(page):
    """Of the words for each kind of vertex, as WCAG counts."""
    return page.evaluate("""() => {
        const light = (colour) => colour.match(/\\d+/g).slice(0, 3).map((c) => c / 255)
            .map((c) => (c <= 0.04045 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4))
            .reduce((sum, c, i) => sum + c * [0.2126, 0.7152, 0.0722][i], 0);
        return ["parameter", "internal", "data"].map((kind) => {
            explorer.goTo(explorer.data.vertices.findIndex((v) => v.kind === kind));
            const { color, backgroundColor } = getComputedStyle(document.querySelector(".chip"));
            const [low, high] = [light(color), light(backgroundColor)].sort((a, b) => a - b);
            return (high + 0.05) / (low + 0.05);
        }); }""")


def test_the_height_of_rows_belongs_to_a_scene(mlp):
    low, high = (
        mlp.evaluate(f"buildScene(explorer.data, explorer.state, {row}).height") for row in (56, 99)
    )
    assert high > low
    fitted = mlp.evaluate("explorer.scene.height")
    mlp.keyboard.press("s")
    mlp.keyboard.press("s")
    assert mlp.evaluate("explorer.scene.height") == fitted


def test_a_phone(visit, pages):
    page = visit(
        pages("mlp", ZIL(), IL(num_steps=12, batch="sum")),
        viewport={"width": 390, "height": 780},
        has_touch=True,
        is_mobile=True,
    )
    open_all(page)
    assert page.evaluate("document.documentElement.scrollWidth") <= 390
    index = index_of(page, "model.layers[1].weight")
    x, y = page.evaluate(f"Object.values(explorer.panes[0].screen({index}))")
    page.touchscreen.tap(x, y)
    assert state(page, "chosen") == index
    panel = page.locator("#panel").bounding_box()
    assert panel["x"] >= 0 and panel["x"] + panel["width"] <= 390.5
    for name in ("#play", "#time", "#query"):
        assert page.is_visible(name)
