"""`dendrax.placement.place`: arguments, updates, the audit, and clear errors."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import dendrax
from dendrax import placement
from dendrax.graph._graph import Port
from dendrax.models import problem
from dendrax.placement._audit import audit_run
from dendrax.placement._wires import Wires
from tests.compare import close, same


def _blocks(count):
    return [jax.devices()[b % 2] for b in range(count)]


def _loss(w, x, y):
    for matrix in w[:-1]:
        x = jnp.tanh(x @ matrix)
    return jnp.mean((x @ w[-1] - y) ** 2)


def _args(samples=8, layers=4):
    rng = np.random.default_rng(0)
    weights = [jnp.asarray(rng.normal(size=(3, 3))) for _ in range(layers)]
    return weights, jnp.asarray(rng.normal(size=(samples, 3))), jnp.ones((samples, 3))


# ---- updates -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "rule", [dendrax.ZIL(), dendrax.IL(num_steps=4, batch="sum")], ids=["zil", "il"]
)
@pytest.mark.parametrize(
    "optimizer",
    [pytest.param(optax.sgd(0.1), marks=pytest.mark.slow), optax.adam(0.01)],
    ids=["sgd", "adam"],
)
def test_training_equals_training_on_one_device(rule, optimizer):
    params, x, y = _args()

    @jax.jit
    def update(params, state):
        value, gradient = dendrax.value_and_grad(_loss, rule=rule)(params, x, y)
        change, state = optimizer.update(gradient, state, params)
        return optax.apply_updates(params, change), state, value

    with jax.numpy_dtype_promotion("standard"):
        placed = placement.place(_loss, params, x, y, devices=_blocks(4), rule=rule)
        learner, state = placed.init(optimizer, params), optimizer.init(params)
        for _ in range(5):
            value, learner = placed.update(learner, x, y)
            params, state, expected = update(params, state)
            assert close(value, expected)
    assert close(placed.params(learner), params, ulps=1000)
    assert jax.tree.structure(placed.params(learner)) == jax.tree.structure(params)


def test_a_learner_of_another_placement():
    args, few = _args(), _args(layers=2)
    learner = placement.place(_loss, *few, devices=2).init(optax.sgd(0.1), few[0])
    placed = placement.place(_loss, *args, devices=2)
    with pytest.raises(TypeError, match=r"not one of this placement.\n  Make it by init"):
        placed.update(learner, *args[1:])


def test_gradients_can_be_watched():
    args = _args()
    placed = placement.place(_loss, *args, devices=_blocks(4))
    seen = {}
    placed.update(placed.init(optax.sgd(0.1), args[0]), *args[1:], watch=seen.__setitem__)
    assert list(seen) == [3, 2, 1, 0]
    _, gradient = placed.value_and_grad(*args)
    assert all(same(seen[b][f"w[{b}]"], gradient[b]) for b in range(4))


def test_what_micro_batches_make_of_aux():
    def loss(w, x):
        return jnp.mean(jnp.tanh(x @ w)), {
            "mean": jnp.mean(x, 0),
            "count": jnp.asarray(3),
            "best": jnp.argmax(x, -1),
            "turned": x.T,
        }

    args = jnp.eye(3), jnp.arange(12.0).reshape(4, 3)
    placed = placement.place(loss, *args, devices=_blocks(2), has_aux=True, micro_batches=2)
    (_, aux), _ = placed.value_and_grad(*args)
    assert close(aux["mean"], jnp.mean(args[1], 0)) and int(aux["count"]) == 3
    assert same(aux["best"], jnp.argmax(args[1], -1)) and same(aux["turned"], args[1].T)


def test_every_array_is_on_its_device():
    args = _args()
    placed = placement.place(_loss, *args, devices=_blocks(4))
    _, gradient = placed.value_and_grad(*args)
    with jax.numpy_dtype_promotion("standard"):
        learner = placed.init(optax.adam(1e-3), args[0])
        _, learner = placed.update(learner, *args[1:])
    for b, device in enumerate(placed.devices):
        assert placed.parameters[b] == (f"w[{b}]",)
        assert gradient[b].devices() == {device}
        arrays = jax.tree.leaves((learner.parameters[b], learner.states[b]))
        assert all(array.devices() == {device} for array in arrays)


def test_parameters_that_nobody_uses_have_no_gradient_and_stay():
    def loss(w, x):
        return jnp.sum(jnp.tanh(x @ w["used"]))

    params, x = {"used": jnp.ones((2, 2)), "unused": jnp.ones(3)}, jnp.ones((4, 2))
    placed = placement.place(loss, params, x, devices=_blocks(2))
    _, gradient = placed.value_and_grad(params, x)
    assert not gradient["unused"].any()
    _, learner = placed.update(placed.init(optax.sgd(0.1), params), x)
    assert same(placed.params(learner)["unused"], params["unused"])


def test_a_device_sends_only_what_it_has():
    wires = Wires(jax.devices())
    with pytest.raises(RuntimeError, match="device 1 cannot send what it does not have"):
        wires.send(jnp.ones(3), 1, 0, "value")


def test_an_error_that_is_a_constant_is_made_on_its_device():
    """The last block may need no operand at all: the error of a mean is one number."""
    args = jnp.eye(3), jnp.ones((2, 3))

    def loss(w, x):
        return -jnp.sum(jnp.tanh(x @ w)) / 7

    placed = placement.place(loss, *args, devices=_blocks(2), cuts=(1,))
    assert close(placed.value_and_grad(*args), jax.value_and_grad(loss)(*args))
    assert placed.audit().local


def test_argnums_aux_keys_and_constants():
    table = jnp.asarray(np.random.default_rng(1).normal(size=(5, 3)))

    def loss(x, w, key, v, mode):
        assert mode == "train"
        h = jnp.tanh((x + table[:1]) @ w)
        h = jnp.where(jax.random.bernoulli(key, 0.5, h.shape), h, 0.0)
        return jnp.mean(jnp.sin(h @ v)), {"hidden": h, "mode": mode}

    args = table, jnp.eye(3), jax.random.key(0), jnp.eye(3) * 0.5, "train"
    placed = placement.place(loss, *args, devices=_blocks(2), argnums=(1, 3), has_aux=True)
    (value, aux), gradient = placed.value_and_grad(*args)
    expected = dendrax.value_and_grad(loss, (1, 3), has_aux=True)(*args)
    assert close(gradient, expected[1]) and close(value, expected[0][0])
    assert aux["mode"] == "train" and close(aux["hidden"], expected[0][1]["hidden"])
    learner = placed.init(optax.sgd(0.0), args[1], args[3])
    (again, _), learner = placed.update(learner, args[0], args[2], args[4])
    assert same(again, value)
    assert same(placed.params(learner), (args[1], args[3]))


def test_what_is_not_a_batch_is_not_split():
    def loss(w, x, scale):
        return jnp.mean(jnp.sin(jnp.tanh(x @ w) * scale))

    args = jnp.eye(3), jnp.arange(12.0).reshape(4, 3), jnp.asarray([1.0, 2.0, 3.0])
    placed = placement.place(loss, *args, devices=_blocks(2), micro_batches=2, batch_argnums=1)
    assert close(placed.value_and_grad(*args), jax.value_and_grad(loss)(*args))
    with pytest.raises(ValueError, match=r"shape \(3,\).*2 micro-batches.\n.*batch_argnums"):
        placement.place(loss, *args, devices=_blocks(2), micro_batches=2)
    two = args[0], args[1], jnp.ones(2)  # could be split, but is no batch of four
    with pytest.raises(ValueError, match=r"shape \(2,\).*together with \(4, 3\) into 2"):
        placement.place(loss, *two, devices=_blocks(2), micro_batches=2)


def test_a_function_that_fails_on_a_piece_says_that_it_is_one():
    def loss(w, x):
        return jnp.mean(jnp.tanh(x.reshape(4, 3) @ w))

    args = jnp.eye(3), jnp.arange(12.0).reshape(4, 3)
    with pytest.raises(TypeError, match="reshape") as caught:
        placement.place(loss, *args, devices=_blocks(2), micro_batches=2)
    assert "one of 2 micro-batches" in "".join(caught.value.__notes__)


def test_a_learner_keeps_its_own_arrays():
    args = _args()
    params = [jnp.array(w) for w in args[0]]
    placed = placement.place(_loss, params, *args[1:], devices=_blocks(2))
    learner = placed.init(optax.sgd(0.1), params)
    expected, _ = placed.update(learner, *args[1:])
    for w in params:
        w.delete()
    value, _ = placed.update(learner, *args[1:])
    assert same(value, expected)


def test_new_arguments_must_fit():
    args = _args()
    placed = placement.place(_loss, *args, devices=_blocks(2), micro_batches=2)
    with pytest.raises(ValueError, match=r"x was float64\[8, 3\].*now is float64\[6, 3\]"):
        placed.value_and_grad(args[0], args[1][:6], args[2])
    with pytest.raises(TypeError, match=r"argument 0 was .* and now is"):
        placed.value_and_grad(args[0][:2], *args[1:])
    with pytest.raises(TypeError, match=r"takes 3 arguments of the function \(\[0, 1, 2\].*got 2"):
        placed.value_and_grad(*args[:2])
    with pytest.raises(TypeError, match="cannot be traced"):
        jax.jit(placed.value_and_grad)(*args)


def test_other_values_than_arrays_must_stay():
    def loss(w, x, power):
        return jnp.sum(jnp.tanh(x @ w) ** power)

    args = jnp.eye(2), jnp.ones((2, 2)), 2
    placed = placement.place(loss, *args, devices=_blocks(2))
    assert close(placed.value_and_grad(*args), jax.value_and_grad(loss)(*args))
    with pytest.raises(ValueError, match="power was 2 when the function was placed, and now is 3"):
        placed.value_and_grad(*args[:2], 3)


# ---- the audit -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "name", ["mlp", "transformer", pytest.param("resnet18", marks=pytest.mark.slow)]
)
@pytest.mark.parametrize(
    "rule", [dendrax.ZIL(), dendrax.IL(num_steps=2, batch="sum")], ids=["zil", "il"]
)
def test_placements_are_local(name, rule):
    p = problem(name, small=True)
    args = p.model, p.inputs, p.target
    if name == "resnet18" and isinstance(rule, dendrax.IL):
        pytest.skip("its steps take minutes to trace; tests/placement/eight.py has it")
    audit = placement.place(p.loss, *args, devices=_blocks(4), rule=rule).audit()
    assert audit.local and not audit.offenders
    read = [name for names in audit.reads for name in names]
    assert len(read) == len(set(read)) > 0
    assert {abs(link.source - link.target) for link in audit.links} == {1}
    assert "placement: local" in str(audit)


def test_the_audit_counts_what_a_run_sends():
    args = _args()
    for rule in (dendrax.ZIL(), dendrax.IL(num_steps=3, batch="sum")):
        placed = placement.place(_loss, *args, devices=_blocks(4), rule=rule, micro_batches=2)
        placed.value_and_grad(*args)
        assert placed.audit().links == placed.links


def _placed():
    args = _args()
    return placement.place(_loss, *args, devices=_blocks(4))


def _audit(placed, **changes):
    broken = dataclasses.replace(placed.partition, **changes)
    placed._runner.partition = broken
    return audit_run(broken, placed._runner, 1)


def test_the_audit_finds_a_parameter_that_lives_elsewhere():
    placed = _placed()
    weight = Port(placed.partition.graph["w[2]"].index)
    audit = _audit(placed, home={**placed.partition.home, weight: 1})
    assert audit.offenders == ("device 2 reads w[2], which lives on device 1.",)
    assert not audit.local and "NOT local" in str(audit)


def test_the_audit_finds_a_shared_weight():
    def loss(w, x):
        return jnp.sum(jnp.tanh(jnp.tanh(x @ w) @ w))

    placed = placement.place(loss, jnp.ones((3, 3)), jnp.ones((2, 3)), devices=_blocks(2))
    assert placed.audit().offenders == ("device 1 reads w, which lives on device 0.",)


def test_the_audit_finds_a_shared_weight_in_another_form():
    """A weight that is cast or scaled first is still a weight; a norm of it is a value."""

    def cast(w, x):
        w = w.astype(jnp.float32).T
        return jnp.sum(jnp.tanh(jnp.tanh(x @ w) @ w))

    args = jnp.ones((3, 3)), jnp.ones((2, 3), jnp.float32)
    audit = placement.place(cast, *args, devices=_blocks(2)).audit()
    assert audit.offenders == ("device 1 reads w, which lives on device 0.",)

    def decayed(w, x):
        return jnp.sum(jnp.tanh(x @ w[0]) @ w[1]) + 0.1 * sum(jnp.sum(v**2) for v in w)

    args = [jnp.ones((3, 3))] * 2, jnp.ones((2, 3))
    placed = placement.place(decayed, *args, devices=_blocks(2))
    assert placed.audit().local
    assert close(placed.value_and_grad(*args), jax.value_and_grad(decayed)(*args))


def test_the_audit_finds_who_sends_past_a_neighbour(monkeypatch):
    from dendrax.placement import _wave

    def jump(partition, wires, b, known, traveller, chosen=None):
        for port in partition.upward[b] if b < len(partition.upward) else ():
            if not partition.is_parameter(port):
                moved = wires.send(known[port], b, b + 2, "value")
                traveller.values[b + 1][port] = moved

    placed = _placed()
    monkeypatch.setattr(_wave, "hand_up", jump)
    audit = placed.audit()
    assert "device 0 sends to device 2, which is not its neighbour." in audit.offenders
    assert any("an operation reads arrays on devices" in text for text in audit.offenders)
    with pytest.raises(RuntimeError, match="device 0 has no connection to device 2"):
        placed.value_and_grad(*_args())


def test_the_audit_finds_who_sends_what_it_does_not_have(monkeypatch):
    from dendrax.placement import _relaxation, _wave

    def steal(partition, wires, b, errors, traveller):
        if b == 2:  # hands on what it has as if it came from device 1
            errors = {p: wires.send(e, 1, 0, "error") for p, e in errors.items()}
        return _wave.hand_down(partition, wires, b, errors, traveller)

    args = _args()
    placed = placement.place(
        _loss, *args, devices=_blocks(4), rule=dendrax.IL(num_steps=1, batch="sum")
    )
    assert placed.audit().local
    monkeypatch.setattr(_relaxation, "hand_down", steal)
    assert "device 1 sends what is on device 2." in placed.audit().offenders


# ---- wrong input ---------------------------------------------------------------------------------


def test_errors():
    args = _args()
    place = placement.place
    with pytest.raises(ValueError, match=r"devices=3, but this process has 2.\n.*device_count=3"):
        place(_loss, *args, devices=3)
    with pytest.raises(ValueError, match=r"are not devices of this process.\n  It has: "):
        place(_loss, *args, devices=["gpu:0"])
    with pytest.raises(TypeError, match=r"devices=2.5 is neither a list nor a number"):
        place(_loss, *args, devices=2.5)
    with pytest.raises(ValueError, match="micro_batches=0 is not a positive integer"):
        place(_loss, *args, devices=2, micro_batches=0)
    with pytest.raises(ValueError, match=r"shape \(8, 3\), which cannot be split into 3"):
        place(_loss, *args, devices=2, micro_batches=3)
    with pytest.raises(TypeError, match=r"micro_batches=2.0 is not an integer"):
        place(_loss, *args, devices=2, micro_batches=2.0)
    with pytest.raises(ValueError, match=r"batch_argnums=7: the function has no argument 7.\n.*3"):
        place(_loss, *args, devices=2, micro_batches=2, batch_argnums=7)
    with pytest.raises(ValueError, match=r"devices=0, but it takes one at least"):
        place(_loss, *args, devices=0)
    with pytest.raises(TypeError, match=r"devices='cpu' is neither a list nor a number"):
        place(_loss, *args, devices="cpu")
    with pytest.raises(ValueError, match="argument 0 is differentiated"):
        place(_loss, *args, devices=2, micro_batches=2, batch_argnums=(0, 1))
    with pytest.raises(NotImplementedError, match=r"FixedPrediction.*cannot be placed"):
        place(_loss, *args, devices=2, rule=dendrax.FixedPrediction())
    with pytest.raises(NotImplementedError, match=r"ZIL\(gamma=0.5.*cannot be placed"):
        place(_loss, *args, devices=2, rule=dendrax.ZIL(gamma=0.5))
    with pytest.raises(ValueError, match=r"tol=0.1 needs somebody who looks"):
        place(_loss, *args, devices=2, rule=dendrax.IL(tol=0.1, batch="sum"))
    with pytest.raises(ValueError, match=r"cuts=\[2, 3\] do not cut a function into 3 blocks"):
        place(_loss, *args, devices=_blocks(3), cuts=(2, 3))
    with pytest.raises(ValueError, match=r"cuts=\[99\], but the highest level of the function is"):
        place(_loss, *args, devices=2, cuts=(99,))
    with pytest.raises(TypeError, match=r"placement.place: the gradient is only defined for"):
        place(lambda w, x: x @ w[0], args[0], args[1], devices=2)
    with pytest.raises(TypeError, match=r"cuts=\[1.5\] are not a list of levels"):
        place(_loss, *args, devices=2, cuts=[1.5])
    with pytest.raises(ValueError, match=r"no parameter goes into .*nothing to place.\n  argnums"):
        place(lambda w, x: jnp.sum(x), args[0], args[1], devices=2)
    with pytest.raises(TypeError, match=r"dendrax.placement.Placed.init: optimizer is int"):
        place(_loss, *args, devices=2).init(3, args[0])


def test_it_prints_what_is_where():
    args = _args()
    placed = placement.place(_loss, *args, devices=_blocks(4))
    placed.value_and_grad(*args)
    text = repr(placed)
    assert "4 devices, ZIL(" in text and "1 (72 B)" in text
    assert "0 -> 1: 1 values, 0 errors, 192 bytes" in text
