"""What lies behind the wave of Z-IL is no failure, and where the wave is can be seen."""

import pytest

from dendrax import IL, ZIL
from tests.draw.browser import index_of, state, wait_until, written

PHONE = {"width": 390, "height": 780}

# Behind the wave the energy of the first run grows, until it is not finite; the second one stays.
GROW = """() => {
    const { data } = explorer, [run, other] = data.runs;
    run.energy = run.times.map((t) => t < 2 ? 2 - t / 2 : t < run.last ? 1e3 ** t : null);
    other.energy = other.times.map((t) => 2 - t / 40);
    for (const one of data.runs) prepareRun(data, one);
    explorer.changed(); }"""

# How thick a stripe the wave is in each module at a time, in pixels of the screen.
STRIPES = """(time) => {
    const pane = explorer.panes[0], { drawFront } = pane, found = [];
    pane.drawFront = function (...place) {
        const { pen } = this, { fillRect } = pen;
        pen.fillRect = (x, y, width, height) => {
            found.push(height * explorer.camera.zoom);
            fillRect.call(pen, x, y, width, height);
        };
        drawFront.apply(this, place);
        delete pen.fillRect;
    };
    explorer.state.time = time;
    explorer.draw();
    pane.drawFront = drawFront;
    return found; }"""


@pytest.fixture
def page(visit, pages):
    return visit(pages("mlp", ZIL(), IL(num_steps=12, batch="sum")))


def energies(page):
    head = "Energy over time: "
    return [text.removeprefix(head) for text in written(page) if text.startswith(head)]


def test_energy_that_grows_behind_the_wave_leaves_the_chart_and_the_page_says_why(page):
    remark = "energy (log axis); behind the wave it grows, where nobody learns"
    page.evaluate(GROW)
    assert remark in energies(page)
    high, low = (float(energies(page)[i]) for i in (1, 2))
    assert high < 6 and low > 1  # so that the other rule's curve is not flat beside it
    page.evaluate("explorer.data.runs[0].energy.fill(2)")
    page.evaluate("explorer.data.runs.forEach((run) => prepareRun(explorer.data, run))")
    assert remark not in energies(page) and "energy (log axis)" in energies(page)


def test_it_is_said_on_a_phone(visit, pages):
    page = visit(pages("mlp", ZIL(), IL(num_steps=12, batch="sum")), viewport=PHONE)
    page.evaluate(GROW)
    assert "energy, grows behind the wave" in energies(page)


def test_a_vertex_behind_the_wave_says_so(page):
    output = index_of(page, "output")
    page.evaluate(f"explorer.goTo({output})")
    assert page.inner_text("#panel .remark") == ""
    page.evaluate("explorer.setTime(1)")
    said = "The wave has passed: from what comes here now nobody learns."
    assert page.inner_text("#panel .remark") == said
    page.evaluate("explorer.data.runs[0].arrivals = true")
    page.evaluate("explorer.panel.refresh()")
    said = "The wave has passed: nothing is computed behind it."
    assert page.inner_text("#panel .remark") == said


def test_the_wave_can_be_seen_in_a_module_of_many_levels(page):
    page.evaluate("explorer.collapseAll(1)")
    page.evaluate("explorer.camera.zoom = 0.3")
    for time in range(3):
        assert min(page.evaluate(STRIPES, time)) >= 6.5


def test_shapes_are_written_over_the_wires_and_halos(page):
    page.evaluate("explorer.collapseAll(0)")
    page.evaluate(f"explorer.goTo({index_of(page, 'output')})")
    wait_until(page, "explorer.camera.zoom > 0.75")
    order = page.evaluate("""() => {
        const pane = explorer.panes[0], order = [];
        for (const name of ["drawWire", "drawHalo", "drawShapes"]) {
            const drawn = pane[name];
            pane[name] = function (...place) { order.push(name); drawn.apply(this, place); };
        }
        explorer.draw();
        return [order.slice(-1)[0], order.includes("drawHalo"), pane.shapes.size]; }""")
    assert order[0] == "drawShapes" and order[1] and order[2] > 0


def test_the_clock_stays_in_one_line_on_a_phone(visit, pages):
    page = visit(pages("mlp", ZIL(), IL(num_steps=12, batch="sum")), viewport=PHONE)
    page.evaluate("document.getElementById('clock').textContent = 't = 277 of 277'")
    boxes = [page.locator(f"#{name}").bounding_box() for name in ("clock", "time", "transport")]
    clock, time, transport = boxes
    assert clock["height"] < 30 and time["width"] >= 39
    right = page.locator("#speed").bounding_box()
    assert right["x"] + right["width"] <= transport["x"] + transport["width"] + 0.5


def test_one_delay_is_one_delay(page):
    assert state(page, "time") == 0
    page.evaluate("explorer.data.num_delays = 1")
    page.evaluate("explorer.describe()")
    assert page.inner_text("#summary").endswith("4 levels, 1 delay")
