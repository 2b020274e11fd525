"""Control flow: `jit`, `remat`, `scan`, `cond`, loops, and maps."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax, random
from jax.ad_checkpoint import checkpoint_name

from .specs import (
    ANY,
    WIDE,
    WIDE_ANY,
    Operation,
    booleans,
    float32,
    integers,
    key,
    normal,
    op,
    positive,
    raw_key,
    unit,
)

_square_plus = jax.jit(lambda x: x * x + jnp.sin(x))
_shared = jax.jit(lambda x, y: jnp.tanh(x) * y + x)
_inline = jax.jit(lambda x: jnp.tanh(x) * x, inline=True)
_static = jax.jit(lambda x, n: x**n, static_argnums=1)

JIT: tuple[Operation, ...] = (
    op("jit.simple", _square_plus, normal(3), dtypes=ANY),
    op("jit.called_twice", lambda x: _square_plus(_square_plus(x)), normal(3)),
    op("jit.used_inside_and_outside", lambda x: _square_plus(x) * x + x, normal(3), dtypes=ANY),
    op("jit.argument_twice", lambda x: _shared(x, x), normal(3), dtypes=ANY),
    op("jit.argument_twice_and_outside", lambda x: _shared(x, x) * jnp.cos(x) + _shared(x, x * x),
       normal(3)),
    op("jit.nested", jax.jit(lambda x: _shared(_square_plus(x), x) * x), normal(3)),
    op("jit.three_deep", jax.jit(lambda x: x + jax.jit(lambda y: y * jax.jit(
        lambda z: jnp.sin(z) * z + y)(y) + x)(x * x)), normal(3)),
    op("jit.closes_over_argument", lambda x, y: jax.jit(lambda z: z * y + y)(x) * y, normal(3),
       normal(3)),
    op("jit.returns_argument", lambda x: jax.jit(lambda y: (y, jnp.sin(y)))(x), normal(3)),
    op("jit.returns_argument_twice", lambda x: jax.jit(lambda y: (y, y))(x * x), normal(3)),
    op("jit.returns_constant", lambda x: jax.jit(lambda y: (y * y, jnp.ones_like(y)))(x),
       normal(3)),
    op("jit.unused_input", lambda x, y: jax.jit(lambda a, b: jnp.sin(a))(x, y) * y, normal(3),
       normal(3)),
    op("jit.kept_unused_input", lambda x, y: jax.jit(lambda a, b: a * a, keep_unused=True)(x, y),
       normal(3), normal(3)),
    op("jit.unused_output", lambda x: jax.jit(lambda y: (jnp.sin(y), jnp.exp(y)))(x)[0], normal(3)),
    op("jit.static_argument", lambda x: _static(x, 3) + _static(x, 2), normal(3)),
    op("jit.inline", lambda x: _inline(x) * x, normal(3)),
    op("jit.integers", lambda x, i: jax.jit(lambda y, j: y[j] * (j + 1).astype(y.dtype))(x, i),
       normal(4), integers(3, high=4)),
    op("jit.pytree", lambda x, y: jax.jit(lambda t: {"a": t["x"] * t["y"], "b": (t["x"],)})(
        {"x": x, "y": y}), normal(3), normal(3)),
    op("jit.stop_gradient_inside", lambda x: jax.jit(lambda y: y * lax.stop_gradient(y * y))(x),
       normal(3)),
    op("jit.named_scope", lambda x: jax.named_call(lambda y: jnp.tanh(y) * y, name="block")(x),
       normal(3)),
    op("jit.fan_out_of_output", lambda x: (lambda y: y * jnp.sin(y) + y)(_shared(x, x)), normal(3)),
    op("jit.in_vmap", jax.vmap(_shared), normal(4, 3), normal(4, 3)),
    op("jit.of_vmap", jax.jit(jax.vmap(lambda x: jnp.dot(x, x) * x)), normal(4, 3)),
)  # fmt: skip


def _mlp(x, w):
    hidden = checkpoint_name(jnp.tanh(x @ w), "hidden")
    return jnp.sin(checkpoint_name(hidden @ w, "output")) * hidden


_POLICIES = jax.checkpoint_policies
_NAMED_POLICIES = {
    "none": None,
    "everything_saveable": _POLICIES.everything_saveable,
    "nothing_saveable": _POLICIES.nothing_saveable,
    "dots_saveable": _POLICIES.dots_saveable,
    "dots_with_no_batch_dims_saveable": _POLICIES.dots_with_no_batch_dims_saveable,
    "save_only_these_names": _POLICIES.save_only_these_names("hidden"),
    "save_any_names_but_these": _POLICIES.save_any_names_but_these("hidden"),
    "save_anything_except_these_names": _POLICIES.save_anything_except_these_names("output"),
    "save_from_both_policies": _POLICIES.save_from_both_policies(
        _POLICIES.dots_saveable, _POLICIES.save_only_these_names("hidden")
    ),
}

REMAT: tuple[Operation, ...] = (
    *[op(f"remat.{name}", jax.checkpoint(_mlp, policy=policy), normal(2, 3), normal(3, 3),
         dtypes=WIDE_ANY if name == "none" else ("float64", "float32", "bfloat16"))
      for name, policy in _NAMED_POLICIES.items()],
    op("remat.names_without_remat", _mlp, normal(2, 3), normal(3, 3)),
    op("remat.allow_cse", jax.checkpoint(_mlp, prevent_cse=False), normal(2, 3), normal(3, 3)),
    op("remat.used_inside_and_outside", lambda x: jax.checkpoint(_square_plus)(x) * x + x,
       normal(3)),
    op("remat.nested", jax.checkpoint(lambda x: jax.checkpoint(
        lambda y: jnp.sin(y) * y)(jnp.exp(x)) * x), normal(3)),
    op("remat.chain", lambda x, w: jax.checkpoint(_mlp)(jax.checkpoint(_mlp)(x, w), w),
       normal(2, 3), normal(3, 3)),
    op("remat.closes_over_argument", lambda x, w: jax.checkpoint(lambda y: jnp.sin(y @ w))(x) * x,
       normal(3), normal(3, 3)),
    op("remat.integers", jax.checkpoint(lambda x, i: jnp.sin(x[i]) * x[0]), normal(4),
       integers(3, high=4)),
    op("remat.static_argument", lambda x: jax.checkpoint(
        lambda y, n: jnp.sin(y) ** n, static_argnums=1)(x, 3), normal(3)),
    op("remat.key", jax.checkpoint(lambda x, k: jnp.sin(x) * random.normal(k, x.shape, x.dtype)),
       normal(3), key()),
    op("remat.multiple_outputs", lambda x: jax.checkpoint(
        lambda y: (jnp.sin(y), y * y, y))(x)[::2], normal(3)),
    op("remat.in_jit", jax.jit(lambda x: jax.checkpoint(lambda y: jnp.sin(jnp.sin(y)))(x) * x),
       normal(3)),
    op("remat.of_scan", jax.checkpoint(lambda x, xs: lax.scan(
        lambda c, y: (jnp.tanh(c * y), c), x, xs)), normal(3), normal(4, 3)),
    op("remat.scan_of_remat", lambda x, xs: lax.scan(jax.checkpoint(
        lambda c, y: (jnp.tanh(c * y), jnp.sin(c))), x, xs), normal(3), normal(4, 3)),
    op("remat.scan_of_remat_of_scan", lambda x, xs: lax.scan(jax.checkpoint(
        lambda c, ys: lax.scan(lambda d, y: (jnp.sin(d * y), d), c, ys)), x, xs),
       normal(3), normal(2, 4, 3)),
    op("remat.of_cond", jax.checkpoint(lambda b, x: lax.cond(b, jnp.sin, jnp.square, x) * x),
       booleans(), normal(3)),
    op("remat.sine_of_sine", jax.checkpoint(lambda x: jnp.sin(jnp.sin(x))), normal(3)),
)  # fmt: skip


def _lstm(xs, w, h):
    def step(carry, x):
        h, c = carry
        i, f, g, o = jnp.split(jnp.concatenate([x, h]) @ w, 4)
        c = jax.nn.sigmoid(f) * c + jax.nn.sigmoid(i) * jnp.tanh(g)
        return (jax.nn.sigmoid(o) * jnp.tanh(c), c), h

    return lax.scan(step, (h, jnp.zeros_like(h)), xs)


def _scan(step: Callable[..., Any], **kwargs: Any) -> Callable[..., Any]:
    return lambda x, xs: lax.scan(step, x, xs, **kwargs)


def _tanh_step(c, x):
    return jnp.tanh(c * x), jnp.sin(c) + x


_C, _XS, _M = normal(3), normal(4, 3), normal(3, 3)

SCAN: tuple[Operation, ...] = (
    op("scan.carry_and_xs", _scan(_tanh_step), _C, _XS, dtypes=ANY),
    op("scan.carry_only", lambda x: lax.scan(lambda c, _: (jnp.sin(c) * c, None), x, length=3), _C),
    op("scan.xs_only", lambda xs: lax.scan(lambda _, x: ((), jnp.sin(x) * x), (), xs), _XS),
    op("scan.ys_only", lambda w: lax.scan(lambda _, __: ((), w * w), (), length=3), _C),
    op("scan.consts", lambda w, x, xs: lax.scan(
        lambda c, x: (jnp.tanh(c @ w + x), c), x, xs), _M, _C, _XS, dtypes=WIDE_ANY),
    op("scan.weight_used_twice", lambda w, x: lax.scan(
        lambda c, _: (jnp.tanh(w @ (w @ c)) + w[0], None), x, length=3), _M, _C),
    op("scan.weight_inside_and_outside", lambda w, x: lax.scan(
        lambda c, _: (jnp.tanh(w @ c), c), x @ w, length=3)[0] @ w, _M, _C),
    op("scan.reverse", _scan(_tanh_step, reverse=True), _C, _XS),
    op("scan.unroll_2", _scan(_tanh_step, unroll=2), _C, _XS),
    op("scan.unroll_3_remainder", _scan(_tanh_step, unroll=3), _C, _XS),
    op("scan.unroll_all", _scan(_tanh_step, unroll=True), _C, _XS),
    op("scan.length_one", _scan(_tanh_step), _C, normal(1, 3)),
    op("scan.length_zero", _scan(_tanh_step), _C, normal(0, 3)),
    op("scan.split_transpose", _scan(_tanh_step, _split_transpose=True), _C, _XS, dtypes=WIDE),
    op("scan.unused_carry_output", lambda x, xs: lax.scan(_tanh_step, x, xs)[1], _C, _XS),
    op("scan.unused_ys", lambda x, xs: lax.scan(_tanh_step, x, xs)[0], _C, _XS),
    op("scan.unused_xs", lambda x, xs: lax.scan(lambda c, _: (jnp.sin(c), c), x, xs), _C, _XS),
    op("scan.unused_carry_input", lambda x, xs: lax.scan(
        lambda c, x: (x * x, jnp.sin(x)), x, xs), _C, _XS),
    op("scan.carry_unchanged", lambda w, xs: lax.scan(
        lambda c, x: (c, c * x), w, xs), _C, _XS),
    op("scan.carry_weight", lambda w, x: lax.scan(
        lambda c, _: ((c[0], jnp.tanh(c[0] @ c[1])), None), (w, x), length=3)[0][1], _M, _C),
    op("scan.carry_swapped", lambda x, y: lax.scan(
        lambda c, _: ((c[1], jnp.sin(c[0])), c[0]), (x, y), length=3), _C, _C),
    op("scan.delay_line", lambda x, xs: lax.scan(
        lambda c, x: ((x, c[0], c[1]), c[2] * x), (jnp.zeros_like(x), x, jnp.ones_like(x)), xs),
       _C, _XS),
    op("scan.constant_start", lambda xs: lax.scan(
        lambda c, x: (c * 0.5 + x, c), jnp.zeros_like(xs[0]), xs), _XS, dtypes=ANY),
    op("scan.carry_also_output", lambda x, xs: lax.scan(
        lambda c, x: (lambda n: (n, n))(jnp.tanh(c + x)), x, xs), _C, _XS),
    op("scan.same_xs_twice", lambda x, xs: lax.scan(
        lambda c, ab: (jnp.tanh(c + ab[0] * ab[1]), c), x, (xs, xs)), _C, _XS),
    op("scan.xs_tuple", lambda x, xs, ys: lax.scan(
        lambda c, ab: (c * ab[0], {"y": ab[1] + c}), x, (xs, ys)), _C, _XS, _XS),
    op("scan.integer_carry", lambda x, xs: lax.scan(
        lambda c, _: ((c[0] + 1, jnp.sin(c[1] * xs[c[0]])), None), (0, x), length=4)[0][1],
       _C, _XS),
    op("scan.integer_xs", lambda x, i: lax.scan(
        lambda c, j: (jnp.sin(c) * x[j], c), x, i), _C, integers(4, high=3)),
    op("scan.boolean_carry", lambda x, xs: lax.scan(
        lambda c, x: ((~c[0], jnp.where(c[0], c[1] * x, c[1])), c[0]), (True, x), xs), _C, _XS),
    op("scan.key_carry", lambda x, k: lax.scan(
        lambda c, _: ((random.split(c[0])[0], c[1] * random.normal(c[0], (3,), x.dtype)), None),
        (k, x), length=3)[0][1], _C, key()),
    op("scan.key_xs", lambda x, k: lax.scan(
        lambda c, k: (c + jnp.sin(c) * random.normal(k, (3,), x.dtype), c), x, random.split(k, 3)),
       _C, key()),
    op("scan.raw_key_carry", lambda x, k: lax.scan(
        lambda c, _: ((random.split(c[0])[0], c[1] * random.uniform(c[0], (3,), x.dtype)), None),
        (k, x), length=3)[0][1], _C, raw_key()),
    op("scan.nested", lambda x, xs: lax.scan(
        lambda c, ys: lax.scan(_tanh_step, c, ys), x, xs), _C, normal(2, 4, 3)),
    op("scan.nested_shared_weight", lambda w, x: lax.scan(
        lambda c, _: (lax.scan(lambda d, _: (jnp.tanh(w @ d), None), c, length=2)[0] @ w, c),
        x, length=3), _M, _C),
    op("scan.scan_after_scan", lambda x, xs: lax.scan(_tanh_step, *lax.scan(_tanh_step, x, xs)),
       _C, _XS),
    op("scan.jit_in_body", lambda x, xs: lax.scan(
        lambda c, x: (_shared(c, c) * x, _shared(c, x)), x, xs), _C, _XS),
    op("scan.cond_in_body", lambda x, xs: lax.scan(
        lambda c, x: (lax.cond(x[0] > 0, jnp.sin, lambda c: c * x, c), c), x, xs), _C, _XS),
    op("scan.stop_gradient_in_body", lambda x, xs: lax.scan(
        lambda c, x: (jnp.sin(lax.stop_gradient(c) * x) + c, x), x, xs), _C, _XS),
    op("scan.truncated", lambda x, xs: lax.scan(lambda c, ix: (jnp.tanh(jnp.where(
        ix[0] % 2 == 0, lax.stop_gradient(c), c) + ix[1]), c), x, (jnp.arange(4), xs)), _C, _XS),
    op("scan.dynamic_update", lambda x, xs: lax.scan(
        lambda c, ix: (c.at[ix[0]].set(jnp.sin(c[ix[0]]) * ix[1]), None), x,
        (jnp.array([0, 2, 1, 0]), xs))[0], _C, normal(4)),
    op("scan.mixed_dtypes", lambda x, xs: lax.scan(
        lambda c, x: (jnp.sin(c + x.astype(c.dtype)), c.astype(x.dtype) * x), x, xs),
       float32(3), _XS),
    op("scan.scalar_carry", lambda x, xs: lax.scan(lambda c, x: (c * x + x, c), x, xs), unit(),
       unit(5)),
    op("scan.constant_output", lambda x, xs: lax.scan(
        lambda c, x: (c + x, jnp.ones((2,), x.dtype)), x, xs), _C, _XS),
    op("scan.lstm", _lstm, normal(4, 2), normal(5, 12), normal(3)),
    op("scan.vmap_of_scan", jax.vmap(lambda x, xs: lax.scan(_tanh_step, x, xs)), normal(2, 3),
       normal(2, 4, 3)),
    op("scan.scan_of_vmap", lambda x, xs, w: lax.scan(
        lambda c, x: (jax.vmap(lambda v: jnp.tanh(w @ v))(c) * x, None), x, xs)[0],
       normal(2, 3), _XS, _M),
    op("scan.euler_steps", lambda x, a: lax.scan(
        lambda c, _: (c + 0.1 * (a * c - c * c), c), x, length=6), _C, _C),
)  # fmt: skip

COND: tuple[Operation, ...] = (
    op("cond.by_data", lambda b, x: lax.cond(b, jnp.sin, lambda y: y * y, x), booleans(), _C,
       dtypes=ANY),
    op("cond.by_argument", lambda x: lax.cond(x[0] > 0, jnp.sin, jnp.exp, x) * x, _C),
    op("cond.unused_in_one_branch", lambda b, x, y: lax.cond(
        b, lambda x, y: x * x, lambda x, y: x * y, x, y), booleans(), _C, _C),
    op("cond.constant_branch", lambda b, x: lax.cond(
        b, lambda x: jnp.ones_like(x), lambda x: x * x, x) + x, booleans(), _C),
    op("cond.identity_branch", lambda b, x: lax.cond(b, lambda x: x, jnp.sin, x), booleans(), _C),
    op("cond.closes_over_argument", lambda b, x, w: lax.cond(
        b, lambda: jnp.sin(x @ w), lambda: x * w[0]), booleans(), _C, _M),
    op("cond.several_outputs", lambda b, x: lax.cond(
        b, lambda x: (x, x * x), lambda x: (jnp.sin(x), x), x), booleans(), _C),
    op("cond.integer_output", lambda b, x: x[lax.cond(b, lambda: 0, lambda: 2)] * x, booleans(),
       _C),
    op("cond.nested", lambda b, x: lax.cond(b, lambda x: lax.cond(
        x[0] > 0, jnp.sin, jnp.cos, x), jnp.tanh, x), booleans(), _C),
    op("cond.with_scan", lambda b, x: lax.cond(b, lambda x: lax.scan(
        lambda c, _: (jnp.sin(c), None), x, length=3)[0], jnp.tanh, x), booleans(), _C),
    op("cond.vmap", lambda b, x: jax.vmap(lambda b, x: lax.cond(b, jnp.sin, jnp.square, x))(b, x),
       booleans(4), normal(4)),
    op("cond.stop_gradient_branch", lambda b, x: lax.cond(
        b, lambda x: lax.stop_gradient(x) * x, jnp.sin, x), booleans(), _C),
    op("switch.three", lambda i, x: lax.switch(
        i, [jnp.sin, lambda y: y * y, lambda y: y], x), integers(high=3), _C, dtypes=ANY),
    op("switch.out_of_range", lambda i, x: lax.switch(i, [jnp.sin, jnp.square], x) * x,
       integers(high=9), _C),
    op("switch.vmap", lambda i, x: jax.vmap(lambda i, x: lax.switch(
        i, [jnp.sin, jnp.square, jnp.exp], x))(i, x), integers(4, high=3), normal(4)),
    op("cond.platform_dependent", lambda x: lax.platform_dependent(
        x, cpu=jnp.sin, default=jnp.square), _C),
)  # fmt: skip

LOOPS: tuple[Operation, ...] = (
    op("loop.fori", lambda x: lax.fori_loop(0, 3, lambda i, c: jnp.sin(c) * c, x), _C, dtypes=ANY),
    op("loop.fori_index", lambda x, xs: lax.fori_loop(0, 4, lambda i, c: jnp.tanh(c + xs[i]), x),
       _C, _XS),
    op("loop.fori_counter_value", lambda x: lax.fori_loop(
        1, 4, lambda i, c: c / (i + 1).astype(c.dtype) + x, x), _C),
    op("loop.fori_offset_bounds", lambda x: lax.fori_loop(-2, 2, lambda i, c: jnp.sin(c), x), _C),
    op("loop.fori_no_iteration", lambda x: lax.fori_loop(2, 2, lambda i, c: jnp.sin(c), x) * x, _C),
    op("loop.fori_update_slot", lambda x: lax.fori_loop(
        1, 3, lambda i, c: c.at[i].set(jnp.sin(c[i - 1])), x), _C),
    op("loop.fori_unroll", lambda x: lax.fori_loop(0, 4, lambda i, c: jnp.sin(c), x, unroll=2), _C),
    op("loop.fori_pytree", lambda x, y: lax.fori_loop(
        0, 3, lambda i, c: (jnp.sin(c[1]), c[0] * c[1]), (x, y)), _C, _C),
    op("loop.fori_nested", lambda w, x: lax.fori_loop(0, 2, lambda i, c: lax.fori_loop(
        0, 2, lambda j, d: jnp.tanh(w @ d), c) + x, x), _M, _C),
    op("loop.while_of_integers", lambda x, i: x * lax.while_loop(
        lambda c: c < 100, lambda c: 2 * c + 1, i).astype(x.dtype) / 200, _C, integers(high=9)),
    op("loop.while_of_data", lambda x, y: x * lax.while_loop(
        lambda c: jnp.max(c) < 10, lambda c: c * 2, y), _C, positive(3), argnums=(0,)),
    op("loop.while_behind_stop_gradient", lambda x: x * lax.while_loop(
        lambda c: jnp.sum(c * c) > 0.1, lambda c: c * 0.5, lax.stop_gradient(x)), _C),
    op("loop.while_in_forward_mode", lambda x, y: x * jax.jvp(lambda z: lax.while_loop(
        lambda c: jnp.max(c) < 10, lambda c: c * c + 1, z), (y,), (jnp.ones_like(y),))[1] / 100, _C,
       positive(3), argnums=(0,)),
    op("loop.fori_bound_by_data", lambda x, y, n: x * lax.fori_loop(
        0, n, lambda i, c: jnp.sin(c), y), _C, _C, integers(high=5), argnums=(0,)),
    op("loop.python", lambda w, x: [x := jnp.tanh(w @ x) for _ in range(5)][-1], _M, _C),
    op("loop.map", lambda xs: lax.map(lambda x: jnp.sin(x) * x[0], xs), _XS, dtypes=ANY),
    op("loop.map_batch_size", lambda xs: lax.map(
        lambda x: jnp.sin(x) * x[0], xs, batch_size=3), normal(7, 3)),
    op("loop.map_pytree", lambda xs, w: lax.map(lambda t: (w @ t[0], t[1]), (xs, xs)), _XS, _M),
    op("loop.associative_scan_sum", lambda x: lax.associative_scan(jnp.add, x), normal(6)),
    op("loop.associative_scan_product", lambda x: lax.associative_scan(jnp.multiply, x),
       unit(5, 2), dtypes=ANY),
    op("loop.associative_scan_matrices", lambda a: lax.associative_scan(jnp.matmul, a),
       normal(5, 2, 2)),
    op("loop.associative_scan_linear_recurrence", lambda a, b: lax.associative_scan(
        lambda p, q: (p[0] * q[0], q[0] * p[1] + q[1]), (a, b), reverse=True)[1],
       unit(6, 2), normal(6, 2)),
)  # fmt: skip

CONTROL = JIT + REMAT + SCAN + COND + LOOPS
