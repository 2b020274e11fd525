"""Operations of `jax.lax`: elementwise, shapes, products, convolutions, windows, indexing."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from .specs import (
    ANY,
    COMPLEX,
    FLOATS,
    WIDE,
    WIDE_ANY,
    Operation,
    above_one,
    booleans,
    complexes,
    family,
    float32,
    hermitian,
    integers,
    invertible,
    normal,
    op,
    positive,
    probability,
    real,
    spd,
    ties,
    triangular,
    unit,
)


def _like(x: jax.Array, value: float) -> np.ndarray:
    return np.asarray(value, x.dtype)


ELEMENTWISE: tuple[Operation, ...] = (
    *family(lax, "lax", "neg sin cos tanh sinh cosh exp expm1 exp2", normal(3, 4), dtypes=ANY),
    *family(lax, "lax", "logistic square atan asinh", unit(3, 4), dtypes=ANY),
    *family(lax, "lax", "log log1p sqrt rsqrt tan reciprocal", positive(3, 4), dtypes=ANY),
    *family(lax, "lax", "asin acos atanh", unit(3, 4), dtypes=ANY),
    *family(lax, "lax", "acosh", above_one(3, 4), dtypes=ANY),
    *family(lax, "lax", "erf erfc", normal(3, 4)),
    *family(lax, "lax", "erf_inv", unit(3, 4)),
    *family(lax, "lax", "cbrt lgamma digamma", positive(3, 4)),
    *family(lax, "lax", "bessel_i0e bessel_i1e", normal(3, 4)),
    *family(lax, "lax", "floor ceil sign", normal(3, 4)),
    *family(lax, "lax", "abs", normal(3, 4), dtypes=ANY),
    *family(lax, "lax", "add sub mul div", normal(3, 4), positive(3, 4), dtypes=ANY),
    *family(lax, "lax", "pow atan2", positive(3, 4), positive(3, 4)),
    *family(lax, "lax", "max min", normal(3, 4), normal(3, 4)),
    *family(lax, "lax", "igamma igammac", positive(3), positive(3), dtypes=WIDE),
    *family(lax, "lax", "real imag conj", normal(3, 4), dtypes=COMPLEX),
    op("lax.abs_at_kink", lax.abs, ties(3, 4)),
    op("lax.max_ties", lax.max, ties(3, 4), ties(3, 4)),
    op("lax.min_ties", lax.min, ties(3, 4), ties(3, 4)),
    op("lax.round", lambda x: x - lax.round(x), normal(5)),
    op("lax.round_even", lambda x: lax.round(x, lax.RoundingMethod.TO_NEAREST_EVEN) * x, normal(5)),
    op("lax.rem", lax.rem, normal(5), positive(5)),
    op("lax.pow_complex", lax.pow, positive(3), normal(3), dtypes=COMPLEX),
    op("lax.integer_pow_3", lambda x: lax.integer_pow(x, 3), normal(5), dtypes=ANY),
    op("lax.integer_pow_-2", lambda x: lax.integer_pow(x, -2), positive(5), dtypes=ANY),
    op("lax.betainc", lax.betainc, *[positive(3)] * 2, probability(3), dtypes=WIDE, argnums=(2,)),
    op("lax.igamma_x", lax.igamma, positive(3), positive(3), argnums=(1,)),
    op("lax.polygamma", lambda x: lax.polygamma(jnp.full_like(x, 2), x), positive(3)),
    op("lax.zeta_of_data", lambda x, s, q: x * lax.zeta(s, q), normal(3), above_one(3), positive(3),
       argnums=(0,)),
    op("lax.clamp", lambda x: lax.clamp(_like(x, -0.5), x, _like(x, 0.5)), normal(3, 4)),
    op("lax.clamp_bounds", lax.clamp, unit(4), normal(4), above_one(4)),
    op("lax.clamp_ties", lambda x: lax.clamp(_like(x, -1), x, _like(x, 1)), ties(6)),
    op("lax.select", lax.select, booleans(3, 4), normal(3, 4), normal(3, 4), dtypes=ANY),
    op("lax.select_n", lax.select_n, integers(4, high=3), *[normal(4)] * 3, dtypes=ANY),
    op("lax.complex", lax.complex, normal(4), normal(4), dtypes=WIDE),
    op("lax.real_of_argument", lambda z: lax.real(z) * lax.imag(z), complexes(4), dtypes=WIDE),
    op("lax.reduce_precision", lambda x: lax.reduce_precision(x, 5, 4), normal(4)),
    op("lax.nextafter_of_data", lambda x, y: x * lax.nextafter(y, y), normal(4), normal(4),
       argnums=(0,), dtypes=WIDE),
    op("lax.is_finite", lambda x: jnp.where(lax.is_finite(x), x * x, x), normal(4), dtypes=FLOATS),
    op("lax.convert_element_type", lambda x: lax.convert_element_type(x, jnp.float32), normal(4)),
    op("lax.convert_real_to_complex", lambda x: lax.convert_element_type(x, jnp.complex64) ** 2,
       normal(4)),
    op("lax.bitcast_of_data", lambda x, y: x * lax.bitcast_convert_type(
        lax.bitcast_convert_type(y, jnp.int32), jnp.float32), normal(4), float32(4),
       argnums=(0,), dtypes=("float32",)),
    op("lax.stop_gradient", lambda x: x * lax.stop_gradient(jnp.sin(x)), normal(4), dtypes=ANY),
    op("lax.optimization_barrier", lambda x, y: lax.optimization_barrier((x * y, y)),
       normal(4), normal(4), dtypes=ANY),
)  # fmt: skip

SHAPES: tuple[Operation, ...] = (
    op("lax.reshape", lambda x: lax.reshape(x, (2, 6)), normal(3, 4), dtypes=ANY),
    op("lax.reshape_dimensions", lambda x: lax.reshape(x, (6, 2), (1, 0)), normal(3, 4)),
    op("lax.transpose", lambda x: lax.transpose(x, (2, 0, 1)), normal(2, 3, 4), dtypes=ANY),
    op("lax.broadcast", lambda x: lax.broadcast(x, (2,)), normal(3), dtypes=ANY),
    op("lax.broadcast_in_dim", lambda x: lax.broadcast_in_dim(x, (2, 3, 4), (1,)), normal(3)),
    op("lax.expand_dims", lambda x: lax.expand_dims(x, (0, 2)), normal(3)),
    op("lax.squeeze", lambda x: lax.squeeze(x, (0, 2)), normal(1, 3, 1), dtypes=ANY),
    op("lax.collapse", lambda x: lax.collapse(x, 0, 2), normal(2, 3, 2)),
    op("lax.rev", lambda x: lax.rev(x, (0, 1)), normal(3, 4), dtypes=ANY),
    op("lax.slice", lambda x: lax.slice(x, (0, 1), (3, 4), (2, 1)), normal(3, 4), dtypes=ANY),
    op("lax.pad", lambda x, v: lax.pad(x, v, ((1, 2, 1), (0, 1, 0))), normal(3, 4), normal()),
    op("lax.pad_negative", lambda x, v: lax.pad(x, v, ((-1, 2, 1), (0, -1, 0))), normal(3, 4),
       normal(), dtypes=ANY),
    op("lax.concatenate", lambda x, y: lax.concatenate([x, y, x], 1), normal(3, 2), normal(3, 1),
       dtypes=ANY),
    op("lax.split", lambda x: lax.split(x, (1, 3)), normal(4, 2), dtypes=ANY),
    op("lax.split_one_used", lambda x: lax.split(x, (1, 3))[1], normal(4, 2)),
    op("lax.stack", lambda x, y: lax.stack([x, y], axis=1), normal(3), normal(3), dtypes=ANY),
    op("lax.unstack", lambda x: lax.unstack(x, axis=1), normal(2, 3), dtypes=ANY),
    op("lax.unstack_some_used", lambda x: lax.unstack(x)[::2], normal(3, 2)),
    op("lax.tile", lambda x: lax.tile(x, (2, 3)), normal(2, 3), dtypes=ANY),
    op("lax.full_like", lambda x: lax.full_like(x, 2.0) * x, normal(3)),
    op("lax.index_take", lambda x, i: lax.index_take(x, i.astype(int)[None], (0,)),
       normal(4, 2), integers(3, high=4)),
    op("lax.dynamic_slice", lambda x, i: lax.dynamic_slice(x, (i, i), (2, 2)), normal(4, 4),
       integers(high=4), dtypes=ANY),
    op("lax.dynamic_update_slice", lambda x, y, i: lax.dynamic_update_slice(x, y, (i, i)),
       normal(4, 4), normal(2, 2), integers(high=4), dtypes=ANY),
    op("lax.dynamic_index_in_dim", lax.dynamic_index_in_dim, normal(4, 3), integers(high=4)),
    op("lax.dynamic_update_index_in_dim",
       lambda x, y, i: lax.dynamic_update_index_in_dim(x, y, i, 0),
       normal(4, 3), normal(3), integers(high=4)),
)  # fmt: skip

REDUCTIONS: tuple[Operation, ...] = (
    op("lax.reduce_sum", lambda x: lax.reduce_sum(x, (0,)), normal(3, 4), dtypes=ANY),
    op("lax.reduce_prod", lambda x: lax.reduce_prod(x, (1,)), normal(3, 4), dtypes=ANY),
    op("lax.reduce_max", lambda x: lax.reduce_max(x, (0,)), normal(3, 4)),
    op("lax.reduce_min", lambda x: lax.reduce_min(x, (1,)), normal(3, 4)),
    op("lax.reduce_max_ties", lambda x: lax.reduce_max(x, (0, 1)), ties(3, 4)),
    op("lax.reduce_min_ties", lambda x: lax.reduce_min(x, (1,)), ties(3, 4)),
    op("lax.reduce", lambda x: lax.reduce(x, _like(x, 0), lambda a, b: a + b - a * b, (0,)),
       probability(3, 4)),
    op("lax.reduce_pair", lambda x, y: lax.reduce((x, y), (_like(x, 0), _like(y, 1)),
       lambda a, b: (a[0] + b[0], a[1] * b[1]), (0,)), normal(3, 4), normal(3, 4)),
    *family(lax, "lax", "cumsum cumprod", normal(3, 4), dtypes=ANY),
    *family(lax, "lax", "cummax cummin cumlogsumexp", normal(3, 4)),
    op("lax.cumsum_reverse", lambda x: lax.cumsum(x, axis=1, reverse=True), normal(3, 4)),
    op("lax.cummax_ties", lax.cummax, ties(5)),
    op("lax.cumprod_reverse", lambda x: lax.cumprod(x, axis=1, reverse=True), normal(3, 4)),
    op("lax.sort", lax.sort, normal(5)),
    op("lax.sort_ties", lambda x, y: lax.sort((x, y), num_keys=1), ties(6), normal(6)),
    op("lax.sort_two_keys", lambda x, y: lax.sort((x, y, x * y), num_keys=2), ties(6), normal(6)),
    op("lax.sort_key_val", lax.sort_key_val, integers(5, high=9), normal(5)),
    op("lax.top_k", lambda x: lax.top_k(x, 2), normal(3, 5)),
    op("lax.top_k_ties", lambda x: lax.top_k(x, 3)[0], ties(6)),
    op("lax.approx_max_k", lambda x: lax.approx_max_k(x, 2), normal(8), dtypes=WIDE),
    op("lax.argmax_as_index", lambda x: x[lax.argmax(x, 0, jnp.int32)], normal(5)),
    op("lax.argmin_as_index", lambda x: x[lax.argmin(x, 0, jnp.int32)] * x, normal(5)),
)  # fmt: skip

PRODUCTS: tuple[Operation, ...] = (
    op("lax.dot", lax.dot, normal(3, 4), normal(4, 2), dtypes=ANY),
    op("lax.dot_same_argument", lambda x: lax.dot(x, x), normal(3, 3), dtypes=ANY),
    op("lax.dot_vector", lax.dot, normal(4), normal(4), dtypes=ANY),
    op("lax.batch_matmul", lax.batch_matmul, normal(2, 3, 4), normal(2, 4, 2), dtypes=ANY),
    op("lax.dot_general_batch",
       lambda x, y: lax.dot_general(x, y, (((2,), (1,)), ((0,), (2,)))),
       normal(2, 3, 4), normal(5, 4, 2), dtypes=ANY),
    op("lax.dot_general_two_contracted",
       lambda x, y: lax.dot_general(x, y, (((1, 2), (2, 0)), ((), ()))),
       normal(2, 3, 4), normal(4, 2, 3)),
    op("lax.dot_precision", lambda x, y: lax.dot(x, y, precision="highest"), normal(3, 4),
       normal(4, 2)),
    op("lax.dot_preferred_type",
       lambda x, y: lax.dot(x, y, preferred_element_type=jnp.float32),
       normal(3, 4), normal(4, 2), dtypes=("float32", "bfloat16", "float16")),
    op("lax.ragged_dot", lambda x, y: lax.ragged_dot(x, y, jnp.array([2, 1, 3], jnp.int32)),
       normal(6, 4), normal(3, 4, 2)),
)  # fmt: skip


_NCHW = ("NCHW", "OIHW", "NCHW")


def _conv(
    strides: tuple[int, ...] = (1, 1), padding: Any = "SAME", dims: Any = _NCHW, **kwargs: Any
) -> Callable[..., jax.Array]:
    return lambda x, w: lax.conv_general_dilated(
        x, w, strides, padding, dimension_numbers=dims, **kwargs
    )


_NHWC = ("NHWC", "HWIO", "NHWC")
_X, _W = normal(2, 3, 6, 5), normal(4, 3, 3, 2)

CONVOLUTIONS: tuple[Operation, ...] = (
    op("conv.1d", _conv((1,), "VALID", ("NCH", "OIH", "NCH")), normal(2, 3, 7), normal(4, 3, 3)),
    op("conv.1d_strided", _conv((3,), "SAME", ("NHC", "HIO", "NHC")), normal(2, 8, 3),
       normal(4, 3, 2)),
    op("conv.1d_causal", _conv((1,), [(4, 0)], ("NHC", "HIO", "NHC"), rhs_dilation=(2,)),
       normal(2, 6, 3), normal(3, 3, 2)),
    op("conv.2d_same", _conv(), _X, _W, dtypes=ANY),
    op("conv.2d_valid", _conv(padding="VALID"), _X, _W),
    op("conv.2d_nhwc", _conv(dims=_NHWC), normal(2, 6, 5, 3), normal(3, 2, 3, 4)),
    op("conv.2d_strided", _conv((2, 2)), _X, _W),
    op("conv.2d_strided_nhwc", _conv((2, 2), dims=_NHWC), normal(2, 8, 8, 3), normal(5, 5, 3, 2)),
    op("conv.2d_strided_remainder", _conv((3, 2), "VALID"), _X, _W),
    op("conv.2d_stride_beyond_kernel", _conv((3, 3), "VALID"), _X, normal(4, 3, 1, 2)),
    op("conv.2d_same_lower", _conv((2, 1), "SAME_LOWER"), _X, _W),
    op("conv.2d_asymmetric_padding", _conv((1, 2), ((2, 0), (0, 3))), _X, _W),
    op("conv.2d_negative_padding", _conv((1, 1), ((-1, 0), (1, -1))), _X, _W),
    op("conv.2d_wide_padding", _conv((2, 1), ((4, 3), (3, 5))), _X, _W),
    op("conv.2d_kernel_dilation", _conv((1, 1), "SAME", rhs_dilation=(2, 3)), _X, _W),
    op("conv.2d_input_dilation", _conv((1, 1), ((1, 1), (1, 1)), lhs_dilation=(2, 3)), _X, _W),
    op("conv.2d_everything",
       _conv((2, 3), ((1, 2), (2, -1)), lhs_dilation=(2, 1), rhs_dilation=(1, 2)), _X, _W),
    op("conv.2d_groups", _conv(feature_group_count=3), normal(2, 6, 6, 5), normal(9, 2, 3, 3)),
    op("conv.2d_depthwise", _conv((2, 2), feature_group_count=4), normal(2, 4, 6, 5),
       normal(4, 1, 3, 3)),
    op("conv.2d_groups_dilated", _conv((2, 1), ((1, 0), (2, 1)), rhs_dilation=(2, 2),
       feature_group_count=2), normal(2, 4, 7, 6), normal(6, 2, 2, 3)),
    op("conv.2d_batch_groups", _conv(batch_group_count=2), normal(4, 3, 6, 5), normal(4, 3, 3, 2)),
    op("conv.2d_1x1", _conv(), _X, normal(4, 3, 1, 1)),
    op("conv.2d_preferred_type", _conv(preferred_element_type=jnp.float32), _X, _W,
       dtypes=("float32", "bfloat16", "float16")),
    op("conv.2d_same_argument", lambda x: _conv()(x, x), normal(3, 3, 2, 2)),
    op("conv.3d", _conv((1, 2, 1), "SAME", ("NCDHW", "OIDHW", "NCDHW")), normal(2, 2, 4, 4, 3),
       normal(3, 2, 2, 3, 2)),
    op("conv.0d", _conv((), [], ("NC", "OI", "NC")), normal(2, 3), normal(4, 3), dtypes=WIDE),
    op("conv.lax_conv", lambda x, w: lax.conv(x, w, (1, 1), "SAME"), _X, _W),
    op("conv.transpose", lambda x, w: lax.conv_transpose(x, w, (2, 2), "SAME"),
       normal(2, 4, 3, 3), normal(3, 3, 3, 2)),
    op("conv.transpose_valid_dilated",
       lambda x, w: lax.conv_transpose(x, w, (2, 1), "VALID", (1, 2), transpose_kernel=True),
       normal(2, 4, 3, 3), normal(3, 2, 2, 3)),
    op("conv.local", lambda x, w: lax.conv_general_dilated_local(x, w, (1, 1), "VALID", (2, 2)),
       normal(1, 2, 3, 3), normal(3, 8, 2, 2)),
    op("conv.patches", lambda x: lax.conv_general_dilated_patches(x, (2, 2), (1, 2), "SAME"),
       normal(1, 2, 4, 4)),
)  # fmt: skip


def _window(
    init: float,
    fun: Callable[..., Any],
    size: tuple[int, ...],
    strides: tuple[int, ...],
    padding: Any = "VALID",
    **kwargs: Any,
) -> Callable[..., jax.Array]:
    return lambda x: lax.reduce_window(x, _like(x, init), fun, size, strides, padding, **kwargs)


WINDOWS: tuple[Operation, ...] = (
    op("window.max_pool", _window(-jnp.inf, lax.max, (1, 2, 2, 1), (1, 2, 2, 1)),
       normal(2, 4, 4, 3)),
    op("window.max_pool_overlapping", _window(-jnp.inf, lax.max, (3, 3), (1, 2), "SAME"),
       normal(5, 6)),
    op("window.max_pool_ties", _window(-jnp.inf, lax.max, (3, 3), (1, 1), "SAME"), ties(5, 5)),
    op("window.min_pool", _window(jnp.inf, lax.min, (2, 2), (2, 2)), normal(4, 4)),
    op("window.sum_pool", _window(0, lax.add, (2, 3), (1, 2), "SAME"), normal(5, 6), dtypes=ANY),
    op("window.sum_pool_dilated", _window(0, lax.add, (2, 2), (1, 2), ((1, 0), (0, 2)),
       base_dilation=(2, 1), window_dilation=(1, 2)), normal(5, 6)),
    op("window.avg_pool", lambda x: _window(0, lax.add, (2, 2), (1, 1), "SAME")(x)
       / _window(0, lax.add, (2, 2), (1, 1), "SAME")(jnp.ones_like(x)), normal(4, 4)),
    op("window.product_of_data", lambda x, y: x * _window(1, lax.mul, (2, 2), (1, 1), "SAME")(y),
       normal(4, 4), normal(4, 4), argnums=(0,)),
    op("window.grad_of_max_pool", lambda x: jax.grad(lambda y: jnp.sum(
        _window(-jnp.inf, lax.max, (2, 2), (1, 1))(y) ** 2))(x), normal(4, 4), dtypes=WIDE),
    op("window.jvp_of_max_pool", lambda x, t: jax.jvp(
        _window(-jnp.inf, lax.max, (2, 2), (1, 1)), (x,), (t,))[1], normal(4, 4), normal(4, 4),
       dtypes=("float32",)),
)  # fmt: skip

_POINTS = lax.GatherDimensionNumbers((1,), (0,), (0,))
_BATCHED = lax.GatherDimensionNumbers((), (1,), (1,), (0,), (0,))
_ROWS = lax.ScatterDimensionNumbers((1,), (0,), (0,))


def _scatter(fun: Callable[..., Any], **kwargs: Any) -> Callable[..., jax.Array]:
    return lambda x, i, u: fun(x, i[:, None], u, _ROWS, **kwargs)


_SCATTER_ARGS = (normal(5, 2), integers(3, high=5), normal(3, 2))

INDEXING: tuple[Operation, ...] = (
    *[op(f"lax.gather_{mode}", lambda x, i, mode=mode: lax.gather(
        x, i[:, None], _POINTS, (1, 2), mode=mode), normal(4, 2), integers(3, high=high),
        dtypes=dtypes)
      for mode, high, dtypes in (("clip", 7, FLOATS), ("fill", 4, ANY),
                                 ("promise_in_bounds", 4, FLOATS))],
    op("lax.gather_batching_dims", lambda x, i: lax.gather(
        x, i[..., None], _BATCHED, (1, 1)), normal(3, 4), integers(3, 2, high=4)),
    *[op(f"lax.{name}", _scatter(getattr(lax, name)), *_SCATTER_ARGS, dtypes=ANY)
      for name in ("scatter_add", "scatter_sub", "scatter")],
    *[op(f"lax.{name}", _scatter(getattr(lax, name)), *_SCATTER_ARGS)
      for name in ("scatter_max", "scatter_min")],
    op("lax.scatter_mul", _scatter(lax.scatter_mul, unique_indices=True), normal(5, 2),
       integers(1, high=5), normal(1, 2), dtypes=ANY),
    op("lax.scatter_add_unique_sorted", lambda x, u: lax.scatter_add(
        x, jnp.array([[0], [3]]), u, _ROWS, indices_are_sorted=True, unique_indices=True),
       normal(5, 2), normal(2, 2)),
    op("lax.scatter_add_out_of_bounds", _scatter(lax.scatter_add, mode="drop"), normal(3, 2),
       integers(4, high=6), normal(4, 2)),
)  # fmt: skip

LINALG: tuple[Operation, ...] = (
    op("lax.linalg.cholesky", lax.linalg.cholesky, spd(3, 3), dtypes=WIDE_ANY),
    op("lax.linalg.cholesky_batch", lax.linalg.cholesky, spd(2, 3, 3), dtypes=WIDE),
    op("lax.linalg.eigh", lax.linalg.eigh, hermitian(3, 3), dtypes=WIDE),
    op("lax.linalg.eigh_values", lambda a: lax.linalg.eigh(a)[1], hermitian(3, 3), dtypes=WIDE_ANY),
    op("lax.linalg.eig_values", lambda a: lax.linalg.eig(
        a, compute_left_eigenvectors=False, compute_right_eigenvectors=False)[0],
       hermitian(3, 3), dtypes=WIDE_ANY),
    op("lax.linalg.lu", lambda a: lax.linalg.lu(a)[0], normal(3, 3), dtypes=WIDE_ANY),
    op("lax.linalg.lu_wide", lambda a: lax.linalg.lu(a)[0], normal(3, 4), dtypes=WIDE),
    op("lax.linalg.qr", lambda a: lax.linalg.qr(a, full_matrices=False), normal(4, 3),
       dtypes=WIDE_ANY),
    op("lax.linalg.svd", lambda a: lax.linalg.svd(a, full_matrices=False), normal(3, 4),
       dtypes=WIDE),
    op("lax.linalg.svd_values", lambda a: lax.linalg.svd(a, compute_uv=False), normal(3, 4),
       dtypes=WIDE_ANY),
    op("lax.linalg.triangular_solve", lambda a, b: lax.linalg.triangular_solve(
        a, b, left_side=True, lower=True), triangular(3, 3), normal(3, 2), dtypes=WIDE_ANY),
    op("lax.linalg.triangular_solve_transposed", lambda a, b: lax.linalg.triangular_solve(
        a, b, lower=True, transpose_a=True, conjugate_a=True, unit_diagonal=True),
       triangular(3, 3), normal(2, 3), dtypes=WIDE_ANY),
    op("lax.linalg.tridiagonal_solve", lambda d, dl, du, b: lax.linalg.tridiagonal_solve(
        dl.at[0].set(0.0), d, du.at[-1].set(0.0), b), above_one(4), unit(4), unit(4), normal(4, 2),
       dtypes=WIDE),
    op("lax.fft", lambda x: lax.fft(x, "FFT", (4,)), normal(3, 4), dtypes=COMPLEX),
    op("lax.fft_rfft", lambda x: lax.fft(x, "RFFT", (4,)), normal(3, 4), dtypes=WIDE),
    op("lax.fft_irfft", lambda x: lax.fft(x, "IRFFT", (4,)), normal(3, 3), dtypes=COMPLEX),
    op("lax.custom_linear_solve", lambda a, b: lax.custom_linear_solve(
        lambda x: a @ x, b, lambda _, b: jnp.linalg.solve(a, b),
        lambda _, b: jnp.linalg.solve(a.T, b)), invertible(3, 3), normal(3), dtypes=WIDE),
    op("lax.custom_linear_solve_symmetric", lambda a, b: lax.custom_linear_solve(
        lambda x: a @ x, b, lambda _, b: jnp.linalg.solve(a, b), symmetric=True),
       spd(3, 3), normal(3), dtypes=WIDE),
    op("lax.custom_root", lambda a: lax.custom_root(
        lambda x: x * x - a, a, lambda _, a0: jnp.sqrt(a), lambda g, y: y / g(jnp.ones_like(y))),
       positive(), dtypes=WIDE),
    op("lax.real_part_of_product", lambda z, x: lax.real(z) * x, normal(3), real(3),
       dtypes=COMPLEX),
)  # fmt: skip

LAX = ELEMENTWISE + SHAPES + REDUCTIONS + PRODUCTS + CONVOLUTIONS + WINDOWS + INDEXING + LINALG
