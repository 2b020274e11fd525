"""Functions of the shapes that real code has, for which dendrax must do exactly what JAX does.

Each is called eagerly and under `jax.jit`. Where JAX raises, so must we.
"""

import functools
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.custom_derivatives import SymbolicZero
from jax.experimental import io_callback, sparse
from jax.sharding import Mesh, NamedSharding, PartitionSpec


@dataclass(frozen=True)
class Function:
    """``make()`` gives the function, afresh for each call: some count how often they are called."""

    name: str
    make: Callable[[], Callable[..., Any]]
    make_args: Callable[[], tuple[Any, ...]]
    settings: dict[str, Any] = field(default_factory=dict)


FUNCTIONS: list[Function] = []


def vector() -> jax.Array:
    return jnp.asarray([0.3, -0.7, 1.1])


def add(*make_args: Callable[[], Any], **settings: Any) -> Callable[[Any], Any]:
    """Enter a maker of functions into the table, with makers of its arguments."""

    def enter(make: Callable[[], Callable[..., Any]]) -> Any:
        name = make.__name__.strip("_")
        makers = make_args or (vector,)
        FUNCTIONS.append(Function(name, make, lambda: tuple(m() for m in makers), settings))
        return make

    return enter


def give(value: Any) -> Callable[[], Any]:
    return lambda: value


# ---- custom rules --------------------------------------------------------------------------------


def log_density() -> Callable[..., Any]:
    """Its backward rule ignores the cotangent."""

    @jax.custom_vjp
    def logp(x):
        return -0.5 * jnp.sum(x**2)

    logp.defvjp(lambda x: (logp(x), -x), lambda res, _: (res,))
    return logp


add()(log_density)


@add()
def ignored_cotangent_in_jit():
    return jax.jit(log_density())


@add()
def ignored_cotangent_in_vmap():
    logp = log_density()
    return lambda x: jnp.sum(jax.vmap(logp)(jnp.stack([x, 2 * x])))


@add()
def ignored_cotangent_in_remat():
    return jax.checkpoint(log_density())


@add()
def ignored_cotangent_in_scan():
    logp = log_density()

    def loss(x):
        return jax.lax.scan(lambda c, _: (c + logp(x * c), None), 1.0, length=3)[0]

    return loss


@add()
def ignored_cotangent_in_cond():
    logp = log_density()
    return lambda x: jax.lax.cond(x[0] > 0, logp, jnp.sum, x)


@add(vector, vector, argnums=(0, 1))
def one_of_two_cotangents_ignored():
    @jax.custom_vjp
    def f(x, y):
        return jnp.sum(x * y)

    f.defvjp(lambda x, y: (f(x, y), (x, y)), lambda res, g: (res[1], g * res[0]))
    return lambda x, y: 3.0 * f(x, y) + jnp.sum(x)


@add(vector, vector, argnums=(0, 1))
def rule_that_returns_none_for_one():
    @jax.custom_vjp
    def f(x, y):
        return jnp.sum(x * y)

    f.defvjp(lambda x, y: (f(x, y), y), lambda y, g: (g * y, None))
    return lambda x, y: f(x, y) + jnp.sum(jnp.sin(y))


@add()
def rule_that_returns_none():
    @jax.custom_vjp
    def f(x):
        return jnp.sum(x)

    f.defvjp(lambda x: (f(x), None), lambda res, g: (None,))
    return f


@add()
def ignored_cotangent_behind_a_rule_that_returns_none():
    """JAX asks the first rule with a cotangent of zero."""
    logp = log_density()

    @jax.custom_vjp
    def silent(x):
        return 2.0 * x

    silent.defvjp(lambda x: (silent(x), None), lambda res, g: (None,))
    return lambda x: silent(logp(x))


@add()
def ignored_cotangent_behind_a_silent_rule_in_jit():
    logp = log_density()

    @jax.custom_vjp
    def silent(x):
        return 2.0 * x

    silent.defvjp(lambda x: (silent(x), None), lambda res, g: (None,))
    return jax.jit(lambda x: silent(logp(x)) + jnp.sum(x))


@add()
def nondiff_function_of_custom_vjp():
    @functools.partial(jax.custom_vjp, nondiff_argnums=(0,))
    def apply(f, x):
        return f(x)

    apply.defvjp(lambda f, x: (f(x), x), lambda f, x, g: (g * jnp.cos(x) * 2.0,))
    return lambda x: jnp.sum(apply(jnp.sin, x))


@add()
def nondiff_number_of_custom_jvp():
    @functools.partial(jax.custom_jvp, nondiff_argnums=(1,))
    def power(x, n):
        return x**n

    power.defjvp(lambda n, primals, tangents: (power(primals[0], n), n * tangents[0]))
    return lambda x: jnp.sum(power(x, 3))


@add(lambda: {"a": jnp.ones(2), "b": (jnp.full(3, 2.0), None)})
def custom_vjp_of_a_tree():
    @jax.custom_vjp
    def f(tree):
        return jnp.sum(tree["a"]) * jnp.sum(tree["b"][0])

    f.defvjp(lambda tree: (f(tree), tree), lambda tree, g: (jax.tree.map(lambda x: g * x, tree),))
    return f


@add()
def symbolic_zeros_in_custom_vjp():
    @jax.custom_vjp
    def f(x, y):
        return x * y, x + y

    def forward(x, y):
        assert x.perturbed and not y.perturbed
        return f(x.value, y.value), (x.value, y.value)

    def backward(res, g):
        assert isinstance(g[1], SymbolicZero)
        return g[0] * res[1], None

    f.defvjp(forward, backward, symbolic_zeros=True)
    return lambda x: jnp.sum(f(x, jnp.ones(3))[0])


@add()
def symbolic_zeros_in_custom_jvp():
    @jax.custom_jvp
    def f(x, y):
        return x * y

    def rule(primals, tangents):
        assert isinstance(tangents[1], SymbolicZero)
        return f(*primals), tangents[0] * primals[1] * 5.0

    f.defjvp(rule, symbolic_zeros=True)
    return lambda x: jnp.sum(f(x, jnp.full(3, 2.0)))


@add()
def dead_output_of_custom_vjp():
    @jax.custom_vjp
    def f(x):
        return jnp.sin(x), jnp.cos(x)

    f.defvjp(lambda x: (f(x), x), lambda x, g: (g[0] * jnp.cos(x) - g[1] * jnp.sin(x),))
    return lambda x: jnp.sum(f(x)[1])


@add(vector, give(2))
def integer_argument_of_custom_vjp():
    @jax.custom_vjp
    def f(x, n):
        return jnp.sum(x) * n

    f.defvjp(lambda x, n: (f(x, n), n), lambda n, g: (jnp.full(3, g * n), None))
    return f


@add(vector, lambda: jax.random.key(0))
def key_argument_of_custom_vjp():
    @jax.custom_vjp
    def f(x, key):
        return jnp.sum(x * jax.random.normal(key, x.shape))

    def forward(x, key):
        return f(x, key), jax.random.normal(key, x.shape)

    f.defvjp(forward, lambda noise, g: (g * noise, None))
    return f


@add()
def optional_argument_of_custom_vjp():
    @jax.custom_vjp
    def f(x, scale=None):
        return jnp.sum(x) if scale is None else jnp.sum(x * scale)

    f.defvjp(lambda x, scale=None: (f(x, scale), None), lambda _, g: (jnp.full(3, g), None))
    return lambda x: f(x) + f(x, None)


def refusing() -> Callable[..., Any]:
    """Its backward rule raises."""

    @jax.custom_vjp
    def f(x):
        return jnp.sin(x)

    def backward(res, g):
        raise RuntimeError("asked for a derivative")

    f.defvjp(lambda x: (f(x), None), backward)
    return f


@add()
def refusing_rule_that_is_asked():
    f = refusing()
    return lambda x: jnp.sum(f(x))


@add()
def refusing_rule_under_stop_gradient():
    f = refusing()
    return lambda x: jnp.sum(jax.lax.stop_gradient(f(x)) * x)


@add()
def refusing_rule_compared():
    f = refusing()
    return lambda x: jnp.sum(jnp.where(f(x) > 0, x, 2 * x))


@add()
def refusing_rule_unused():
    f = refusing()
    return lambda x: (f(x), jnp.sum(x * x))[1]


@add(has_aux=True)
def refusing_rule_in_aux():
    f = refusing()
    return lambda x: (jnp.sum(x * x), f(x))


@add()
def refusing_rule_in_jit_under_stop_gradient():
    f = jax.jit(refusing())
    return lambda x: jnp.sum(jax.lax.stop_gradient(f(x)) * x)


@add(vector, vector, argnums=(0, 1))
def rules_for_each_argument():
    @jax.custom_jvp
    def f(x, y):
        return x * y

    f.defjvps(lambda t, ans, x, y: 2.0 * t * y, None)
    return lambda x, y: jnp.sum(f(x, y) + y)


@add()
def rule_over_a_closed_array():
    constant = jnp.arange(3.0)

    @jax.custom_vjp
    def f(x):
        return jnp.sum(x * constant)

    f.defvjp(lambda x: (f(x), None), lambda _, g: (g * constant * 2.0,))
    return f


@add()
def rule_over_a_differentiated_value():
    def loss(x):
        @jax.custom_vjp
        def f(y):
            return jnp.sum(x * y)

        f.defvjp(lambda y: (f(y), None), lambda _, g: (g * x,))
        return f(2.0 * x)

    return loss


@add()
def custom_gradient():
    @jax.custom_gradient
    def f(x):
        return jnp.sum(x**2), lambda g: (g * 7.0 * x,)

    return f


@add()
def rule_in_a_rule():
    inner = log_density()

    @jax.custom_vjp
    def outer(x):
        return inner(x) * 2.0

    outer.defvjp(lambda x: (outer(x), x), lambda x, g: (g * jax.grad(inner)(x),))
    return outer


@add()
def side_table():
    """What the forward rule put aside is there when the backward rule comes, once."""
    table = {}

    @jax.custom_vjp
    def f(x):
        return jnp.sum(jnp.sin(x))

    def forward(x):
        table[len(table)] = "forward"
        return f(x), (x, len(table) - 1)

    def backward(res, g):
        x, index = res
        table.pop(int(index))
        return (g * jnp.cos(x),)

    f.defvjp(forward, backward)
    return f


@add(has_aux=True)
def calls_of_a_rule():
    """How often each rule was called by the time that the function returns, and before that."""
    calls = {"forward": 0, "backward": 0}

    @jax.custom_vjp
    def f(x):
        return jnp.sum(x)

    def forward(x):
        calls["forward"] += 1
        return f(x), None

    def backward(_, g):
        calls["backward"] += 1
        return (jnp.full(3, g * calls["backward"]),)

    f.defvjp(forward, backward)
    return lambda x: (f(x), dict(calls))


@add()
def custom_jvp_that_branches():
    @jax.custom_jvp
    def f(x):
        return jnp.sum(x)

    @f.defjvp
    def rule(primals, tangents):
        (x,), (t,) = primals, tangents
        return f(x), jnp.sum(t) * (2.0 if x[0] > 0 else 3.0)

    return f


@add(vector, lambda: jnp.asarray(2))
def custom_vjp_that_branches():
    @jax.custom_vjp
    def f(x, n):
        return jnp.sum(x) if n > 1 else jnp.sum(2 * x)

    f.defvjp(lambda x, n: (f(x, n), int(n)), lambda n, g: (jnp.full(3, g * n), None))
    return f


def steeper() -> Callable[..., Any]:
    """A sine whose rule says that it is three times as steep: no true derivative."""
    h = jax.custom_jvp(jnp.sin)
    h.defjvp(lambda primals, t: (jnp.sin(primals[0]), 3.0 * jnp.cos(primals[0]) * t[0]))
    return h


@add()
def second_derivative_through_remat():
    """The value of a rule is that of its own code, also where another derivative is taken."""
    h = jax.checkpoint(steeper())
    return lambda x: jnp.sum(jax.grad(lambda x: jnp.sum(h(h(x))))(x))


@add()
def second_derivative_through_a_scan_of_remat():
    h = steeper()

    def loss(x):
        return jnp.sum(jax.lax.scan(jax.checkpoint(lambda c, _: (h(c), None)), x, length=2)[0])

    return lambda x: jnp.sum(jax.grad(loss)(x))


@add()
def custom_root():
    def loss(a):
        root = jax.lax.custom_root(
            lambda x: x**3 - a,
            jnp.ones(3),
            lambda f, x: jax.lax.fori_loop(0, 20, lambda _, x: x - f(x) / (3 * x**2 + 1e-3), x),
            lambda g, y: y / g(jnp.ones(3)),
        )
        return jnp.sum(root)

    return loss


# ---- loops of unknown length ---------------------------------------------------------------------


def doubled(x: Any) -> Any:
    return jax.lax.while_loop(lambda c: jnp.sum(c**2) < 10.0, lambda c: c * 2.0, x)


@add()
def while_that_learns():
    return lambda x: jnp.sum(doubled(x))


@add()
def while_under_stop_gradient():
    return lambda x: jnp.sum(x * jax.lax.stop_gradient(doubled(x)))


@add()
def while_under_argmax():
    return lambda x: x[jnp.argmax(doubled(x))]


@add()
def while_compared():
    return lambda x: jnp.sum(jnp.where(doubled(x) > 1.0, x, 0.0))


@add()
def while_as_integer():
    return lambda x: jnp.sum(x * doubled(x).astype(int).astype(x.dtype))


@add()
def while_unused():
    return lambda x: (doubled(x), jnp.sum(x))[1]


@add(has_aux=True)
def while_in_aux():
    return lambda x: (jnp.sum(x), doubled(x))


@add()
def while_in_jit_and_scan_under_stop_gradient():
    inner = jax.jit(doubled)

    def loss(x):
        def body(c, _):
            return c + jnp.sum(x * jax.lax.stop_gradient(inner(x))), None

        return jax.lax.scan(body, 0.0, length=2)[0]

    return loss


@add(vector, give(3))
def loop_with_a_bound_that_is_an_argument():
    return lambda x, n: jnp.sum(
        x * jax.lax.stop_gradient(jax.lax.fori_loop(0, n, lambda i, c: c * 2.0, x))
    )


@add()
def scan_without_steps():
    return lambda x: jnp.sum(jax.lax.scan(lambda c, _: (c * x, c), x, length=0)[0])


def origin() -> jax.Array:
    """Where the derivative of a square root is infinite: a zero error would come back as NaN."""
    return jnp.zeros(2)


def roots_and_doubles(carry: Any, _: Any) -> Any:
    return (jnp.sqrt(carry[0]), carry[1] * 2.0), jnp.sqrt(carry[0])


@add(origin)
def dead_carry():
    return lambda x: jnp.sum(jax.lax.scan(roots_and_doubles, (x, x + 1.0), length=2)[0][1])


@add(origin)
def dead_carry_of_a_loop():
    def loss(x):
        body = lambda i, c: roots_and_doubles(c, None)[0]
        return jnp.sum(jax.lax.fori_loop(0, 2, body, (x, x + 1.0))[1])

    return loss


@add(origin)
def dead_carry_in_a_scan():
    def loss(x):
        def outer(carry, _):
            return jax.lax.scan(roots_and_doubles, carry, length=2)[0], None

        return jnp.sum(jax.lax.scan(outer, (x, x + 1.0), length=2)[0][1])

    return loss


@add(origin)
def dead_carry_in_jit_and_remat():
    @jax.jit
    @jax.checkpoint
    def both(x):
        return jax.lax.scan(roots_and_doubles, (x, x + 1.0), length=2)

    return lambda x: jnp.sum(both(x)[0][1])


@add(origin)
def dead_slices():
    return lambda x: jnp.sum(jax.lax.scan(lambda c, _: (c * 2.0, jnp.sqrt(x)), x, length=2)[0])


@add()
def while_in_a_dead_carry():
    def loss(x):
        step = lambda c, _: ((doubled(c[0]), c[1] * 2.0), None)
        return jnp.sum(jax.lax.scan(step, (x, x + 1.0), length=2)[0][1])

    return loss


@add()
def cond_on_a_python_value():
    return lambda x: jax.lax.cond(True, jnp.sum, lambda x: jnp.sum(x**2), x)


@add(vector, lambda: jnp.asarray(1))
def switch():
    branches = [jnp.sum, lambda x: jnp.sum(jnp.sin(x)), lambda x: x[0]]
    return lambda x, i: jax.lax.switch(i, branches, x)


# ---- values that Python asks for -----------------------------------------------------------------


@add(give(1.0), lambda: jnp.asarray(1))
def branch_on_an_argument():
    return lambda x, n: x * 2 if n > 0 else x


@add(vector, lambda: jnp.asarray([1, 0, 2]))
def boolean_mask():
    return lambda x, m: jnp.sum(x[m > 0])


@add(vector, lambda: jnp.asarray([1, 0, 2]))
def integer_of_an_argument():
    return lambda x, labels: jnp.sum(x) * int(labels.max())


@add(vector, vector)
def float_of_an_argument():
    return lambda x, d: jnp.sum(x) * float(jnp.mean(d))


@add(vector, lambda: jnp.asarray([1, 0, 1]))
def unique_of_an_argument():
    return lambda x, d: jnp.sum(x[: len(jnp.unique(d))])


@add(vector, vector)
def numpy_of_an_argument():
    return lambda x, d: jnp.sum(x * np.asarray(jnp.sin(d)))


@add(vector, lambda: jnp.eye(3))
def sparse_matrix_of_an_argument():
    return lambda x, d: jnp.sum(sparse.BCOO.fromdense(d) @ x)


@add()
def branch_on_a_closed_array():
    closed = jnp.arange(3.0)
    return lambda x: jnp.sum(x) if jnp.sum(closed) > 0 else x[0]


@add()
def branch_on_the_differentiated_value():
    return lambda x: jnp.sum(x) if x[0] > 0 else x[0]


@add()
def branch_after_a_jit():
    return lambda x: jnp.sum(x) if jax.jit(jnp.sin)(x)[0] > 0 else x[0]


@add()
def integer_of_the_differentiated_value():
    return lambda x: jnp.sum(x) * int(10 * x[2])


@add()
def float_of_the_differentiated_value():
    return lambda x: jnp.sum(x) * float(x[0])


@add()
def numpy_of_the_differentiated_value():
    return lambda x: jnp.sum(np.asarray(x))


@add()
def numpy_of_what_has_no_gradient():
    return lambda x: jnp.sum(x * np.asarray(jax.lax.stop_gradient(x)))


# ---- results of every sort -----------------------------------------------------------------------


@add()
def python_number():
    return lambda x: 2.0


@add()
def numpy_number():
    return lambda x: np.float32(2.0)


@add()
def jax_constant():
    return lambda x: jnp.float32(2.0)


@add()
def constant_of_a_jit():
    return jax.jit(lambda x: 2.0)


@add(give(2.0))
def argument_itself():
    return lambda x: x


@add(lambda: np.float32(2.0))
def numpy_argument_itself():
    return lambda x: x


@add(vector, lambda: jnp.asarray(3.0))
def other_argument():
    return lambda x, d: d


@add(give(2.0))
def weak_type():
    return lambda x: x * x


@add(give(2.0), vector)
def weak_with_strong_type():
    return lambda x, d: jnp.sum(x * d)


@add(give(2.0), give(3.0), argnums=(0, 1))
def weak_parameter_that_is_not_used():
    return lambda x, y: x * 2


@add(vector, vector, argnums=(0, 1))
def parameter_that_is_not_used():
    return lambda x, y: jnp.sum(x)


@add(vector, vector, argnums=np.array([0, 1]))
def argnums_of_numpy():
    return lambda x, y: jnp.sum(x * y)


@add(vector, vector, argnums=np.int64(1))
def argnum_of_numpy():
    return lambda x, y: jnp.sum(x * y)


@add(lambda: jnp.ones(3, jnp.bfloat16))
def low_precision():
    return lambda x: jnp.sum(jnp.sin(x))


@add(lambda: jnp.asarray(1.0 + 2.0j))
def complex_parameter():
    return lambda z: jnp.abs(z) ** 2


@add(lambda: {"a": jnp.ones(2), "b": None, "c": [1.0, np.ones(2)]})
def tree_of_parameters():
    return lambda p: jnp.sum(p["a"]) * p["c"][0] + jnp.sum(p["c"][1])


def _sharded() -> jax.Array:
    mesh = Mesh(np.array(jax.devices()[:2]), ("i",))
    return jax.device_put(jnp.arange(4.0), NamedSharding(mesh, PartitionSpec("i")))


@add(_sharded, _sharded, argnums=(0, 1))
def sharded_parameters():
    return lambda x, y: jnp.sum(jnp.sin(x))


@add(vector, lambda: jax.random.key(1), has_aux=True)
def aux_of_every_sort():
    def loss(x, key):
        aux = {
            "array": jnp.ones(2),
            "bool": True,
            "float": 1.5,
            "function": jnp.sin,
            "int": 3,
            "key": key,
            "none": None,
            "numpy": np.ones(2),
            "numpy scalar": np.float32(1.0),
            "old key": jax.random.PRNGKey(0),
            "result": jnp.sin(x),
            "string": "text",
            "x": x,
            "weak": 2.0 * jnp.float32(1.0),
        }
        return jnp.sum(x), aux

    return loss


@add(vector, lambda: jax.random.key(1), has_aux=True)
def aux_of_arrays():
    return lambda x, key: (jnp.sum(x), (x, jnp.sin(x), key, 2.0, np.ones(2), np.int32(1), x > 0))


@add(has_aux=True)
def aux_that_is_no_pair():
    return lambda x: (jnp.sum(x), 1, 2)


@add()
def loss_in_a_tuple():
    return lambda x: (jnp.sum(x),)


@add(vector, vector, argnums=())
def no_argnums():
    return lambda x, y: jnp.sum(x * y)


@add(vector, vector, argnums=(0, -2))
def the_same_argnum_twice():
    return lambda x, y: jnp.sum(x * y)


@add(vector, vector, argnums={1})
def set_of_argnums():
    return lambda x, y: jnp.sum(x * y)


@add(vector, vector, argnums=-3)
def argnum_too_low():
    return lambda x, y: jnp.sum(x * y)


@add(vector, vector, argnums=2)
def argnum_too_high():
    return lambda x, y: jnp.sum(x * y)


@add()
def jit_with_options_that_xla_does_not_know():
    return jax.jit(jnp.sum, compiler_options={"nonsense": True})


@add()
def vector_loss():
    return jnp.sin


@add()
def integer_loss():
    return lambda x: jnp.argmax(x)


@add()
def complex_loss():
    return lambda x: jnp.sum(x) * 1j


@add()
def string_loss():
    return lambda x: "loss"


@add(lambda: jnp.arange(3))
def integer_parameter():
    return lambda x: jnp.sum(x) * 1.0


@add(give("text"))
def string_parameter():
    return lambda x: 1.0


# ---- effects -------------------------------------------------------------------------------------


@add()
def io_callback_on_the_differentiated_value():
    def loss(x):
        io_callback(lambda _: None, None, x)
        return jnp.sum(x)

    return loss


@add()
def io_callback_for_an_integer():
    def loss(x):
        return jnp.sum(x) * io_callback(lambda _: np.int32(1), jax.ShapeDtypeStruct((), "int32"), x)

    return loss


@add(vector, vector)
def io_callback_on_another_value():
    def loss(x, d):
        io_callback(lambda _: None, None, d)
        return jnp.sum(x)

    return loss


@add()
def pure_callback_on_what_has_no_gradient():
    def loss(x):
        shape = jax.ShapeDtypeStruct(x.shape, x.dtype)
        return jnp.sum(x * jax.pure_callback(np.sin, shape, jax.lax.stop_gradient(x)))

    return loss


@add()
def pure_callback_on_the_differentiated_value():
    def loss(x):
        return jnp.sum(jax.pure_callback(np.sin, jax.ShapeDtypeStruct(x.shape, x.dtype), x))

    return loss


@add()
def debug_print():
    def loss(x):
        jax.debug.callback(lambda x: None, x)
        return jnp.sum(x)

    return loss
