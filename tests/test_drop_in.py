"""A drop-in for JAX: the same value, gradient and aux, of the same types; the same errors."""

import functools
import gc
import weakref
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.experimental import io_callback
from jax.sharding import Mesh, PartitionSpec

import dendrax
from dendrax import IL, ZIL, ErrorPC, FixedPrediction
from dendrax.local import _linear as _local
from dendrax.walk import _body
from tests.cases.functions import FUNCTIONS, log_density
from tests.compare import same


def described(leaf: Any) -> Any:
    """What a user can tell of a result besides its numbers.

    JAX may hand a number back as a literal of its own, which is no array. Ours are arrays.
    """
    if getattr(leaf, "dtype", None) == jax.dtypes.float0:
        return "float0", np.shape(leaf)
    if isinstance(leaf, jax.Array):
        aval = jax.typeof(leaf)
        return "array", leaf.shape, leaf.dtype, aval.weak_type, leaf.sharding
    if type(leaf).__name__.startswith("Typed"):
        aval = jax.typeof(leaf)
        return "array", aval.shape, aval.dtype, aval.weak_type, jnp.zeros(()).sharding
    return type(leaf), getattr(leaf, "dtype", None), getattr(leaf, "shape", None)


def is_alike(found: Any, expected: Any) -> bool:
    """Equal trees of equal leaves of the same type."""
    if jax.tree.structure(found) != jax.tree.structure(expected):
        return False
    pairs = list(zip(jax.tree.leaves(found), jax.tree.leaves(expected), strict=True))
    return all(
        described(a) == described(b) and (a is b or isinstance(a, str) or same(a, b))
        for a, b in pairs
    )


def outcome(library: Any, function: Any, jit: bool) -> tuple[Any, type[Exception] | None]:
    transformed = library.value_and_grad(function.make(), **function.settings)
    try:
        return (jax.jit(transformed) if jit else transformed)(*function.make_args()), None
    except Exception as error:
        return None, type(error)


@pytest.mark.parametrize("jit", [False, True], ids=["eager", "jit"])
@pytest.mark.parametrize("function", FUNCTIONS, ids=lambda function: function.name)
def test_functions(function, jit):
    with jax.numpy_dtype_promotion("standard"):
        expected, problem = outcome(jax, function, jit)
        found, our_problem = outcome(dendrax, function, jit)
    if jax.__version_info__ < (0, 9, 1) and problem is StopIteration:
        problem = TypeError  # the same argnum twice: JAX has since learned to say so
    assert our_problem is problem
    assert is_alike(found, expected), (found, expected)
    assert not any(type(leaf).__name__.startswith("Typed") for leaf in jax.tree.leaves(found))


VJPS = {
    "constants": (lambda x: (x, 1.0, np.float32(2.0), jnp.ones(2), np.arange(3)), ([1.0, 2.0],)),
    "numbers": (lambda x, y: {"sum": x + y, "x": x}, (1.0, np.float32(2.0))),
    "integers": (lambda x, n: (x * n, n, n > 1), (1.5, jnp.arange(3))),
    "keys": (lambda x, key: (x * 2.0, key), (jnp.ones(2), jax.random.key(0))),
    "jit": (jax.jit(lambda x: (x, 3, 2.0 * x)), (jnp.ones(2),)),
    "no argument is used": (lambda x, y: jnp.ones(2), (1.0, jnp.ones(3))),
}


def _pulled(library, name):
    fun, primals = VJPS[name]
    primals = jax.tree.map(jnp.asarray, primals) if name == "constants" else primals
    outputs, pullback = library.vjp(fun, *primals)
    ones = jax.tree.map(_cotangent, outputs)
    return outputs, pullback(ones)


def _cotangent(output):
    dtype = jax.typeof(output).to_tangent_aval().dtype
    ones = np.ones(np.shape(output), dtype)
    return ones if dtype == jax.dtypes.float0 else jnp.asarray(ones)


@pytest.mark.parametrize("name", VJPS)
def test_vjp(name):
    with jax.numpy_dtype_promotion("standard"):
        found, expected = _pulled(dendrax, name), _pulled(jax, name)
    assert is_alike(found, expected), (found, expected)


W, X = np.random.default_rng(0).normal(size=(2, 3, 3))
RULES = [ZIL(), ZIL(num_steps=20), IL(4, batch="sum"), FixedPrediction(), ErrorPC(4, batch="sum")]


@pytest.mark.parametrize("rule", RULES, ids=repr)
def test_ignored_cotangents_by_every_rule(rule):
    """The error of a loss is 1: a rule that multiplies by it must give the same."""

    @jax.custom_vjp
    def usual(x):
        return -0.5 * jnp.sum(x**2)

    usual.defvjp(lambda x: (usual(x), -x), lambda x, g: (g * x,))

    def loss(logp, w):
        return logp(jnp.tanh(X @ w[0]) @ w[1])

    found, expected = (
        dendrax.grad(functools.partial(loss, logp), rule=rule)([W, X])
        for logp in (log_density(), usual)
    )
    assert same(found, expected)
    assert all(np.all(leaf != 0) for leaf in found)


def test_ignored_cotangents_over_time():
    logp = log_density()
    graph = dendrax.trace(lambda w, x: logp(jnp.tanh(x @ w)), W, X)
    with jax.disable_jit():
        found = dendrax.run(graph, ZIL(), record="energy").gradient
        expected = jax.grad(lambda w: logp(jnp.tanh(X @ w)))(W)
    assert same(found, expected)


def asks_python(w, x, mask, n):
    """Branches, masks and numbers of what is not differentiated."""
    h = jnp.tanh(x @ w) * (2.0 if n > 0 else 1.0)
    scale = float(jnp.mean(x)) + np.asarray(jnp.sin(x)).sum() + jnp.max(x).item()
    scale += len(jnp.unique(mask)) + (mask * 2).tolist()[0] + int(mask.max()) + abs(complex(n + 1))
    return jnp.mean((h[mask > 0] @ w * scale) ** 2)


@pytest.mark.parametrize("rule", [ZIL(), IL(3, batch="sum"), FixedPrediction()], ids=repr)
def test_values_that_are_not_differentiated_are_known(rule):
    args = W, X, jnp.array([1, 0, 1]), jnp.array(1)
    value, gradient = dendrax.value_and_grad(asks_python, rule=rule)(*args)

    def plain(w):
        return asks_python(w, *args[1:])

    assert same(value, asks_python(*args))
    assert same(gradient, dendrax.grad(plain, rule=rule)(args[0]))
    if rule == ZIL():
        assert same(gradient, jax.grad(asks_python)(*args))
    with pytest.raises(jax.errors.TracerBoolConversionError):
        jax.jit(dendrax.grad(asks_python, rule=rule))(*args)


@pytest.mark.parametrize("rule", [ZIL(), IL(3, batch="sum")], ids=repr)
def test_an_array_of_a_number_is_an_array(rule):
    def fun(w):
        t, half = jnp.asarray(2), jnp.asarray(0.5)
        assert isinstance(t, jax.Array) and isinstance(half + 1, jax.Array)
        scale = (t + 1).astype(float) * half if t > 1 else half
        return jnp.sum(jnp.tanh(jnp.arange(3.0) @ w * scale) @ w)

    plain = lambda w: jnp.sum(jnp.tanh(jnp.arange(3.0) @ w * 1.5) @ w)
    assert same(*(dendrax.grad(f, rule=rule)(W) for f in (fun, plain)))


def test_known_values_are_computed_when_asked_only():
    """A long chain of operations on data, without recursion; nothing with an effect is repeated."""
    calls = []

    def noted(x):
        calls.append(1)
        return np.asarray(x)

    def loss(w, x):
        for _ in range(2_000):
            x = x + 1.0
        shape = jax.ShapeDtypeStruct(X.shape, X.dtype)
        y = jax.lax.cond(True, lambda x: io_callback(noted, shape, x), lambda x: x, x)
        return jnp.sum(jnp.tanh(y @ w)) if jnp.sum(x) > 0 and not calls else jnp.sum(w)

    graph = dendrax.trace(lambda w: loss(w, X), W)
    assert not calls
    assert any(v.name == "tanh" for v in graph)


def test_what_a_reference_holds_is_not_known():
    """It may have changed; better no answer than a wrong one."""

    def loss(w):
        ref = jax.new_ref(jnp.asarray(X))
        ref[...] = ref[...] + 10.0
        return jnp.sum(w) * (2.0 if ref[...][0, 0] > 5.0 else 1.0)

    assert same(dendrax.grad(loss)(W), jax.grad(loss)(W))
    with pytest.raises(jax.errors.TracerBoolConversionError):
        dendrax.grad(loss, rule=FixedPrediction())(W)


def test_known_behind_a_rule():
    def loss(w, x):
        return jnp.sum(x @ w) if jax.nn.relu(jnp.sin(x)).sum() > 0 else jnp.sum(w)

    found = dendrax.grad(loss, rule=FixedPrediction())(W, X)
    assert same(found, jax.grad(lambda w: jnp.sum(X @ w))(W))


def test_aliases_of_a_value_that_meet():
    """One sum for ``x`` and ``x + 1``, in whatever order their messages come."""

    def loss(x):
        y = x + 1.0
        z = y * x * jnp.tanh(y) + y - x
        return jnp.sum(z * y)

    x = jnp.asarray(np.random.default_rng(7).normal(size=50))
    assert same(jax.jit(dendrax.grad(loss))(x), jax.jit(jax.grad(loss))(x))
    assert same(dendrax.grad(loss)(x), jax.grad(loss)(x))


def test_a_rule_is_called_as_often_as_by_jax():
    def count(library):
        calls = []

        @jax.custom_vjp
        def f(x):
            calls.append("function")
            return jnp.sin(x)

        def forward(x):
            calls.append("forward")
            return jnp.sin(x), x

        def backward(x, g):
            calls.append("backward")
            return (g * jnp.cos(x),)

        f.defvjp(forward, backward)
        library.grad(lambda x: jnp.sum(f(x) * f(2 * x)))(jnp.ones(3))
        return calls

    assert count(dendrax) == count(jax) == ["forward"] * 2 + ["backward"] * 2


def test_a_value_that_escapes_is_refused():
    kept = []
    dendrax.grad(lambda x: (kept.append(jnp.sin(x)), jnp.sum(x))[1])(jnp.ones(3))
    with pytest.raises(jax.errors.UnexpectedTracerError):
        jnp.sum(kept[0])


def test_python_may_branch_differently_the_next_time():
    """What is remembered is about primitives, never the graph of an eager call."""
    gradient = dendrax.grad(lambda x: jnp.sin(x) if x > 0 else jnp.cos(x))
    assert same(gradient(1.0), jax.grad(jnp.sin)(1.0))
    assert same(gradient(-1.0), jax.grad(jnp.cos)(-1.0))
    assert same(gradient(1.0), jax.grad(jnp.sin)(1.0))


def test_settings_of_jax_are_part_of_what_is_remembered():
    x = jnp.ones(7)
    dendrax.grad(lambda x: jnp.sum(jnp.sinh(x)))(x)
    for precision, more in (("float32", True), ("float32", False), ("bfloat16", True)):
        before = len(_local._operations)
        with jax.default_matmul_precision(precision):
            dendrax.grad(lambda x: jnp.sum(jnp.sinh(x)))(x)
        assert (len(_local._operations) > before) is more


def test_what_only_aux_needs_is_not_kept():
    """The residuals of a pullback are those of the result, as with JAX."""

    def function(x):
        return jnp.sin(x), jnp.exp(jnp.tanh(x) @ x)

    x = jnp.ones((3, 3))
    _, pullback, _ = dendrax.vjp(function, x, has_aux=True)
    _, theirs, _ = jax.vjp(function, x, has_aux=True)
    assert len(jax.tree.leaves(pullback)) == len(jax.tree.leaves(theirs)) == 1


def test_a_pullback_is_a_tree():
    """As with JAX: through jit without tracing again, through a loop, through the host."""
    make = jax.jit(lambda x: dendrax.vjp(lambda x: jnp.sum(jnp.sin(x) / 4.0 * x[0]), x)[1])
    traces = []

    @jax.jit
    def pull(pullback, error):
        traces.append(1)
        return pullback(error)

    x = jnp.arange(3.0)
    found = [pull(make(x + i), 1.0) for i in range(3)]
    assert len(traces) == 1
    assert same(found[1], make(x + 1)(1.0))
    pullback = make(x)
    assert jax.tree.structure(pullback) == jax.tree.structure(pullback)
    on_host = jax.device_get(pullback)
    assert len(jax.tree.leaves(on_host)) == len(jax.tree.leaves(pullback))
    assert same(on_host(1.0), pullback(1.0))
    doubled = jax.tree.map(lambda a, b: a + b, pullback, pullback)
    assert jax.tree.structure(doubled) == jax.tree.structure(pullback)
    carried = jax.lax.fori_loop(0, 2, lambda i, pullback: pullback, pullback)
    assert same(carried(1.0), pullback(1.0))


def made():
    """How many bodies have been prepared."""
    return sum(map(len, _body._made.values()))


def test_bodies_are_made_once_and_keep_no_arrays():
    constant = jnp.full(1000, 2.0)
    alive = weakref.ref(constant)
    for wrap in (jax.jit, jax.checkpoint):
        inner = wrap(lambda x, c=constant: jnp.sum(jnp.sin(x) * c[0]))
        for _ in range(3):
            before = made()
            dendrax.grad(inner)(jnp.ones(3))
        assert made() == before
    del constant, inner
    jax.clear_caches()
    gc.collect()
    assert alive() is None


def test_a_shard_map_without_arguments():
    mesh = Mesh(np.array(jax.devices()[:1]), ("i",))
    spec = PartitionSpec()

    def loss(x):
        ones = jax.shard_map(lambda: jnp.ones(3), mesh=mesh, in_specs=(), out_specs=spec)()
        return jnp.sum(x * ones)

    assert same(dendrax.grad(loss)(jnp.arange(3.0)), jax.grad(loss)(jnp.arange(3.0)))


@pytest.mark.parametrize("rule", [ZIL(), FixedPrediction()], ids=repr)
def test_other_arguments_are_handed_on_as_they_are(rule):
    """The very same objects: what the function does to them is seen outside."""

    class Odd(dict):
        pass

    seen, odd, keywords = [], Odd(b=1, a=2), {"b": 1, 2: "a"}

    def loss(x, log, odd, **kwargs):
        log.append((odd, list(odd), kwargs["keywords"], list(kwargs)))
        return jnp.sum(x)

    dendrax.grad(loss, rule=rule, vertices="primitive")(
        jnp.ones(3), seen, odd, z=1, keywords=keywords, y=2
    )
    assert seen[0][0] is odd and seen[0][2] is keywords
    assert seen[0][1] == ["b", "a"] and seen[0][3] == ["z", "keywords", "y"]


COTANGENTS = [1, True, "1", 1j, 1.0, np.float64(1.0), np.float32(1.0), np.ones(1), None]


@pytest.mark.parametrize("error", COTANGENTS, ids=repr)
def test_cotangents(error):
    with jax.enable_x64(False):
        outcomes = []
        for library in (dendrax, jax):
            _, pullback = library.vjp(jnp.sum, jnp.ones(3))
            try:
                outcomes.append(pullback(error))
            except Exception as problem:
                outcomes.append(type(problem))
    found, expected = outcomes
    assert found is expected or is_alike(found, expected)


def test_any_cotangent_of_an_integer():
    (found,) = dendrax.vjp(lambda n: n, jnp.arange(3))[1](jnp.arange(3))
    assert found.dtype == jax.dtypes.float0
