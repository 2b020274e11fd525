"""`dendrax.vertex`: what is marked is one vertex, and to everybody else the mark means nothing."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import dendrax
from dendrax import IL, ZIL
from dendrax.inference import evaluate
from tests.compare import close, same


def names(graph):
    return [v.name for v in graph.nodes]


def post_activation(ws, x, y):
    layer = dendrax.vertex(lambda w, x: jnp.tanh(x @ w))
    for w in ws[:-1]:
        x = layer(w, x)
    return jnp.sum((x @ ws[-1] - y) ** 2) / 2


def small_net():
    rng = np.random.default_rng(0)
    ws = [jnp.asarray(rng.normal(size=shape)) for shape in ((3, 4), (4, 4), (4, 2))]
    return ws, jnp.asarray(rng.normal(size=(5, 3))), jnp.asarray(rng.normal(size=(5, 2)))


def test_marked_layers_are_post_activations():
    ws, x, y = small_net()
    graph = dendrax.trace(post_activation, ws, x, y, vertices="marked")
    assert len(graph.nodes) == 2
    (mu,) = graph.nodes[0].function(
        *(evaluate(graph, graph.call.leaves())[p] for p in graph.nodes[0].inputs)
    )
    np.testing.assert_allclose(mu, np.tanh(x @ ws[0]))
    pre = dendrax.grad(post_activation, rule=IL(batch="sum"), vertices="layer")
    post = dendrax.grad(post_activation, rule=IL(batch="sum"), vertices="marked")
    assert names(dendrax.trace(post_activation, ws, x, y, vertices="layer")) == names(graph)
    assert same(pre(ws, x, y), post(ws, x, y))


def test_marks_mean_nothing_to_jax_and_to_zil():
    ws, x, y = small_net()

    def plain(ws, x, y):
        for w in ws[:-1]:
            x = jnp.tanh(x @ w)
        return jnp.sum((x @ ws[-1] - y) ** 2) / 2

    expected = jax.jit(jax.grad(plain))(ws, x, y)
    assert same(jax.jit(jax.grad(post_activation))(ws, x, y), expected)
    assert same(jax.jit(dendrax.grad(post_activation))(ws, x, y), expected)
    found = dendrax.grad(post_activation, rule=ZIL(timing="level"), vertices="marked")
    assert close(found(ws, x, y), expected)


def test_zil_dynamics_on_marked_and_layer_vertices():
    ws, x, y = small_net()
    expected = jax.grad(post_activation)(ws, x, y)
    for vertices in ("marked", "layer"):
        graph = dendrax.trace(post_activation, ws, x, y, vertices=vertices)
        assert close(dendrax.run(graph, ZIL(), record="energy").gradient, expected)
        assert close(dendrax.run(graph, ZIL()).gradient, expected)


def test_a_mark_inside_a_scan_is_one_value_node():
    @dendrax.vertex
    def cell(w, h, x):
        return jnp.tanh(h @ w + x)

    def loss(w, xs):
        h, _ = jax.lax.scan(lambda h, x: (cell(w, h, x), None), jnp.zeros((5, 3)), xs)
        return jnp.sum(jnp.sin(h))

    args = jnp.eye(3) / 2, jnp.asarray(np.random.default_rng(1).normal(size=(4, 5, 3)))
    graph = dendrax.trace(loss, *args, vertices="marked")
    assert names(graph) == ["scan/cell"] and graph.nodes[0].outputs[0].shape == (4, 5, 3)

    def by_hand(w, xs):
        h = jnp.zeros((5, 3))
        for x in xs:
            h = cell(w, h, x)
        return jnp.sum(jnp.sin(h))

    found, expected = (
        jax.jit(dendrax.grad(fun, rule=IL(batch="sum"), vertices="marked"))(*args)
        for fun in (loss, by_hand)
    )
    assert close(found, expected)
    assert not close(found, jax.grad(loss)(*args), ulps=1e9)


def test_marks_survive_vmap_remat_and_nesting():
    inner = dendrax.vertex(lambda w, x: jnp.tanh(w @ x))
    outer = dendrax.vertex(lambda w, x: inner(w, inner(w, x)))

    def loss(w, x):
        h = jax.vmap(jax.checkpoint(outer), (None, 0))(w, x)
        h = jax.vmap(inner, (None, 0))(w, h)
        return jnp.sum(jnp.sin(h))

    graph = dendrax.trace(loss, jnp.eye(3), jnp.ones((2, 3)), vertices="marked")
    assert len(graph.nodes) == 2  # the outer mark counts as one


def test_marked_functions_take_anything():
    @dendrax.vertex
    def layer(module, x, *, activation, scale=2):
        """Keeps its docstring."""
        assert isinstance(scale, int)
        return {"y": getattr(jnp, activation)(module["w"] @ x) / scale, "x": x}

    out = layer({"w": jnp.eye(2), "f": jnp.sin}, np.ones(2), activation="tanh")
    np.testing.assert_allclose(out["y"], np.tanh(1.0) / 2)
    assert layer.__name__ == "layer" and layer.__doc__ == "Keeps its docstring."
    layer({"w": jnp.eye(2), "f": [1, {2}]}, np.ones(2), activation="tanh")


def test_marked_functions_are_never_out_of_date():
    class Net:
        def __init__(self, w):
            self.w = w

        @dendrax.vertex
        def layer(self, x):
            return x * self.w

    net = Net(2.0)

    @jax.jit
    def first(x):
        return net.layer(x)

    assert first(jnp.ones(())) == 2.0 == net.layer(jnp.ones(()))
    net.w = 3.0
    assert jax.jit(lambda x: net.layer(x))(jnp.ones(())) == 3.0 == net.layer(jnp.ones(()))
    scale = dendrax.vertex(lambda x, s: x * s)
    with jax.numpy_dtype_promotion("standard"):
        kinds = [jax.eval_shape(lambda x, s=s: scale(x, s), jnp.arange(3)).dtype for s in (1, 1.0)]
    assert kinds == [jnp.arange(3).dtype, jnp.arange(3.0).dtype]


def test_a_marked_function_reads_a_value_twice():
    product = dendrax.vertex(lambda a, b: a * b)

    def fun(w):
        h = jnp.sin(w)
        return jnp.sum(jnp.cos(product(h, h)))

    w = jnp.asarray([0.3, -0.7])
    graph = dendrax.trace(fun, w)
    assert "function" in names(graph)
    result = dendrax.run(graph, ZIL(), record="energy")
    assert close(result.gradient, jax.grad(fun)(w))


def test_nothing_marked():
    with pytest.raises(
        ValueError, match=r"(?s)no marked function lies between.*Mark the functions"
    ):
        dendrax.trace(lambda w: jnp.sin(jnp.cos(w)), 1.0, vertices="marked")
    with pytest.raises(ValueError, match="no value node"):
        dendrax.grad(lambda w: jnp.sin(w), rule=IL(batch="sum"), vertices="marked")(1.0)


def test_not_a_function():
    with pytest.raises(
        TypeError, match=r"(?s)dendrax.vertex: expected a function.*Mark the function"
    ):
        dendrax.vertex(3)


def branching(condition, wrap):
    """A mark inside ``cond``, behind one that is seen."""
    layer = dendrax.vertex(lambda w, x: jnp.tanh(x @ w))

    def loss(ws, x):
        h = jax.lax.cond(condition(x), wrap(layer), lambda w, x: jnp.sin(x @ w), ws[1], x)
        return jnp.sum(layer(ws[0], h) @ ws[0])

    return loss


def with_a_rule_of_its_own(layer):
    own = jax.custom_vjp(layer)
    own.defvjp(
        lambda w, x: (layer(w, x), (w, x)), lambda kept, error: jax.vjp(layer, *kept)[1](error)
    )
    return own


@pytest.mark.parametrize("vertices", ["marked", "layer"])
def test_a_mark_inside_cond_is_no_value_node_and_says_so(vertices):
    loss = branching(lambda x: x[0, 0] > 0, lambda layer: layer)
    args = [jnp.eye(3), jnp.eye(3) / 2], jnp.ones((2, 3))
    with pytest.warns(UserWarning, match=r"'function' is inside cond \(.*test_marks.py.*no value"):
        graph = dendrax.trace(loss, *args, vertices=vertices)
    assert len(graph.nodes) == (1 if vertices == "marked" else 2)
    dendrax.trace(loss, *args, vertices="primitive")  # where marks mean nothing, nothing is said
    dendrax.grad(loss)(*args)


def test_a_mark_inside_a_custom_rule_is_no_value_node_and_says_so():
    layer = dendrax.vertex(lambda w, x: jnp.tanh(x @ w))
    own = with_a_rule_of_its_own(layer)
    args = jnp.eye(3), jnp.ones((2, 3))
    with pytest.warns(UserWarning, match=r"'function' is inside custom_vjp.*Mark a function that"):
        graph = dendrax.trace(
            lambda w, x: jnp.sum(layer(w, own(w, x)) @ w), *args, vertices="marked"
        )
    assert names(graph) == ["layer(w)"]  # of a function without a name of its own
    with pytest.raises(
        ValueError, match=r"no value node. And the marked function 'function' is in"
    ):
        dendrax.trace(lambda w, x: jnp.sum(own(w, x) @ w), *args, vertices="marked")
    outer = dendrax.vertex(own)
    graph = dendrax.trace(lambda w, x: jnp.sum(outer(w, x) @ w), *args, vertices="marked")
    assert len(graph.nodes) == 1
