"""Meshes and collectives, mutable references, sparse arrays, callbacks, and other corners."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import jax.ref
import numpy as np
from jax import lax
from jax.experimental import checkify, io_callback, pallas, sparse
from jax.experimental.layout import Layout, with_layout_constraint
from jax.experimental.ode import odeint
from jax.experimental.sparse.bcsr import bcsr_extract
from jax.experimental.sparse.linalg import spsolve
from jax.sharding import AxisType, Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

from .specs import ANY, WIDE, WIDE_ANY, Operation, booleans, normal, op, positive, unit


def _mesh(axis_type: AxisType = AxisType.Auto) -> Mesh:
    return Mesh(np.array(jax.devices()[:1]), ("i",), axis_types=(axis_type,))


_SPLIT = P("i")


def _sharded(
    fun: Callable[..., Any], in_specs: Any = _SPLIT, out_specs: Any = _SPLIT, **kwargs: Any
) -> Callable[..., Any]:
    """`fun` under `shard_map`, on a mesh made at the call: importing must not start a backend."""
    return lambda *args: jax.shard_map(
        fun, mesh=_mesh(), in_specs=in_specs, out_specs=out_specs, **kwargs
    )(*args)


_X, _M = normal(4), normal(4, 4)

SHARDING: tuple[Operation, ...] = (
    op("sharding.shard_map", _sharded(lambda x: jnp.sin(x) * x), _X, dtypes=ANY),
    op("sharding.shared_weight", _sharded(lambda x, w: jnp.tanh(x @ w), (P("i"), P())), _M, _M),
    op("sharding.psum", _sharded(lambda x: lax.psum(jnp.sin(x), "i") * x), _X),
    op("sharding.psum_to_replicated", _sharded(lambda x: lax.psum(x * x, "i"), out_specs=P()), _X),
    op("sharding.psum_unchecked", _sharded(lambda x: lax.psum(x * x, "i") * x, check_vma=False),
       _X),
    op("sharding.pmean", _sharded(lambda x: x * x - lax.pmean(x, "i")), _X),
    op("sharding.pmax_of_stopped", _sharded(lambda x: x * lax.pmax(lax.stop_gradient(x), "i")), _X),
    op("sharding.all_gather", _sharded(lambda x: lax.all_gather(x, "i", tiled=True) * x), _X),
    op("sharding.all_to_all", _sharded(lambda x: lax.all_to_all(x, "i", 0, 0, tiled=True) * x), _X),
    op("sharding.ppermute", _sharded(lambda x: lax.ppermute(x, "i", [(0, 0)]) * x), _X),
    op("sharding.psum_scatter", _sharded(lambda x: lax.psum_scatter(x, "i", tiled=True) * x), _X),
    op("sharding.axis_index", _sharded(lambda x: x * (1 + lax.axis_index("i")).astype(x.dtype)),
       _X),
    op("sharding.pcast", _sharded(lambda x, w: x * lax.pcast(w, "i", to="varying"),
       (P("i"), P())), _X, _X),
    op("sharding.all_gather_invariant", _sharded(lambda x: jnp.sin(
        lax.all_gather(x, "i", tiled=True, to="invarying")), out_specs=P()), _X),
    op("sharding.all_gather_reduced", _sharded(lambda x: x * lax.pcast(
        lax.all_gather(x, "i", tiled=True, to="reduced"), "i", to="varying")), _X),
    op("sharding.pcast_reduced", _sharded(lambda x, w: x * lax.pcast(
        lax.pcast(w, "i", to="reduced"), "i", to="varying"), (P("i"), P())), _X, _X),
    op("sharding.psum_of_unreduced", _sharded(lambda x: lax.psum(
        lax.pcast(jnp.sin(x), "i", to="unreduced"), "i"), out_specs=P()), _X),
    op("sharding.psum_scatter_of_unreduced", _sharded(lambda x: x * lax.psum_scatter(
        lax.pcast(jnp.sin(x), "i", to="unreduced"), "i", tiled=True)), _X),
    op("sharding.scan", _sharded(lambda x: lax.scan(
        lambda c, _: (jnp.sin(c), None), x, length=3)[0]), _X),
    op("sharding.constraint", lambda x: x * lax.with_sharding_constraint(
        jnp.sin(x), NamedSharding(_mesh(), P("i"))), _X, dtypes=ANY),
    op("sharding.reshard", lambda x: jax.reshard(
        jnp.sin(x), NamedSharding(_mesh(AxisType.Explicit), P())) * 2, _X),
    op("sharding.device_put", lambda x: jax.device_put(jnp.sin(x)) * x, _X, dtypes=ANY),
    op("sharding.layout_constraint", lambda x: with_layout_constraint(jnp.sin(x), Layout((1, 0))),
       _M, dtypes=WIDE),
)  # fmt: skip


def _ref_square(x):
    ref = jax.new_ref(jnp.sin(x))
    ref[...] = ref[...] * ref[...]
    return ref[...]


def _ref_accumulate(x):
    ref = jax.new_ref(jnp.zeros_like(x))
    ref[1] = x[0] * x[1]
    ref[...] += jnp.sin(x)
    return jax.freeze(ref)


def _ref_update_and_swap(x):
    ref = jax.new_ref(x)
    jax.ref.addupdate(ref, 0, x[1])
    old = jax.ref.swap(ref, 1, x[2])
    return ref[...] * x, old


def _ref_empty(x):
    ref = jax.empty_ref(jax.ShapeDtypeStruct(x.shape, x.dtype))
    ref[...] = x * x
    return jax.freeze(ref)


def _ref_freed(x):
    ref = jax.new_ref(jnp.sin(x))
    value = ref[...] * x
    jax.free_ref(ref)
    return value


def _ref_in_scan(x):
    total = jax.new_ref(jnp.zeros((), x.dtype))

    def step(carry, y):
        total[...] += jnp.sin(y) * carry
        return carry * y, None

    carry, _ = lax.scan(step, jnp.ones((), x.dtype), x)
    return carry + total[...]


REFERENCES: tuple[Operation, ...] = (
    op("ref.square", _ref_square, _X),
    op("ref.accumulate", _ref_accumulate, _X),
    op("ref.update_and_swap", _ref_update_and_swap, _X),
    op("ref.empty", _ref_empty, _X),
    op("ref.free", _ref_freed, _X),
    op("ref.scan", _ref_in_scan, _X),
)

_ROWS, _COLUMNS = np.arange(4, dtype="int32"), np.array([1, 3, 0, 2], "int32")
_POINTERS = np.arange(5, dtype="int32")
_INDICES = np.stack([_ROWS, _COLUMNS], 1)


def _bcoo(data, indices=_INDICES):
    return sparse.BCOO((data, jnp.asarray(indices)), shape=(4, 4))


def _coo(data):
    return sparse.COO((data, jnp.asarray(_ROWS), jnp.asarray(_COLUMNS)), shape=(4, 4))


def _compressed(cls, data):
    return cls((data, jnp.asarray(_COLUMNS), jnp.asarray(_POINTERS)), shape=(4, 4))


SPARSE: tuple[Operation, ...] = (
    op("sparse.bcoo_from_and_to_dense", lambda m: sparse.BCOO.fromdense(m, nse=16).todense() * m,
       _M, dtypes=WIDE),
    op("sparse.bcoo_matvec", lambda d, v: _bcoo(d) @ v, _X, _X, dtypes=WIDE_ANY),
    op("sparse.bcoo_matmat", lambda d, m: _bcoo(d) @ m, _X, _M, dtypes=WIDE),
    op("sparse.bcoo_transpose", lambda d: sparse.bcoo_transpose(
        _bcoo(d), permutation=(1, 0)).todense(), _X, dtypes=WIDE),
    op("sparse.bcoo_extract", lambda m: sparse.bcoo_extract(
        _bcoo(jnp.ones(4, m.dtype)), m, assume_unique=True).data, _M, dtypes=WIDE),
    op("sparse.bcoo_sort_indices", lambda d: _bcoo(d, _INDICES[::-1]).sort_indices().data, _X,
       dtypes=WIDE),
    op("sparse.bcoo_sum_duplicates", lambda d: _bcoo(d, np.tile(_INDICES[:2], (2, 1)))
       .sum_duplicates(nse=4).data, _X, dtypes=WIDE),
    op("sparse.bcoo_dot_general_sampled", lambda a, b: sparse.bcoo_dot_general_sampled(
        a, b, jnp.asarray(_INDICES), dimension_numbers=(((1,), (0,)), ((), ()))), _M, _M,
       dtypes=WIDE),
    op("sparse.todense", lambda m: sparse.todense(sparse.BCOO.fromdense(m, nse=16)), _M,
       dtypes=WIDE),
    op("sparse.sparsify", lambda d, v: sparse.sparsify(lambda a, v: jnp.sin(a @ v) * v)(
        _bcoo(d), v), _X, _X, dtypes=WIDE),
    op("sparse.bcsr_from_dense", lambda m: sparse.BCSR.fromdense(m, nse=16).data, _M, dtypes=WIDE),
    op("sparse.bcsr_to_dense", lambda d: _compressed(sparse.BCSR, d).todense(), _X, dtypes=WIDE),
    op("sparse.bcsr_matvec", lambda d, v: _compressed(sparse.BCSR, d) @ v, _X, _X, dtypes=WIDE),
    op("sparse.bcsr_extract", lambda m: bcsr_extract(
        jnp.asarray(_COLUMNS), jnp.asarray(_POINTERS), m), _M, dtypes=WIDE),
    op("sparse.coo_from_dense", lambda m: sparse.COO.fromdense(m, nse=16).data, _M, dtypes=WIDE),
    op("sparse.coo_to_dense", lambda d: _coo(d).todense(), _X, dtypes=WIDE),
    op("sparse.coo_matvec", lambda d, v: _coo(d) @ v, _X, _X, dtypes=WIDE),
    op("sparse.coo_matmat", lambda d, m: _coo(d) @ m, _X, _M, dtypes=WIDE),
    op("sparse.csr_from_dense", lambda m: sparse.CSR.fromdense(m, nse=16).data, _M, dtypes=WIDE),
    op("sparse.csr_to_dense", lambda d: _compressed(sparse.CSR, d).todense(), _X, dtypes=WIDE),
    op("sparse.csr_matvec", lambda d, v: _compressed(sparse.CSR, d) @ v, _X, _X, dtypes=WIDE),
    op("sparse.csr_matmat", lambda d, m: _compressed(sparse.CSR, d) @ m, _X, _M, dtypes=WIDE),
    op("sparse.spsolve", lambda d, b: spsolve(
        d, jnp.asarray(_COLUMNS), jnp.asarray(_POINTERS), b), positive(4), _X, dtypes=WIDE),
)  # fmt: skip


def _callback(fun, x):
    return jax.pure_callback(fun, jax.ShapeDtypeStruct(x.shape, x.dtype), x)


@jax.custom_jvp
def _sine_on_host(x):
    return _callback(np.sin, x)


@_sine_on_host.defjvp
def _sine_on_host_jvp(primals, tangents):
    return _sine_on_host(*primals), _callback(np.cos, primals[0]) * tangents[0]


def _double(x_ref, out_ref):
    out_ref[...] = x_ref[...] * 2


def _beside(effect):
    """`effect(x)` is run for its side effect, next to a differentiated value."""
    return lambda x: (effect(x), x * jnp.sin(x))[1]


CORNERS: tuple[Operation, ...] = (
    op("callback.debug", _beside(lambda x: jax.debug.callback(lambda _: None, x)), _X),
    op("callback.print", _beside(lambda x: jax.debug.print("{}", x)), _X, dtypes=WIDE),
    op("callback.inspect_sharding", _beside(lambda x: jax.debug.inspect_array_sharding(
        x, callback=lambda _: None)), _X, dtypes=WIDE),
    op("callback.pure_with_rule", lambda x: _sine_on_host(x) * x, _X, dtypes=WIDE),
    op("callback.pure_of_data", lambda x, y: x * _callback(np.sin, y), _X, _X, argnums=(0,),
       dtypes=WIDE),
    op("callback.io_of_data", lambda x, y: x * io_callback(
        np.sin, jax.ShapeDtypeStruct(y.shape, y.dtype), y), _X, _X, argnums=(0,), dtypes=WIDE),
    op("corner.checkify", lambda x: checkify.checkify(
        lambda y: (checkify.check(y[0] < 9, "too large"), y * jnp.sin(y))[1])(x)[1], _X),
    op("corner.dce_sink", _beside(lambda x: lax.dce_sink(jnp.exp(x))), _X),
    op("corner.stage", lambda x: x * lax.stage(jnp.asarray(2, x.dtype)), _X),
    op("corner.pallas_of_data", lambda x, y: x * pallas.pallas_call(
        _double, out_shape=jax.ShapeDtypeStruct(y.shape, y.dtype), interpret=True)(y), _X, _X,
       argnums=(0,), dtypes=("float32",)),
    op("corner.odeint", lambda y, a: odeint(
        lambda y, t, a: -a * y, y, jnp.array([0.0, 0.5, 1.0], y.dtype), a), unit(2), positive(2),
       dtypes=WIDE),
    op("callback.debug_in_cond", lambda b, x: lax.cond(
        b, lambda y: (jax.debug.callback(lambda _: None, y), y * y)[1], jnp.sin, x), booleans(),
       _X),
)  # fmt: skip

SYSTEMS = SHARDING + REFERENCES + SPARSE + CORNERS
