"""How operations meet: fan-out, unused arguments, branches, dtypes, maps, inner derivatives."""

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax, random
from jax.flatten_util import ravel_pytree

from .specs import (
    ANY,
    COMPLEX,
    WIDE,
    WIDE_ANY,
    Operation,
    booleans,
    complexes,
    float32,
    integers,
    key,
    normal,
    op,
    positive,
    ties,
    unit,
)

_X, _M = normal(3), normal(3, 3)

USES: tuple[Operation, ...] = (
    op("use.square", lambda x: x * x, _X, dtypes=ANY),
    op("use.cube", lambda x: x * x * x, _X, dtypes=ANY),
    op("use.sum_with_itself", lambda x: x + x, _X, dtypes=ANY),
    op("use.three_times", lambda x: x + x + x, _X),
    op("use.difference_with_itself", lambda x: (x - x) * x, _X),
    op("use.ratio_with_itself", lambda x: x / x * x, positive(3)),
    op("use.tanh_times_x_plus_x", lambda x: jnp.tanh(x) * x + x, _X, dtypes=ANY),
    op("use.tanh_and_skip", lambda x: x + jnp.tanh(x), _X, dtypes=ANY),
    op("use.many_users", lambda x: jnp.sin(x) + jnp.cos(x) * jnp.exp(x) - x * x + x, _X),
    op("use.fan_out_of_four", lambda x: [jnp.tanh(x), jnp.sin(x), x * x, x], _X),
    op("use.pow_itself", lambda x: x**x, positive(3)),
    op("use.matmul_itself", lambda x: x @ x @ x.T, _M, dtypes=ANY),
    op("use.max_itself", lambda x: jnp.maximum(x, x) * x, _X),
    op("use.atan2_itself", lambda x: jnp.arctan2(x, x * x), positive(3)),
    op("use.select_itself", lambda c, x: jnp.where(c, x, x * x) + x, booleans(3), _X),
    op("use.concatenate_itself", lambda x: jnp.concatenate([x, x, x * x]), _X),
    op("use.shared_weight", lambda w, x: jnp.tanh(w @ jnp.tanh(w @ jnp.tanh(w @ x))), _M, _X),
    op("use.tied_autoencoder", lambda w, x: w.T @ jnp.tanh(w @ x), normal(2, 3), _X, dtypes=ANY),
    op("use.long_skip", lambda x: jnp.sin(jnp.sin(jnp.sin(jnp.sin(x)))) * x, _X),
    op("use.diamond", lambda x: (lambda y: jnp.sin(y) * jnp.cos(y))(jnp.exp(x)), _X),
    op("use.deep_chain", lambda x: [x := jnp.sin(x) * 0.1 + x for _ in range(20)][-1], _X),
    op("use.exponential_paths", lambda x: [x := 0.5 * (x + x * x) for _ in range(10)][-1], unit(3)),
    op("use.returned_unchanged", lambda x: x, _X, dtypes=ANY),
    op("use.returned_unchanged_and_used", lambda x: (x, jnp.sin(x), x), _X),
    op("use.unused_argument", lambda x, y: jnp.sin(x), _X, _X),
    op("use.unused_integer", lambda x, i: jnp.sin(x), _X, integers(2, high=3)),
    op("use.all_unused", lambda x: jnp.ones_like(x), _X),
    op("use.constant_output", lambda x: (jnp.arange(3.0), x * x), _X, dtypes=("float64",)),
    op("use.no_output", lambda x: (), _X),
    op("use.only_integer_output", lambda x: jnp.argmax(x), _X),
    op("use.dead_branch", lambda x: (jnp.exp(jnp.sin(x)), x * x)[1], _X),
    op("use.dead_branch_of_parameter", lambda x, y: (jnp.exp(y) @ y, x * x)[1], _X, _X),
    op("use.some_argnums", lambda x, y, z: x * y + jnp.sin(y * z), _X, _X, _X, argnums=(1,)),
    op("use.argnums_out_of_order", lambda x, y, z: x * y + jnp.sin(y * z), _X, _X, _X,
       argnums=(2, 0)),
    op("use.multiplied_by_zero", lambda x: x * 0 + jnp.sin(x) * 0, _X),
    op("use.python_scalars", lambda x: 2 * x / 3 - 1 + x**2, _X),
    op("use.numpy_constant", lambda x: x * np.arange(3).astype(x.dtype), _X),
    op("use.nested_pytree", lambda x, y: {"a": [x * y, (y,)], "b": None, "c": x}, _X, _X),
    op("use.ravel_pytree", lambda x, m: ravel_pytree({"x": x, "m": m})[0] ** 2, _X, _M),
    op("use.zero_size", lambda x: jnp.sin(x) * x, normal(0, 3), dtypes=ANY),
    op("use.zero_size_beside", lambda x, y: (jnp.concatenate([x, y]) * 2, jnp.sin(x)), normal(0),
       _X),
    op("use.zero_size_matmul", lambda x, y: x @ y, normal(3, 0), normal(0, 2)),
    op("use.zero_size_slice", lambda x: jnp.sum(x[:0] * 2) + x, _X),
    op("use.scalar", lambda x: jnp.sin(x) * x, normal(), dtypes=ANY),
    op("use.rank_five", lambda x: jnp.sum(x * x, (0, 3)), normal(2, 1, 2, 3, 2)),
)  # fmt: skip


def _mixture_of_two(x, w):
    gates, experts = lax.top_k(x, 2)
    return jax.nn.softmax(gates) @ w[experts]


BRANCHES: tuple[Operation, ...] = (
    op("branch.argmax_index", lambda x: x[jnp.argmax(x)] * jnp.sin(x), normal(5)),
    op("branch.argsort_permutation", lambda x: jnp.cumsum(x[jnp.argsort(-x)]) * x, normal(5)),
    op("branch.floor_to_integer", lambda x, w: w[jnp.floor(jnp.abs(x)).astype(int) % 4] * x,
       normal(5), normal(4)),
    op("branch.comparison_mask", lambda x: x * (x > 0).astype(x.dtype), normal(5)),
    op("branch.logical", lambda x, y: jnp.where((x > 0) & (y > 0) | ~(x < y), x, y), normal(5),
       normal(5)),
    op("branch.xor_shift", lambda x, i: x[((i << 1) ^ (i >> 1) | 1) & 3], normal(4),
       integers(4, high=8)),
    op("branch.integer_arithmetic", lambda x, i: x * ((3 * i + 1) // 2 % 5 - i).astype(x.dtype),
       normal(4), integers(4, high=8)),
    op("branch.reduce_or_and", lambda c, x: jnp.where(jnp.any(c), x, x * x) * jnp.all(c).astype(
        x.dtype) + x, booleans(3), normal(3)),
    op("branch.integer_bits", lambda x, i: x * (lax.clz(i) + lax.population_count(i)
       + lax.shift_right_logical(i, i)).astype(x.dtype) / 16, normal(4), integers(4, high=8)),
    op("branch.mulhi", lambda x, i: x * (1 + lax.mulhi(i, i)).astype(x.dtype), normal(4),
       integers(4, high=8)),
    op("branch.equality", lambda x: jnp.where(x == 0, 2 * x, x * x), ties(6)),
    op("branch.inequality", lambda x, y: jnp.where(x != y, x * y, x) + jnp.where(x <= y, x, y),
       ties(6), ties(6)),
    op("branch.round_ties", lambda x: x * jnp.round(x * 1.5), ties(6)),
    op("branch.sign_times_x", lambda x: jnp.sign(x) * x * x, normal(5)),
    op("branch.stop_gradient_baseline", lambda x: (x - lax.stop_gradient(x.mean())) * x, normal(5)),
    op("branch.stop_gradient_tree", lambda x, y: lax.stop_gradient({"a": x})["a"] * y, _X, _X),
    op("branch.straight_through", lambda x: x + lax.stop_gradient(jnp.round(x) - x), normal(5)),
    op("branch.sparsemax_threshold", lambda x: jnp.maximum(x - (jnp.sort(x)[-2:].sum() - 1) / 2, 0),
       normal(5)),
    op("branch.top_k_gating", _mixture_of_two, normal(4), normal(4, 3)),
    op("branch.one_hot_argmax", lambda x: jax.nn.one_hot(jnp.argmax(x), 4, dtype=x.dtype) * x,
       normal(4)),
)  # fmt: skip

DTYPES: tuple[Operation, ...] = (
    op("dtype.through_bfloat16", lambda x: (jnp.sin(x).astype("bfloat16") * 2).astype(x.dtype) * x,
       _X),
    op("dtype.through_float16_matmul", lambda x, w: (w.astype("float16") @ x.astype("float16"))
       .astype(x.dtype), _X, _M),
    op("dtype.accumulate_in_float32", lambda x: jnp.sum(x * x, dtype="float32"), normal(8),
       dtypes=("float32", "bfloat16", "float16")),
    op("dtype.parameter_used_in_two_dtypes", lambda x: (x.astype("float32") ** 2, jnp.sin(x)), _X),
    op("dtype.mixed_arguments", lambda x, y: x.astype("float32") * y, _X, float32(3)),
    op("dtype.mixed_precision_layer", lambda x, w, b: jax.nn.relu(lax.dot(
        x.astype("bfloat16"), w.astype("bfloat16"), preferred_element_type="float32")
        + b), normal(2, 3), float32(3, 4), float32(4)),
    op("dtype.loss_scaling", lambda x: jnp.sin(x * 128).astype("float32") / 128, _X),
    op("dtype.through_float8", lambda x: x.astype("float8_e4m3fn").astype(x.dtype) * x, _X,
       dtypes=("float32", "bfloat16")),
    op("dtype.integer_in_the_middle", lambda x: (x * 3).astype("int32").astype(x.dtype) * x, _X),
    op("dtype.boolean_in_the_middle", lambda x: (x > 0).astype(x.dtype) * x, _X),
    op("dtype.real_to_complex_and_back", lambda x: jnp.real(jnp.exp(1j * lax.complex(x, x))), _X,
       dtypes=WIDE),
    op("dtype.complex_weight", lambda x, w: jnp.real(w * lax.complex(x, jnp.zeros_like(x))), _X,
       complexes(3), dtypes=WIDE),
)  # fmt: skip

COMPLEX_NUMBERS: tuple[Operation, ...] = (
    op("complex.abs", jnp.abs, _X, dtypes=COMPLEX),
    op("complex.abs_squared", lambda z: jnp.real(z * jnp.conj(z)), _X, dtypes=COMPLEX),
    op("complex.angle", jnp.angle, _X, dtypes=COMPLEX),
    op("complex.real_and_imag", lambda z: jnp.real(z) * jnp.imag(z), _X, dtypes=COMPLEX),
    op("complex.conjugate_product", lambda z, w: z * jnp.conj(w) + jnp.conj(z), _X, _X,
       dtypes=COMPLEX),
    op("complex.polynomial", lambda z: z**3 - 1j * z**2 + z, _X, dtypes=COMPLEX),
    op("complex.moebius", lambda z: (z - 1) / (z + 3), unit(3), dtypes=COMPLEX),
    op("complex.exp_log", lambda z: jnp.exp(1j * z) * jnp.log(z), positive(3), dtypes=COMPLEX),
    op("complex.matmul_adjoint", lambda a, b: a @ b.conj().T, _M, _M, dtypes=COMPLEX),
    op("complex.norm", lambda z: jnp.sqrt(jnp.sum(jnp.abs(z) ** 2)), _X, dtypes=COMPLEX),
    op("complex.mod_relu", lambda z: jax.nn.relu(1 - 0.5 / jnp.abs(z)).astype(z.dtype) * z, _X,
       dtypes=COMPLEX),
    op("complex.polar", lambda r, t: lax.complex(r * jnp.cos(t), r * jnp.sin(t)) ** 2, positive(3),
       _X, dtypes=WIDE),
    op("complex.scan", lambda z, xs: lax.scan(lambda c, x: (c * x + 1, c), z, xs), _X, normal(4, 3),
       dtypes=COMPLEX),
    op("complex.fft_power", lambda x: jnp.abs(jnp.fft.fft(x)) ** 2, normal(6), dtypes=WIDE_ANY),
)  # fmt: skip


def _attend(x):
    return jax.nn.softmax(x @ x.T) @ x


MAPS: tuple[Operation, ...] = (
    op("vmap.sine", jax.vmap(lambda x: jnp.sin(x) * x[0]), normal(4, 3), dtypes=ANY),
    op("vmap.shared_weight", lambda xs, w: jax.vmap(lambda x: jnp.tanh(w @ x))(xs), normal(4, 3),
       _M),
    op("vmap.in_axes_out_axes", jax.vmap(lambda x, w: w @ x, (1, None), 1), normal(3, 4), _M),
    op("vmap.nested", jax.vmap(jax.vmap(jnp.dot, (0, None)), (None, 0)), normal(4, 3),
       normal(2, 3)),
    op("vmap.gather", jax.vmap(lambda x, i: x[i]), normal(4, 3), integers(4, 2, high=3)),
    op("vmap.scatter", jax.vmap(lambda x, i: x.at[i].add(x[0])), normal(4, 3),
       integers(4, 2, high=3)),
    op("vmap.dynamic_slice", jax.vmap(lambda x, i: lax.dynamic_slice(x, (i,), (2,))), normal(4, 5),
       integers(4, high=4)),
    op("vmap.conv", jax.vmap(lambda x, k: jnp.convolve(x, k)), normal(3, 5), normal(3, 2)),
    op("vmap.solve", jax.vmap(jnp.linalg.solve), normal(2, 3, 3), normal(2, 3), dtypes=WIDE),
    op("vmap.axis_name_psum", jax.vmap(lambda x: x * lax.psum(x, "i"), axis_name="i"),
       normal(4, 3)),
    op("vmap.axis_name_pmean", jax.vmap(lambda x: jnp.tanh(x - lax.pmean(x, "i")), axis_name="i"),
       normal(4, 3)),
    op("vmap.axis_name_all_gather", jax.vmap(lambda x: lax.all_gather(x, "i") * x, axis_name="i"),
       normal(4, 3)),
    op("vmap.axis_name_ppermute", jax.vmap(lambda x: x * lax.ppermute(
        x, "i", [(0, 1), (1, 2), (2, 0)]), axis_name="i"), normal(3, 2)),
    op("vmap.keys", lambda x, k: jax.vmap(lambda x, k: x * random.normal(k, x.shape, x.dtype))(
        x, random.split(k, 4)), normal(4, 3), key()),
    op("vmap.attention", jax.vmap(_attend), normal(2, 4, 3)),
    op("vmap.broadcast_operand", lambda x: jax.vmap(lambda _, x: x * 2, (0, None))(jnp.arange(3), x)
       * x, _X),
    op("vectorize.matvec", jnp.vectorize(lambda a, x: jnp.tanh(a @ x), signature="(n,m),(m)->(n)"),
       normal(2, 3, 3), normal(4, 1, 3)),
    op("vectorize.elementwise", jnp.vectorize(lambda x, y: jnp.sin(x) * y), normal(3, 1),
       normal(4)),
    op("numpy.apply_along_axis", lambda x: jnp.apply_along_axis(lambda v: v * v[0], 0, x),
       normal(3, 4)),
)  # fmt: skip


def _energy(x):
    return jnp.sum(jnp.sin(x) * x)


def _network(w, x):
    return jnp.sum(jnp.tanh(w @ jnp.tanh(w @ x)))


INNER: tuple[Operation, ...] = (
    op("inner.grad", jax.grad(_energy), _X),
    op("inner.grad_of_grad", jax.grad(lambda x: jnp.sum(jax.grad(_energy)(x) ** 2)), _X,
       dtypes=WIDE),
    op("inner.value_and_grad", lambda x: jax.value_and_grad(_energy)(x), _X),
    op("inner.hessian", jax.hessian(_energy), _X, dtypes=WIDE),
    op("inner.jacfwd", jax.jacfwd(lambda x: jnp.sin(x) * x[0]), _X),
    op("inner.jacrev", jax.jacrev(lambda x: jnp.sin(x) * x[0]), _X),
    op("inner.jvp", lambda x, t: jax.jvp(_energy, (x,), (t,)), _X, _X),
    op("inner.vjp", lambda x, g: jax.vjp(jnp.sin, x)[1](g), _X, _X),
    op("inner.linearize", lambda x, t: jax.linearize(_energy, x)[1](t), _X, _X),
    op("inner.hessian_vector_product", lambda x, v: jax.jvp(jax.grad(_energy), (x,), (v,))[1], _X,
       _X),
    op("inner.laplacian", lambda w, x: jnp.trace(jax.hessian(_network, 1)(w, x)), _M, _X,
       dtypes=WIDE),
    op("inner.gradient_penalty", lambda w, x: jnp.sum(jax.grad(_network, 1)(w, x) ** 2), _M, _X),
    op("inner.meta_learning_step", lambda w, x: _network(w - 0.1 * jax.grad(_network)(w, x), x), _M,
       _X),
    op("inner.per_example_gradients", lambda w, xs: jax.vmap(jax.grad(_network), (None, 0))(w, xs),
       _M, normal(2, 3)),
    op("inner.grad_of_scan", lambda x: jax.grad(lambda y: jnp.sum(lax.scan(
        lambda c, _: (jnp.sin(c) * c, None), y, length=3)[0]))(x), _X, dtypes=WIDE),
    op("inner.grad_of_remat", lambda x: jax.grad(lambda y: jnp.sum(jax.checkpoint(
        lambda z: jnp.sin(jnp.sin(z)))(y)))(x), _X),
    op("inner.grad_of_cond", lambda x: jax.grad(lambda y: jnp.sum(lax.cond(
        y[0] > 0, jnp.sin, jnp.exp, y) * y))(x), _X),
    op("inner.grad_of_jit", jax.jit(jax.grad(jax.jit(_energy))), _X),
    op("inner.grad_of_conv", lambda x, k: jax.grad(lambda y: jnp.sum(jnp.convolve(y, k) ** 2))(x),
       normal(5), normal(2)),
    op("inner.grad_of_gather", lambda x, i: jax.grad(lambda y: jnp.sum(y[i] ** 3))(x), normal(4),
       integers(3, high=4)),
    op("inner.grad_of_sort", lambda x: jax.grad(lambda y: jnp.sum(jnp.sort(y) ** 3))(x) * x,
       normal(5)),
    op("inner.grad_of_softmax", lambda x: jax.grad(lambda y: jax.nn.logsumexp(y * y))(x), _X),
    op("inner.unrolled_sgd", lambda w, x: lax.scan(lambda v, _: (
        v - 0.1 * jax.grad(_network)(v, x), None), w, length=3)[0], _M, _X, dtypes=WIDE),
)  # fmt: skip

COMPOSED = USES + BRANCHES + DTYPES + COMPLEX_NUMBERS + MAPS + INNER
