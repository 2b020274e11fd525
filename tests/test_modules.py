"""`vertices=` as classes of modules, here of one's own, and as a function of the graph."""

import dataclasses
import threading

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import dendrax
from dendrax import IL, ZIL, placement
from dendrax.graph import Port
from dendrax.tracing import is_named
from tests.compare import close, same

RULE = IL(num_steps=6, gamma=0.1, batch="sum")


class Layer:
    def __init__(self, w):
        self.w = w

    def __call__(self, x):
        return jnp.tanh(x @ self.w)


class Wide(Layer):
    """It has the ``__call__`` of its base."""


class Doubled(Layer):
    def __call__(self, x):
        return 2 * super().__call__(x)


class Pair:
    """A module of modules."""

    def __init__(self, first, second):
        self.first, self.second = first, second

    def __call__(self, x):
        return x + self.second(self.first(x))


class Chain(Pair):
    """What it returns is what its last module returned."""

    def __call__(self, x):
        return self.second(self.first(x))


class Cell:
    """Like an LSTM's, it returns ``h`` twice; and a count, which is no float."""

    def __init__(self, w):
        self.w = w

    def __call__(self, state, x):
        h, c = state
        c = c + jnp.tanh(x @ self.w)
        h = jnp.tanh(c + h)
        return h, (h, c), jnp.sum(h > 0)


class Router:
    def __call__(self, x):
        return jnp.argmax(x, axis=-1)


class Failing(Layer):
    def __call__(self, x):
        raise RuntimeError("it broke")


def net(ws, x, kind=Layer):
    for w in ws:
        x = kind(w)(x)
    return jnp.sum(x**2) / 2


def arguments(count=3):
    rng = np.random.default_rng(0)
    ws = [jnp.asarray(rng.normal(size=(4, 4)) / 2) for _ in range(count)]
    return ws, jnp.asarray(rng.normal(size=(5, 4)))


def count(fun, *args, vertices, **more):
    return len(dendrax.trace(fun, *args, vertices=vertices, **more).nodes)


# ---- classes -------------------------------------------------------------------------------------


def test_results_of_modules_are_the_value_nodes_that_marks_make():
    args = arguments()
    mark = dendrax.vertex(lambda w, x: jnp.tanh(x @ w))

    def marked(ws, x):
        for w in ws:
            x = mark(w, x)
        return jnp.sum(x**2) / 2

    expected = jax.jit(dendrax.grad(marked, rule=RULE, vertices="marked"))(*args)
    found = jax.jit(dendrax.grad(net, rule=RULE, vertices=(Layer,)))(*args)
    assert close(found, expected)
    assert not close(found, jax.jit(jax.grad(net))(*args))
    graph = dendrax.trace(net, *args, vertices=Layer)  # one class alone, too
    assert graph.chosen == (Layer,) and len(graph.nodes) == 3
    assert close(dendrax.run(graph, RULE).gradient, expected)


def test_the_wave_on_such_a_graph_is_exact():
    args = arguments()
    graph = dendrax.trace(net, *args, vertices=(Layer,))
    expected = jax.jit(jax.grad(net))(*args)
    assert close(dendrax.run(graph, ZIL()).gradient, expected)
    assert same(jax.jit(dendrax.grad(net, rule=ZIL(), vertices=(Layer,)))(*args), expected)


def test_everybody_who_takes_vertices_takes_modules(tmp_path):
    args = arguments()
    names = [v.name for v in dendrax.trace(net, *args, vertices=[Layer]).nodes]
    assert len(names) == 3
    expected = dendrax.grad(net, rule=RULE, vertices=(Layer,))(*args)
    _, pull = dendrax.vjp(lambda ws: net(ws, args[1]), args[0], rule=RULE, vertices=[Layer])
    assert close(pull(jnp.ones(()))[0], expected)
    audit = dendrax.audit(net, *args, rule=RULE, vertices=(Layer,))
    assert audit.local and names == [u.name for u in audit.updates if u.kind == "value node"]
    assert not dendrax.check(net, *args, rule=RULE, vertices=(Layer,)).exact
    page = tmp_path / "page.html"
    dendrax.explore(net, *args, rule=RULE, vertices=(Layer,), path=page)
    assert page.exists()
    placed = placement.place(net, *args, devices=2, rule=RULE, vertices=[Layer])
    assert close(placed.value_and_grad(*args)[1], expected)
    predict = lambda ws, x: Layer(ws[1])(Layer(ws[0])(x))
    settled = dendrax.infer(predict, *args, target=args[1], vertices=(Layer,))
    assert len(settled.x) == 1

    @dataclasses.dataclass(frozen=True)
    class OfLayers(IL):
        vertices = (Layer,)

    assert close(
        dendrax.grad(net, rule=OfLayers(num_steps=6, gamma=0.1, batch="sum"))(*args), expected
    )


def test_subclasses_are_meant_too_and_each_call_is_one_node():
    args = arguments()
    for kind in (Layer, Wide, Doubled):
        assert count(net, *args, kind, vertices=(Layer,)) == 3
        assert count(net, *args, kind, vertices=(Layer, kind)) == 3
        assert count(net, *args, kind, vertices=(kind,)) == 3


def test_the_call_of_a_class_may_be_any_object():
    class Held:
        __call__ = Layer(jnp.eye(4))  # it is not bound: it gets no module

    fun = lambda w, x: jnp.sum(Held()(x * w)) / 2
    assert count(fun, jnp.ones(()), arguments()[1], vertices=(Held,)) == 1


def test_only_those_are_meant_that_are_named():
    def mixed(ws, x):
        return jnp.sum(Layer(ws[2])(Wide(ws[1])(Layer(ws[0])(x))))

    graph = dendrax.trace(mixed, *arguments(), vertices=(Wide,))
    (node,) = graph.nodes
    assert {v.name for v in graph.parameters} & {v.name for v in graph.inputs(node)} == {
        "ws[0]",
        "ws[1]",
    }


def test_a_module_in_a_module_is_a_node_of_its_own_but_not_the_same_value_twice():
    def nested(ws, x, kind):
        return jnp.sum(kind(kind(Layer(ws[0]), Layer(ws[1])), Layer(ws[2]))(x) ** 2)

    args = arguments()
    assert count(nested, *args, Pair, vertices=(Pair,)) == 2
    assert count(nested, *args, Pair, vertices=(Pair, Layer)) == 5
    assert count(nested, *args, Chain, vertices=(Chain, Layer)) == 3


def test_what_a_module_returns_twice_is_one_node_and_numbers_are_none():
    def run(ws, x):
        zeros = jnp.zeros_like(x)
        h, (state, c), _ = Cell(ws[0])((zeros, zeros), x)
        return jnp.sum((h + state + c) @ ws[1])

    assert count(run, *arguments(), vertices=(Cell,)) == 2  # h and c


def test_names_survive_transformations():
    args = arguments()
    ways = {
        "vmap": lambda m: jax.vmap(m),
        "jit": lambda m: jax.jit(lambda x: m(x)),
        "remat": lambda m: jax.checkpoint(lambda x: m(x)),
        "jit of vmap": lambda m: jax.jit(lambda x: jax.vmap(m)(x)),
    }
    plain = jax.jit(dendrax.grad(net, rule=RULE, vertices=(Layer,)))(*args)
    for way in ways.values():
        kind = lambda w, way=way: way(Layer(w))
        fun = lambda ws, x, kind=kind: net(ws, x, kind)
        assert count(fun, *args, vertices=(Layer,)) == 3
        assert close(jax.jit(dendrax.grad(fun, rule=RULE, vertices=(Layer,)))(*args), plain)


def test_loops_are_written_out():
    def loop(w, xs):
        h, _ = jax.lax.scan(lambda h, x: (Layer(w)(h + x), None), jnp.zeros(4), xs)
        return jnp.sum(h**2) / 2

    def unrolled(w, xs):
        h = jnp.zeros(4)
        for x in xs:
            h = Layer(w)(h + x)
        return jnp.sum(h**2) / 2

    ws, x = arguments(1)
    assert count(unrolled, ws[0], x, vertices=(Layer,)) == 5
    grads = [jax.jit(dendrax.grad(f, rule=RULE, vertices=(Layer,))) for f in (loop, unrolled)]
    assert close(grads[0](ws[0], x), grads[1](ws[0], x))


def test_what_jax_keeps_of_a_jitted_function_has_the_names_of_this_trace():
    jitted = jax.jit(net)
    args = arguments()
    jitted(*args)  # JAX keeps it without names
    assert count(jitted, *args, vertices=(Layer,)) == 3
    assert count(jitted, *args, vertices=(Layer,)) == 3  # and, apart, with them
    graph = dendrax.trace(jitted, *args)
    assert not any(map(is_named, graph))


def test_the_clamped_output_is_no_node():
    predict = lambda ws, x: Layer(ws[1])(Layer(ws[0])(x))
    (node,) = dendrax.trace(predict, *arguments(2), vertices=(Layer,)).nodes
    assert node.name == "layer(ws[0])"


# ---- nothing is left behind ----------------------------------------------------------------------


def test_classes_are_what_they_were_also_after_an_error():
    calls = {kind: kind.__dict__.get("__call__") for kind in (Layer, Wide, Doubled, Failing)}
    args = arguments()
    dendrax.trace(net, *args, vertices=(Layer,))
    with pytest.raises(RuntimeError, match="it broke"):
        dendrax.trace(net, *args, Failing, vertices=(Layer,))
    with pytest.raises(ValueError, match="no module of it is called"):
        dendrax.trace(net, *args, vertices=(Router,))
    assert calls == {kind: kind.__dict__.get("__call__") for kind in calls}


def test_a_trace_inside_a_trace_names_its_own():
    ws, x = arguments()

    def outer(ws, x):
        step = dendrax.grad(net, rule=RULE, vertices=(Layer,))
        inner = dendrax.trace(net, jax.lax.stop_gradient(ws), x, Doubled, vertices=(Doubled,))
        layers = dendrax.trace(net, jax.lax.stop_gradient(ws), x, vertices="layer")
        assert len(inner.nodes) == 3 and not any(map(is_named, layers.operations))
        moved = [w - 0.1 * g for w, g in zip(ws, step(ws, x), strict=True)]
        return jnp.sum(Pair(Layer(moved[0]), Layer(moved[1]))(x) ** 2)

    expected = jax.jit(jax.grad(outer))(ws, x)
    assert dendrax.trace(outer, ws, x, vertices=(Pair,)).nodes
    assert close(jax.jit(jax.grad(outer))(ws, x), expected)


def test_the_names_of_a_gradient_inside_are_not_those_of_the_trace():
    ws, x = arguments()

    def outer(ws, x):
        gradient = dendrax.grad(net, rule=RULE, vertices=(Layer,))(ws, x)
        return sum(jnp.sum(g * w) for g, w in zip(gradient, ws, strict=True))

    with pytest.raises(ValueError, match="'Doubled', but no module of it is called"):
        dendrax.trace(outer, ws, x, vertices=("Doubled",))


def test_other_threads_see_nothing_of_it():
    args = arguments()
    found, started, done = {}, threading.Event(), threading.Event()

    def slow(ws, x):
        started.set()
        assert done.wait(60)
        return net(ws, x)

    def other():
        with jax.enable_x64(True):  # of this thread
            found["named"] = count(slow, *args, vertices=(Layer,))

    original = Layer.__dict__["__call__"]
    thread = threading.Thread(target=other)
    thread.start()
    assert started.wait(60)
    assert Layer.__dict__["__call__"] is not original
    found["plain"] = "name" in str(jax.make_jaxpr(net)(*args))
    found["both"] = count(net, *args, vertices=(Layer,))
    done.set()
    thread.join()
    assert found == {"named": 3, "plain": False, "both": 3}
    assert Layer.__dict__["__call__"] is original


def test_no_tracer_is_kept(no_leaks):
    args = arguments()
    jax.jit(dendrax.grad(net, rule=RULE, vertices=(Layer,)))(*args)


# ---- a module that is not there ------------------------------------------------------------------


@pytest.mark.parametrize(
    ("vertices", "kind", "said"),
    [
        ((Router,), ValueError, "names the class Router, but no module of it is called"),
        ((Layer, Pair), ValueError, "names the class Pair, but no module of it is called"),
        (("Layer",), ValueError, "of other classes give the class itself"),
        (int, TypeError, "has the class int in it, which has no __call__"),
        ((type("Plain", (), {}),), TypeError, "the class Plain in it, which has no __call__"),
        ((type,), TypeError, "the class type in it, which is called by type, not by Python"),
        ((Layer(1.0),), TypeError, "of type Layer.\n  Give names and classes of modules"),
        ((3,), TypeError, "has 3 in it, of type int"),
        ((), ValueError, r"vertices=\(\) names no module"),
        ("layr", ValueError, "'layr' is not known. Did you mean 'layer'?"),
        (3, ValueError, "vertices=3 is not known"),
    ],
)
def test_what_is_no_module_is_refused(vertices, kind, said):
    with pytest.raises(kind, match=said):
        dendrax.trace(net, *arguments(), vertices=vertices)
    with pytest.raises(kind, match=said):
        dendrax.grad(net, rule=RULE, vertices=vertices)(*arguments())


def test_a_module_without_floats_is_refused():
    def routed(ws, x):
        return net(ws, x) + jnp.sum(Router()(x)).astype(float)

    assert count(routed, *arguments(), vertices=(Layer,)) == 3
    with pytest.raises(ValueError, match="what Router returns has no array of floating-point"):
        dendrax.trace(routed, *arguments(), vertices=(Layer, Router))


def test_a_rule_that_has_a_list_of_modules_is_refused():
    class Rule(IL):
        vertices = [Layer]  # noqa: RUF012

    with pytest.raises(TypeError, match=r"Rule: vertices=.* is a list.\n  Write a tuple"):
        dendrax.grad(net, rule=Rule())(*arguments())


def test_modules_that_no_error_comes_through_are_no_nodes():
    def frozen(ws, x):
        return jnp.sum((Layer(jnp.eye(4))(x) @ ws[0]) ** 2)

    with pytest.raises(ValueError, match="no result of the modules Layer lies between a param"):
        dendrax.trace(frozen, *arguments(1), vertices=(Layer,))
    with pytest.raises(ValueError, match="A graph knows the modules that it was traced for"):

        class OfLayers(IL):
            vertices = (Layer,)

        dendrax.run(dendrax.trace(net, *arguments()), OfLayers())


def test_modules_in_what_stays_one_vertex_are_pointed_out():
    def branch(ws, x):
        x = jax.lax.cond(x[0, 0] > 0, Layer(ws[1]), lambda x: x, Layer(ws[0])(x))
        return jnp.sum(x**2)

    mark = dendrax.vertex(lambda w, x: Layer(w)(x))

    def marked(ws, x):
        return jnp.sum(mark(ws[1], Layer(ws[0])(x)) ** 2)

    for fun in (branch, marked):
        with pytest.warns(UserWarning, match="the result of the module 'Layer' is inside"):
            assert count(fun, *arguments(2), vertices=(Layer,)) == 1


# ---- a function of the graph ---------------------------------------------------------------------


def tanhs(graph):
    return [v for v in graph if v.name.startswith("tanh")]


def test_a_function_picks_vertices_in_any_way():
    args = arguments()
    expected = jax.jit(dendrax.grad(net, rule=RULE, vertices=(Layer,)))(*args)
    ways = (
        tanhs,
        lambda graph: {v.index for v in tanhs(graph)},
        lambda graph: (v.name for v in tanhs(graph)),
        lambda graph: [Port(v.index) for v in tanhs(graph)],
        lambda graph: np.array([v.index for v in tanhs(graph)]),
    )
    for way in ways:
        graph = dendrax.trace(net, *args, vertices=way)
        assert graph.chosen is way and len(graph.nodes) == 3
    assert close(jax.jit(dendrax.grad(net, rule=RULE, vertices=tanhs))(*args), expected)
    assert close(dendrax.run(graph, RULE).gradient, expected)


def test_a_function_may_return_one_and_the_output_is_left_out():
    args = arguments()
    assert count(net, *args, vertices=lambda graph: "tanh") == 1
    assert count(net, *args, vertices=lambda graph: graph["tanh"]) == 1
    everything = count(net, *args, vertices=lambda graph: graph.active)
    assert everything == count(net, *args, vertices="primitive")


def test_a_function_sees_who_uses_whom_and_loops_written_out():
    def loop(w, xs):
        h, _ = jax.lax.scan(lambda h, x: (jnp.tanh(h @ w + x), None), jnp.zeros(4), xs)
        return jnp.sum(h**2)

    ws, x = arguments(1)
    choose = lambda graph: [v for v in graph if v.name.endswith("/tanh")]
    graph = dendrax.trace(loop, ws[0], x, vertices=choose)
    assert len(graph.nodes) == 5
    read = lambda graph: [u for leaf in graph.parameters for u in graph.users(leaf)]
    assert count(net, *arguments(), vertices=read) == 3


OTHER = dendrax.trace(net, *arguments())


@pytest.mark.parametrize(
    ("choose", "kind", "said"),
    [
        (lambda g: None, TypeError, r"the function vertices=<lambda> returned None\."),
        (lambda g: [1.5], TypeError, r"picked 1\.5, of type float"),
        (lambda g: [], ValueError, "picked no value node; the output, which is clamped, is none"),
        (lambda g: [g.vertices[-1]], ValueError, "picked no value node"),
        (lambda g: OTHER.nodes, ValueError, "picked the vertex dot_general of another graph"),
        (lambda g: [999], ValueError, "picked the index 999, but the graph has 13 vertices"),
        (lambda g: [Port(5, 3)], ValueError, "but the graph has no such port"),
        (lambda g: ["tanhh"], ValueError, "no vertex named 'tanhh'. Did you mean 'tanh'"),
        (lambda g: ["x"], ValueError, r"picked x \(vertex 3\), which is a leaf \(data\) and has"),
        (lambda g: [0], ValueError, r"picked ws\[0\] \(vertex 0\), which is a leaf \(parameter\)"),
    ],
)
def test_what_is_no_node_is_refused(choose, kind, said):
    with pytest.raises(kind, match=said):
        dendrax.trace(net, *arguments(), vertices=choose)


def test_nodes_without_floats_or_error_are_refused():
    def fun(ws, x):
        hidden = jnp.argmax(jnp.tanh(x @ ws[0]), axis=-1)
        return net(ws, x) + jnp.sum(jnp.cos(x)) + jnp.sum(hidden).astype(float)

    def picks(name):
        return lambda graph: [v for v in graph if v.name == name]

    with pytest.raises(ValueError, match=r"picked argmax \(vertex .*\), which is int.*\n  at .*py"):
        dendrax.trace(fun, *arguments(), vertices=picks("argmax"))
    with pytest.raises(ValueError, match=r"picked cos .* carries no error: no parameter reach"):
        dendrax.trace(fun, *arguments(), vertices=picks("cos"))
    assert count(fun, *arguments(), vertices=lambda graph: tanhs(graph)[1:]) == 3
