"""Z-IL over devices is Z-IL on one: bit for bit, whatever the cut.

Here several blocks share the two devices of the test process; `test_devices` has eight.
"""

import jax
import jax.numpy as jnp
import pytest
from hypothesis import given, settings

import dendrax
from dendrax import placement
from dendrax.models import problem
from tests.cases.graphs import GRAPHS
from tests.cases.programs import random_programs
from tests.compare import close, same
from tests.sampling import every

CASES = [case for case in GRAPHS if case.name != "constant_output"]


def _blocks(count):
    """Neighbouring blocks are on different devices."""
    return [jax.devices()[b % 2] for b in range(count)]


def _highest(fun, args, argnums):
    """The highest level; what JAX cannot place at all has none."""
    placed = placement.place(fun, *args, devices=_blocks(1), argnums=argnums)
    return placed.levels[0][0]


# Of these `make test` leaves the long ones to `make test-all`.
LONG = ("mlp", "nested_scan", "scan", "integer_branch", "residual_blocks", "several_outputs")
CUT = [
    pytest.param(case, id=case.name, marks=pytest.mark.slow if case.name in LONG else ())
    for case in CASES
]


@pytest.mark.parametrize("case", CUT)
def test_every_cut_operation_by_operation(case):
    """Nothing is compiled, so nothing is fused, and the result is JAX's at any cut."""
    args, argnums = case.make_args(), case.argnums
    highest = _highest(case.fun, args, argnums)
    with jax.disable_jit():
        expected = jax.value_and_grad(case.fun, argnums)(*args)
        for cut in range(1, min(highest, 12) + 1):
            placed = placement.place(
                case.fun, *args, devices=_blocks(2), argnums=argnums, cuts=(cut,)
            )
            assert same(placed.value_and_grad(*args), expected), cut


# Compiled, each takes seconds: `make test` has those that show most.
QUICK = ("skip", "shared_weight", "scan", "remat_inside", "softmax", "custom_rule", "stop_gradient")
COMPILED = [
    pytest.param(case, id=case.name, marks=() if case.name in QUICK else pytest.mark.slow)
    for case in CASES
]


@pytest.mark.parametrize("case", COMPILED)
def test_graphs_compiled(case):
    args, argnums = case.make_args(), case.argnums
    count = min(3, _highest(case.fun, args, argnums) + 1)
    placed = placement.place(case.fun, *args, devices=_blocks(count), argnums=argnums)
    found = placed.value_and_grad(*args)
    assert close(found, jax.jit(jax.value_and_grad(case.fun, argnums))(*args))
    assert placed.audit().links == placed.links


def _check_program(program):
    """Against Z-IL on one device, which keeps the sums of inner jits apart as JAX's jit does."""
    with jax.enable_x64(True), jax.numpy_dtype_promotion("strict"), jax.disable_jit():
        args = program.make_params()
        argnums = tuple(range(len(args)))
        count = min(3, _highest(program, args, argnums) + 1)
        placed = placement.place(program, *args, devices=_blocks(count), argnums=argnums)
        expected = dendrax.value_and_grad(program, argnums)(*args)
        assert same(placed.value_and_grad(*args), expected)


@settings(deadline=None, max_examples=3)
@given(program=random_programs(max_instructions=6, max_depth=1))
def test_random_programs(program):
    _check_program(program)


@pytest.mark.slow
@settings(deadline=None, max_examples=200)
@given(program=random_programs())
def test_many_random_programs(program):
    _check_program(program)


def _two_programs(fun, *args):
    """JAX's own gradient on one device, compiled as a forward pass and a pullback."""
    value, pullback = jax.jit(lambda first, *rest: jax.vjp(lambda p: fun(p, *rest), first))(*args)
    (gradient,) = jax.jit(lambda pull, one: pull(one))(pullback, jnp.ones_like(value))
    return value, gradient


MODELS = ["mlp", "cnn", "rnn", "fc_resnet", "transformer"]


@pytest.mark.parametrize(
    "name", [*every(3, MODELS), pytest.param("resnet18", marks=pytest.mark.slow)]
)
@pytest.mark.parametrize("dtype", ["float32", pytest.param("float64", marks=pytest.mark.slow)])
def test_models_equal_one_device(name, dtype):
    p = problem(name, small=True, dtype=dtype)
    args = p.model, p.inputs, p.target
    expected = _two_programs(p.loss, *args)
    for count in (2, 4):
        placed = placement.place(p.loss, *args, devices=_blocks(count))
        assert same(placed.value_and_grad(*args), expected), count


MLP_ONLY = ["mlp", *(pytest.param(n, marks=pytest.mark.slow) for n in ("fc_resnet", "transformer"))]


@pytest.mark.parametrize("name", MLP_ONLY)
@pytest.mark.parametrize("pieces", [2, pytest.param(4, marks=pytest.mark.slow)])
def test_micro_batches(name, pieces):
    p = problem(name, small=True)
    x, y = (jnp.concatenate([a, 2 * a, -a, 3 * a])[:4] for a in (p.inputs, p.target))
    expected = jax.jit(jax.value_and_grad(p.loss))(p.model, x, y)
    placed = placement.place(p.loss, p.model, x, y, devices=_blocks(2), micro_batches=pieces)
    assert close(placed.value_and_grad(p.model, x, y), expected, ulps=2000)


def test_a_large_jit_is_opened_and_a_small_one_is_not():
    @jax.jit
    def whole(w, x):
        for k in range(4):
            x = jax.nn.relu(x @ w[k])
        return jnp.sum(x)

    args = [jnp.eye(8)] * 4, jnp.ones((2, 8))
    placed = placement.place(whole, *args, devices=_blocks(4))
    names = [v.name for v in placed.partition.graph]
    assert any(name.endswith("relu") for name in names)
    assert [len(own) for own in placed.parameters] == [1, 1, 1, 1]
    assert same(placed.value_and_grad(*args), _two_programs(whole, *args))


def test_layers_in_a_scan_are_spread_over_devices():
    def loss(w, x):
        return jnp.sum(jax.lax.scan(lambda h, w: (jnp.tanh(h @ w), None), x, w)[0])

    args = jnp.stack([jnp.eye(4) * 0.5] * 4), jnp.ones((2, 4))
    placed = placement.place(loss, *args, devices=_blocks(4))
    assert close(placed.value_and_grad(*args), jax.value_and_grad(loss)(*args))
    audit = placed.audit()  # one stack of weights, which lives on one device
    assert "device 1 reads w, which lives on device 0." in audit.offenders


def test_a_parameter_learns_when_its_level_is_reached():
    """The last device's parameters learn first, and no device waits for the ones below it."""
    p = problem("mlp", small=True)
    placed = placement.place(p.loss, p.model, p.inputs, p.target, devices=_blocks(3))
    order = []
    given = {0: p.model, 1: p.inputs, 2: p.target}
    placed._run(
        placed._put_parameters(given), placed._put_data(given), lambda b, _: order.append(b)
    )
    assert order == [2, 1, 0]


def test_bp_is_the_same_wave():
    p = problem("mlp", small=True)
    args = p.model, p.inputs, p.target
    placed = placement.place(p.loss, *args, devices=_blocks(2), rule=dendrax.BP())
    assert same(placed.value_and_grad(*args), _two_programs(p.loss, *args))


def test_blocks_are_compiled_once():
    p = problem("mlp", small=True, dtype="float32")
    args = p.model, p.inputs, p.target
    placed = placement.place(p.loss, *args, devices=_blocks(2))
    for _ in range(3):
        placed.value_and_grad(*args)
    stages = placed._runner.stages
    assert [stage.wave._cache_size() for stage in stages] == [1, 1]
    assert [stage.forward._cache_size() for stage in stages] == [1, 1]
