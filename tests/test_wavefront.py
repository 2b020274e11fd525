"""Z-IL's wavefront and BP equal `jax.grad`, with ``==``: operations, graphs, programs, models."""

import jax
import jax.numpy as jnp
import pytest
from hypothesis import given, settings

import dendrax
from dendrax import BP, ZIL
from dendrax._api import _trace
from dendrax.inference._run import record_graph
from dendrax.models import PROBLEMS, problem
from dendrax.walk._wave import send_back
from tests.cases.graphs import GRAPHS
from tests.cases.operations import OPERATIONS, Operation, make_args, scalar_loss
from tests.cases.operations_composed import COMPOSED
from tests.cases.operations_lax import LAX
from tests.cases.operations_library import LIBRARY
from tests.cases.operations_numpy import NUMPY
from tests.cases.programs import random_programs
from tests.compare import close, same, same_jitted
from tests.sampling import every, rotating

# JAX itself cannot differentiate these through a jit: their derivative rules only work while the
# function is being called (a leaked tracer; a dtype promotion set by a context manager).
NOT_STAGED = ("special.expn", "special.hyp1f1")
REFERENCES = [operation for operation in OPERATIONS if operation.name.startswith("ref.")]
JITTED = [op for op in OPERATIONS if op.name not in NOT_STAGED and op not in REFERENCES]


# Each operation in one of its dtypes, so that all dtypes get their turn; the others are slow. Of
# JAX's primitives and what is composed of them every eighth, and of the functions under NumPy's and
# SciPy's names every sixteenth. What we treat in a way of our own is there in full.
SHARES = dict.fromkeys(LAX + COMPOSED, 8) | dict.fromkeys(NUMPY + LIBRARY, 16)


def _is_slow(i: int, k: int, operation: Operation) -> bool:
    share = SHARES.get(operation, 1)
    return i % share != 0 or i // share % len(operation.dtypes) != k


TABLE = [
    pytest.param(
        operation,
        dtype,
        id=f"{operation.name}-{dtype}",
        marks=pytest.mark.slow if _is_slow(i, k, operation) else (),
    )
    for i, operation in enumerate(JITTED)
    for k, dtype in enumerate(operation.dtypes)
]


@pytest.mark.parametrize(("operation", "dtype"), TABLE)
def test_operations(operation, dtype):
    args, loss = make_args(operation, dtype), scalar_loss(operation, dtype)
    found = dendrax.value_and_grad(loss, operation.argnums)
    assert same_jitted(found, jax.value_and_grad(loss, operation.argnums), *args)


@pytest.mark.parametrize("operation", REFERENCES, ids=lambda operation: operation.name)
def test_mutable_references_are_refused(operation):
    args, loss = make_args(operation, "float64"), scalar_loss(operation, "float64")
    with pytest.raises(NotImplementedError, match=r"(?s)jax\.new_ref.*operations_systems\.py"):
        dendrax.grad(loss, operation.argnums)(*args)


@pytest.mark.parametrize("name", NOT_STAGED)
def test_what_is_skipped_fails_in_jax_too(name):
    """Under a jit. Eagerly it works, with JAX and with us."""
    operation = next(operation for operation in OPERATIONS if operation.name == name)
    args, loss = make_args(operation, "float64"), scalar_loss(operation, "float64")
    for library in (jax, dendrax):
        with pytest.raises((TypeError, ValueError, jax.errors.UnexpectedTracerError)):
            library.grad(jax.jit(loss), operation.argnums)(*args)
    found = dendrax.grad(loss, operation.argnums)(*args)
    assert same(found, jax.grad(loss, operation.argnums)(*args))


BY_NAME = {case.name: case for case in GRAPHS}
assert len(BY_NAME) == len(GRAPHS)
SETTINGS = {
    f"{dtype}-{name}": (dtype, rule)
    for dtype in ("float64", "float32", "bfloat16")
    for name, rule in (("bp", BP()), ("zil", ZIL()))
}


@pytest.mark.parametrize(("case", "setting"), rotating(BY_NAME, SETTINGS))
def test_graphs(case, setting):
    dtype, rule = setting
    args = case.make_args(dtype)
    found = dendrax.value_and_grad(case.fun, case.argnums, rule=rule)
    assert same_jitted(found, jax.value_and_grad(case.fun, case.argnums), *args)


@pytest.mark.parametrize("case", every(2, BY_NAME))
def test_graphs_eagerly(case):
    """Eagerly too. What JAX compiles as one unit (an inner jit, a scan), we do."""
    args = case.make_args()
    found = dendrax.value_and_grad(case.fun, case.argnums)(*args)
    assert same(found, jax.value_and_grad(case.fun, case.argnums)(*args))


@pytest.mark.parametrize("case", every(2, BY_NAME))
def test_graphs_operation_by_operation(case):
    with jax.disable_jit():
        args = case.make_args()
        found = dendrax.value_and_grad(case.fun, case.argnums)(*args)
        assert same(found, jax.value_and_grad(case.fun, case.argnums)(*args))


@pytest.mark.parametrize("case", every(2, BY_NAME))
def test_flat_graphs_give_the_same(case):
    """The unrolled graph that `trace` shows has the same gradient as the folded one."""
    args = case.make_args()
    graph = dendrax.trace(case.fun, *args, argnums=case.argnums)
    expected = jax.grad(case.fun, case.argnums)(*args)
    assert close(dendrax.run(graph, ZIL()).gradient, expected)
    folded, call = _trace(case.fun, args, {}, case.argnums, False, None)
    with jax.disable_jit():  # both operation by operation, both with the sums of inner jits apart
        flat = dendrax.run(graph, ZIL()).gradient
        outputs, tape = record_graph(folded, call.leaves())
        errors = send_back(tape, [jnp.ones_like(outputs[0])])
        assert same(flat, call.gradient(errors))


@given(program=random_programs())
@settings(deadline=None, max_examples=15)
def test_random_programs(program):
    with jax.enable_x64(True), jax.numpy_dtype_promotion("strict"):
        params = program.make_params()
        argnums = tuple(range(len(params)))
        found = dendrax.value_and_grad(program, argnums)
        assert same_jitted(found, jax.value_and_grad(program, argnums), *params)


@pytest.mark.slow
@pytest.mark.parametrize("dtype", ["float64", "float32", "bfloat16"])
@given(program=random_programs())
@settings(deadline=None, max_examples=300)
def test_many_random_programs(dtype, program):
    with jax.enable_x64(True), jax.numpy_dtype_promotion("strict"):
        params = program.make_params(dtype)
        argnums = tuple(range(len(params)))
        found = dendrax.value_and_grad(program, argnums)
        assert same_jitted(found, jax.value_and_grad(program, argnums), *params)


MODELS = [
    pytest.param(name, marks=pytest.mark.slow if name in ("transformer12", "resnet18") else ())
    for name in PROBLEMS
]


@pytest.mark.parametrize(("name", "dtype"), rotating(MODELS, ["float32", "float64", "bfloat16"]))
def test_models(name, dtype):
    p = problem(name, dtype=dtype, small=True)
    certificate = dendrax.check(p.loss, p.model, p.inputs, p.target)
    assert certificate.exact
    assert certificate.divergence == 0.0


@pytest.mark.slow
@pytest.mark.parametrize("name", ["mlp", "cnn", "rnn", "rnn_scan", "fc_resnet", "transformer"])
def test_models_at_full_size(name):
    p = problem(name, dtype="float32")
    assert dendrax.check(p.loss, p.model, p.inputs, p.target).exact


def test_a_sum_that_is_shared_with_an_alias():
    """``y = x + 1`` has the tangent of ``x``: JAX interleaves the messages of both in one sum."""

    def loss(x):
        y = x + 1.0
        a, b, c, d = jnp.sin(x), y * y, jnp.cos(x), jnp.tanh(y)

        @jax.jit
        def inner(x):
            y = x + 3.0
            return jnp.sin(x) * y + y * y * jnp.exp(x), y

        e, f = inner(x)
        return jnp.sum(a * b + c * d * d + e * f + x)

    x = jnp.linspace(-2.0, 2.0, 1001)
    assert same(jax.jit(dendrax.grad(loss))(x), jax.jit(jax.grad(loss))(x))
    assert same(dendrax.grad(loss)(x), jax.grad(loss)(x))


def test_residuals_that_do_not_change_are_not_stacked():
    """A weight used in a scan, also transposed or inside a jit, is kept once, not once a step."""
    cell = jax.jit(lambda w, c, x: jnp.tanh(w.T @ c + x))

    def loss(w, xs):
        carry, _ = jax.lax.scan(lambda c, x: (cell(w, c, x), None), xs[0], xs)
        return jnp.sum(carry)

    def stacked(grad):
        jaxpr = jax.make_jaxpr(grad(loss))(jnp.ones((7, 7)), jnp.ones((5, 7)))
        scans = [eqn for eqn in jaxpr.eqns if eqn.primitive.name == "scan"]
        return sorted(v.aval.shape for v in scans[0].outvars)

    assert stacked(dendrax.grad) == stacked(jax.grad)


def test_remat_recomputes():
    """Between the passes a remat region keeps its inputs only, as with JAX."""

    def loss(w, x):
        block = jax.checkpoint(lambda h: jnp.sin(jnp.sin(jnp.sin(jnp.sin(h @ w)))))
        for _ in range(4):
            x = block(x)
        return jnp.sum(x)

    w, x = jnp.ones((32, 32)), jnp.ones((256, 32))

    def memory(grad, fun):
        compiled = jax.jit(grad(fun)).lower(w, x).compile()
        return compiled.memory_analysis().temp_size_in_bytes

    assert memory(dendrax.grad, loss) <= 1.01 * memory(jax.grad, loss)
    barriers = str(jax.make_jaxpr(dendrax.grad(loss))(w, x)).count("optimization_barrier")
    assert barriers == 4
