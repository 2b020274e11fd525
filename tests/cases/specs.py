"""What an entry of the table of operations is, its concrete arguments and its scalar loss.

An operation enters as one line, `op("lax.sin", lax.sin, normal(3, 4), dtypes=ANY)`. What leaves
are arrays drawn from each argument's domain (`make_args`) and a scalar function of them
(`scalar_loss`), whose output error is a fixed pseudo-random weight instead of all ones.
"""

import zlib
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial, wraps
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from .since import is_there

FLOATS = ("float64", "float32", "bfloat16", "float16")
WIDE = ("float64", "float32")
COMPLEX = ("complex128", "complex64")
ANY = FLOATS + COMPLEX
WIDE_ANY = WIDE + COMPLEX

_REAL_OF = {"complex128": "float64", "complex64": "float32"}
_COMPLEX_OF = {"float64": "complex128", "complex128": "complex128"}
_NOT_DIFFERENTIATED = ("integers", "booleans", "key", "raw_key")


@dataclass(frozen=True)
class Arg:
    """Shape and domain of one argument; `high` bounds the domain "integers" from above."""

    shape: tuple[int, ...]
    domain: str
    high: int = 0


@dataclass(frozen=True)
class Operation:
    """A differentiable function of arrays, with what it takes to call and differentiate it."""

    name: str
    fun: Callable[..., Any]
    args: tuple[Arg, ...]
    argnums: tuple[int, ...]
    dtypes: tuple[str, ...]


def _arg(domain: str) -> Callable[..., Arg]:
    return lambda *shape, high=0: Arg(shape, domain, high)


normal = _arg("normal")
positive = _arg("positive")  # [0.5, 2)
unit = _arg("unit")  # (-0.9, 0.9)
probability = _arg("probability")  # (0.1, 0.9)
above_one = _arg("above_one")  # [1.2, 3)
increasing = _arg("increasing")  # sorted along the last axis, steps of 0.5 to 1
ties = _arg("ties")  # -1, 0 and 1 only: many equal values, and the kinks of relu, abs, ...
spd = _arg("spd")  # symmetric (Hermitian) positive definite
hermitian = _arg("hermitian")  # with well separated eigenvalues
invertible = _arg("invertible")  # well conditioned
triangular = _arg("triangular")  # lower triangular, well conditioned
real = _arg("real")  # normal, and real also where the operation's dtype is complex
complexes = _arg("complex")  # normal, and complex also where the operation's dtype is real
float32 = _arg("float32")  # normal, and float32 whatever the operation's dtype
integers = _arg("integers")  # 0, ..., high - 1 as int32
booleans = _arg("booleans")
key = _arg("key")  # one typed PRNG key
raw_key = _arg("raw_key")  # one PRNG key as two uint32


def words(text: str) -> list[str]:
    """The names in `text`."""
    return text.split()


def op(
    name: str,
    fun: Callable[..., Any],
    *args: Arg,
    dtypes: tuple[str, ...] = FLOATS,
    argnums: tuple[int, ...] | None = None,
) -> Operation:
    """An entry of the table; by default it is differentiated in every argument that can be."""
    if argnums is None:
        argnums = tuple(i for i, arg in enumerate(args) if arg.domain not in _NOT_DIFFERENTIATED)
    return Operation(name, fun, args, argnums, dtypes)


def family(
    module: Any, prefix: str, names: str, *args: Arg, dtypes: tuple[str, ...] = FLOATS
) -> tuple[Operation, ...]:
    """One entry per function in `names` of `module`, all with the same arguments."""
    return tuple(
        op(f"{prefix}.{name}", getattr(module, name), *args, dtypes=dtypes)
        for name in words(names)
        if is_there(f"{prefix}.{name}")
    )


def standard_promotion(fun: Callable[..., Any]) -> Callable[..., Any]:
    """Trace `fun`, whose own code mixes dtypes, as users of JAX's default promotion do."""

    @wraps(fun)
    def traced(*args: Any, **kwargs: Any) -> Any:
        with jax.numpy_dtype_promotion("standard"):
            return fun(*args, **kwargs)

    return traced


def make_args(operation: Operation, dtype: str, seed: int = 0) -> tuple[jax.Array, ...]:
    """Concrete arguments: the same for the same operation, dtype and seed."""
    rng = np.random.default_rng([seed, zlib.crc32(operation.name.encode())])
    return tuple(_make_arg(arg, dtype, rng) for arg in operation.args)


def scalar_loss(operation: Operation, dtype: str) -> Callable[..., jax.Array]:
    """The sum over all inexact outputs of `real(output * weight)`: a function of the arguments."""
    loss_dtype = _REAL_OF.get(dtype, dtype)

    def loss(*args: jax.Array) -> jax.Array:
        outputs = jax.tree.leaves(operation.fun(*args))
        rng = np.random.default_rng(zlib.crc32(operation.name.encode()))
        terms = [_weighted_sum(jnp.asarray(out), rng).astype(loss_dtype) for out in outputs]
        return sum(terms[1:], start=terms[0]) if terms else jnp.zeros((), loss_dtype)

    return loss


def _weighted_sum(out: jax.Array, rng: np.random.Generator) -> jax.Array:
    if not jnp.issubdtype(out.dtype, jnp.inexact):
        return jnp.zeros(())
    weight: np.ndarray = rng.normal(size=out.shape)
    if jnp.issubdtype(out.dtype, jnp.complexfloating):
        weight = weight + 1j * rng.normal(size=out.shape)
    return jnp.sum(jnp.real(out * jnp.asarray(weight, out.dtype)))


def _make_arg(arg: Arg, dtype: str, rng: np.random.Generator) -> jax.Array:
    match arg.domain:
        case "integers":
            return jnp.asarray(rng.integers(arg.high, size=arg.shape), "int32")
        case "booleans":
            return jnp.asarray(rng.integers(2, size=arg.shape), "bool")
        case "key":
            return jax.random.key(int(rng.integers(2**31)))
        case "raw_key":
            return jax.random.PRNGKey(int(rng.integers(2**31)))
        case "real":
            dtype = _REAL_OF.get(dtype, dtype)
        case "complex":
            dtype = _COMPLEX_OF.get(dtype, "complex64")
        case "float32":
            dtype = "float32"
    draw = partial(_SAMPLERS.get(arg.domain, _normal), rng, arg.shape)
    return jnp.asarray(draw(is_complex=dtype.startswith("complex")), dtype)


def _normal(rng: np.random.Generator, shape: tuple[int, ...], is_complex: bool) -> np.ndarray:
    value: np.ndarray = rng.normal(size=shape)
    return value + 1j * rng.normal(size=shape) if is_complex else value


def _between(low: float, high: float) -> Callable[..., np.ndarray]:
    def sample(rng: np.random.Generator, shape: tuple[int, ...], is_complex: bool) -> np.ndarray:
        value = rng.uniform(low, high, size=shape)
        return value + 1j * rng.uniform(-0.4, 0.4, size=shape) if is_complex else value

    return sample


def _increasing(rng: np.random.Generator, shape: tuple[int, ...], is_complex: bool) -> np.ndarray:
    return np.cumsum(_between(0.5, 1.0)(rng, shape, is_complex), axis=-1)


def _ties(rng: np.random.Generator, shape: tuple[int, ...], is_complex: bool) -> np.ndarray:
    value = rng.integers(-1, 2, size=shape).astype(float)
    return value + 1j * rng.integers(-1, 2, size=shape) if is_complex else value


def _matrix(kind: str) -> Callable[..., np.ndarray]:
    def sample(rng: np.random.Generator, shape: tuple[int, ...], is_complex: bool) -> np.ndarray:
        a, n = _normal(rng, shape, is_complex) / np.sqrt(shape[-1]), shape[-1]
        adjoint = np.conj(np.swapaxes(a, -1, -2))
        match kind:
            case "spd":
                return a @ adjoint + np.eye(n)
            case "hermitian":
                return (a + adjoint) / 2 + np.diag(2.0 * np.arange(n))
            case "triangular":
                return np.tril(a) + 2 * np.eye(n)
            case _:
                return a + 2 * np.eye(n)

    return sample


_SAMPLERS: dict[str, Callable[..., np.ndarray]] = {
    "positive": _between(0.5, 2.0),
    "unit": _between(-0.9, 0.9),
    "probability": _between(0.1, 0.9),
    "above_one": _between(1.2, 3.0),
    "increasing": _increasing,
    "ties": _ties,
    "spd": _matrix("spd"),
    "hermitian": _matrix("hermitian"),
    "invertible": _matrix("invertible"),
    "triangular": _matrix("triangular"),
}
