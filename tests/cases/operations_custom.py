"""Functions with their own derivative: `custom_jvp`, `custom_vjp` and their relatives.

Several rules here are deliberately not the true derivative (a straight-through estimator, a
reversed gradient), so that whoever differentiates the body instead of asking the rule is caught.
"""

from functools import partial

import jax
import jax.numpy as jnp
from jax import lax
from jax.custom_batching import custom_vmap
from jax.custom_derivatives import SymbolicZero, linear_call, zero_from_primal

from .specs import ANY, WIDE, Operation, booleans, integers, invertible, normal, op, positive, unit


@jax.custom_jvp
def log1pexp(x):
    return jnp.log1p(jnp.exp(x))


@log1pexp.defjvp
def _log1pexp_jvp(primals, tangents):
    (x,), (t,) = primals, tangents
    return log1pexp(x), t * (1 - 1 / (1 + jnp.exp(x)))


@jax.custom_jvp
def wrong_product(x, y):
    return x * y


wrong_product.defjvps(lambda t, ans, x, y: 2 * t * y, lambda t, ans, x, y: t * ans)


@jax.custom_jvp
def half_constant(x, y):
    return jnp.sin(x) * y


half_constant.defjvps(lambda t, ans, x, y: t * ans, None)


@partial(jax.custom_jvp, nondiff_argnums=(0, 2))
def apply_twice(f, x, n):
    return f(f(x)) * n


@apply_twice.defjvp
def _apply_twice_jvp(f, n, primals, tangents):
    (x,), (t,) = primals, tangents
    return apply_twice(f, x, n), 3 * t * jnp.cos(x)


@jax.custom_jvp
def symbolic_jvp(x, y):
    return jnp.sin(x) * y


@partial(symbolic_jvp.defjvp, symbolic_zeros=True)
def _symbolic_jvp(primals, tangents):
    (x, y), (tx, ty) = primals, tangents
    out = symbolic_jvp(x, y)
    terms = [t * f for t, f in ((tx, y * 2), (ty, x)) if not isinstance(t, SymbolicZero)]
    return out, sum(terms[1:], start=terms[0]) if terms else jnp.zeros_like(out)


@jax.custom_jvp
def value_and_index(x):
    return jnp.max(x), jnp.argmax(x)


@value_and_index.defjvp
def _value_and_index_jvp(primals, tangents):
    (x,), (t,) = primals, tangents
    value, index = value_and_index(x)
    return (value, index), (t[index] * 3, zero_from_primal(index))


@jax.custom_vjp
def reversed_gradient(x):
    return x


reversed_gradient.defvjp(lambda x: (x, None), lambda _, g: (-g,))


@jax.custom_vjp
def straight_through(x):
    return jnp.round(x)


straight_through.defvjp(lambda x: (jnp.round(x), None), lambda _, g: (g,))


@partial(jax.custom_vjp, nondiff_argnums=(0,))
def clip_gradient(bound, x):
    return x


clip_gradient.defvjp(lambda bound, x: (x, ()), lambda bound, _, g: (jnp.clip(g, -bound, bound),))


@partial(jax.custom_vjp, nondiff_argnums=(0, 3))
def nondiff_both_ends(f, x, y, scale):
    return f(x) * y * scale


nondiff_both_ends.defvjp(
    lambda f, x, y, scale: (f(x) * y * scale, (x, y)),
    lambda f, scale, res, g: (g * res[1] * scale, f(res[0]) * g),
)


@jax.custom_vjp
def none_cotangent(x, y, index):
    return x[index] * y


none_cotangent.defvjp(
    lambda x, y, index: (x[index] * y, (x, y, index)),
    lambda res, g: (jnp.zeros_like(res[0]).at[res[2]].add(g * res[1]), None, None),
)


@jax.custom_vjp
def symbolic_vjp(x, y):
    return jnp.sin(x) * y, x + y


def _symbolic_vjp_fwd(x, y):
    perturbed = x.perturbed, y.perturbed
    return symbolic_vjp(x.value, y.value), (x.value, y.value) if any(perturbed) else None


def _symbolic_vjp_bwd(res, cotangents):
    x, y = res
    g0, g1 = (jnp.zeros_like(x) if isinstance(g, SymbolicZero) else g for g in cotangents)
    return g0 * y * 2 + g1, g0 * jnp.sin(x) + g1


symbolic_vjp.defvjp(_symbolic_vjp_fwd, _symbolic_vjp_bwd, symbolic_zeros=True)


@jax.custom_vjp
def tree_vjp(tree):
    return {"sum": tree["a"] + tree["b"][0], "product": tree["a"] * tree["b"][0]}


tree_vjp.defvjp(
    lambda tree: (tree_vjp(tree), tree),
    lambda tree, g: (
        {"a": g["sum"] + g["product"] * tree["b"][0], "b": (2 * g["product"] * tree["a"],)},
    ),
)


@jax.custom_vjp
def optimized_remat(x):
    return jnp.sin(x) * x


optimized_remat.defvjp(
    lambda x: (jnp.sin(x) * x, (jnp.cos(x), x)),
    lambda res, g: (g * res[0] * res[1],),
    optimize_remat=True,
)


@jax.custom_gradient
def custom_gradient(x):
    return x**2, lambda g: g * x * 3


@custom_vmap
def batched_sine(x):
    return jnp.sin(x)


@batched_sine.def_vmap
def _batched_sine_vmap(axis_size, in_batched, x):
    return jnp.sin(x) * 1.0, in_batched[0]


def _linear(scale, x):
    return linear_call(lambda s, x: s * x, lambda s, g: s * g, scale, x)


def _closure_converted(w, x):
    fun, consts = jax.closure_convert(lambda y: jnp.sin(w @ y), x)
    return fun(x, *consts)


@jax.custom_vjp
def fixed_point(w, b):
    return lax.while_loop(
        lambda c: c[0] < 20, lambda c: (c[0] + 1, jnp.tanh(0.2 * w @ c[1] + b)), (0, b)
    )[1]


def _fixed_point_bwd(res, g):
    w, b, x = res
    _, pull_x = jax.vjp(lambda x: jnp.tanh(0.2 * w @ x + b), x)
    u = lax.fori_loop(0, 20, lambda _, u: pull_x(u)[0] + g, g)
    return jax.vjp(lambda w, b: jnp.tanh(0.2 * w @ x + b), w, b)[1](u)


fixed_point.defvjp(
    lambda w, b: (lambda x: (x, (w, b, x)))(fixed_point(w, b)),
    _fixed_point_bwd,
)


@jax.custom_jvp
def composite_sine(x):
    return lax.composite(jnp.sin, "tests.sine")(x)


composite_sine.defjvps(lambda t, ans, x: t * jnp.cos(x) * 2)

_C, _XS = normal(3), normal(4, 3)

CUSTOM: tuple[Operation, ...] = (
    op("custom_jvp.log1pexp", log1pexp, _C),
    op("custom_jvp.used_outside_too", lambda x: log1pexp(x) * x + x, _C),
    op("custom_jvp.wrong_rule", wrong_product, _C, _C, dtypes=ANY),
    op("custom_jvp.same_argument_twice", lambda x: wrong_product(x, x) * x, _C),
    op("custom_jvp.half_constant", half_constant, _C, _C),
    op("custom_jvp.nondiff_argnums", lambda x: apply_twice(jnp.sin, x, 2), _C),
    op("custom_jvp.symbolic_zeros", symbolic_jvp, _C, _C),
    op("custom_jvp.symbolic_zeros_one_side", lambda x, y: symbolic_jvp(x, lax.stop_gradient(y)),
       _C, _C),
    op("custom_jvp.integer_output", value_and_index, normal(5)),
    op("custom_jvp.in_jit", jax.jit(lambda x: log1pexp(x) * wrong_product(x, x)), _C),
    op("custom_jvp.in_scan", lambda x, xs: lax.scan(
        lambda c, x: (wrong_product(c, x), log1pexp(c)), x, xs), _C, _XS),
    op("custom_jvp.in_remat", jax.checkpoint(lambda x: log1pexp(jnp.sin(x)) * x), _C),
    op("custom_jvp.in_cond", lambda b, x: lax.cond(b, log1pexp, jnp.sin, x), booleans(), _C),
    op("custom_jvp.in_vmap", jax.vmap(wrong_product), _XS, _XS),
    op("custom_jvp.second_derivative", lambda x: jax.grad(lambda y: log1pexp(y).sum())(x), _C),
    op("custom_vjp.reversed_gradient", lambda x: reversed_gradient(x * x) * x, _C, dtypes=ANY),
    op("custom_vjp.straight_through", lambda x: straight_through(3 * x) * x, _C),
    op("custom_vjp.nondiff_argnums", lambda x: clip_gradient(0.1, x * x), _C),
    op("custom_vjp.nondiff_both_ends", lambda x, y: nondiff_both_ends(jnp.sin, x, y, 2), _C, _C),
    op("custom_vjp.none_cotangent", none_cotangent, normal(4), normal(2), integers(2, high=4)),
    op("custom_vjp.symbolic_zeros", symbolic_vjp, _C, _C),
    op("custom_vjp.symbolic_zeros_unused_output", lambda x, y: symbolic_vjp(x, y)[0], _C, _C),
    op("custom_vjp.symbolic_zeros_clamped", lambda x, y: symbolic_vjp(x, y), _C, _C, argnums=(1,)),
    op("custom_vjp.pytree", lambda x, y: tree_vjp({"a": x, "b": (y,)}), _C, _C),
    op("custom_vjp.unused_output", lambda x, y: tree_vjp({"a": x, "b": (y,)})["product"], _C, _C),
    op("custom_vjp.same_argument_twice", lambda x: tree_vjp({"a": x, "b": (x,)}), _C),
    op("custom_vjp.optimize_remat", lambda x: optimized_remat(x) * x, _C),
    op("custom_vjp.optimize_remat_in_remat", jax.checkpoint(lambda x: optimized_remat(x) * x), _C),
    op("custom_vjp.in_jit", jax.jit(lambda x: reversed_gradient(jnp.sin(x)) * x), _C),
    op("custom_vjp.in_scan", lambda x, xs: lax.scan(
        lambda c, x: (reversed_gradient(c * x), c), x, xs), _C, _XS),
    op("custom_vjp.in_remat", jax.checkpoint(lambda x: reversed_gradient(jnp.sin(x)) * x), _C),
    op("custom_vjp.in_cond", lambda b, x: lax.cond(b, straight_through, reversed_gradient, x) * x,
       booleans(), _C),
    op("custom_vjp.in_vmap", jax.vmap(lambda x: clip_gradient(0.1, x * x)), _XS),
    op("custom_vjp.on_constant", lambda x: x * reversed_gradient(jnp.ones_like(x)), _C),
    op("custom_vjp.closes_over_array", lambda x: reversed_gradient(x * jnp.arange(
        3, dtype=x.dtype)), _C),
    op("custom_vjp.fixed_point", fixed_point, invertible(3, 3), unit(3), dtypes=WIDE),
    op("custom_gradient", lambda x: custom_gradient(x) * x, _C),
    op("custom.linear_call", lambda s, x: _linear(s, x) * x, _C, _C, argnums=(1,)),
    op("custom.vmap_rule_of_data", lambda x, y: x * batched_sine(y), _C, _C, argnums=(0,)),
    op("custom.vmap_rule_batched", lambda x: jax.vmap(batched_sine)(x) * x, _XS),
    op("custom.composite_with_rule", lambda x: composite_sine(x) * x, _C),
    op("custom.closure_convert", _closure_converted, normal(3, 3), _C),
    op("custom.implicit_sqrt", lambda a: lax.custom_root(
        lambda x: x**2 - a, jnp.ones_like(a), lambda f, x: lax.fori_loop(
            0, 8, lambda _, y: y - f(y) / (2 * y), x), lambda g, y: y / g(jnp.ones_like(y))),
       positive(), dtypes=WIDE),
)  # fmt: skip
