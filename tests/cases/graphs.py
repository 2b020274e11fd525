"""Small named graphs: functions with a scalar output, each showing one structure."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax


@dataclass(frozen=True)
class Case:
    """A function with a scalar output, and its arguments as float64 or int32 NumPy arrays."""

    name: str
    fun: Callable[..., jax.Array]
    args: tuple[np.ndarray, ...]

    @property
    def argnums(self) -> tuple[int, ...]:
        """The arguments to differentiate: all but the integers."""
        return tuple(i for i, arg in enumerate(self.args) if arg.dtype == np.float64)

    def make_args(self, dtype: Any = "float64") -> tuple[jax.Array, ...]:
        """The arguments as JAX arrays, the inexact ones in `dtype`."""
        return tuple(
            jnp.asarray(arg, dtype if arg.dtype == np.float64 else arg.dtype) for arg in self.args
        )


def _chain(x):
    return jnp.exp(jnp.sin(jnp.tanh(x)))


def _fan_out(x):
    return jnp.sin(x) + jnp.cos(x) * jnp.exp(x) + x * x


def _skip(z1, z2, z3, s):
    return s * z3 + s * z3 * z2 * z1


def _diamond(x):
    y = jnp.exp(x)
    return jnp.sin(y) * jnp.tanh(y)


def _shared_weight(w, x):
    return jnp.sum(jnp.tanh(w @ jnp.tanh(w @ jnp.tanh(w @ x))))


def _dead_branch(x, y):
    unread = jnp.exp(jnp.sin(x) * y)
    del unread
    return jnp.tanh(x) * x


def _constant_output(x):
    return jnp.ones((), x.dtype)


def _passthrough(x):
    return x


def _tanh_and_skip(x, w):
    y = jnp.tanh(x)
    return jnp.sum(w @ jnp.sin(x + jnp.tanh(y)) + x * y)


def _residual_blocks(x, w):
    for _ in range(3):
        x = x + jnp.tanh(w @ x)
    return jnp.sum(x * x)


def _long_delay(x):
    y = x
    for _ in range(8):
        y = jnp.sin(y)
    return x * y


def _two_delays(a, b):
    near = a * b
    far = jnp.sin(jnp.tanh(near))
    return a * far + b * jnp.exp(far) + near


def _scan(w, x, xs):
    carry, ys = lax.scan(lambda c, y: (jnp.tanh(w @ c + y), jnp.sin(c) * y), x, xs)
    return jnp.sum(carry * carry) + jnp.sum(ys)


def _nested_scan(w, x, xs):
    def outer(c, rows):
        c, ys = lax.scan(lambda d, y: (jnp.tanh(w @ d + y), d * y), c, rows)
        return jnp.sin(c), ys

    carry, ys = lax.scan(outer, x, xs)
    return jnp.sum(carry) + jnp.sum(ys * ys)


def _cond(x, y):
    taken = lax.cond(x > 0, lambda a, b: jnp.sin(a) * b, lambda a, b: jnp.exp(a), x, y)
    return taken * y + x


def _jit_inside(x, y):
    inner = jax.jit(lambda a, b: jnp.tanh(a) * b + a)
    return inner(x, x) * y + inner(y, x) + x


def _nested_jit(x):
    inner = jax.jit(lambda a: jnp.sin(a) * a)
    return jax.jit(lambda a: inner(inner(a)) + inner(a) * a)(x) * x


def _remat_inside(w, x):
    block = jax.checkpoint(lambda w, h: jnp.sin(jnp.tanh(w @ h)))
    return jnp.sum(block(w, block(w, x)) * x)


def _custom_rule(x, y):
    @jax.custom_jvp
    def doubled(a, b):
        return a * b

    doubled.defjvps(lambda t, ans, a, b: 2 * t * b, lambda t, ans, a, b: t * a)
    return doubled(jnp.sin(x), y) * x


def _unused(x, y):
    return jnp.sin(x) * x


def _integer_branch(x, i):
    picked = x[jnp.argmax(x)] * x[i]
    return jnp.sum(jnp.where(x > 0, x * x, picked))


def _stop_gradient(x):
    return jnp.sum(x * lax.stop_gradient(jnp.sin(x)) + jnp.tanh(x))


def _softmax(x, i):
    return -jax.nn.log_softmax(jnp.tanh(x))[i]


def _figure_1(z1, z2):
    return (jnp.sqrt(z1) + z2) ** 2


def _several_outputs(x):
    low, middle, high = jnp.split(jnp.sin(x), 3)
    return jnp.sum(low * high) + jnp.sum(middle)


def _mlp(w1, b1, w2, b2, x, y):
    hidden = jnp.tanh(w1 @ x + b1)
    return 0.5 * jnp.sum((w2 @ hidden + b2 - y) ** 2)


def _normal(*shape: int) -> np.ndarray:
    return np.asarray(np.random.default_rng(sum(shape)).normal(size=shape))


def _scalars(*values: float) -> tuple[np.ndarray, ...]:
    return tuple(np.asarray(value, "float64") for value in values)


_W, _X, _I = _normal(3, 3), _normal(3), np.asarray(1, "int32")

GRAPHS: tuple[Case, ...] = (
    Case("chain", _chain, _scalars(0.4)),
    Case("fan_out", _fan_out, _scalars(0.4)),
    Case("skip", _skip, _scalars(1.1, -0.6, 0.9, 0.7)),
    Case("diamond", _diamond, _scalars(0.3)),
    Case("shared_weight", _shared_weight, (_W, _X)),
    Case("dead_branch", _dead_branch, _scalars(0.8, -0.3)),
    Case("constant_output", _constant_output, _scalars(0.8)),
    Case("passthrough", _passthrough, _scalars(0.8)),
    Case("tanh_and_skip", _tanh_and_skip, (_X, _W)),
    Case("residual_blocks", _residual_blocks, (_X, _W)),
    Case("long_delay", _long_delay, _scalars(0.7)),
    Case("two_delays", _two_delays, _scalars(0.7, -1.2)),
    Case("scan", _scan, (_W, _X, _normal(4, 3))),
    Case("nested_scan", _nested_scan, (_W, _X, _normal(2, 4, 3))),
    Case("cond", _cond, _scalars(0.5, -1.5)),
    Case("jit_inside", _jit_inside, _scalars(0.5, -1.5)),
    Case("nested_jit", _nested_jit, _scalars(0.6)),
    Case("remat_inside", _remat_inside, (_W, _X)),
    Case("custom_rule", _custom_rule, _scalars(0.5, -1.5)),
    Case("unused", _unused, _scalars(0.5, -1.5)),
    Case("integer_branch", _integer_branch, (_X, _I)),
    Case("stop_gradient", _stop_gradient, (_X,)),
    Case("softmax", _softmax, (_X, _I)),
    Case("figure_1", _figure_1, _scalars(4.0, -0.5)),
    Case("several_outputs", _several_outputs, (_normal(6),)),
    Case("mlp", _mlp, (_normal(4, 3), _normal(4), _normal(2, 4), _normal(2), _X, _normal(2))),
)

# Over time two nested scans are long: each of their steps is a vertex.
TIMED_GRAPHS = [
    pytest.param(c, id=c.name, marks=pytest.mark.slow if c.name == "nested_scan" else ())
    for c in GRAPHS
]
