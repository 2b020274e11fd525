"""A drop-in for JAX: the same value, gradient and aux, of the same types; the same errors."""

import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import dendrax
from dendrax import IL, ZIL, ErrorPC, FixedPrediction
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
    assert our_problem is problem
    assert is_alike(found, expected), (found, expected)


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
RULES = [ZIL(), ZIL(num_steps=20), IL(4), FixedPrediction(), ErrorPC(4)]


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


@pytest.mark.parametrize("rule", [ZIL(), IL(3), FixedPrediction()], ids=repr)
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


def test_known_values_are_computed_when_asked_only():
    """A long chain of operations on data, without a word of recursion; and not twice."""
    calls = []

    def noted(x):
        calls.append(1)
        return x

    def loss(w, x):
        for _ in range(2_000):
            x = x + 1.0
        y = jax.pure_callback(noted, jax.ShapeDtypeStruct(X.shape, X.dtype), X)
        known = jnp.sum(x) > 0
        return jnp.sum(jnp.tanh(y @ w)) if known and not calls else jnp.sum(w)

    graph = dendrax.trace(lambda w: loss(w, X), W)
    assert not calls
    assert any(v.name == "tanh" for v in graph)


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
    x = jnp.asarray(np.random.default_rng(1).normal(size=(4, 4)), "float32")

    def loss(x):
        return jnp.sum(jnp.sin(x @ x))

    for precision in ("float32", "bfloat16", "float32"):
        with jax.default_matmul_precision(precision):
            found = jax.make_jaxpr(dendrax.grad(loss))(x)
            expected = jax.make_jaxpr(jax.grad(loss))(x)
            assert str(found).count("precision") == str(expected).count("precision")
            assert same(dendrax.grad(loss)(x), jax.grad(loss)(x))


def test_what_only_aux_needs_is_not_kept():
    """The residuals of a pullback are those of the result, as with JAX."""

    def function(x):
        return jnp.sin(x), jnp.exp(jnp.tanh(x) @ x)

    x = jnp.ones((3, 3))
    _, pullback, _ = dendrax.vjp(function, x, has_aux=True)
    _, theirs, _ = jax.vjp(function, x, has_aux=True)
    assert len(jax.tree.leaves(pullback)) == len(jax.tree.leaves(theirs)) == 1
