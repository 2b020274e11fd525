"""Where things stand: rows, columns, modules."""

import itertools
import shutil
import subprocess

import jax
import jax.numpy as jnp
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import dendrax
from dendrax.draw import _dot, _picture
from dendrax.draw._drawing import own_places
from dendrax.draw._layout import Block, Link, place
from dendrax.draw._plan import plan
from dendrax.draw._structure import labels_of, modules_of, rows_of, rule_text, shortened, source_of
from dendrax.models import problem


def overlaps(blocks, x, gap):
    """Pairs of blocks in one row that are nearer than the gap."""
    return [
        (i, j)
        for (i, a), (j, b) in itertools.combinations(enumerate(blocks), 2)
        if a.first <= b.last
        and b.first <= a.last
        and abs(x[i] - x[j]) < (a.width + b.width) / 2 + gap - 1e-6
    ]


@st.composite
def pictures(draw):
    count = draw(st.integers(1, 14))
    blocks = []
    for _ in range(count):
        first = draw(st.integers(0, 5))
        width = draw(st.sampled_from([4.0, 30.0, 75.0]))
        blocks.append(Block(first, first + draw(st.integers(0, 3)), width))
    pairs = st.tuples(st.integers(0, count - 1), st.integers(0, count - 1))
    links = [Link(a, b) for a, b in draw(st.lists(pairs, max_size=20)) if a != b]
    return blocks, links


@settings(max_examples=60, deadline=None)
@given(pictures())
def test_blocks_in_a_row_keep_their_distance(picture):
    blocks, links = picture
    x = place(blocks, links, 10.0)
    assert not overlaps(blocks, x, 10.0)
    assert min(a - b.width / 2 for a, b in zip(x, blocks, strict=True)) == pytest.approx(0)


def test_overlaps_would_be_seen():
    blocks = [Block(0, 0, 20.0), Block(0, 2, 20.0)]
    assert overlaps(blocks, [0.0, 15.0], 10.0) == [(0, 1)]


def test_a_chain_stands_straight():
    blocks = [Block(row, row, 30.0 + 5 * row) for row in range(9)]
    x = place(blocks, [Link(row, row + 1) for row in range(8)], 10.0)
    assert max(x) - min(x) < 1.0


def test_rows_are_levels_and_data_stand_below_their_users():
    graph = dendrax.trace(lambda w, x: jnp.sum(jnp.tanh(x @ w)), jnp.ones((3, 2)), jnp.ones((5, 3)))
    levelled = dendrax.level(graph)
    rows = rows_of(levelled)
    for v in graph:
        if v.index in levelled.level_of:
            assert rows[v.index] == levelled.level_of[v.index]
    assert rows[graph["x"].index] == rows[graph["dot_general"].index] + 1


def test_what_leads_nowhere_has_no_row():
    graph = dendrax.trace(lambda w: (jnp.floor(w) * 0, jnp.sin(w))[1], 2.0)
    rows = rows_of(dendrax.level(graph))
    assert rows[graph["floor"].index] == -1 and rows[graph["sin"].index] == 0


def test_modules_come_from_parameters():
    p = problem("resnet18", small=True)
    graph = dendrax.trace(p.loss, p.model, p.inputs, p.target)
    modules = modules_of(graph)
    kernel = graph["model.blocks[2].first.conv.kernel"]
    assert modules[kernel.index] == ("blocks[2]", "blocks[2].first", "blocks[2].first.conv")
    (conv,) = graph.users(kernel)
    assert modules[conv.index] == modules[kernel.index]
    # What normalises belongs to the norm that scales it, not to the layer before.
    norm = graph["model.blocks[2].first.norm.scale"]
    assert all(modules[v.index] for v in graph.active)  # residual sums, too
    below = [u for u in graph.users(conv) if u.name.startswith("reduce_sum")]
    assert below and all(modules[u.index] == modules[norm.index] for u in below)
    assert labels_of(graph)[kernel.index] == "blocks[2].first.conv.kernel"


def test_modules_of_dictionaries_and_of_plain_arguments():
    params = {"a": {"w": jnp.ones(3)}, "b": {"w": jnp.ones(3)}}
    graph = dendrax.trace(lambda p: jnp.sum(jnp.sin(p["a"]["w"]) * p["b"]["w"]), params)
    modules = modules_of(graph)
    assert modules[graph.parameters[0].index] == ("['a']",)
    assert modules[graph["sin"].index] == ("['a']",)
    plain = dendrax.trace(lambda z1, z2: z1 * z2, 1.0, 2.0, argnums=(0, 1))
    assert set(modules_of(plain)) == {()}


def test_labels_leave_out_only_the_module_itself():
    def loss(params, params_target):
        return jnp.sum((params["a"] * params["b"] - params_target["a"]) ** 2)

    tree = {"a": jnp.ones(2), "b": jnp.ones(2)}
    graph = dendrax.trace(loss, tree, tree)
    labels = labels_of(graph)
    assert labels[graph["params['a']"].index] == "['a']"
    assert labels[graph["params_target['a']"].index] == "params_target['a']"


def test_words():
    assert shortened("model.blocks[10].attention.query.weight", 20) == "model.….query.weight"
    assert shortened("short", 20) == "short"
    assert rule_text(dendrax.IL(num_steps=7)) == "IL(num_steps=7)"
    assert rule_text(dendrax.ZIL()) == "ZIL()"


def test_source_lines_have_their_code():
    graph = dendrax.trace(lambda w: jnp.sin(w) * 2.0, 1.0)  # the line that is found
    source = source_of(graph["sin"])
    assert "test_places.py" in source.place and "the line that is found" in source.code


def test_delays_stand_in_their_rows():
    graph = dendrax.trace(lambda w: w + jnp.sin(jnp.cos(jnp.exp(w))), 1.0)
    planned = plan(dendrax.level(graph), silent=False)
    places = own_places(planned)
    ((connection, points),) = places.delays.items()
    assert connection.delay == len(points) == 3
    heights = [places.vertices[i][1] for i in planned.seen]
    assert all(any(abs(y - h) < 1e-6 for h in heights) for _, y in points)


def chain_of_skips(count):
    def loss(w, x):
        for _ in range(count):
            x = jnp.tanh(x * w)
        return jnp.sum(x)

    return dendrax.level(dendrax.trace(loss, jnp.ones(2, jnp.float32), jnp.ones(2, jnp.float32)))


def test_many_delays_are_drawn_as_one_for_each_line():
    levelled = chain_of_skips(40)
    assert levelled.num_delays > 1000
    picture = dendrax.draw.graph(levelled, layout="own").svg
    longest = max(levelled.delays.values())
    assert picture.count("delays</title>") == sum(delay > 1 for delay in levelled.delays.values())
    assert f">×{longest}<" in picture


def test_what_nobody_could_read_is_refused():
    with pytest.raises(ValueError, match=r"would be unreadable(.|\n)*dendrax.explore"):
        dendrax.draw.graph(chain_of_skips(400))
    assert chain_of_skips(400)._repr_svg_() is None


def test_expanded_graphs_show_the_same_delays():
    levelled = dendrax.level(dendrax.trace(lambda w: w + jnp.sin(jnp.cos(w)), 1.0))
    first, second = (plan(g, silent=False) for g in (levelled, levelled.expand()))
    assert [c.delay for c in first.connections] == [c.delay for c in second.connections]
    assert sum(c.delay for c in plan(levelled.graph, silent=False).connections) == 0


@pytest.mark.skipif(shutil.which("dot") is None, reason="graphviz is not installed")
def test_dot_keeps_the_rows():
    p = problem("fc_resnet", small=True)
    planned = plan(dendrax.level(dendrax.trace(p.loss, p.model, p.inputs, p.target)), silent=False)
    own, dot = own_places(planned), _dot.dot_places(planned)
    assert set(own.vertices) == set(dot.vertices) and set(own.lines) == set(dot.lines)
    for index, (_, y) in own.vertices.items():
        assert dot.vertices[index][1] == pytest.approx(y, abs=2.0)


def test_what_dot_answers_is_understood(monkeypatch):
    """A stand-in for dot that sets every node down in its row."""
    planned = plan(
        dendrax.level(dendrax.trace(lambda w: w + jnp.sin(jnp.cos(w)), 1.0)), silent=False
    )

    def answer(command, *, input, **_):
        rows = {}
        lines = [line for line in input.splitlines() if line.startswith("{ rank=same")]
        for row, line in enumerate(lines):
            for name in line.removeprefix("{ rank=same; ").removesuffix(" }").split("; "):
                rows[name] = row
        text = ["graph 1 4 9"]
        text += [
            f"node {name} 1 {9 - row} 1 1 x solid box black white" for name, row in rows.items()
        ]
        for line in input.splitlines():
            if " -> v" in line or " -> d" in line:
                tail, head = line.strip(";").split(" -> ")
                a, b = 9 - rows[tail], 9 - rows[head]
                points = f"1 {a} 1 {a} 1 {b} 1 {b}"
                text.append(f"edge {tail} {head} 4 {points} solid black")
        return subprocess.CompletedProcess(command, 0, "\n".join([*text, "stop"]), "")

    monkeypatch.setattr(_dot.subprocess, "run", answer)
    monkeypatch.setattr(_dot, "has_dot", lambda: True)
    own, dot = own_places(planned), _dot.dot_places(planned)
    for index, (_, y) in own.vertices.items():
        assert dot.vertices[index][1] == pytest.approx(y)
    for c, points in own.delays.items():
        assert [y for _, y in dot.delays[c]] == pytest.approx([y for _, y in points])
        assert len(dot.lines[c]) % 3 == 1


def test_large_graphs_are_laid_out():
    def deep(w):
        for _ in range(400):
            w = w + jnp.sin(w * 2.0)
        return w

    planned = plan(dendrax.level(dendrax.trace(deep, jnp.float32(1.0))), silent=False)
    assert len(planned.seen) > 1000
    assert len(own_places(planned).vertices) == len(planned.seen)


def test_jax_key_data_and_tokens_are_data():
    graph = dendrax.trace(
        lambda w, key: jnp.sum(w * jax.random.normal(key, (3,))), jnp.ones(3), jax.random.key(0)
    )
    planned = plan(graph, silent=True)
    styles = {s.text: s.style for s in planned.seen.values()}
    assert styles["key"] == "data" and styles["w"] == "parameter" and "silent" in styles.values()


def test_large_graphs_are_not_given_to_dot(monkeypatch):
    monkeypatch.setattr(_picture, "has_dot", lambda: True)
    monkeypatch.setattr(_picture, "dot_places", lambda planned: pytest.fail("dot was asked"))
    monkeypatch.setattr(_picture, "MOST_FOR_DOT", 3)
    graph = dendrax.trace(lambda w: w + jnp.sin(jnp.cos(jnp.exp(w))), 1.0)
    assert dendrax.draw.graph(graph).svg


def test_dot_that_takes_too_long(monkeypatch):
    def run(command, **options):
        raise subprocess.TimeoutExpired(command, options["timeout"])

    monkeypatch.setattr(_dot.subprocess, "run", run)
    monkeypatch.setattr(_dot, "has_dot", lambda: True)
    with pytest.raises(RuntimeError, match=r"dot has not finished(.|\n)*layout='own'"):
        dendrax.draw.graph(dendrax.trace(jnp.sin, 1.0), layout="dot")


@pytest.mark.parametrize("answer", ["", "graph 1 1 1"])
def test_a_dot_that_does_not_work(answer, monkeypatch):
    done = subprocess.CompletedProcess([], 0, answer, "")
    monkeypatch.setattr(_dot.subprocess, "run", lambda *_, **__: done)
    monkeypatch.setattr(_dot, "has_dot", lambda: True)
    monkeypatch.setattr(_picture, "has_dot", lambda: True)
    graph = dendrax.trace(jnp.sin, 1.0)
    with pytest.raises(RuntimeError, match=r"dot answered with no layout"):
        dendrax.draw.graph(graph, layout="dot")
    assert dendrax.draw.graph(graph).svg == dendrax.draw.graph(graph, layout="own").svg


@pytest.mark.skipif(shutil.which("dot") is None, reason="graphviz is not installed")
def test_lines_of_dot_begin_at_their_source():
    p = problem("fc_resnet", small=True)
    planned = plan(dendrax.level(dendrax.trace(p.loss, p.model, p.inputs, p.target)), silent=False)
    places = _dot.dot_places(planned)
    for c, line in places.lines.items():
        (_, y), (_, source) = line[0], places.vertices[c.source]
        assert abs(source - y) == pytest.approx(12, abs=3)


def test_source_lines_elsewhere(monkeypatch):
    graph = dendrax.trace(lambda w: jnp.sin(w), 1.0)

    def relpath(path):
        raise ValueError("path is on mount 'D:', start on mount 'C:'")

    monkeypatch.setattr("os.path.relpath", relpath)
    assert "test_places.py" in source_of(graph["sin"]).place
