"""The explorer's page: what is in it, how large it is, and what is refused."""

import base64
import functools
import json
import os
import pathlib
import re
import zlib

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import dendrax
from dendrax import IL, ZIL, draw
from dendrax.draw import _explore, _record
from dendrax.draw._record import LOST, STEPS, decode, encode, joined
from dendrax.graph._graph import Port
from dendrax.inference import clamp_for
from dendrax.inference._arrivals import arrivals
from dendrax.models import problem
from tests.sampling import every


def read(path):
    """What the page's own script reads: the JSON, and the codes of each run as a table."""
    packed = re.search(r'<script id="payload"[^>]*>([^<]*)</script>', path.read_text())[1]
    data = zlib.decompress(base64.b64decode(packed))
    length = int.from_bytes(data[:4], "little")
    payload = json.loads(data[4 : 4 + length])
    codes = np.frombuffer(data, "<u2", offset=4 + length + length % 2)
    ends = [*(run["offset"] for run in payload["runs"][1:]), len(codes)]
    for run, end in zip(payload["runs"], ends, strict=True):
        columns = 1 if run["arrivals"] else len(run["times"])
        found = decode(codes[run["offset"] : end], payload["scale"]["high"])
        run["sizes"] = found.reshape(-1, columns)
    return payload


def deep(w, x, count=4):
    for _ in range(count):
        x = 0.5 * x + jnp.sin(x @ w)
    return jnp.sum(x**2)


ARGS = (0.1 * jnp.eye(3, dtype=jnp.float32), jnp.ones((2, 3), jnp.float32))


@pytest.fixture
def by_arrivals(monkeypatch):
    """Z-IL as on large graphs: nothing has to be compiled."""
    monkeypatch.setattr(_explore, "MOST_DYNAMICS", 0)


# ---- numbers -------------------------------------------------------------------------------------


@given(st.integers(10, 308), st.floats(0.0, 1.0))
def test_sizes_are_kept(reach, part):
    size = 10.0 ** (reach * (2 * part - 1))
    assert decode(encode(np.array([size]), reach), reach)[0] == pytest.approx(size, rel=1.2e-2)
    assert (
        decode(encode(np.array([size]), 10), 10)[0] == pytest.approx(size, rel=4e-4) or reach > 10
    )


def test_zero_is_zero_and_what_is_lost_is_said():
    for reach in (10, 45, 308):
        assert decode(encode(np.array([1.0]), reach), reach)[0] == 1.0  # the error of every loss
    codes = encode(np.array([0.0, np.inf, np.nan, 1e-300, 1e300]), 300)
    assert codes.tolist() == [0, LOST, LOST, 1, 1 + STEPS] and 1 + STEPS < LOST
    assert decode(codes, 300)[0] == 0.0 and np.isnan(decode(codes, 300)[1:3]).all()


@pytest.mark.parametrize("rule", [ZIL(), IL(num_steps=7, batch="sum")])
def test_the_page_holds_what_was_recorded(rule, tmp_path):
    page = dendrax.explore(
        deep, *ARGS, rule=rule, path=tmp_path / "page.html", vertices="primitive"
    )
    payload = read(page)
    graph = dendrax.trace(deep, *ARGS, vertices="primitive")
    result = dendrax.run(graph, rule, record=("energy", "statistics"))
    (run,) = payload["runs"]
    assert run["times"] == list(range(len(result.energy)))
    energy = [np.nan if value is None else value for value in run["energy"]]
    kept = np.isfinite(result.energy)
    assert (np.isfinite(energy) == kept).all()
    np.testing.assert_allclose(np.array(energy)[kept], result.energy[kept], rtol=1e-5)
    moments = result.statistics[:]
    for v in payload["vertices"]:
        if v["slot"] >= 0:
            expected = np.asarray(moments[v["name"]])
            rows = [run["sizes"][k * payload["num_slots"] + v["slot"]] for k in range(3)]
            finite = np.isfinite(expected)
            np.testing.assert_allclose(
                np.array(rows).T[finite], expected[finite], rtol=2e-3, atol=1e-44
            )
            assert ((np.array(rows).T == 0) == (expected == 0)).all()


@pytest.mark.usefixtures("by_arrivals")
def test_vertices_are_described(tmp_path):
    payload = read(dendrax.explore(deep, *ARGS, path=tmp_path / "page.html"))
    levelled = dendrax.level(dendrax.trace(deep, *ARGS))
    assert payload["num_delays"] == levelled.num_delays > 0
    assert sum(edge["delay"] for edge in payload["edges"]) == levelled.num_delays
    by_name = {v["name"]: v for v in payload["vertices"]}
    sine = by_name["sin"]
    assert (
        sine["level"] == levelled.level_of[levelled.graph["sin"]]
        and sine["shape"] == "float32[2,3]"
    )
    assert "test_explore.py" in sine["source"] and "jnp.sin(x @ w)" in sine["code"]
    assert "sin" in sine["local"]
    w = levelled.graph["w"]
    assert payload["runs"][0]["learns"] == {str(w.index): f"t = {levelled.level_of[w] - 1}"}
    assert by_name["x"]["kind"] == "data" and by_name["x"]["level"] is None


@pytest.mark.parametrize("name", every(4, ["mlp", "fc_resnet", "rnn", "transformer"]))
def test_what_is_found_as_the_wave_arrives_is_what_the_dynamics_find(name):
    """The large graphs' way, against the dynamics, on graphs on which both can be done."""
    p = problem(name, small=True)
    graph = dendrax.trace(p.loss, p.model, p.inputs, p.target)
    levelled = dendrax.level(graph)
    result = dendrax.run(graph, ZIL(), record="statistics")
    found = arrivals(graph, clamp_for(graph, None))
    moments = result.statistics[:]
    assert {port.vertex for port in found.errors} == {v.index for v in graph.active}
    for v in graph.active:
        parts = moments[v.name] if isinstance(moments[v.name], tuple) else (moments[v.name],)
        for output, table in zip(graph.flow.emitted[v.index], parts, strict=True):
            error = np.asarray(table)[levelled.level_of[v.index], 0]
            assert found.errors[Port(v.index, output)] == pytest.approx(error, rel=1e-4)


def test_arrivals_clamped_to_a_target():
    p = problem("mlp", small=True)
    graph = dendrax.trace(p.predict, p.model, p.inputs)
    result = dendrax.run(graph, ZIL(), target=p.target, record="statistics")
    found = arrivals(graph, clamp_for(graph, [p.target]))
    levelled, moments = dendrax.level(graph), result.statistics[:]
    for v in graph.active:
        error = np.asarray(moments[v.name])[levelled.level_of[v.index], 0]
        assert found.errors[Port(v.index, 0)] == pytest.approx(error, rel=1e-4)


# ---- size ----------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def large(tmp_path_factory):
    """2,000 vertices."""
    path = tmp_path_factory.mktemp("large") / "large.html"
    return dendrax.explore(lambda w, x: deep(w, x, 500), *ARGS, path=path)


@pytest.mark.slow
def test_two_thousand_vertices_are_less_than_three_megabytes(large):
    payload = read(large)
    assert len(payload["vertices"]) >= 1980
    assert large.stat().st_size < 3e6
    assert (
        "as the wave arrives; behind it what has passed stays in sight"
        in payload["runs"][0]["note"]
    )


def test_a_record_that_is_too_large_is_sampled_and_says_so(tmp_path, monkeypatch):
    monkeypatch.setattr(_explore, "MAX_CODES", 700)
    payload = read(
        dendrax.explore(
            deep, *ARGS, rule=IL(num_steps=60, batch="sum"), path=tmp_path / "page.html"
        )
    )
    (run,) = payload["runs"]
    assert "The record of 61 time steps is too large to embed" in run["note"]
    assert run["times"][0] == 0 and run["times"][-1] == 60 and len(run["times"]) < 61
    assert run["sizes"].size <= 700 and len(run["energy"]) == len(run["times"])


def test_two_rules_share_the_room(tmp_path, monkeypatch):
    monkeypatch.setattr(_explore, "MAX_CODES", 3000)
    rules = (ZIL(), IL(num_steps=80, batch="sum"))
    payload = read(dendrax.explore(deep, *ARGS, rule=rules, path=tmp_path / "page.html"))
    assert [run["rule"] for run in payload["runs"]] == ["ZIL()", "IL(num_steps=80, batch='sum')"]
    assert sum(run["sizes"].size for run in payload["runs"]) <= 3000
    assert _record.MAX_CODES * 2 < 3e6  # bytes, before compression


# ---- the page ------------------------------------------------------------------------------------


@pytest.mark.usefixtures("by_arrivals")
def test_the_page_asks_for_nothing(tmp_path):
    text = dendrax.explore(deep, *ARGS, path=tmp_path / "page.html").read_text()
    assert "default-src 'none'" in text
    assert not re.search(r"https?://|<link|src=|@import|\{\{", text)


def test_every_file_of_the_page_is_in_the_package():
    folder = pathlib.Path(_explore.__file__).parent / "page"
    scripts = {path.stem for path in folder.glob("*.js")}
    assert scripts == set(_explore.SCRIPTS)


@pytest.mark.usefixtures("by_arrivals")
def test_names_are_text(tmp_path):
    evil = "</script><script>window.pwned = 1</script><img src=x onerror=alert(1)>"
    page = dendrax.explore(
        lambda p: jnp.sum(jnp.sin(p[evil])),
        {evil: jnp.ones(3)},
        path=tmp_path / "p.html",
        title=evil,
    )
    assert "pwned" not in page.read_text().replace(
        "&lt;script&gt;window.pwned = 1&lt;/script&gt;", ""
    )
    assert any(evil in v["name"] for v in read(page)["vertices"])


def test_missing_numbers_do_not_spoil_the_page(tmp_path):
    def hot(w):
        return jnp.sum(jnp.exp(jnp.exp(w)) ** 2)

    rule = IL(num_steps=8, gamma=0.5, batch="sum")
    page = dendrax.explore(
        hot, jnp.ones(3), rule=rule, vertices="primitive", path=tmp_path / "hot.html"
    )
    (run,) = read(page)["runs"]
    assert None in run["energy"]
    assert (
        run["note"].startswith("IL(num_steps=8, gamma=0.5, batch='sum'): ")
        and "gamma" in run["note"]
    )


@pytest.mark.usefixtures("by_arrivals")
def test_large_graphs_check_the_target_too(tmp_path):
    for target in ((jnp.ones((2, 3)),), {"a": jnp.ones((2, 3))}):
        with pytest.raises(ValueError, match=r"dendrax.explore: the target's tree .* is not that"):
            dendrax.explore(lambda w, x: x @ w, *ARGS, target=target, path=tmp_path / "p.html")
    with pytest.raises(ValueError, match=r"the target has shape \(3,\)"):
        dendrax.explore(lambda w, x: x @ w, *ARGS, target=jnp.ones(3), path=tmp_path / "p.html")


def test_when_parameters_learn_depends_on_the_rule(tmp_path):
    def learns(rule, **options):
        path = tmp_path / "page.html"
        page = dendrax.explore(deep, *ARGS, rule=rule, vertices="primitive", path=path)
        return read(page)["runs"][0]["learns"]["0"]

    assert learns(IL(num_steps=5, batch="sum")) == "the end, t = 5"
    assert (
        learns(dendrax.IncrementalPC(num_steps=5, learning_rate=0.01, batch="sum")) == "every step"
    )
    assert learns(ZIL(timing="end", num_steps=40)) == "t = 39"
    assert learns(ZIL(levelled=False)).count(",") == 3  # each use at its own time


def test_vertices_with_similar_names_are_not_mixed_up(tmp_path):
    @dendrax.vertex
    def sin_1(w):
        return 10.0 * w

    def loss(w):
        return jnp.sum(jnp.sin(jnp.sin(sin_1(w))))

    w = jnp.full(3, 1.08, jnp.float32)
    graph = dendrax.trace(loss, w, vertices="marked")
    assert len({v.name for v in graph}) == len(graph)
    page = dendrax.explore(loss, w, vertices="marked", path=tmp_path / "page.html")
    payload = read(page)
    (marked,) = [v for v in payload["vertices"] if v["name"] == "sin_1"]
    values = payload["runs"][0]["sizes"][payload["num_slots"] + marked["slot"]]
    assert values[0] == pytest.approx(10.8, rel=2e-3)


def test_outputs_are_joined_by_their_sizes():
    graph = dendrax.trace(lambda x: sum(map(jnp.sum, jnp.linalg.eigh(x))), jnp.eye(3))
    together = joined(graph, graph["eigh/eigh"], [3.0, 4.0])
    assert together == pytest.approx(np.sqrt((9 * 3.0**2 + 3 * 4.0**2) / (9 + 3)))


def test_sizes_that_only_double_precision_has(tmp_path):
    with jax.enable_x64(True):
        page = dendrax.explore(
            lambda w: jnp.tanh(w) * 1e60, jnp.ones(3), target=jnp.zeros(3), path=tmp_path / "p.html"
        )
    payload = read(page)
    (run,) = payload["runs"]
    (output,) = [v for v in payload["vertices"] if v["level"] == 0]
    assert run["sizes"][output["slot"], 0] == pytest.approx(np.tanh(1.0) * 1e60, rel=1.2e-2)


@pytest.mark.usefixtures("by_arrivals")
def test_titles(tmp_path):
    def title(fun):
        return read(dendrax.explore(fun, *ARGS, path=tmp_path / "p.html"))["title"]

    class Model:
        def __call__(self, w, x):
            return deep(w, x)

    assert title(functools.partial(deep, count=2)) == "deep"
    assert title(Model()) == "Model"


def test_several_outputs_and_a_target(tmp_path):
    def two(w, x):
        values, vectors = jax.lax.sort((jnp.sin(x @ w)[0], x[0] * w[0]))
        return vectors, jnp.tanh(values) @ w

    goal = (jnp.zeros(3, jnp.float32), jnp.ones(3, jnp.float32))
    options = {"target": goal, "rule": (ZIL(), IL(5, batch="sum")), "vertices": "primitive"}
    payload = read(dendrax.explore(two, *ARGS, **options, path=tmp_path / "p.html"))
    graph = dendrax.trace(two, *ARGS, vertices="primitive")
    assert len(graph["sort"].outputs) == 2
    for run, rule in zip(payload["runs"], options["rule"], strict=True):
        found = dendrax.run(graph, rule, target=goal, record="epsilon").epsilon[:]["sort"]
        together = np.concatenate([np.asarray(e).reshape(len(e), -1) for e in found], axis=1)
        expected = np.sqrt(np.mean(np.square(together.astype(np.float64)), axis=1))
        (slot,) = [v["slot"] for v in payload["vertices"] if v["name"] == "sort"]
        np.testing.assert_allclose(run["sizes"][slot], expected, rtol=2e-3)


# ---- what is refused -----------------------------------------------------------------------------


def test_wrong_input(tmp_path):
    path = tmp_path / "page.html"
    cases = [
        (
            lambda w: jnp.sin(w),
            (jnp.ones(3),),
            {},
            ValueError,
            r"no error would arise(.|\n)*target",
        ),
        (lambda w: 3.0, (jnp.ones(3),), {}, ValueError, r"no parameter reaches the output"),
        (
            lambda w: (jnp.sum(w), w),
            (jnp.ones(3),),
            {},
            ValueError,
            r"lambda \*args: fun\(\*args\)\[0\]",
        ),
        (deep, ARGS, {"rule": "ZIL"}, TypeError, r"rule"),
        (deep, ARGS, {"rule": ()}, ValueError, r"rule has 0 rules(.|\n)*one or two"),
        (deep, ARGS, {"rule": (ZIL(), IL(batch="sum"), ZIL())}, ValueError, r"rule has 3 rules"),
        (deep, ARGS, {"vertices": "cell"}, ValueError, r"vertices='cell'"),
        (3, (), {}, TypeError, r"fun"),
        (lambda w: float(w), (1.0,), {}, jax.errors.ConcretizationTypeError, r"Abstract tracer"),
    ]
    for fun, args, options, error, words in cases:
        with pytest.raises(error, match=words):
            dendrax.explore(fun, *args, path=path, **options)
    assert not path.exists()


def test_paths_that_cannot_be_written(tmp_path):
    (tmp_path / "file").write_text("kept")
    ran = []

    def loss(w):
        ran.append(1)
        return jnp.sum(w)

    with pytest.raises(OSError, match=r"dendrax.explore: cannot write .*file is not a folder"):
        dendrax.explore(loss, jnp.ones(2), path=tmp_path / "file" / "page.html")
    with pytest.raises(OSError, match=r"cannot write .*it is a folder(.|\n)*Choose another path"):
        dendrax.explore(loss, jnp.ones(2), path=tmp_path)
    with pytest.raises(OSError, match=r"cannot write /: it is a folder"):
        dendrax.explore(loss, jnp.ones(2), path="/")
    with pytest.raises(OSError, match=r"cannot write .*File name too long"):
        dendrax.explore(loss, jnp.ones(2), path=tmp_path / ("a" * 300 + ".html"))
    assert not ran and (tmp_path / "file").read_text() == "kept"


def test_a_pipe_or_a_device_is_not_replaced_by_a_file(tmp_path):
    """Whoever may, such as root, would be left with a /dev/null that is a page."""
    os.mkfifo(tmp_path / "pipe.svg")
    with pytest.raises(OSError, match=r"cannot write .*it is a pipe or a device, not a file"):
        dendrax.explore(lambda w: jnp.sum(w), jnp.ones(2), path=tmp_path / "pipe.svg")
    with pytest.raises(OSError, match=r"cannot write .*it is a pipe(.|\n)*Choose another"):
        draw.graph(dendrax.trace(lambda w: jnp.sum(w), jnp.ones(2))).save(tmp_path / "pipe.svg")
    assert (tmp_path / "pipe.svg").is_fifo()


@pytest.mark.usefixtures("by_arrivals")
def test_the_home_folder(tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path))
    assert dendrax.explore(deep, *ARGS, path="~/page.html") == tmp_path / "page.html"
    assert (tmp_path / "page.html").is_file()


@pytest.mark.usefixtures("by_arrivals")
def test_folders_are_made(tmp_path):
    page = dendrax.explore(deep, *ARGS, path=tmp_path / "a" / "b" / "page.html")
    assert page.is_file()


def test_more_time_steps_than_can_be_shown(tmp_path):
    with pytest.raises(ValueError, match=r"IL\(.*takes more time steps .*\n.*num_steps=100000"):
        dendrax.explore(
            jnp.sin, 1.0, rule=dendrax.IL(num_steps=10**8, batch="sum"), path=tmp_path / "a.html"
        )
