"""dendrax composes with JAX: jit, vmap, second derivatives, sharding, donation, pytrees."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import Mesh, NamedSharding, PartitionSpec

import dendrax
from dendrax import BP, IL, ZIL, _compat
from tests.compare import close, distance, same
from tests.sampling import every, rotating

KEY = jax.random.key(0)
P = PartitionSpec


def normal(seed, *shape):
    return jnp.asarray(np.random.default_rng(seed).normal(size=shape))


def loss(w, x):
    h = jnp.tanh(x @ w["a"]) + x
    return jnp.mean(jax.nn.log_softmax(h @ w["b"]) ** 2)


@pytest.fixture
def w():
    return {"a": normal(1, 4, 4), "b": normal(2, 4, 3)}


@pytest.fixture
def x():
    return normal(3, 6, 4)


def test_jit(w, x):
    found = jax.jit(dendrax.value_and_grad(loss))(w, x)
    assert same(found, jax.jit(jax.value_and_grad(loss))(w, x))


def test_vmap(w, x):
    xs = x.reshape(2, 3, 4)
    found = jax.jit(jax.vmap(dendrax.grad(loss), (None, 0)))(w, xs)
    expected = jax.jit(jax.vmap(jax.grad(loss), (None, 0)))(w, xs)
    assert same(found, expected)


def test_grad_of_vmap(w, x):
    def batched(w):
        return jnp.sum(jax.vmap(lambda row: loss(w, row[None]))(x))

    assert same(jax.jit(dendrax.grad(batched))(w), jax.jit(jax.grad(batched))(w))


SECOND = {
    "ours of ours": lambda f: dendrax.grad(lambda v: jnp.sum(dendrax.grad(f)(v) ** 2)),
    "ours of jax's": lambda f: dendrax.grad(lambda v: jnp.sum(jax.grad(f)(v) ** 2)),
    "jax's of ours": lambda f: jax.grad(lambda v: jnp.sum(dendrax.grad(f)(v) ** 2)),
}


def _scan_loss(v):
    def step(carry, x):
        carry = jnp.tanh(carry * v + x)
        return carry, jnp.sin(carry)

    carry, ys = jax.lax.scan(step, jnp.zeros_like(v), jnp.stack([v, v * 2, v * v]))
    return jnp.sum(carry * ys[0])


FUNCTIONS = {
    "softmax": lambda v: jnp.sum(jax.nn.softmax(v * jnp.arange(1.0, 4.0)) ** 3),
    "scan": _scan_loss,
    "remat": lambda v: jnp.sum(jax.checkpoint(lambda u: jnp.sin(jnp.tanh(u) * u))(v)),
    "jit": lambda v: jnp.sum(jax.jit(lambda u: jnp.exp(u) * u + u)(v) * v),
    "cond": lambda v: jnp.sum(jax.lax.cond(v[0] > 0, jnp.sin, jnp.cos, v) ** 2),
    "relu": lambda v: jnp.sum(jax.nn.gelu(v) * jax.nn.silu(v)),
}


@pytest.mark.parametrize(("transform", "fun"), rotating(SECOND, FUNCTIONS))
def test_second_derivatives(transform, fun):
    v = jnp.asarray([0.3, -0.7, 1.1])
    expected = jax.jit(jax.grad(lambda v: jnp.sum(jax.grad(fun)(v) ** 2)))(v)
    assert close(jax.jit(transform(fun))(v), expected)


@pytest.mark.parametrize("fun", every(2, FUNCTIONS))
def test_jvp_and_hessian_of_ours(fun):
    v, u = jnp.asarray([0.3, -0.7, 1.1]), jnp.asarray([1.0, 2.0, -1.0])

    @jax.jit
    def derivatives(v, u):
        tangents = [jax.jvp(library.grad(fun), (v,), (u,))[1] for library in (dendrax, jax)]
        hessians = [
            jax.jacfwd(dendrax.grad(fun))(v),
            jax.hessian(lambda v: dendrax.value_and_grad(fun)(v)[0])(v),
            jax.jacfwd(jax.jacrev(fun))(v),
        ]
        return tangents, hessians

    (tangent, expected), (forward, twice, hessian) = derivatives(v, u)
    assert close(tangent, expected)
    assert close(forward, hessian) and close(twice, hessian)


def test_third_derivative():
    def power(x):
        return x**5

    ours = dendrax.grad(dendrax.grad(dendrax.grad(power)))
    assert float(ours(2.0)) == pytest.approx(60 * 4.0, rel=1e-14)


def test_sharded_inputs(w, x):
    mesh = Mesh(np.array(jax.devices()[:2]), ("batch",))
    sharded = jax.device_put(x, NamedSharding(mesh, P("batch")))
    replicated = jax.device_put(w, NamedSharding(mesh, P()))
    found = jax.jit(dendrax.value_and_grad(loss))(replicated, sharded)
    assert same(found, jax.jit(jax.value_and_grad(loss))(replicated, sharded))


def test_inside_shard_map(w, x):
    mesh = Mesh(np.array(jax.devices()[:2]), ("batch",))

    def update(grad, w, x):
        local = grad(loss)(w, x)
        return jax.lax.pmean(local, "batch")

    def mapped(grad):
        body = functools.partial(update, grad)
        return jax.jit(jax.shard_map(body, mesh=mesh, in_specs=(P(), P("batch")), out_specs=P()))

    assert same(mapped(dendrax.grad)(w, x), mapped(jax.grad)(w, x))


@pytest.mark.parametrize(
    "rule",
    [
        ZIL(gamma=0.5),
        ZIL(levelled=False),
        ZIL(timing="end"),
        ZIL(init="zeros"),
        IL(num_steps=4, batch="sum"),
        IL(num_steps=30, tol=1e-2, batch="sum"),
        dendrax.IncrementalPC(num_steps=2, batch="sum"),
    ],
    ids=str,
)
def test_rules_over_time_inside_shard_map(rule):
    """What differs between devices does so from the first step on; each device has its samples."""
    mesh = Mesh(np.array(jax.devices()[:2]), ("batch",))
    w = [jnp.full((3, 4), 0.2), jnp.full((4, 2), 0.3)]
    x = jnp.arange(12.0).reshape(4, 3) / 10

    def summed(w, x):
        return jnp.sum(jnp.tanh(jnp.tanh(x @ w[0]) @ w[1]))

    def own(w, x):
        w = jax.tree.map(lambda a: _compat.varying_as(a, x), w)
        return jax.tree.map(lambda g: g[None], dendrax.grad(summed, rule=rule)(w, x))

    found = jax.jit(
        jax.shard_map(own, mesh=mesh, in_specs=(P(), P("batch")), out_specs=P("batch"))
    )(w, x)
    for device in (0, 1):
        alone = jax.jit(dendrax.grad(summed, rule=rule))(w, x[2 * device : 2 * device + 2])
        # Of several devices all go on until the last is done.
        if getattr(rule, "tol", None) is None:
            assert close(jax.tree.map(lambda g, d=device: g[d], found), alone, ulps=1e4)

    def shared(w, x):
        return dendrax.grad(summed, rule=rule)(w, x)

    together = jax.jit(jax.shard_map(shared, mesh=mesh, in_specs=(P(), P("batch")), out_specs=P()))
    if rule.relaxes:  # one sum over all samples
        assert close(together(w, x), jax.jit(dendrax.grad(summed, rule=rule))(w, x), ulps=1e4)
    else:  # to count as varying is an operation, and so a vertex, of its own
        assert all(np.isfinite(g).all() for g in jax.tree.leaves(together(w, x)))


def test_scan_inside_shard_map(x):
    mesh = Mesh(np.array(jax.devices()[:2]), ("batch",))

    def cell_loss(w, x):
        def step(carry, x):
            carry = jnp.tanh(carry * w + x)
            return carry, carry

        carry, ys = jax.lax.scan(step, jnp.zeros_like(x[0]), x)
        return jnp.sum(carry) + jnp.sum(ys**2)

    def mapped(grad):
        return jax.jit(
            jax.shard_map(
                grad(cell_loss), mesh=mesh, in_specs=(P(), P(None, "batch")), out_specs=P()
            )
        )

    assert same(mapped(dendrax.grad)(x[0, 0], x), mapped(jax.grad)(x[0, 0], x))


def test_through_shard_map(w, x):
    mesh = Mesh(np.array(jax.devices()[:2]), ("batch",))

    def total(w, x):
        def local(w, x):
            return jax.lax.psum(loss(w, x), "batch")

        return jax.shard_map(local, mesh=mesh, in_specs=(P(), P("batch")), out_specs=P())(w, x)

    assert same(jax.jit(dendrax.grad(total))(w, x), jax.jit(jax.grad(total))(w, x))


def test_inner_jit_with_shardings(w, x):
    mesh = Mesh(np.array(jax.devices()[:2]), ("batch",))
    rows = NamedSharding(mesh, P("batch"))
    layer = jax.jit(lambda h: jnp.tanh(h) * h, in_shardings=rows, out_shardings=rows)

    def total(w, x):
        return jnp.sum(layer(x @ w["a"]) ** 2)

    assert close(jax.jit(dendrax.grad(total))(w, x), jax.jit(jax.grad(total))(w, x))


def test_donation(w, x):
    def update(grad, w, x):
        return jax.tree.map(lambda w, g: w - 0.1 * g, w, grad(loss)(w, x))

    ours = jax.jit(functools.partial(update, dendrax.grad), donate_argnums=0)
    theirs = jax.jit(functools.partial(update, jax.grad), donate_argnums=0)
    given = jax.tree.map(jnp.copy, w)
    assert same(ours(given, x), theirs(jax.tree.map(jnp.copy, w), x))
    assert all(leaf.is_deleted() for leaf in jax.tree.leaves(given))


def test_prng_keys_and_dropout(w, x):
    def noisy(w, key, x):
        mask = jax.random.bernoulli(key, 0.5, x.shape)
        return loss(w, jnp.where(mask, x, 0.0)) + jnp.sum(jax.random.normal(key, (4,)) @ w["a"])

    found = jax.jit(dendrax.value_and_grad(noisy))(w, KEY, x)
    assert same(found, jax.jit(jax.value_and_grad(noisy))(w, KEY, x))


def test_has_aux_and_argnums(w, x):
    def with_aux(x, w, *, scale):
        value = loss(w, x) * scale
        return value, {"x": x * 2.0, "name": "aux", "count": 3, "none": None}

    for argnums in (0, 1, (0, 1), (1,), -1):
        found = dendrax.value_and_grad(with_aux, argnums, has_aux=True)(x, w, scale=2.0)
        assert same(
            found[1], jax.value_and_grad(with_aux, argnums, has_aux=True)(x, w, scale=2.0)[1]
        )
        assert found[0][1]["name"] == "aux"
        assert found[0][1]["count"] == 3
        assert same(found[0][1]["x"], x * 2.0)
    gradient, aux = dendrax.grad(with_aux, has_aux=True)(x, w, scale=2.0)
    assert same(gradient, jax.grad(with_aux, has_aux=True)(x, w, scale=2.0)[0])
    assert aux["name"] == "aux"


def test_other_arguments_are_not_traced():
    """As with jax.grad, what is not differentiated may decide Python branches and shapes."""

    def f(w, steps, mode):
        for _ in range(steps):
            w = jnp.sin(w) if mode == "sin" else jnp.cos(w)
        return w

    assert same(dendrax.grad(f)(0.5, 3, "sin"), jax.grad(f)(0.5, 3, "sin"))


def test_vjp(w, x):
    def two(w, x):
        return {"h": x @ w["a"], "i": jnp.argmax(x)}, w["b"]

    found, pull = dendrax.vjp(two, w, x)
    expected, jax_pull = jax.vjp(two, w, x)
    assert same(found, expected)
    cotangent = ({"h": jnp.ones((6, 4)), "i": np.zeros((), jax.dtypes.float0)}, w["b"] * 2.0)
    assert same(pull(cotangent), jax_pull(cotangent))
    assert same(jax.jit(lambda pull: pull(cotangent))(pull), jax_pull(cotangent))


def test_vjp_with_integer_primals_aux_and_rules():
    def f(x, n):
        return x * n, "aux"

    value, pull, aux = dendrax.vjp(f, 3.0, 2, has_aux=True)
    assert (float(value), aux) == (6.0, "aux")
    dx, dn = pull(1.0)
    assert float(dx) == 2.0
    assert dn.dtype == jax.dtypes.float0
    _, pull = dendrax.vjp(lambda x: jnp.sin(x) * x, 1.0, rule=ZIL(gamma=0.5))
    assert distance(pull(1.0), jax.vjp(lambda x: jnp.sin(x) * x, 1.0)[1](1.0)) > 0.1


def test_complex_vjp():
    def f(z):
        return jnp.exp(z) * jnp.conj(z)

    z, ct = jnp.asarray([1.0 + 2.0j, -0.5j]), jnp.asarray([0.3 - 1.0j, 2.0 + 0.0j])
    assert same(dendrax.vjp(f, z)[1](ct), jax.vjp(f, z)[1](ct))


def test_python_scalars_and_numpy():
    assert same(dendrax.grad(lambda x: x**2)(3.0), jax.grad(lambda x: x**2)(3.0))
    array = np.arange(3, dtype=np.float32)
    found = dendrax.grad(lambda x: jnp.sum(x * x))(array)
    assert same(found, jax.grad(lambda x: jnp.sum(x * x))(array))


def test_while_with_a_fixed_trip_count():
    def looped(x):
        return jax.lax.while_loop(lambda c: c[0] < 7, lambda c: (c[0] + 2, jnp.sin(c[1])), (0, x))[
            1
        ]

    def unrolled(x):
        return jnp.sin(jnp.sin(jnp.sin(jnp.sin(x))))

    assert close(dendrax.grad(looped)(0.3), jax.grad(unrolled)(0.3))
    assert close(dendrax.value_and_grad(looped)(0.3)[0], unrolled(0.3))


ZERO_LENGTH = {
    "fori": lambda w: jax.lax.fori_loop(0, 0, lambda i, c: c * w, w),
    "scan": lambda w: jax.lax.scan(lambda c, x: (c * x * w, c), w, jnp.zeros(0))[0],
    "ys": lambda w: jnp.sum(jax.lax.scan(lambda c, x: (c * x * w, c), w, jnp.zeros(0))[1]) + w,
}


ZERO_LENGTH["both"] = lambda w: jax.lax.fori_loop(2, 2, lambda i, c: jnp.sin(c), w) * w
ZERO_LENGTH["jit"] = lambda w: jax.jit(lambda a: a)(w) * w


@pytest.mark.parametrize("fun", ZERO_LENGTH.values(), ids=ZERO_LENGTH)
def test_loops_without_steps(fun):
    assert same(jax.jit(dendrax.value_and_grad(fun))(0.5), jax.jit(jax.value_and_grad(fun))(0.5))
    assert same(dendrax.run(dendrax.trace(fun, 0.5), ZIL()).gradient, jax.grad(fun)(0.5))


def test_debug_print_is_heard(capfd):
    def f(x):
        jax.debug.print("x is {}", x)
        return x * x

    for rule in (ZIL(), ZIL(num_steps=5)):
        assert float(dendrax.grad(f, rule=rule)(3.0)) == 6.0
        jax.effects_barrier()
        assert capfd.readouterr().out.count("x is 3.0") == 1


def test_no_tracer_leaks(no_leaks, w, x):
    for fun in FUNCTIONS.values():
        v = jnp.asarray([0.3, -0.7, 1.1])
        assert same(jax.jit(dendrax.grad(fun))(v), jax.jit(jax.grad(fun))(v))
    assert same(jax.jit(dendrax.grad(loss))(w, x), jax.jit(jax.grad(loss))(w, x))
    pullback = jax.jit(lambda w: dendrax.vjp(loss, w, x)[1])(w)
    assert same(pullback(1.0), jax.jit(lambda w: jax.vjp(loss, w, x)[1])(w)(1.0))


def test_an_eager_caller_compiles_once():
    """An inner jit is compiled at the first call, and found again at the next."""
    inner = jax.jit(lambda x: jnp.sin(x) * x)

    def f(x):
        return jnp.sum(inner(x))

    dendrax.grad(f)(jnp.ones(3))
    with jax.log_compiles(), pytest.MonkeyPatch.context() as patch:
        compiled = []
        patch.setattr("jax._src.compiler.compile_or_get_cached", lambda *a, **k: compiled.append(a))
        dendrax.grad(f)(jnp.ones(3))
    assert not compiled


def test_a_jit_without_results_inside_a_scan(capfd):
    @jax.jit
    def watch(w, c):
        jax.debug.print("{}", jnp.sum(w) + c)

    def f(w):
        def step(c, x):
            watch(w, c)
            return jnp.sin(c * w) + x, None

        return jax.lax.scan(step, w, jnp.ones(2))[0]

    assert same(dendrax.grad(f)(0.5), jax.grad(f)(0.5))
    jax.effects_barrier()
    assert capfd.readouterr().out.count("\n") == 4


@pytest.mark.parametrize("rule", every(2, [BP(), ZIL(), ZIL(gamma=0.05)]))
def test_rules_under_jit_and_vmap(rule, w, x):
    xs = x.reshape(2, 3, 4)
    gradient = dendrax.grad(loss, rule=rule)
    mapped = jax.jit(jax.vmap(gradient, (None, 0)))(w, xs)
    one_by_one = [gradient(w, row) for row in xs]
    stacked = jax.tree.map(lambda *rows: jnp.stack(rows), *one_by_one)
    # Absolute: with a small gamma, errors far below 1 are carried next to predictions of order 1.
    jax.tree.map(functools.partial(np.testing.assert_allclose, rtol=0, atol=1e-13), mapped, stacked)
