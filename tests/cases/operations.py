"""The table of differentiable operations, and what is left out of it and why.

`OPERATIONS` is the table. Each entry is checked with `jax.grad` under `jit` for each of its dtypes,
with 64-bit types and strict promotion on: it differentiates, and its gradients are finite.
"""

from .operations_composed import COMPOSED
from .operations_control import CONTROL
from .operations_custom import CUSTOM
from .operations_lax import LAX
from .operations_library import LIBRARY
from .operations_numpy import NUMPY
from .operations_systems import SYSTEMS
from .since import is_there
from .specs import Arg, Operation, make_args, scalar_loss

__all__ = [
    "LEAKS_IN_JAX",
    "LEFT_OUT",
    "OPERATIONS",
    "Arg",
    "Operation",
    "make_args",
    "scalar_loss",
]

_TABLE = LAX + NUMPY + LIBRARY + CONTROL + CUSTOM + COMPOSED + SYSTEMS
OPERATIONS: tuple[Operation, ...] = tuple(entry for entry in _TABLE if is_there(entry.name))

# Entries that JAX's own tracer-leak checker rejects, under `jax.grad` alone; all else passes it.
LEAKS_IN_JAX = frozenset(
    {
        "special.exp1",
        "special.expn",
        "sharding.psum",
        "sharding.psum_to_replicated",
        "sharding.psum_unchecked",
        "sharding.psum_of_unreduced",
        "sharding.psum_scatter_of_unreduced",
        "ref.scan",
    }
)

_NO_REVERSE = "JAX has no reverse mode for it"
_NO_PUBLIC_FUNCTION = "reached through JAX's internals only"
_NOT_ON_CPU = "not implemented on CPU"

# Primitives with a derivative rule (`jax._src.interpreters.ad.primitive_jvps`) that no entry uses.
LEFT_OUT: dict[str, str] = {
    "accum_grad_in_ref": "emitted by transposition only",
    "bcoo_spdot_general": _NO_REVERSE,
    "box_get": _NO_PUBLIC_FUNCTION,
    "box_set": _NO_PUBLIC_FUNCTION,
    "call_hi_primitive": _NO_PUBLIC_FUNCTION,
    "check": "a `checkify.check`, which `checkify.checkify` removes while tracing",
    "eq_to": "the comparator of `sort`, never in a jaxpr",
    "eval_jaxpr": "replaced by the jaxpr itself while tracing",
    "ffi_call": "JAX demands a custom rule around it",
    "from_edtype": _NO_PUBLIC_FUNCTION,
    "global_array_to_host_local_array": "needs several hosts",
    "host_local_array_to_global_array": "needs several hosts",
    "log_extend": _NO_PUBLIC_FUNCTION,
    "log_read": _NO_PUBLIC_FUNCTION,
    "masked_load": "inside Pallas kernels only",
    "masked_swap": "inside Pallas kernels only",
    "mpmd_map": _NO_PUBLIC_FUNCTION,
    "new_box": _NO_PUBLIC_FUNCTION,
    "new_log": _NO_PUBLIC_FUNCTION,
    "pbroadcast": _NOT_ON_CPU,
    "ragged_all_to_all": _NOT_ON_CPU,
    "remat_opt": "the derivative of `custom_vjp(optimize_remat=True)`, once more: " + _NO_REVERSE,
    "run_state": _NO_PUBLIC_FUNCTION,
    "stage": "folded away while tracing",
    "tie": _NO_PUBLIC_FUNCTION,
    "to_edtype": _NO_PUBLIC_FUNCTION,
}

# Functions that `jax.grad` itself cannot differentiate on CPU in JAX 0.10.2, and so have no entry.
#   no rule:     lax.scatter_apply, linalg.householder_product, linalg.symmetric_product, schur (and
#                sqrtm, funm, solve_sylvester), hessenberg, qr_multiply, nextafter, lax.zeta in its
#                first argument, betainc in a and b, lax.pmax, nn.scaled_matmul
#   no reverse:  generic lax.reduce_window, max_pool with window dilation, pallas_call in interpret
#                mode, custom_vmap and composite without a rule of their own, eigh_tridiagonal,
#                polar with qdwh, bcoo_extract of indices that may repeat
#   not finite:  special.spence (NaN everywhere), cluster.vq.vq (NaN at distance 0)
#   a bug:       stats.gumbel_l.logpdf and gumbel_r.logpdf (float0), numpy.interp in bfloat16
#   strict mode: lax.pow with an array of integers as exponent and dot_product_attention in bfloat16
#                fail inside their derivative rules
#   on CPU:      dot_product_attention in float16 (needs F16_F16_F32 products)
