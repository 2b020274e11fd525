"""Drawings and plots: what is in them, that they are files of their kind, and what is refused."""

import pickle
import re
import xml.etree.ElementTree as ElementTree

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from matplotlib.figure import Figure

import dendrax
from dendrax import IL, ZIL, draw
from dendrax.draw import _dot
from dendrax.draw._plots import wave_sizes
from dendrax.draw._scene import STYLES, Node, Wire
from dendrax.draw._structure import rule_text
from dendrax.graph._graph import Pictured
from dendrax.models import problem


@pytest.fixture(scope="module")
def figure_1():
    return dendrax.trace(lambda z1, z2: (jnp.sqrt(z1) + z2) ** 2, 3.0, 4.0, argnums=(0, 1))


@pytest.fixture(scope="module")
def layers():
    p = problem("mlp", small=True)
    return dendrax.trace(p.predict, p.model, p.inputs, vertices="layer"), p.target


def nodes(picture, style):
    shapes = picture.scene.shapes
    return [s for s in shapes if isinstance(s, Node) and s.style == STYLES[style]]


def test_the_paper_s_conventions(figure_1):
    picture = draw.graph(figure_1, layout="own")
    assert {n.text for n in nodes(picture, "parameter")} == {"z1", "z2"}
    assert [n.text for n in nodes(picture, "internal")] == ["sqrt", "add", "integer_pow"]
    heights = {n.text: n.y for n in nodes(picture, "internal")}
    assert heights["integer_pow"] < heights["add"] < heights["sqrt"]  # the output is on top


def test_delays_are_green_and_only_in_levelled_graphs():
    graph = dendrax.trace(lambda w: w + jnp.sin(jnp.cos(w)), 1.0)
    assert not nodes(draw.graph(graph, layout="own"), "delay")
    levelled = dendrax.level(graph)
    assert len(nodes(draw.graph(levelled, layout="own"), "delay")) == levelled.num_delays == 2


def test_a_circuit_has_the_connections_of_the_equations(figure_1):
    shapes = draw.circuit(figure_1).scene.shapes
    found = [s for s in shapes if isinstance(s, Node)]
    assert sum(n.outline == "diamond" for n in found) == 3  # an error node for each vertex
    assert sum(n.outline == "circle" for n in found) == 5  # a value node, and the two leaves
    wires = [s for s in shapes if isinstance(s, Wire)]
    # 4 edges predict, 3 errors drive their value node; 2 edges inhibit from above, 3 within; key
    assert sum(w.head == "arrow" and not w.dashed for w in wires) == 4 + 3 + 1
    assert sum(w.head == "bar" for w in wires) == 2 + 3 + 1
    assert sum(w.dashed for w in wires) == 2 + 1


def test_a_circuit_shows_delays_as_vertices():
    levelled = dendrax.level(dendrax.trace(lambda w: w + jnp.sin(jnp.cos(w)), 1.0))
    flat, waiting = draw.circuit(levelled.graph), draw.circuit(levelled)
    count = [
        sum(isinstance(s, Node) and s.outline == "diamond" for s in p.scene.shapes)
        for p in (flat, waiting)
    ]
    assert count == [3, 5]


def test_every_kind_of_file(figure_1, tmp_path):
    for name, start in (
        ("a.svg", b"<svg"),
        ("a.png", b"\x89PNG"),
        ("a.pdf", b"%PDF"),
        ("b.PNG", b"\x89PNG"),
    ):
        assert draw.graph(figure_1, layout="own").save(tmp_path / name).read_bytes()[:4] == start
        draw.circuit(figure_1, tmp_path / f"circuit-{name}")
    ElementTree.fromstring((tmp_path / "circuit-a.svg").read_text())
    once = (tmp_path / "a.svg").read_bytes()
    draw.graph(figure_1, tmp_path / "again.svg", layout="own")
    assert (tmp_path / "again.svg").read_bytes() == once


def test_names_are_text():
    def loss(tree):
        return jnp.sum(jnp.sin(tree["<script>alert(1)</script>"]))

    svg = draw.graph(
        dendrax.trace(loss, {"<script>alert(1)</script>": jnp.ones(2)}), layout="own"
    ).svg
    assert "<script" not in svg and "&lt;script" in svg
    ElementTree.fromstring(svg)


def test_a_graph_shows_itself_in_a_notebook(figure_1):
    assert isinstance(figure_1, Pictured)
    assert figure_1._repr_svg_().startswith("<svg")
    assert dendrax.level(figure_1)._repr_svg_().startswith("<svg")

    def long(w):
        for _ in range(500):
            w = jnp.sin(w)
        return w

    assert dendrax.trace(long, 1.0)._repr_svg_() is None  # its text is shown instead


def test_a_picture_is_one_line_where_nothing_is_shown(figure_1):
    text = repr(draw.graph(figure_1))
    assert text.startswith("Picture of ") and ".save('name.svg')" in text and len(text) < 100


def test_shapes_stand_at_the_edges_of_small_graphs():
    graph = dendrax.trace(lambda w, x: jnp.sum(jnp.tanh(x @ w)), jnp.ones((3, 2)), jnp.ones((5, 3)))
    assert ">5×2<" in draw.graph(graph, layout="own").svg
    assert ">5×2<" not in draw.graph(graph, layout="own", shapes=False).svg


def test_silent_vertices_only_if_asked():
    graph = dendrax.trace(
        lambda w, x: jnp.sum(w * jax.lax.stop_gradient(jnp.sin(x))), jnp.ones(2), jnp.ones(2)
    )
    assert ">sin<" not in draw.graph(graph, layout="own").svg
    assert ">x<" in draw.graph(graph, layout="own").svg  # data are shown all the same
    assert ">sin<" in draw.graph(graph, layout="own", silent=True).svg


@pytest.mark.parametrize("name", ["rnn", "transformer", "resnet18"])
def test_models_can_be_drawn(name):
    p = problem(name, small=True)
    levelled = dendrax.level(dendrax.trace(p.loss, p.model, p.inputs, p.target))
    picture = draw.graph(levelled, layout="own")
    ElementTree.fromstring(picture.svg)
    assert len(nodes(picture, "delay")) == levelled.num_delays
    assert len(nodes(picture, "parameter")) == len(levelled.graph.parameters)


def test_wrong_input(figure_1, tmp_path, monkeypatch):
    with pytest.raises(TypeError, match=r"draw.graph: expected a Graph, got function"):
        draw.graph(lambda x: x)
    with pytest.raises(ValueError, match=r"'.jpg' is not a kind of picture(.|\n)*\.svg, \.png"):
        draw.graph(figure_1, tmp_path / "a.jpg")
    with pytest.raises(ValueError, match=r"layout='circle' is not known"):
        draw.graph(figure_1, layout="circle")
    monkeypatch.setattr(_dot.shutil, "which", lambda name: None)
    with pytest.raises(FileNotFoundError, match=r"dot is not installed(.|\n)*apt install graphviz"):
        draw.graph(figure_1, layout="dot")
    assert draw.graph(figure_1).svg  # "auto" does without
    p = problem("transformer", small=True)
    with pytest.raises(ValueError, match=r"circuit of \d+ vertices would be unreadable"):
        draw.circuit(dendrax.trace(p.loss, p.model, p.inputs, p.target))
    (tmp_path / "file.svg").write_text("")
    with pytest.raises(OSError, match=r"draw.graph: cannot write .*below.svg"):
        draw.graph(figure_1, tmp_path / "file.svg" / "below.svg")


# ---- plots ---------------------------------------------------------------------------------------


def test_plots_show_themselves_in_a_notebook(layers):
    graph, target = layers
    result = dendrax.run(
        graph, IL(num_steps=2, batch="sum"), target=target, record=("energy", "epsilon")
    )
    for plot in (draw.energy, draw.wave, draw.traces, draw.compare):
        figure = plot(result)
        assert isinstance(figure, Figure)
        picture, size = figure._repr_png_()
        assert picture.startswith(b"\x89PNG")
        assert size == {"width": 560, "height": 340}
        dots = int.from_bytes(picture[16:20]), int.from_bytes(picture[20:24])
        assert dots == (1120, 680)  # a fine screen has two for each
    assert type(pickle.loads(pickle.dumps(figure))) is type(figure)


def test_the_wave_is_a_diagonal_with_exact_zeros_ahead(layers):
    graph, target = layers
    for record in ("statistics", "epsilon"):
        sizes = wave_sizes(dendrax.run(graph, ZIL(), target=target, record=record))
        ahead = np.tril(np.ones_like(sizes, bool), -1)
        assert (sizes[ahead] == 0.0).all() and (np.diagonal(sizes) > 0.0).all()


def test_every_plot_is_written(layers, tmp_path):
    graph, target = layers
    zil = dendrax.run(graph, ZIL(), target=target, record=("energy", "statistics"))
    il = dendrax.run(graph, IL(num_steps=6), target=target, record=("energy", "epsilon"))
    figure = draw.energy(il, tmp_path / "energy.svg")
    np.testing.assert_allclose(lines(figure)["total"].get_ydata(), il.energy)
    draw.wave(zil, tmp_path / "wave.png")
    draw.traces(il, path=tmp_path / "traces.pdf")
    figure = draw.traces(il, ["output"], tmp_path / "one.svg")
    expected = np.sqrt(np.mean(np.square(np.asarray(il.epsilon[:]["output"])), axis=(1, 2)))
    np.testing.assert_allclose(lines(figure)["output"].get_ydata(), expected, rtol=1e-6)
    draw.compare([zil, il], tmp_path / "compare.svg")
    draw.compare({"one": zil, "two": il}, tmp_path / "named.svg")
    assert "IL(num_steps=6)" in (tmp_path / "compare.svg").read_text()
    assert ">two<" in (tmp_path / "named.svg").read_text()
    assert all(path.stat().st_size > 1000 for path in tmp_path.iterdir())


def test_distances_say_what_is_exact(tmp_path):
    p = problem("mlp", small=True)
    rules = (ZIL(), IL(num_steps=5, batch="sum"))
    found = [dendrax.check(p.loss, p.model, p.inputs, p.target, rule=rule) for rule in rules]
    draw.distances(found, tmp_path / "distances.svg")
    text = (tmp_path / "distances.svg").read_text()
    assert "ZIL(): exactly 0" in text and "IL(num_steps=5): exactly" not in text
    draw.distances(found[0], tmp_path / "one.svg")


def test_zero_has_a_place_of_its_own():
    p = problem("mlp", small=True)
    exact, apart = (
        dendrax.check(p.loss, p.model, p.inputs, p.target, rule=rule)
        for rule in (ZIL(), IL(5, batch="sum"))
    )
    left, right = draw.distances([exact, apart]).axes
    assert (left.get_xscale(), right.get_xscale()) == ("linear", "log")
    assert [label.get_text() for label in left.get_xticklabels()] == ["0"]
    relative = [row.distance / row.norm for row in apart.rows]
    zeros, nowhere = np.zeros(len(relative)), np.full(len(relative), np.nan)
    places = [[line.get_xdata() for line in axes.get_lines()[-2:]] for axes in (left, right)]
    np.testing.assert_array_equal(places, [[zeros, nowhere], [nowhere, relative]])
    assert right.get_xlim()[0] < min(relative) and max(relative) < right.get_xlim()[1]
    (whole,) = draw.distances(apart).axes  # nothing is 0, so nothing is broken
    assert whole.get_xscale() == "log"
    (whole,) = draw.distances(exact).axes
    assert whole.get_xscale() == "linear"


def test_the_same_plot_is_the_same_file(layers, tmp_path):
    graph, target = layers
    result = dendrax.run(graph, IL(num_steps=3, batch="sum"), target=target, record="energy")
    for name in ("a.svg", "b.svg"):
        draw.energy(result, tmp_path / name)
    first, second = ((tmp_path / name).read_bytes() for name in ("a.svg", "b.svg"))
    assert first == second and not re.search(rb"<dc:date>", first)


def test_plots_of_what_was_not_recorded(layers):
    graph, target = layers
    result = dendrax.run(graph, IL(num_steps=2, batch="sum"), target=target)
    with pytest.raises(ValueError, match=r"no record of 'energy'(.|\n)*record='energy'"):
        draw.energy(result)
    with pytest.raises(ValueError, match=r"no record of 'statistics'"):
        draw.wave(result)
    with pytest.raises(TypeError, match=r"expected a Result, got int"):
        draw.energy(3)
    recorded = dendrax.run(graph, IL(num_steps=2, batch="sum"), target=target, record="epsilon")
    with pytest.raises(
        ValueError, match=r"nothing was recorded for \['nobody'\].\n *Vertices with"
    ):
        draw.traces(recorded, "nobody")
    with pytest.raises(ValueError, match=r"for \['outptu'\]. Did you mean 'output'\?"):
        draw.traces(recorded, "outptu")
    with pytest.raises(TypeError, match=r"draw.distances: expected certificates, got none"):
        draw.distances([])
    for several in ([result], result):
        with pytest.raises(TypeError, match=r"expected certificates, got Result"):
            draw.distances(several)
    with pytest.raises(ValueError, match=r"draw.compare: no result"):
        draw.compare([])
    with pytest.raises(TypeError, match=r"inside jax.jit the numbers are not known"):
        jax.jit(
            lambda y: draw.energy(dendrax.run(graph, IL(2, batch="sum"), target=y, record="energy"))
        )(target)
    constant = dendrax.trace(lambda w: jnp.float32(3.0), jnp.ones(2))
    with pytest.raises(ValueError, match=r"no vertex of this graph has an error"):
        draw.wave(dendrax.run(constant, ZIL(), record="statistics"))


def lines(figure):
    return {line.get_label(): line for line in figure.axes[0].get_lines()}


def test_records_of_errors_and_of_statistics_give_the_same_plots():
    def two(x):
        q, r = jnp.linalg.qr(jnp.sin(x))
        return jnp.sum(q[:, 0]) + jnp.sum(r**2)

    x = jax.random.normal(jax.random.key(0), (5, 2))
    graph = dendrax.trace(two, x)
    errors, statistics = (
        wave_sizes(dendrax.run(graph, ZIL(), record=name)) for name in ("epsilon", "statistics")
    )
    np.testing.assert_allclose(errors, statistics, rtol=1e-5)


def test_what_is_compared_is_all_there(layers):
    graph, target = layers
    result = dendrax.run(graph, IL(num_steps=3), target=target, record="energy")
    figure = draw.compare(r for r in (result, result))
    assert list(lines(figure)) == [
        "IL(num_steps=3)",
        "IL(num_steps=3) (2)",
    ]
    assert list(lines(draw.compare({"_a": result}))) == [" _a"]
    np.testing.assert_allclose(figure.axes[0].get_lines()[1].get_ydata(), result.energy)


def test_negative_energies_are_seen():
    fun = lambda w: -jnp.sum(jnp.tanh(jnp.sin(w) * 2.0))
    graph = dendrax.trace(fun, jnp.full(3, 0.7, jnp.float32), vertices="primitive")
    result = dendrax.run(graph, IL(num_steps=4, gamma=0.05, batch="sum"), record="energy")
    axes = draw.energy(result).axes[0]
    assert axes.get_yscale() == "symlog"
    np.testing.assert_allclose(lines(axes.figure)["total"].get_ydata(), result.energy)
    assert draw.compare(result).axes[0].get_yscale() == "symlog"


def test_energies_are_on_a_log_scale_unless_somebody_wants_another(layers):
    graph, target = layers
    result = dendrax.run(graph, IL(num_steps=3, batch="sum"), target=target, record="energy")
    for plot in (draw.energy, draw.compare):
        axes = plot(result).axes[0]
        assert (axes.get_yscale(), axes.get_ylabel()) == ("log", "energy (log scale)")
        axes = plot(result, scale="linear").axes[0]
        assert (axes.get_yscale(), axes.get_ylabel()) == ("linear", "energy")
        with pytest.raises(ValueError, match=r"scale='lin' is not known. Did you mean 'linear'"):
            plot(result, scale="lin")
    shares = lines(draw.energy(result, scale="linear"))["level 1"].get_ydata()
    assert shares[0] == 0.0  # at the start only the output has an error; a log scale has no place
    guess = dendrax.run(graph, IL(num_steps=2, batch="sum")).output
    nothing = dendrax.run(graph, IL(num_steps=2, batch="sum"), target=guess, record="energy")
    assert not np.any(nothing.energy)
    assert draw.energy(nothing).axes[0].get_yscale() == "linear"


def test_the_energies_of_all_levels_add_up():
    def deep(w):
        for _ in range(18):
            w = jnp.tanh(w)
        return jnp.sum(w**2)

    graph = dendrax.trace(deep, jnp.ones(3, jnp.float32), vertices="primitive")
    result = dendrax.run(graph, IL(num_steps=4, gamma=0.05, batch="sum"), record="energy")
    found = lines(draw.energy(result))
    assert "8 more levels" in found
    shares = [np.nan_to_num(line.get_ydata()) for name, line in found.items() if name != "total"]
    np.testing.assert_allclose(np.sum(shares, axis=0), result.energy, rtol=1e-4)


def test_certificates_of_different_functions():
    ones = jnp.ones(2, jnp.float32)
    found = [dendrax.check(lambda p: sum(map(jnp.sum, p)), [ones] * count) for count in (1, 2)]
    with pytest.raises(ValueError, match=r"functions with different parameters"):
        draw.distances(found)


def test_curves_say_when_their_numbers_are_lost():
    fun = lambda w: jnp.sum(jnp.exp(jnp.exp(w)) ** 2)
    graph = dendrax.trace(fun, jnp.ones(3, jnp.float32), vertices="primitive")
    result = dendrax.run(graph, IL(num_steps=8, gamma=0.5, batch="sum"), record="energy")
    assert any("total, not finite at t = " in name for name in lines(draw.energy(result)))


def test_large_pictures_have_fewer_dots(tmp_path, monkeypatch):
    def deep(w):
        for _ in range(60):
            w = jnp.sin(w)
        return w

    picture = draw.graph(dendrax.trace(deep, 1.0), layout="own")
    picture.save(tmp_path / "fine.png")
    monkeypatch.setattr("dendrax.draw._paint.MOST_DOTS", 4e5)
    picture.save(tmp_path / "coarse.png")
    sizes = [number_of_dots(tmp_path / name) for name in ("fine.png", "coarse.png")]
    assert sizes[1] <= 4.1e5 < sizes[0]
    monkeypatch.setattr("dendrax.draw._paint.MOST_DOTS", 1e4)
    with pytest.raises(ValueError, match=r"too large for a PNG(.|\n)*\.svg or \.pdf"):
        picture.save(tmp_path / "none.png")


def number_of_dots(path):
    """The number of dots of a PNG."""
    head = path.read_bytes()[16:24]
    return int.from_bytes(head[:4]) * int.from_bytes(head[4:])


def test_distances_that_are_lost_are_named():
    p = problem("mlp", small=True)
    rule = IL(num_steps=60, gamma=90.0, batch="sum")
    certificate = dendrax.check(p.loss, p.model, p.inputs, p.target, rule=rule)
    found = lines(draw.distances(certificate))
    assert any(name.endswith("not finite") for name in found)


def test_rules_in_words_have_no_addresses():
    rule = IL(num_steps=4, optimizer=optax.adam(0.1), batch="sum")
    assert " at 0x" not in rule_text(rule) and len(rule_text(rule)) < 80
    assert rule_text(IL(init=lambda v, mu: mu, batch="sum")).count("lambda") == 1
