"""`vertices=` as names and classes of modules of Equinox, Flax NNX, linen and Haiku."""

import equinox as eqx
import haiku as hk
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import linen as nn
from flax import nnx

import dendrax
import dendrax.equinox
import dendrax.nnx
from tests.compare import close, same

RULE = dendrax.IL(num_steps=4, gamma=0.1, batch="sum")  # the targets are no arguments
X, Y = np.random.default_rng(0).normal(size=(2, 5, 4))
CELLS = np.random.default_rng(1).normal(size=(6, 2, 4))


def squares(out):
    return jnp.mean(jnp.sum((out - Y) ** 2, axis=-1)) / 2


def count(fun, *args, vertices, **more):
    return len(dendrax.trace(fun, *args, vertices=vertices, **more).nodes)


def alike(found, expected):
    """Whether states are equal: floats to rounding, counters and keys exactly."""
    pairs = zip(jax.tree.leaves(found), jax.tree.leaves(expected), strict=True)
    is_float = lambda leaf: jnp.issubdtype(leaf.dtype, jnp.inexact)
    return all((close if is_float(a) else same)(a, b) for a, b in pairs)


# ---- Equinox -------------------------------------------------------------------------------------


class Block(eqx.Module):
    inner: eqx.nn.Linear
    outer: eqx.nn.Linear

    def __init__(self, key):
        first, second = jax.random.split(key)
        self.inner, self.outer = eqx.nn.Linear(4, 4, key=first), eqx.nn.Linear(4, 4, key=second)

    def __call__(self, x, key=None):
        return x + self.outer(jnp.tanh(self.inner(x)))


class Net(eqx.Module):
    blocks: list
    head: eqx.nn.Linear

    def __init__(self, key):
        keys = jax.random.split(key, 4)
        self.blocks, self.head = [Block(k) for k in keys[:3]], eqx.nn.Linear(4, 4, key=keys[3])

    def __call__(self, x):
        for block in self.blocks:
            x = block(x)
        return self.head(x)


def of_equinox(model, x):
    return squares(jax.vmap(model)(x))


def test_a_block_of_equinox_is_one_node():
    model = Net(jax.random.key(0))
    before = Block.__dict__["__call__"]
    for chosen in (("Block",), (Block,), ("Bl*",), (f"{Block.__module__}.Block",)):
        graph = dendrax.trace(of_equinox, model, X, vertices=chosen)
        assert [len(graph.inputs(v)) for v in graph.nodes] == [5, 5, 5]
    assert count(of_equinox, model, X, vertices=("Block", "equinox.nn.Linear")) == 3 + 6 + 1
    assert Block.__dict__["__call__"] is before
    expected = dendrax.run(graph, RULE).gradient
    both = dendrax.equinox.filter_value_and_grad(of_equinox, rule=RULE, vertices=["Block"])
    _, found = eqx.filter_jit(both)(model, X)
    assert close(jax.tree.leaves(found), jax.tree.leaves(eqx.filter(expected, eqx.is_array)))
    assert not same(found, eqx.filter_jit(eqx.filter_grad(of_equinox))(model, X))


def test_modules_of_equinox_in_each_other_and_transformed():
    keys = jax.random.split(jax.random.key(0), 3)
    layers = [eqx.nn.Linear(4, 4, key=keys[0]), eqx.nn.Lambda(jnp.tanh), Block(keys[1])]
    model = eqx.nn.Sequential(layers)
    loss = lambda model, x: squares(eqx.filter_vmap(model)(x))
    assert count(loss, model, X, vertices=("Linear",)) == 3
    assert count(loss, model, X, vertices=("Lambda", "Block", "Sequential")) == 2

    class Wrapped(eqx.Module):
        inner: Block

        def __call__(self, x):
            return eqx.filter_jit(self.inner.__call__)(eqx.filter_checkpoint(self.inner)(x))

    loss = lambda model, x: squares(jax.vmap(model)(x))
    assert count(loss, Wrapped(Block(keys[2])), X, vertices=(Block,)) == 2
    many = eqx.filter_vmap(Block)(keys)
    each = eqx.filter_vmap(lambda block, x: block(x), in_axes=(eqx.if_array(0), None))
    loss = lambda many, x: jnp.mean(each(many, x) ** 2)
    (node,) = dendrax.trace(loss, many, X[0], vertices=("Block",)).nodes
    assert node.shape == (3, 4)

    def deep(many, x):
        arrays, rest = eqx.partition(many, eqx.is_array)
        step = lambda x, arrays: (eqx.combine(arrays, rest)(x), None)
        return jnp.sum(jax.lax.scan(step, x, arrays)[0] ** 2)

    (node,) = dendrax.trace(deep, many, X[0], vertices=("Block",)).nodes
    assert node.shape == (3, 4)  # of all steps of the loop


def test_statistics_of_equinox_are_no_nodes():
    model, state = eqx.nn.make_with_state(eqx.nn.BatchNorm)(4, axis_name="batch", mode="batch")

    def loss(model, state, x):
        run = jax.vmap(model, axis_name="batch", in_axes=(0, None), out_axes=(0, None))
        out, state = run(x, state)
        out, state = run(jnp.tanh(out), state)
        return squares(out), state

    assert count(loss, model, state, X, has_aux=True, vertices=("BatchNorm",)) == 2


def test_the_nearest_names_of_modules_that_are_called():
    model = Net(jax.random.key(0))
    said = "'Blok', but no module of it is called. Did you mean 'Block'?\n  Called are Linear, Blo"
    with pytest.raises(ValueError, match=said.replace("?", r"\?")):
        dendrax.trace(of_equinox, model, X, vertices=("Blok",))
    with pytest.raises(ValueError, match=r"'nn\.Conv', but no module of it is called"):
        dendrax.trace(of_equinox, model, X, vertices=("Block", "nn.Conv"))
    with pytest.raises(TypeError, match="such as 'Block'"):
        dendrax.trace(of_equinox, model, X, vertices=(model.blocks[0],))


# ---- Flax NNX ------------------------------------------------------------------------------------


class NNXBlock(nnx.Module):
    def __init__(self, rngs):
        self.linear = nnx.Linear(4, 4, rngs=rngs)
        self.norm = nnx.BatchNorm(4, rngs=rngs)
        self.dropout = nnx.Dropout(0.1, rngs=rngs)

    def __call__(self, x):
        return x + self.dropout(jnp.tanh(self.norm(self.linear(x))))


class NNXNet(nnx.Module):
    def __init__(self, rngs):
        self.first, self.second = NNXBlock(rngs), NNXBlock(rngs)

    def __call__(self, x):
        return self.second(self.first(x)) * 0.5


def test_blocks_of_nnx_change_their_state_as_ever():
    loss = lambda model, x: squares(model(x))
    x = X.astype(np.float32)
    assert count(loss, NNXNet(nnx.Rngs(0)), x, vertices=("NNXBlock",)) == 2
    ours, theirs = NNXNet(nnx.Rngs(0)), NNXNet(nnx.Rngs(0))
    both = dendrax.nnx.value_and_grad(loss, rule=RULE, vertices=(NNXBlock,))
    value, gradient = nnx.jit(both)(ours, x)
    expected, backprop = nnx.jit(nnx.value_and_grad(loss))(theirs, x)
    rest = nnx.Not(nnx.Param)
    assert close(value, expected) and alike(nnx.state(ours, rest), nnx.state(theirs, rest))
    assert not close(gradient, backprop)
    with pytest.raises(ValueError, match="Did you mean 'NNXBlock'"):
        dendrax.nnx.value_and_grad(loss, rule=RULE, vertices=("NNXBlok",))(ours, x)
    assert dendrax.nnx.grad(loss, vertices=("whatever",))(ours, x)  # the wave has no value nodes


class NNXLayer(nnx.Module):
    def __init__(self, rngs):
        self.linear = nnx.Linear(4, 4, rngs=rngs)

    @nnx.remat
    def __call__(self, x):
        return jnp.tanh(self.linear(x))


def test_transformed_modules_of_nnx():
    make = nnx.vmap(NNXLayer, in_axes=0, out_axes=0)
    layers = nnx.split_rngs(splits=3)(make)(nnx.Rngs(0))
    x = X.astype(np.float32)

    def loss(layers, x):
        step = nnx.scan(lambda x, layer: layer(x), in_axes=(nnx.Carry, 0), out_axes=nnx.Carry)
        return jnp.sum(step(x, layers) ** 2)

    assert count(loss, layers, x, vertices=("NNXLayer",)) == 1  # of all steps of the loop
    assert count(loss, layers, x, vertices=("NNXLayer", "flax.nnx.Linear")) == 2
    twice = lambda layer, x: jnp.sum(layer(layer(x)) ** 2)
    assert count(twice, NNXLayer(nnx.Rngs(0)), x, vertices=("NNXLayer",)) == 2


# ---- Flax linen ----------------------------------------------------------------------------------


class LinenBlock(nn.Module):
    @nn.compact
    def __call__(self, x):
        return x + jnp.tanh(nn.BatchNorm(use_running_average=False)(nn.Dense(4)(x)))


class Doubled(LinenBlock):
    @nn.compact
    def __call__(self, x):
        return super().__call__(x) * 2


class LinenNet(nn.Module):
    @nn.compact
    def __call__(self, x):
        return nn.Dense(4)(nn.remat(LinenBlock)()(Doubled()(LinenBlock()(x))))


class Step(nn.Module):
    @nn.compact
    def __call__(self, x, _):
        return jnp.tanh(nn.Dense(4)(x)), None


Steps = nn.scan(Step, variable_axes={"params": 0}, split_rngs={"params": True}, length=3)


def test_blocks_of_linen():
    model = LinenNet()
    start = model.init(jax.random.key(0), X)
    params, stats = start["params"], start["batch_stats"]

    def loss(params, stats, x):
        variables = {"params": params, "batch_stats": stats}
        out, changed = model.apply(variables, x, mutable=["batch_stats"])
        return squares(out), changed

    args = params, stats, X
    assert count(loss, *args, has_aux=True, vertices=("LinenBlock",)) == 3
    assert count(loss, *args, has_aux=True, vertices=("Doubled",)) == 1
    both = dendrax.value_and_grad(loss, has_aux=True, rule=RULE, vertices=("LinenBlock",))
    (_, changed), _ = jax.jit(both)(*args)
    assert alike(changed, jax.jit(loss)(*args)[1])
    with pytest.raises(ValueError, match="Did you mean 'LinenBlock'"):
        dendrax.trace(loss, *args, has_aux=True, vertices=("LinenBlok",))


def test_layers_of_linen_in_a_lifted_scan_are_nodes_of_its_steps():
    class Deep(nn.Module):
        @nn.compact
        def __call__(self, x):
            return nn.Dense(4)(Steps()(x, None)[0])

    model = Deep()
    params = model.init(jax.random.key(0), X)
    loss = lambda params, x: squares(model.apply(params, x))
    graph = dendrax.trace(loss, params, X, vertices=("Step",))
    assert [v.shape for v in graph.nodes] == [(3, 5, 4)]
    dendrax.grad(loss, rule=RULE, vertices=(Step,))(params, X)


# ---- Haiku ---------------------------------------------------------------------------------------


class HaikuBlock(hk.Module):
    def __call__(self, x):
        norm = hk.BatchNorm(True, True, 0.9)
        return x + jnp.tanh(norm(hk.Linear(4)(x), is_training=True))


def test_blocks_of_haiku():
    net = hk.transform_with_state(lambda x: hk.Linear(4)(HaikuBlock()(HaikuBlock()(x))))
    params, state = net.init(jax.random.key(0), X)

    def loss(params, state, x):
        out, state = net.apply(params, state, None, x)
        return squares(out), state

    args = params, state, X
    assert count(loss, *args, has_aux=True, vertices=("HaikuBlock",)) == 2
    both = dendrax.value_and_grad(loss, has_aux=True, rule=RULE, vertices=(HaikuBlock,))
    (_, changed), _ = jax.jit(both)(*args)
    assert alike(changed, jax.jit(loss)(*args)[1])
    with pytest.raises(ValueError, match="Did you mean 'HaikuBlock'"):
        dendrax.trace(loss, *args, has_aux=True, vertices=("HaikuBlok",))


def test_an_lstm_of_haiku_has_h_and_c_each_once():
    def last(xs):
        core = hk.LSTM(3)
        return hk.dynamic_unroll(core, xs, core.initial_state(2))[0][-1]

    net = hk.transform(last)
    params = net.init(jax.random.key(0), CELLS)
    loss = lambda params, xs: jnp.mean(net.apply(params, None, xs) ** 2)
    graph = dendrax.trace(loss, params, CELLS, vertices=("LSTM",))
    assert [v.shape for v in graph.nodes] == [(6, 2, 3)] * 2
