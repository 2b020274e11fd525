"""The explorer as a reader finds it: what is in sight at first, and whether it can be read."""

import collections
import itertools

import numpy as np
import pytest

import dendrax
from dendrax import ZIL
from dendrax.draw import _drawing, _explore, _record
from dendrax.draw._layout import place
from dendrax.draw._plan import plan
from dendrax.inference._arrivals import Arrivals
from dendrax.models import problem
from tests.cases.graphs import GRAPHS
from tests.draw.browser import index_of, wait_until, written

SCREENS = ({"width": 1280, "height": 800}, {"width": 1024, "height": 768})
RULES = {"one": ZIL(), "compare": (ZIL(), ZIL())}


@pytest.fixture(scope="module")
def quick_pages(tmp_path_factory):
    """Pages of models with all their boxes, but made-up errors: they need not be computed."""
    folder, made = tmp_path_factory.mktemp("quick"), {}

    def ones(*_, **__):
        return Arrivals(*(collections.defaultdict(lambda: 1.0) for _ in range(3)))

    def page(name, panes):
        if (name, panes) not in made:
            p, path = problem(name, small=True), folder / f"{name}-{panes}.html"
            with pytest.MonkeyPatch.context() as patch:
                patch.setattr(_explore, "MOST_DYNAMICS", 0)
                patch.setattr(_record, "arrivals", ones)
                options = {"rule": RULES[panes], "path": path}
                if panes == "compare":  # as with IL
                    options["vertices"] = "layer"
                dendrax.explore(p.loss, p.model, p.inputs, p.target, **options)
            made[name, panes] = path
        return made[name, panes]

    return page


# The sizes of all texts, in pixels of the screen, in the pictures and beside them.
TEXTS = """() => {
    const pen = CanvasRenderingContext2D.prototype, { fillText } = pen, found = [];
    pen.fillText = function (text, x, y, most = Infinity) {
        const { a, d } = this.getTransform(), { width } = this.measureText(text);
        const pixels = parseFloat(this.font.match(/([\\d.]+)px/)[1]) / (devicePixelRatio || 1);
        found.push([text, pixels * d, pixels * a * Math.min(1, most / width)]);
        return fillText.call(this, text, x, y, most);
    };
    explorer.draw();
    pen.fillText = fillText;
    for (const node of document.querySelectorAll("body *")) {
        const own = [...node.childNodes].some((n) => n.nodeType === 3 && n.textContent.trim());
        const pixels = parseFloat(getComputedStyle(node).fontSize);
        if (own && node.getClientRects().length) found.push([node.textContent, pixels, pixels]);
    }
    return found; }"""

# How far the graph reaches over the edges of its pane, in pixels.
OVERHANG = """() => {
    const box = explorer.panes[0].view.getBoundingClientRect(), { scene, camera } = explorer;
    const right = camera.x + scene.width * camera.zoom, low = camera.y + scene.height * camera.zoom;
    return Math.max(-camera.x, -camera.y, right - box.width, low - box.height); }"""


@pytest.mark.parametrize("name", ["mlp", "transformer", "resnet18"])
def test_every_label_can_be_read_at_first(name, visit, quick_pages):
    for panes, screen in itertools.product(RULES, SCREENS):
        page = visit(quick_pages(name, panes), viewport=screen)
        texts = page.evaluate(TEXTS)
        blocks = page.evaluate("explorer.scene.blocks.filter((b) => b.name).map((b) => b.name)")
        shown = {text for text, _, _ in texts}
        assert blocks and {page.evaluate(f"label({name!r})") for name in blocks} <= shown
        assert min(min(sizes) for _, *sizes in texts) >= 11 - 1e-6
        assert page.evaluate(OVERHANG) <= 0


def test_a_small_label_would_be_seen(visit, quick_pages):
    page = visit(quick_pages("mlp", "one"))
    page.evaluate("explorer.zoomBy(0.4, 0, 0)")
    assert min(min(sizes) for _, *sizes in page.evaluate(TEXTS)) < 11


def test_the_graph_makes_room_for_the_panel(visit, quick_pages):
    page = visit(quick_pages("transformer", "one"))
    x, y = page.evaluate(
        "Object.values(explorer.panes[0].screen(explorer.scene.ofVertex.keys().next().value))"
    )
    page.mouse.click(x, y)
    assert page.is_visible("#panel")
    wait_until(page, f"({OVERHANG})() <= 0")
    page.keyboard.press("Escape")
    wait_until(page, f"({OVERHANG})() <= 0 && explorer.camera.zoom >= LEGIBLE")


def test_both_panes_have_one_scale(mlp):
    """The larger of two errors is never the paler one, whichever pane it is in."""
    values, places = mlp.evaluate("""() => {
        const { data, range } = explorer, pairs = [];
        for (const run of data.runs) for (const v of data.vertices) for (const t of run.times) {
            const value = run.value(v, "error", t);
            if (value > 0) pairs.push([value, strength(value, range)]);
        }
        pairs.sort((a, b) => a[0] - b[0]);
        return [pairs.map((p) => p[0]), pairs.map((p) => p[1])]; }""")
    assert len(values) > 10 and places == sorted(places)
    assert "Colours: the size of the error: error, both panes" in written(mlp)
    mlp.click("#compare")
    assert "Colours: the size of the error: error, ZIL()" in written(mlp)


def test_energies_of_layers_add_up(mlp):
    mlp.click("#compare")
    texts = written(mlp)
    for name in ("layers[2]", "layers[1]", "layers[0]", "total, ZIL()", "energy (log axis)"):
        assert f"Energy over time: {name}" in texts
    for total, layers in mlp.evaluate("explorer.data.runs.map((r) => [r.energy, r.layers])"):
        assert np.sum(list(layers.values()), axis=0) == pytest.approx(total, rel=1e-4)


def test_numbers_in_the_panel_stay_in_one_line(mlp):
    mlp.evaluate("explorer.data.runs[1].rule = 'IL(num_steps=12, gamma=0.05, levelled=True)'")
    mlp.evaluate(f"explorer.goTo({index_of(mlp, 'layers[1]')})")
    heights = mlp.evaluate("""[...document.querySelectorAll("#panel dd")].filter(
        (dd) => !isNaN(dd.textContent)).map((dd) => {
            const range = document.createRange();
            range.selectNodeContents(dd);
            return range.getBoundingClientRect().height; })""")
    assert len(heights) >= 6 and max(heights) < 25


# ---- both layouts --------------------------------------------------------------------------------


def tables():
    """Blocks and links as the drawings of the table of graphs have them, and of two models."""
    found = []

    def recorded(blocks, links, gap):
        found.append((list(blocks), list(links)))
        return place(blocks, links, gap)

    graphs = [
        dendrax.trace(case.fun, *case.make_args("float32"), argnums=case.argnums) for case in GRAPHS
    ]
    for name in ("fc_resnet", "transformer"):
        p = problem(name, small=True)
        graphs.append(dendrax.trace(p.loss, p.model, p.inputs, p.target))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(_drawing, "place", recorded)
        for graph in graphs:
            _drawing.own_places(plan(dendrax.level(graph), silent=True))
    return found


def test_the_page_and_the_drawings_find_the_same_places(mlp):
    """Python places what is drawn, JavaScript what is collapsed and opened: by one algorithm."""
    pictures = tables()
    assert len(pictures) == len(GRAPHS) + 2
    blocks = [[block._asdict() for block in picture] for picture, _ in pictures]
    links = [list(map(list, picture)) for _, picture in pictures]
    found = mlp.evaluate("([b, l]) => b.map((blocks, i) => place(blocks, l[i]))", [blocks, links])
    gap = mlp.evaluate("GAP")
    for (picture, linked), theirs in zip(pictures, found, strict=True):
        assert theirs == pytest.approx(place(picture, linked, gap), abs=1e-6)
