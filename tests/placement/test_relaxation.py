"""IL over devices is IL on one device."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import dendrax
from dendrax import IL, placement
from dendrax.models import problem
from tests.compare import close, same
from tests.sampling import every


def _blocks(count):
    return [jax.devices()[b % 2] for b in range(count)]


def _args(name, dtype="float64"):
    p = problem(name, small=True, dtype=dtype)
    return p.loss, (p.model, p.inputs, p.target)


@pytest.mark.parametrize("name", ["mlp", "fc_resnet", pytest.param("rnn", marks=pytest.mark.slow)])
@pytest.mark.parametrize("count", [2, pytest.param(4, marks=pytest.mark.slow)])
def test_equals_the_compiled_loop_of_one_device(name, count):
    loss, args = _args(name)
    rule = IL(num_steps=6, gamma=0.1, batch="sum")
    placed = placement.place(loss, *args, devices=_blocks(count), rule=rule)
    expected = jax.jit(dendrax.value_and_grad(loss, rule=rule))(*args)
    assert same(placed.value_and_grad(*args), expected)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["transformer", "cnn"])
def test_equals_one_block(name):
    """Where XLA rounds a loop differently from single steps: the same steps on one device."""
    loss, args = _args(name)
    rule = IL(num_steps=4, gamma=0.1, batch="sum")
    one = placement.place(loss, *args, devices=_blocks(1), rule=rule).value_and_grad(*args)
    for count in (2, 4):
        placed = placement.place(loss, *args, devices=_blocks(count), rule=rule)
        assert same(placed.value_and_grad(*args), one)
    expected = jax.jit(dendrax.value_and_grad(loss, rule=rule))(*args)
    assert close(one, expected, ulps=1e6)
    assert not close(one, jax.value_and_grad(loss)(*args), ulps=1e6)


SETTINGS = [
    IL(num_steps=3, init="zeros", batch="sum"),
    IL(num_steps=3, init="noise", batch="sum"),
    IL(num_steps=3, precision=3.0, batch="sum"),
    IL(num_steps=3, precision=lambda vertex: 2.0 if vertex.shape[-1] > 2 else 0.5, batch="sum"),
    IL(num_steps=3, batch="mean"),
    IL(num_steps=3, optimizer=optax.adam(0.05), batch="sum"),
    IL(num_steps=3, levelled=True, batch="sum"),
]


# `make test` has the mean over the batch, and the optimizer.
CHOSEN = [
    pytest.param(rule, id=str(i), marks=() if i in (4, 5) else pytest.mark.slow)
    for i, rule in enumerate(SETTINGS)
]


@pytest.mark.parametrize("rule", CHOSEN)
def test_every_setting(rule):
    loss, args = _args("fc_resnet")
    with jax.numpy_dtype_promotion("standard"):
        placed = placement.place(loss, *args, devices=_blocks(3), rule=rule)
        expected = jax.jit(dendrax.value_and_grad(loss, rule=rule))(*args)
        assert close(placed.value_and_grad(*args), expected, ulps=1000)


@pytest.mark.parametrize("vertices", every(2, ["layer", "primitive"]))
def test_vertices(vertices):
    loss, args = _args("mlp")
    rule = IL(num_steps=4, batch="sum")
    placed = placement.place(loss, *args, devices=_blocks(3), rule=rule, vertices=vertices)
    expected = jax.jit(dendrax.value_and_grad(loss, rule=rule, vertices=vertices))(*args)
    assert close(placed.value_and_grad(*args), expected)


def test_marked_vertices():
    @dendrax.vertex
    def layer(w, x):
        return jnp.tanh(x @ w)

    def loss(ws, x):
        for w in ws:
            x = layer(w, x)
        return jnp.sum(x**2)

    args = [jnp.asarray(np.random.default_rng(k).normal(size=(3, 3))) for k in range(4)]
    args = args, jnp.ones((2, 3))
    rule = IL(num_steps=4, batch="sum")
    placed = placement.place(loss, *args, devices=_blocks(4), rule=rule, vertices="marked")
    expected = jax.jit(dendrax.value_and_grad(loss, rule=rule, vertices="marked"))(*args)
    assert close(placed.value_and_grad(*args), expected)


@pytest.mark.parametrize(
    "batch",
    ["mean", pytest.param("sum", marks=pytest.mark.slow), pytest.param(4, marks=pytest.mark.slow)],
)
@pytest.mark.parametrize("pieces", [2, pytest.param(4, marks=pytest.mark.slow)])
def test_micro_batches_share_one_energy(batch, pieces):
    """A mean over pieces must not change how the loss weighs against the internal errors."""
    p = problem("mlp", small=True)
    x, y = (jnp.concatenate([a, 2 * a, -a, 3 * a])[:4] for a in (p.inputs, p.target))
    rule = IL(num_steps=5, gamma=0.2, batch=batch)
    expected = jax.jit(dendrax.value_and_grad(p.loss, rule=rule))(p.model, x, y)
    placed = placement.place(
        p.loss, p.model, x, y, devices=_blocks(2), rule=rule, micro_batches=pieces
    )
    assert close(placed.value_and_grad(p.model, x, y), expected, ulps=2e5)


def _chain(w, x):
    return jnp.sum(jnp.tanh(jnp.tanh(x @ w[0]) @ w[1]) @ w[2])


CHAIN = [jnp.ones((3, 3))] * 3, jnp.ones((2, 3))


def test_only_what_moves_is_sent_again():
    """The first layer's prediction is clamped: it is sent once. Value nodes are in every step."""
    links = {}
    for steps in (1, 5):
        placed = placement.place(
            _chain, *CHAIN, devices=_blocks(2), rule=IL(num_steps=steps, batch="sum")
        )
        top = placed.levels[0][0]
        placed = placement.place(
            _chain,
            *CHAIN,
            devices=_blocks(3),
            rule=IL(num_steps=steps, batch="sum"),
            cuts=(top, top - 1),
        )
        placed.value_and_grad(*CHAIN)
        links[steps] = {(link.source, link.target): link.values for link in placed.links}
    assert links[5][0, 1] - links[1][0, 1] in (0, 4)
    assert links[5][1, 2] - links[1][1, 2] == 4


def test_devices_do_not_wait_for_each_other_between_value_nodes():
    """A block's messages are made of the step before: none waits for those of the block behind."""
    placed = placement.place(_chain, *CHAIN, devices=_blocks(3), rule=IL(num_steps=2, batch="sum"))
    stages = placed._runner.stages
    assert all(placed._runner.wanted(stage.block, learns=False) for stage in stages[1:])
    assert not any(stage.passing for stage in stages)
    loss, args = _args("fc_resnet")  # here the stream does pass through
    rule = IL(num_steps=2, batch="sum")
    placed = placement.place(loss, *args, devices=_blocks(3), rule=rule, vertices="parameter")
    assert any(stage.passing for stage in placed._runner.stages)


def test_micro_batches_cannot_share_a_value_node():
    def loss(w, x):
        return jnp.mean(jnp.tanh(x @ jnp.tanh(w["a"] @ w["b"])) ** 2)

    args = {"a": jnp.eye(3), "b": jnp.eye(3)}, jnp.ones((8, 3))
    rule = IL(num_steps=2, batch=8)
    choice = {"rule": rule, "vertices": "parameter"}
    with pytest.raises(ValueError, match=r"(?s)made of parameters alone.*micro_batches=1"):
        placement.place(loss, *args, devices=_blocks(2), micro_batches=2, **choice)
    placed = placement.place(loss, *args, devices=_blocks(2), **choice)
    expected = jax.jit(dendrax.value_and_grad(loss, **choice))(*args)
    assert close(placed.value_and_grad(*args), expected)


def test_learning_goes_from_the_output_down():
    loss, args = _args("mlp")
    placed = placement.place(loss, *args, devices=_blocks(3), rule=IL(num_steps=2, batch="sum"))
    order = []
    given = dict(enumerate(args))
    placed._run(
        placed._put_parameters(given), placed._put_data(given), lambda b, _: order.append(b)
    )
    assert order == [2, 1, 0]
