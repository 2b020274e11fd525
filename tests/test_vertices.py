"""Which value nodes are chosen: the textbook networks, marks, and what lies between."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import dendrax
from dendrax import IL
from dendrax.graph import operations_of
from dendrax.inference import evaluate
from dendrax.models import PROBLEMS, problem
from tests.cases.graphs import GRAPHS
from tests.compare import close


def layers_of(fun, *args, **kwargs):
    return dendrax.trace(fun, *args, vertices="layer", **kwargs)


def read_by(graph):
    """Of each vertex with an error the value nodes that it reads."""
    nodes = set(graph.nodes)
    return {v.name: [w.name for w in graph.inputs(v) if w in nodes] for v in graph.active}


def names(graph):
    return [v.name for v in graph.nodes]


@pytest.mark.parametrize("setting", ["loss", "target"])
def test_mlp_is_the_textbook_network(setting):
    """One value node per hidden pre-activation, mu_k = W_k f(x_{k-1}) + b_k; the loss clamps."""
    p = problem("mlp", dtype="float64", small=True)
    args = (p.model, p.inputs, p.target) if setting == "loss" else (p.model, p.inputs)
    graph = layers_of(p.loss if setting == "loss" else p.predict, *args)
    assert names(graph) == ["layers[0]", "layers[1]"]
    first, second = graph.nodes
    assert {v.name for v in graph.inputs(first)} == {
        "inputs",
        "model.layers[0].weight",
        "model.layers[0].bias",
    }
    assert {v.name for v in graph.inputs(second)} == {
        "layers[0]",
        "model.layers[1].weight",
        "model.layers[1].bias",
    }
    x = np.random.default_rng(0).normal(size=first.shape)
    layer = p.model.layers[1]
    given = {"layers[0]": x, "model.layers[1].weight": layer.weight}
    given["model.layers[1].bias"] = layer.bias
    (mu,) = second.function(*(given[v.name] for v in graph.inputs(second)))
    np.testing.assert_allclose(mu, np.tanh(x) @ layer.weight + layer.bias, rtol=1e-14)


def test_cnn_is_the_textbook_network():
    p = problem("cnn", small=True)
    graph = layers_of(p.loss, p.model, p.inputs, p.target)
    assert names(graph) == ["convs[0]", "convs[1]", "hidden"]


def test_rnn_is_the_textbook_network():
    """One value node per time step, W x_t + U f(x_{t-1}) + b, although three operations add up."""
    p = problem("rnn", small=True)
    graph = layers_of(p.loss, p.model, p.inputs, p.target)
    assert len(graph.nodes) == p.inputs.shape[1]
    for before, after in zip(graph.nodes, graph.nodes[1:], strict=False):
        assert before in graph.inputs(after)
        assert {"model.input.weight", "model.recurrent.weight", "model.input.bias"} <= {
            v.name for v in graph.inputs(after)
        }


def test_a_scanned_rnn_has_one_value_node_for_all_steps():
    p = problem("rnn_scan", small=True)
    graph = layers_of(p.loss, p.model, p.inputs, p.target)
    assert names(graph) == ["scan/recurrent"]
    assert graph.nodes[0].shape == (p.inputs.shape[1], p.inputs.shape[0], 6)


def test_transformer():
    """What attention mixes, the residual stream, what a block expands to; norms are no nodes."""
    p = problem("transformer", small=True)
    assert read_by(layers_of(p.loss, p.model, p.inputs, p.target)) == {
        "embed": [],
        "blocks[0].attention": ["embed"],
        "blocks[0].attention.output": ["embed", "blocks[0].attention"],
        "blocks[0].forward.expand": ["blocks[0].attention.output"],
        "blocks[0].forward.contract": ["blocks[0].attention.output", "blocks[0].forward.expand"],
        "output": ["blocks[0].forward.contract"],
    }


def test_resnet18():
    """A node after each normalised convolution; the second of a block is the sum, to which the
    shortcut's convolution belongs."""
    p = problem("resnet18", small=True)
    found = read_by(layers_of(p.loss, p.model, p.inputs, p.target))
    assert len(found) - 1 == 17
    assert found["blocks[2].first.conv"] == ["blocks[1].second.conv"]
    assert found["output"] == ["blocks[7].second.conv"]
    assert max(map(len, found.values())) == 2


DEEP = ("resnet18", "transformer12", "mlp100")


@pytest.mark.parametrize(
    "name", [pytest.param(n, marks=pytest.mark.slow if n in DEEP else ()) for n in PROBLEMS]
)
def test_the_groups_are_the_function(name):
    p = problem(name, dtype="float64", small=True)
    args = p.model, p.inputs, p.target
    graph = layers_of(p.loss, *args)
    operations = operations_of(graph)
    value = evaluate(operations, graph.call.leaves())[operations.outputs[0]]
    assert close(value, p.loss(*args), ulps=16)


@pytest.mark.parametrize("case", GRAPHS, ids=[case.name for case in GRAPHS])
def test_the_groups_of_any_graph_are_the_function(case):
    args = case.make_args()
    graph = layers_of(case.fun, *args, argnums=case.argnums)
    operations = operations_of(graph)
    value = evaluate(operations, graph.call.leaves())[operations.outputs[0]]
    assert close(value, case.fun(*args), ulps=16)


def test_a_penalty_in_the_loss_changes_nothing():
    p = problem("mlp", small=True)

    def penalised(model, x, y):
        penalty = sum(jnp.sum(w**2) for w in jax.tree.leaves(model))
        return p.loss(model, x, y) + 1e-3 * penalty

    args = p.model, p.inputs, p.target
    assert names(layers_of(penalised, *args)) == names(layers_of(p.loss, *args))


def test_inputs_may_be_differentiated_too():
    p = problem("mlp", small=True)
    args = p.model, p.inputs, p.target
    both = layers_of(p.loss, *args, argnums=(0, 1))
    assert [v.shape for v in both.nodes] == [v.shape for v in layers_of(p.loss, *args).nodes]


def test_prepared_weights_belong_to_their_layer():
    """Casts, transposes, normalised and scaled weights are no layers of their own."""

    def loss(w, g, x):
        w1 = g * w[0] / jnp.linalg.norm(w[0], axis=0)
        h = jnp.tanh(x.astype(jnp.bfloat16) @ w1.astype(jnp.bfloat16))
        return jnp.sum((jnp.asarray(h, jnp.float32) @ w[1].T / jnp.sqrt(2.0)) ** 2)

    w = [jnp.ones((3, 4), jnp.float32), jnp.ones((2, 4), jnp.float32)]
    x = jnp.ones((5, 3), jnp.float32)
    with jax.numpy_dtype_promotion("standard"):
        graph = layers_of(loss, w, jnp.ones((4,), jnp.float32), x, argnums=(0, 1))
    assert [v.shape for v in graph.nodes] == [(5, 4)]


def test_embedding_scale_and_gates():
    """A table lookup is a layer, a position joins it; a gate is a part of the vertex it closes."""

    def loss(table, position, gate, out, tokens):
        h = table[tokens] + position
        h = (h @ gate[0]) * jax.nn.sigmoid(h @ gate[1])
        return jnp.sum((h @ out) ** 2)

    args = jnp.ones((7, 4)), jnp.ones((3, 4)), [jnp.ones((4, 5))] * 2, jnp.ones((5, 2))
    graph = layers_of(loss, *args, jnp.zeros((2, 3), int), argnums=(0, 1, 2, 3))
    assert [v.shape for v in graph.nodes] == [(2, 3, 4), (2, 3, 5)]
    both = dendrax.trace(
        loss, *args, jnp.zeros((2, 3), int), argnums=(0, 1, 2, 3), vertices="parameter"
    )
    assert [v.shape for v in both.nodes] == [(2, 3, 4), (2, 3, 5), (2, 3, 5)]


def test_a_weight_made_of_parameters_is_a_weight():
    def loss(p, x):
        return jnp.sum((jnp.tanh(x @ (p[0] + p[1] @ p[2])) @ p[3]) ** 2)

    p = [jnp.ones((3, 3)), jnp.ones((3, 1)), jnp.ones((1, 3)), jnp.ones((3, 2))]
    graph = layers_of(loss, p, jnp.ones((5, 3)))
    assert [v.shape for v in graph.nodes] == [(5, 3)]


def test_a_normalisation_written_with_the_factor_first():
    """As Flax does: (x - mean) * (rsqrt(variance) * scale) + bias is one value node."""

    def norm(x, scale, bias):
        centred = x - jnp.mean(x, -1, keepdims=True)
        factor = jax.lax.rsqrt(jnp.mean(centred**2, -1, keepdims=True) + 1e-5)
        return centred * (factor * scale) + bias

    def loss(p, x):
        h = jnp.tanh(norm(x @ p["w"], p["scale"], p["bias"]))
        return jnp.sum((h @ p["v"]) ** 2)

    shapes = {"w": (3, 4), "scale": (4,), "bias": (4,), "v": (4, 2)}
    p = {name: jnp.ones(shape) for name, shape in shapes.items()}
    graph = layers_of(loss, p, jnp.ones((5, 3)))
    assert len(graph.nodes) == 1
    inputs = {v.name for v in graph.inputs(graph.nodes[0])}
    assert inputs == {"x", "p['w']", "p['scale']", "p['bias']"}


class TestEquinoxLayers:
    """Layers that we did not write, vectorised over a batch."""

    key = jax.random.key(0)

    def nodes(self, model, x):
        params, static = eqx.partition(model, eqx.is_inexact_array)

        def loss(params, x):
            return jnp.sum(jax.vmap(eqx.combine(params, static))(x) ** 2)

        return layers_of(loss, params, x).nodes

    def test_mlp(self):
        model = eqx.nn.MLP(3, 2, 4, depth=3, key=self.key)
        nodes = self.nodes(model, jnp.ones((5, 3)))
        assert [sorted(v.shape) for v in nodes] == [[4, 5]] * 3

    def test_convolutions(self):
        one, two, three = jax.random.split(self.key, 3)
        model = eqx.nn.Sequential(
            [
                eqx.nn.Conv2d(1, 3, 3, key=one),
                eqx.nn.Lambda(jax.nn.relu),
                eqx.nn.MaxPool2d(2, 2),
                eqx.nn.Lambda(lambda x: jnp.ravel(x)),
                eqx.nn.Linear(27, 6, key=two),
                eqx.nn.Lambda(jnp.tanh),
                eqx.nn.Linear(6, 2, key=three),
            ]
        )
        nodes = self.nodes(model, jnp.ones((5, 1, 8, 8)))
        assert [sorted(v.shape) for v in nodes] == [[3, 5, 6, 6], [5, 6]]

    def test_gru(self):
        cell = eqx.nn.GRUCell(3, 4, key=self.key)
        head = eqx.nn.Linear(4, 2, key=self.key)

        def model(xs):
            h, _ = jax.lax.scan(lambda h, x: (cell(x, h), None), jnp.zeros(4), xs)
            return head(h)

        params, static = eqx.partition((cell, head), eqx.is_inexact_array)

        def loss(params, xs):
            nonlocal cell, head
            cell, head = eqx.combine(params, static)
            return jnp.sum(jax.vmap(model)(xs) ** 2)

        graph = layers_of(loss, params, jnp.ones((5, 3, 3)))
        (state,) = graph.nodes  # of all steps, batch and units
        assert sorted(state.shape) == [3, 4, 5]
        assert state.name == "scan/layer(params[0])"

    def test_attention(self):
        model = eqx.nn.MultiheadAttention(2, 4, key=self.key)
        params, static = eqx.partition(model, eqx.is_inexact_array)

        def loss(params, x):
            attend = eqx.combine(params, static)
            return jnp.sum(jax.vmap(lambda x: attend(x, x, x))(x) ** 2)

        graph = layers_of(loss, params, jnp.ones((5, 3, 4)))
        assert len(graph.nodes) == 1  # what attention mixes; the output projection is clamped


def test_metrics_do_not_change_the_choice():
    def loss(w, x, measure):
        z = x @ w["a"]
        metric = jnp.abs(z).mean() if measure else 0.0
        return jnp.sum((jnp.tanh(z + w["b"]) @ w["c"]) ** 2), metric

    shapes = {"a": (3, 4), "b": (4,), "c": (4, 2)}
    w = {name: jnp.ones(shape) for name, shape in shapes.items()}
    found = [
        dendrax.grad(lambda w, x, m=m: loss(w, x, m), has_aux=True, rule=IL(batch="sum"))(
            w, jnp.ones((5, 3))
        )
        for m in (False, True)
    ]
    assert close(found[0][0], found[1][0])


def test_a_network_of_scalars():
    def loss(w, x):
        return 0.5 * (w[2] * jnp.tanh(w[1] * jnp.tanh(w[0] * x)) - 1) ** 2

    graph = layers_of(loss, [jnp.asarray(v) for v in (0.5, 1.5, 2.0)], jnp.asarray(0.7))
    assert len(graph.nodes) == 2


def test_a_bias_after_an_activation_belongs_to_the_layer_that_reads_it():
    def loss(w, x):
        return jnp.sum((jnp.maximum(x @ w[0], 0.0) + w[1]) @ w[2])

    args = [jnp.ones(shape) for shape in ((3, 4), (4,), (4, 2))], jnp.ones((5, 3))
    assert len(layers_of(loss, *args).nodes) == 1
    assert len(dendrax.trace(loss, *args, vertices="parameter").nodes) == 2


def test_scales_after_activations_are_layers():
    def loss(w, x):
        for scale in w:
            x = jnp.tanh(x) * scale
        return jnp.sum(x**2)

    assert len(layers_of(loss, [jnp.ones(4)] * 3, jnp.ones((5, 4))).nodes) == 2


def test_unknown_vertices():
    with pytest.raises(ValueError, match="'primitive', 'layer', 'parameter', 'marked'"):
        dendrax.grad(jnp.sin, vertices="neuron")


def test_no_layers_is_said():
    with pytest.warns(UserWarning, match="IL: the graph has no value node"):
        found = dendrax.grad(lambda w, x: jnp.sum((x @ w) ** 2), rule=IL(batch="sum"))(
            jnp.ones(2), jnp.ones(2)
        )
    np.testing.assert_allclose(found, [4, 4])


def test_the_choice_is_shown():
    p = problem("mlp", small=True)
    text = repr(layers_of(p.loss, p.model, p.inputs, p.target))
    assert "2 value nodes, and the output, which is clamped" in text
    assert "value node layers[1]" in text
    assert "_layers.py" in text


@pytest.mark.parametrize("f", [jnp.tanh, jax.nn.relu, jax.nn.silu, jax.nn.gelu, jax.nn.elu])
@pytest.mark.parametrize("after", ["bare", "scale", "norm"])
def test_the_value_node_is_before_any_activation(f, after):
    def loss(w, x):
        h = f(x @ w["a"] + w["b"])
        if after == "norm":
            h = (h - h.mean(-1, keepdims=True)) * jax.lax.rsqrt(h.var(-1, keepdims=True) + 1e-5)
        if after != "bare":
            h = h * w["g"] + w["s"]
        return jnp.sum((h @ w["c"]) ** 2)

    shapes = {"a": (3, 4), "b": (4,), "g": (4,), "s": (4,), "c": (4, 2)}
    w = {name: jnp.ones(shape) for name, shape in shapes.items()}
    graph = layers_of(loss, w, jnp.ones((5, 3)))
    (node,) = graph.nodes
    assert {v.name for v in graph.inputs(node)} == {"w['a']", "w['b']", "x"}


def test_deep_networks_of_gates_and_of_parts_take_no_time():
    def gated(w, x):
        gate = jax.nn.softplus(x @ w["v"]) * w["g"]
        for _ in range(60):
            x = x + jnp.tanh(x @ w["v"])
        return jnp.sum((gate * x) ** 2)

    def parts(w, x):
        h = jnp.concatenate([x @ w["v"], jnp.tanh(x @ w["v"]) @ w["v"]], 1)
        for _ in range(1200):
            h = jnp.sin(h)
        return jnp.sum((h[:, :4] @ w["v"]) ** 2)

    w = {"v": jnp.eye(4), "g": jnp.ones(4)}
    assert len(layers_of(gated, w, jnp.ones((5, 4))).nodes) >= 60
    assert len(layers_of(parts, w, jnp.ones((5, 4))).nodes) == 3


def test_two_scanned_layers_with_a_readout_of_all_steps():
    def loss(p, xs):
        def first(h, x):
            h = jnp.tanh(x @ p["a"] + h @ p["b"])
            return h, h

        def second(h, x):
            h = jnp.tanh(x @ p["c"] + h @ p["d"])
            return h, h

        _, hs = jax.lax.scan(first, jnp.zeros((2, 3)), xs)
        _, hs = jax.lax.scan(second, jnp.zeros((2, 3)), hs)
        return jnp.mean((hs @ p["e"]) ** 2)

    p = {name: jnp.eye(3) / 2 for name in "abcde"}
    assert [v.shape for v in layers_of(loss, p, jnp.ones((6, 2, 3))).nodes] == [(6, 2, 3)] * 2


@pytest.mark.parametrize("kind", ["strong", "weak"])
def test_a_carry_that_is_cast_is_a_state(kind):
    init = jnp.full((2, 3), 0.0) if kind == "weak" else jnp.zeros((2, 3))

    def loss(w, xs):
        def cell(state, x):
            h, c = state
            i, f, g, o = jnp.split((x + h) @ w, 4, -1)
            c = jax.nn.sigmoid(f) * c + jax.nn.sigmoid(i) * jnp.tanh(g)
            return (jax.nn.sigmoid(o) * jnp.tanh(c), c), None

        (h, _), _ = jax.lax.scan(cell, (jnp.zeros((2, 3)), init), xs)
        return jnp.mean((h - 1.0) ** 2)

    assert len(layers_of(loss, jnp.ones((3, 12)) / 3, jnp.ones((8, 2, 3))).nodes) == 2


def test_a_number_is_no_layer():
    """A spectral norm: the weight divided by a number that states have made."""

    def loss(w, u, x):
        sigma = u @ w["a"] @ jnp.ones(4)
        return jnp.sum((jnp.tanh(x @ (w["a"] / sigma)) @ w["c"]) ** 2)

    w = {"a": jnp.ones((3, 4)), "c": jnp.ones((4, 2))}
    (node,) = layers_of(loss, w, jnp.ones(3), jnp.ones((5, 3))).nodes
    assert node.shape == (5, 4)
