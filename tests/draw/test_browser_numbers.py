"""The explorer in a real browser: its numbers and curves, large and wicked graphs, old browsers."""

import base64
import re
import zlib

import jax.numpy as jnp
import numpy as np
import pytest

import dendrax
from dendrax import IL, ZIL
from dendrax.models import problem
from tests.draw.browser import facts, index_of, picture, state, written
from tests.sampling import every

# ---- numbers -------------------------------------------------------------------------------------


def test_the_panel_shows_what_was_run(mlp):
    p, rules = problem("mlp", small=True), (ZIL(), IL(num_steps=12, batch="sum"))
    graph = dendrax.trace(p.loss, p.model, p.inputs, p.target, vertices="layer")
    for name, rule in zip(("ZIL()", "IL(num_steps=12, batch='sum')"), rules, strict=True):
        moments = dendrax.run(graph, rule, record=("energy", "statistics")).statistics[:]
        for v in graph.active:
            mlp.evaluate(f"explorer.goTo({v.index})")
            for t, row in enumerate(np.asarray(moments[v.name])):
                mlp.evaluate(f"explorer.setTime({t})")
                shown = facts(mlp)
                for text, size in zip(("error ε", "value x", "prediction μ"), row, strict=True):
                    value = float(shown[f"{text} ({name})"])
                    assert abs(value - size) <= 0.003 * size + half_digit(size), (v.name, t, text)
    assert not any("energy" in name for name in shown)


def half_digit(size):
    """The panel has three digits."""
    return 0.5 * 10.0 ** (np.floor(np.log10(size)) - 2) if size else 0.0


def test_the_panel_says_when_a_parameter_learns(mlp):
    index = index_of(mlp, "model.layers[1].weight")
    mlp.evaluate(f"explorer.goTo({index})")
    learns = [mlp.evaluate(f"explorer.data.runs[{k}].learns[{index}]") for k in (0, 1)]
    shown = facts(mlp)
    assert shown["learns at (ZIL())"] == learns[0] and learns[0].startswith("t = ")
    assert shown["learns at (IL(num_steps=12, batch='sum'))"] == learns[1] and "end" in learns[1]
    assert "A leaf: its value is given, it has no error node." in mlp.inner_text("#panel")
    mlp.click("#compare")
    mlp.click(".rule button >> nth=1")
    assert facts(mlp)["learns at"] == learns[1]
    mlp.keyboard.press("?")
    assert "Under Z-IL, and only there, an error takes one time step" in mlp.inner_text("#keys")


def linear(w, x):
    return jnp.sum(jnp.sin(x @ w)) - 100.0


def test_numbers_that_are_not_finite(visit, tmp_path):
    args = (jnp.full((3, 2), jnp.nan), jnp.ones((5, 3)))
    page = visit(dendrax.explore(linear, *args, path=tmp_path / "nan.html"))
    page.evaluate(f"explorer.goTo({index_of(page, 'sin')})")
    assert facts(page)["value x"] == "not finite"
    page.keyboard.press("End")
    page.evaluate(f"explorer.goTo({index_of(page, 'dot_general')})")
    texts = written(page)
    assert "Error over time: not finite at any time" in texts
    assert "Energy over time: not finite at any time" in texts


def test_curves_that_are_zero(visit, tmp_path):
    def predict(w, x):
        return jnp.sin(x @ w)

    args = (jnp.ones((3, 2)), jnp.ones((5, 3)))
    target = predict(*args)
    page = visit(dendrax.explore(predict, *args, target=target, path=tmp_path / "zero.html"))
    page.evaluate(f"explorer.goTo({index_of(page, 'dot_general')})")
    texts = written(page)
    assert "Error over time: exactly zero at all times" in texts
    assert "Energy over time: exactly zero at all times" in texts


def test_curves_beside_one_that_is_missing(mlp):
    mlp.evaluate("explorer.data.runs[0].energy.fill(null)")
    assert "Energy over time: ZIL(): not finite at any time" in written(mlp)
    mlp.evaluate("explorer.data.runs[1].energy = []")
    texts = written(mlp)
    assert "Energy over time: ZIL(): not finite at any time" in texts
    assert "Energy over time: IL(num_steps=12, batch='sum'): not computed" in texts


def test_energies_may_be_negative(visit, tmp_path):
    args = (jnp.ones((3, 2)), jnp.ones((5, 3)))
    page = visit(dendrax.explore(linear, *args, path=tmp_path / "negative.html"))
    energy = page.evaluate("explorer.data.runs[0].energy")
    assert min(energy) < -99
    energies = [text for text in written(page) if text.startswith("Energy over time: ")]
    title, high, low = (text.removeprefix("Energy over time: ") for text in energies[:3])
    assert title == "energy (linear axis)"
    assert float(low) == pytest.approx(min(energy), rel=5e-3)
    assert float(high) == pytest.approx(max(energy), rel=5e-3)


def test_behind_a_wave_of_arrivals_nothing_is_known(visit, tmp_path, monkeypatch):
    monkeypatch.setattr("dendrax.draw._explore.MOST_DYNAMICS", 0)
    p, path = problem("fc_resnet", small=True), tmp_path / "arrivals.html"
    page = visit(dendrax.explore(p.loss, p.model, p.inputs, p.target, path=path))
    page.select_option("#depth", "1")
    first, last = page.evaluate("""() => {
        explorer.choose(explorer.scene.blocks.find((block) => block.module === "layers[1]"));
        const levels = explorer.panel.numbers.members.map((v) => v.level);
        return [Math.min(...levels), Math.max(...levels)]; }""")
    shown = []
    for t in (first - 1, first, last, last + 1):
        page.evaluate(f"explorer.setTime({t})")
        shown.append(facts(page)["largest error"])
    assert shown[0] == "0" and shown[3] == "–" and all(float(text) > 0 for text in shown[1:3])
    texts = written(page)  # the energy is not known either, but what the wave carries is
    assert "Energy over time: ½ Σ ε² where the wave is (log axis)" in texts
    assert not any("not computed" in text for text in texts)
    carried = page.evaluate("explorer.data.runs[0].energy")
    assert carried[0] == 0.5 and len(carried) == page.evaluate("explorer.lastTime()") + 1


# ---- large and wicked ----------------------------------------------------------------------------


@pytest.mark.parametrize("name", every(2, ["rnn", "transformer"]))
def test_models_open_and_play(name, visit, pages):
    page = visit(pages(name, ZIL()))
    start = picture(page)
    page.keyboard.press("End")
    end = picture(page)
    page.keyboard.press("m")
    assert len({start, end, picture(page)}) == 3


def test_a_graph_of_two_thousand_vertices_is_interactive(visit, tmp_path):
    def deep(w, x):
        for _ in range(500):
            x = 0.5 * x + jnp.sin(x @ w)
        return jnp.sum(x**2)

    path = dendrax.explore(deep, 0.1 * jnp.eye(3), jnp.ones((2, 3)), path=tmp_path / "large.html")
    page = visit(path)
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
    dendrax.explore(
        p.loss, p.model, p.inputs, p.target, rule=IL(num_steps=60, batch="sum"), path=path
    )
    page = visit(path)
    assert "is too large to embed" in page.inner_text("#note") and page.is_visible("#note")
    page.keyboard.press("End")
    assert state(page, "time") == 60


def test_more_numbers_than_a_function_takes_arguments(mlp):
    assert mlp.evaluate("highest(new Array(300000).fill(2))") == 2
    assert mlp.evaluate("lowest(new Array(300000).fill(2))") == 2
    many = "Array.from({ length: 300000 }, () => ({ modules: ['m'], level: 0, kind: 'internal' }))"
    assert mlp.evaluate(f"(explorer.data.vertices = {many}, new Controls(explorer).depths)") == 1


# ---- what cannot be shown ------------------------------------------------------------------------


def test_a_browser_that_is_too_old(note, pages):
    path = pages("mlp", ZIL(), IL(num_steps=12, batch="sum"))
    assert "a later one" in note(path, before="delete window.DecompressionStream")


def test_a_browser_without_rounded_boxes(visit, pages):
    path = pages("mlp", ZIL(), IL(num_steps=12, batch="sum"))
    page = visit(path, before="delete CanvasRenderingContext2D.prototype.roundRect")
    before = picture(page)
    page.keyboard.press("End")
    assert picture(page) != before


def test_damaged_pages(note, pages, tmp_path):
    text = pages("mlp", ZIL(), IL(num_steps=12, batch="sum")).read_text()
    payload = re.search(r'type="text/plain">([^<]*)<', text)[1]
    empty = base64.b64encode(zlib.compress(b"\2\0\0\0{}")).decode()
    for damaged in (payload[: len(payload) // 8 * 4], "?" + payload, "", empty):
        path = tmp_path / "damaged.html"
        path.write_text(text.replace(payload, damaged))
        assert re.search(r"may be damaged \(.+\)\. Write it again", note(path))


def test_without_scripts(note, pages):
    path = pages("mlp", ZIL(), IL(num_steps=12, batch="sum"))
    assert "JavaScript" in note(path, selector="noscript p", java_script_enabled=False)
