"""IL and its relatives under JAX's transformations, and what they cost."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import dendrax
from dendrax import IL, ErrorPC, FixedPrediction, IncrementalPC
from dendrax.models import problem
from tests.compare import close
from tests.sampling import every, rotating

# ---- composing with JAX --------------------------------------------------------------------------

RULES = {
    "il": IL(num_steps=5, batch="sum"),
    "il-tol": IL(num_steps=5, tol=1e-9, batch="sum"),
    "levelled": IL(num_steps=5, levelled=True, batch="sum"),
    "momentum": IL(num_steps=5, optimizer=optax.sgd(0.1, momentum=0.9), batch="sum"),
    "fixed": FixedPrediction(num_steps=4, gamma=0.5),
    "incremental": IncrementalPC(num_steps=5, batch="sum"),
    "error": ErrorPC(num_steps=5, batch="sum"),
}


VARIANTS = ("il-tol", "levelled", "momentum")  # of IL, which is there
BY_RULE = [
    pytest.param(rule, id=name, marks=pytest.mark.slow if name in VARIANTS else ())
    for name, rule in RULES.items()
]


@pytest.mark.parametrize("rule", every(2, BY_RULE))
def test_jit_vmap_aux_and_vjp(rule):
    p = problem("mlp", dtype="float64", small=True)
    args = p.model, p.inputs, p.target
    expected = dendrax.value_and_grad(p.loss, rule=rule)(*args)
    assert close(expected[0], p.loss(*args))
    assert close(jax.jit(dendrax.value_and_grad(p.loss, rule=rule))(*args), expected)
    with_aux = dendrax.value_and_grad(
        lambda *args: (p.loss(*args), {"n": 3}), has_aux=True, rule=rule
    )
    (value, aux), gradient = with_aux(*args)
    assert aux == {"n": 3} and close((value, gradient), expected)
    y, pull = dendrax.vjp(lambda model: p.loss(model, *args[1:]), p.model, rule=rule)
    assert close((y, pull(jnp.ones_like(y))[0]), expected)

    @jax.jit
    def single(x, t):
        return dendrax.grad(p.loss, rule=rule)(p.model, x[None], t[None])

    batched = jax.vmap(single)(p.inputs, p.target)
    one = single(p.inputs[1], p.target[1])
    assert close(jax.tree.map(lambda g: g[1], batched), one, ulps=256)


@pytest.mark.parametrize("rule", every(2, BY_RULE))
def test_inside_shard_map(rule):
    p = problem("mlp", dtype="float64", small=True)
    mesh = jax.sharding.Mesh(np.array(jax.devices()[:2]), ("batch",))
    spec = jax.sharding.PartitionSpec

    def as_varying(w):
        if jax.__version_info__ < (0, 8, 2):
            return jax.lax.pvary(w, "batch")  # its name before pcast
        return jax.lax.pcast(w, "batch", to="varying")

    def local(model, x, y):
        model = jax.tree.map(as_varying, model)
        return jax.lax.pmean(dendrax.grad(p.loss, rule=rule)(model, x, y), "batch")

    shards = spec("batch")
    step = jax.shard_map(local, mesh=mesh, in_specs=(spec(), shards, shards), out_specs=spec())
    found = jax.jit(step)(p.model, p.inputs, p.target)
    halves = [
        dendrax.grad(p.loss, rule=rule)(p.model, p.inputs[i : i + 2], p.target[i : i + 2])
        for i in (0, 2)
    ]
    assert close(found, jax.tree.map(lambda a, b: (a + b) / 2, *halves), ulps=1e4)


def test_no_tracer_leaks(no_leaks):
    p = problem("mlp", dtype="float64", small=True)
    step = jax.jit(dendrax.value_and_grad(p.loss, rule=IL(num_steps=5, batch="sum")))
    value, _ = step(p.model, p.inputs, p.target)
    assert close(value, p.loss(p.model, p.inputs, p.target))


DIFFERENTIABLE = ["il", "levelled", "fixed", "momentum", "error", "incremental"]


@pytest.mark.parametrize("name", every(2, DIFFERENTIABLE))
def test_gradients_can_be_differentiated(name):
    """Through the loop, for those who learn to learn: against finite differences."""
    p = problem("mlp", dtype="float64", small=True)

    def norm(scale):
        gradient = dendrax.grad(p.loss, rule=RULES[name])(p.model, scale * p.inputs, p.target)
        return sum(jnp.sum(g**2) for g in jax.tree.leaves(gradient))

    slope = jax.grad(norm)(1.0)
    step = 1e-5
    assert float(slope) == pytest.approx(
        float((norm(1 + step) - norm(1 - step)) / (2 * step)), rel=1e-5
    )


@pytest.mark.parametrize(("rule", "dtype"), rotating(BY_RULE, ["float32", "bfloat16", "float16"]))
def test_low_precision(rule, dtype):
    """The gradient of the same numbers in float64, to what the dtype can tell.

    Rules that move errors keep their digits. Where errors are differences of value nodes that have
    hardly moved, the small ones drown in the rounding of the values: the whole is still right.
    """
    p = problem("cnn" if rule == RULES["il"] else "mlp", dtype=dtype, small=True)
    args = p.model, p.inputs, p.target
    wide = jax.tree.map(lambda leaf: leaf.astype("float64"), args)
    gradient, expected = (jax.jit(dendrax.grad(p.loss, rule=rule))(*a) for a in (args, wide))
    assert all(leaf.dtype == dtype for leaf in jax.tree.leaves(gradient))
    found, exact = (
        [np.asarray(leaf, float).ravel() for leaf in jax.tree.leaves(tree)]
        for tree in (gradient, expected)
    )
    epsilon = float(jnp.finfo(dtype).eps)
    if isinstance(rule, FixedPrediction | ErrorPC):
        for a, b in zip(found, exact, strict=True):
            assert np.linalg.norm(a - b) < 4 * epsilon * np.linalg.norm(b)
    error = np.linalg.norm(np.concatenate(found) - np.concatenate(exact))
    most = 64 if dtype == "float32" else 16
    assert error < most * epsilon * np.linalg.norm(np.concatenate(exact))


# ---- cost ----------------------------------------------------------------------------------------


def jaxpr_of(rule, name="cnn"):
    p = problem(name, small=True)
    return jax.make_jaxpr(dendrax.grad(p.loss, rule=rule))(p.model, p.inputs, p.target)


def equations(jaxpr):
    """Those that run on a CPU."""
    for eqn in jaxpr.eqns:
        yield eqn
        values = list(eqn.params.values())
        if eqn.params.get("branches_platforms"):
            values = [eqn.params["branches"][eqn.params["branches_platforms"].index(("cpu",))]]
        for value in values:
            inner = getattr(value, "jaxpr", value)
            if hasattr(inner, "eqns"):
                yield from equations(inner)


def loop_body(jaxpr):
    (loop,) = [eqn for eqn in jaxpr.eqns if eqn.primitive.name in ("scan", "while")]
    return loop.params["jaxpr" if "jaxpr" in loop.params else "body_jaxpr"].jaxpr


def count(jaxpr, *primitives):
    return sum(eqn.primitive.name in primitives for eqn in equations(jaxpr))


@pytest.mark.parametrize("rule", [IL, IncrementalPC, ErrorPC, FixedPrediction])
def test_the_program_does_not_grow_with_the_number_of_steps(rule):
    short, long = (jaxpr_of(rule(num_steps=n, gamma=0.1)).jaxpr for n in (20, 1000))
    assert len(list(equations(short))) == len(list(equations(long)))


def test_memory_does_not_grow_with_the_number_of_steps():
    p = problem("cnn", small=True)

    def memory(num_steps):
        step = jax.jit(dendrax.grad(p.loss, rule=IL(num_steps=num_steps, batch="sum")))
        compiled = step.lower(p.model, p.inputs, p.target).compile()
        return compiled.memory_analysis().temp_size_in_bytes

    assert memory(20) == memory(1000)


def test_nothing_clamped_is_computed_again():
    """Two convolutions and two dense layers, the first clamped: three predictions and messages."""
    body = loop_body(jaxpr_of(IL(batch="sum")).jaxpr)
    assert count(body, "conv_general_dilated") == 2  # the second's prediction and message
    assert count(body, "dot_general") == 4  # prediction and message of either dense layer
    fixed = loop_body(jaxpr_of(FixedPrediction(num_steps=5)).jaxpr)
    assert count(fixed, "conv_general_dilated") == 1
    assert count(fixed, "dot_general") == 1  # the output's message does not change either
