"""Which value nodes networks of three libraries have, and that inference on them is as written."""

import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import dendrax
import dendrax.nnx
from dendrax import IL
from tests.cases.networks import NETWORKS
from tests.compare import close
from tests.sampling import every

LAYERS = {
    "MLP, Equinox": 3,
    "CNN with BatchNorm and pooling, NNX": 3,
    "ResNet18, dendrax.models": 17,
    "FC-ResNet, dendrax.models": 6,
    "Transformer, dendrax.models": 5,
    "LSTM, Equinox": 2,
    "LSTM, NNX": 2,
    "LSTM, Haiku": 2,
    "scanned Transformer, Equinox": 4,
    "ViT, Equinox": 9,
    "ViT, NNX": 9,
    "ViT, Haiku": 9,
}
NO_NAMES = re.compile(r"__call__|function|^params|^w\[|(^|/)(add|mul|dot_general)(_|$)")


@pytest.mark.parametrize("name", LAYERS)
def test_layers_are_few_and_read_their_neighbours(name):
    fun, args = NETWORKS[name].make()
    graph = dendrax.trace(fun, *args, vertices="layer")
    nodes = set(graph.nodes)
    assert len(nodes) == LAYERS[name]
    assert max(sum(v in nodes for v in graph.inputs(user)) for user in graph.active) <= 2
    assert not [v.name for v in nodes if NO_NAMES.search(v.name)]


@pytest.mark.parametrize("name", every(2, list(NETWORKS)))
def test_modules_by_name(name):
    fun, args = NETWORKS[name].make()
    graph = dendrax.trace(fun, *args, vertices=NETWORKS[name].modules)
    assert graph.nodes
    assert not [v.name for v in graph.nodes if NO_NAMES.search(v.name)]


INDEPENDENT = [name for name in LAYERS if "ResNet18" not in name and "CNN" not in name]
QUICK = ("MLP, Equinox", "LSTM, Haiku", "scanned Transformer, Equinox")


@pytest.mark.parametrize(
    "name",
    [pytest.param(n, marks=() if n in QUICK else pytest.mark.slow) for n in INDEPENDENT],
)
def test_a_mean_is_the_mean_of_what_single_samples_teach(name):
    fun, (model, *data) = NETWORKS[name].make()
    grad = dendrax.nnx.grad if "NNX" in name else dendrax.grad
    found = grad(fun, rule=IL(num_steps=4, gamma=0.02))(model, *data)
    alone = grad(fun, rule=IL(num_steps=4, gamma=0.02, batch="sum"))
    each = [alone(model, *(x[i : i + 1] for x in data)) for i in range(len(data[0]))]
    expected = jax.tree.map(lambda *g: sum(g) / len(g), *each)
    pairs = list(zip(jax.tree.leaves(found), jax.tree.leaves(expected), strict=True))
    scale = max(np.abs(other).max() for _, other in pairs)
    for one, other in pairs:
        np.testing.assert_allclose(one, other, atol=1e-5 * scale, rtol=0)


def test_a_residual_network_is_that_of_the_papers():
    """As muPC and JPC have it: the error of a layer is z_l - (z_{l-1} + a W phi(z_{l-1}))."""
    rng = np.random.default_rng(0)
    ws = [jnp.asarray(rng.normal(size=shape)) / 2 for shape in ((3, 4), (4, 4), (4, 4), (4, 2))]
    x, y = jnp.asarray(rng.normal(size=(5, 3))), jnp.asarray(rng.normal(size=(5, 2)))
    a, gamma, num_steps = 0.7, 0.1, 6

    def forward(ws, x):
        z = x @ ws[0]
        for w in ws[1:-1]:
            z = z + a * jnp.tanh(z) @ w
        return jnp.tanh(z) @ ws[-1]

    def loss(ws, x, y):
        return jnp.mean(jnp.sum((forward(ws, x) - y) ** 2, -1)) / 2

    def energy(zs, ws):
        total = jnp.sum((zs[0] - x @ ws[0]) ** 2)
        for before, z, w in zip(zs, zs[1:], ws[1:-1], strict=False):
            total += jnp.sum((z - (before + a * jnp.tanh(before) @ w)) ** 2)
        return (total + jnp.sum((jnp.tanh(zs[-1]) @ ws[-1] - y) ** 2)) / 2

    zs = [x @ ws[0]]
    for w in ws[1:-1]:
        zs.append(zs[-1] + a * jnp.tanh(zs[-1]) @ w)
    for _ in range(num_steps):
        zs = [z - gamma * g for z, g in zip(zs, jax.grad(energy)(zs, ws), strict=True)]
    expected = [g / len(x) for g in jax.grad(energy, argnums=1)(zs, ws)]
    found = dendrax.grad(loss, rule=IL(num_steps, gamma=gamma))(ws, x, y)
    assert close(found, expected, ulps=256)
    names = [v.name for v in dendrax.trace(loss, ws, x, y, vertices="layer").nodes]
    assert names == ["layer(ws[0])", "layer(ws[1])", "layer(ws[2])"]


def test_one_step_over_depth_and_time_runs_side_by_side():
    """No loop of the program has the length of the sequence but the forward pass."""
    fun, args = NETWORKS["LSTM, Equinox"].make()
    program = str(jax.make_jaxpr(dendrax.grad(fun, rule=IL(num_steps=7)))(*args))
    assert program.count("length=4") == 1 and "length=7" in program
