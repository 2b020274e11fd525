"""Hypothesis strategies for random DAGs and for random JAX programs.

A program is a list of instructions over numbered registers that hold vectors of shape (3,) or
matrices of shape (3, 3). Each operation states how large its result can be, and those that make
numbers grow take only small inputs, so that no program overflows.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from hypothesis import strategies as st
from jax import lax

VECTOR, MATRIX = (3,), (3, 3)
Shape = tuple[int, ...]
Dag = list[tuple[int, ...]]


@st.composite
def random_dags(draw: st.DrawFn, max_vertices: int = 12, max_inputs: int = 3) -> Dag:
    """The inputs of each vertex, in topological order; a leaf has none and the last is the output.

    Fan-out, skips, several leaves and vertices that never reach the output all occur.
    """
    dag: Dag = [()] * draw(st.integers(1, 3))
    for _ in range(draw(st.integers(0, max_vertices - len(dag) - 1))):
        is_leaf = draw(st.integers(0, 9)) == 9
        dag.append(() if is_leaf else draw(_inputs_among(len(dag), max_inputs)))
    return [*dag, draw(_inputs_among(len(dag), max_inputs))]


def _inputs_among(count: int, max_inputs: int) -> st.SearchStrategy[tuple[int, ...]]:
    """A few distinct vertices, half of the time with the newest among them: fewer are then dead."""
    inputs = st.lists(st.integers(0, count - 1), min_size=1, max_size=max_inputs, unique=True)
    with_newest = inputs.map(lambda chosen: [count - 1, *chosen][:max_inputs])
    return (inputs | with_newest).map(lambda chosen: tuple(dict.fromkeys(chosen)))


@dataclass(frozen=True)
class Rule:
    """One operation: shapes in and out, the size of its result, and the largest input it takes."""

    fun: Callable[..., Any]
    inputs: tuple[Shape, ...]
    output: Shape
    bound: Callable[..., float]
    limit: float = float("inf")


@dataclass(frozen=True)
class Instruction:
    """`result = operation(*inputs)`; a higher-order operation (jit, scan, ...) has a `body` too."""

    operation: str
    inputs: tuple[int, ...]
    body: tuple["Instruction", ...] = ()

    def text(self, result: int, prefix: str = "v") -> str:
        """One line: `v3 = mul(v0, v2)`; a body is in braces, on registers `vv0, vv1, vv2, ...`."""
        arguments = ", ".join(f"{prefix}{i}" for i in self.inputs)
        lines = [line.text(3 + k, prefix + "v") for k, line in enumerate(self.body)]
        body = " {" + "; ".join(lines) + "}" if lines else ""
        return f"{prefix}{result} = {self.operation}({arguments}){body}"


@dataclass(frozen=True, repr=False)
class Program:
    """A scalar function of `len(params)` arrays: call it as `program(*program.make_params())`."""

    params: tuple[Shape, ...]
    instructions: tuple[Instruction, ...]
    outputs: tuple[int, ...]

    def __call__(self, *params: jax.Array) -> jax.Array:
        registers = _run(self.instructions, list(params))
        terms = [jnp.sum(registers[i] * _weights(registers[i])) for i in self.outputs]
        return sum(terms[1:], start=terms[0])

    def make_params(self, dtype: Any = "float64", seed: int = 0) -> tuple[jax.Array, ...]:
        """Parameters in (-1, 1), the same for the same seed."""
        rng = np.random.default_rng(seed)
        return tuple(jnp.asarray(rng.uniform(-1, 1, shape), dtype) for shape in self.params)

    def __repr__(self) -> str:
        params = [f"v{i}: {shape}" for i, shape in enumerate(self.params)]
        lines = [line.text(len(params) + k) for k, line in enumerate(self.instructions)]
        result = " + ".join(f"sum(weights * v{i})" for i in self.outputs)
        return "\n    ".join([f"Program({', '.join(params)}):", *lines, f"return {result}"])


def _weights(x: jax.Array) -> np.ndarray:
    return np.cos(np.arange(1, x.size + 1)).reshape(x.shape).astype(x.dtype)


def _run(instructions: Sequence[Instruction], registers: list[jax.Array]) -> list[jax.Array]:
    for line in instructions:
        inputs = [registers[i] for i in line.inputs]
        if line.body:
            result = HIGHER_ORDER[line.operation].fun(_body_function(line.body), *inputs)
        else:
            result = RULES[line.operation].fun(*inputs)
        registers = [*registers, result]
    return registers


def _body_function(body: tuple[Instruction, ...]) -> Callable[..., jax.Array]:
    return lambda x, y, w: _run(body, [x, y, w])[-1]


@jax.custom_jvp
def _not_its_derivative(x):
    return jnp.sin(x)


_not_its_derivative.defjvps(lambda t, ans, x: t * (ans + 2))


@jax.custom_vjp
def _reversed_gradient(x):
    return x * 1


_reversed_gradient.defvjp(lambda x: (x * 1, None), lambda _, g: (-g,))


def _concat_and_split(x, y):
    low, high = jnp.split(jnp.concatenate([x, y]), 2)
    return low * high + jnp.concatenate([high, low])[1:4]


def _one(*_: float) -> float:
    return 1.0


def _same(a: float) -> float:
    return a


def _sum(a: float, b: float) -> float:
    return a + b


def _product(a: float, b: float) -> float:
    return a * b


_SMALL = 6.0  # the largest input of an operation that makes numbers grow,
_TINY = 3.0  # and of one that makes them grow fast or has a body; parameters are below 1
_UNARY: dict[str, tuple[Callable[..., Any], Callable[..., float], float]] = {
    "tanh": (jnp.tanh, _one, np.inf),
    "sin": (jnp.sin, _one, np.inf),
    "sigmoid": (jax.nn.sigmoid, _one, np.inf),
    "softmax": (jax.nn.softmax, _one, np.inf),
    "relu": (jax.nn.relu, _same, np.inf),
    "softplus": (jax.nn.softplus, lambda a: a + 1, np.inf),
    "half": (lambda x: 0.5 * x, lambda a: a / 2, np.inf),
    "double": (lambda x: x + x, lambda a: 2 * a, _SMALL),
    "cube": (lambda x: x * x * x, lambda a: a**3, _TINY),
    "tanh_skip": (lambda x: jnp.tanh(x) * x + x, lambda a: 2 * a, _SMALL),
    "log_softmax": (jax.nn.log_softmax, lambda a: 2 * a + 2, _SMALL),
    "minus_logsumexp": (lambda x: x - jax.nn.logsumexp(x), lambda a: 2 * a + 3, _SMALL),
    "layer_norm": (jax.nn.standardize, lambda a: 3.0, np.inf),
    "sort": (lambda x: jnp.sort(x, axis=-1), _same, np.inf),
    "sort_by_argsort": (lambda x: jnp.take_along_axis(x, jnp.argsort(-x), -1), _same, np.inf),
    "reverse": (lambda x: x[::-1], _same, np.inf),
    "roll": (lambda x: jnp.roll(x, 1, -1), _same, np.inf),
    "cumsum": (lambda x: jnp.cumsum(x, axis=-1), lambda a: 3 * a, _SMALL),
    "center": (lambda x: x - jnp.mean(x), lambda a: 2 * a, _SMALL),
    "stop_gradient": (lax.stop_gradient, _same, np.inf),
    "half_stopped": (lambda x: x * lax.stop_gradient(jnp.sin(x)), _same, np.inf),
    "where_positive": (lambda x: jnp.where(x > 0, jnp.sin(x), x), _same, np.inf),
    "custom_jvp": (_not_its_derivative, _one, np.inf),
    "custom_vjp": (_reversed_gradient, _same, np.inf),
    "through_jit": (jax.jit(lambda x: jnp.tanh(x) * jnp.cos(x)), _one, np.inf),
}
_BINARY: dict[str, tuple[Callable[..., Any], Callable[..., float], float]] = {
    "add": (jnp.add, _sum, _SMALL),
    "sub": (jnp.subtract, _sum, _SMALL),
    "mul": (jnp.multiply, _product, _SMALL),
    "maximum": (jnp.maximum, max, np.inf),
    "where_greater": (lambda x, y: jnp.where(x > y, x * 0.5, y), max, np.inf),
    "div": (lambda x, y: x / (1.5 + jnp.cos(y)), lambda a, b: 2 * a, _SMALL),
}

RULES: dict[str, Rule] = {
    **{
        f"{name}_{kind}": Rule(fun, (shape,), shape, bound, limit)
        for kind, shape in (("v", VECTOR), ("m", MATRIX))
        for name, (fun, bound, limit) in _UNARY.items()
    },
    **{
        f"{name}_{kind}": Rule(fun, (shape, shape), shape, bound, limit)
        for kind, shape in (("v", VECTOR), ("m", MATRIX))
        for name, (fun, bound, limit) in _BINARY.items()
    },
    "matvec": Rule(jnp.matmul, (MATRIX, VECTOR), VECTOR, lambda a, b: 3 * a * b, _TINY),
    "vecmat": Rule(jnp.matmul, (VECTOR, MATRIX), VECTOR, lambda a, b: 3 * a * b, _TINY),
    "matmul": Rule(jnp.matmul, (MATRIX, MATRIX), MATRIX, lambda a, b: 3 * a * b, _TINY),
    "outer": Rule(jnp.outer, (VECTOR, VECTOR), MATRIX, _product, _SMALL),
    "add_rows": Rule(jnp.add, (MATRIX, VECTOR), MATRIX, _sum, _SMALL),
    "transpose": Rule(jnp.transpose, (MATRIX,), MATRIX, _same),
    "reshape": Rule(lambda m: m.reshape(9)[::-1].reshape(3, 3), (MATRIX,), MATRIX, _same),
    "concat_and_split": Rule(
        _concat_and_split, (VECTOR, VECTOR), VECTOR, lambda a, b: a * b + a + b, _SMALL
    ),
    "stack": Rule(lambda x, y: jnp.stack([x, y, x * y]), (VECTOR, VECTOR), MATRIX,
                  lambda a, b: max(a, b, a * b), _SMALL),
    "diagonal": Rule(jnp.diagonal, (MATRIX,), VECTOR, _same),
    "row_sum": Rule(lambda m: jnp.sum(m, 1), (MATRIX,), VECTOR, lambda a: 3 * a, _SMALL),
    "column_max": Rule(lambda m: jnp.max(m, 0), (MATRIX,), VECTOR, _same),
    "row_logsumexp": Rule(
        lambda m: jax.nn.logsumexp(m, axis=1), (MATRIX,), VECTOR, lambda a: a + 2
    ),
    "row_of_argmax": Rule(
        lambda m, x: m[jnp.argmax(x)], (MATRIX, VECTOR), VECTOR, lambda a, b: a
    ),
    "set_row": Rule(lambda m, x: m.at[1].set(x), (MATRIX, VECTOR), MATRIX, max),
    "add_row": Rule(
        lambda m, x: m.at[np.array([0, 0])].add(x), (MATRIX, VECTOR), MATRIX,
        lambda a, b: a + 2 * b, _SMALL,
    ),
    "convolve": Rule(
        lambda x, y: jnp.convolve(x, y, mode="same"), (VECTOR, VECTOR), VECTOR,
        lambda a, b: 3 * a * b, _TINY,
    ),
}  # fmt: skip

# The body of each of these is a function of two vectors and a matrix that ends in tanh.
_BODY_INPUTS = (VECTOR, VECTOR, MATRIX)
_SCANNED = (VECTOR, MATRIX, MATRIX)
HIGHER_ORDER: dict[str, Rule] = {
    "jit": Rule(lambda f, x, y, w: jax.jit(f)(x, y, w), _BODY_INPUTS, VECTOR, _one, _TINY),
    "remat": Rule(lambda f, x, y, w: jax.checkpoint(f)(x, y, w), _BODY_INPUTS, VECTOR, _one, _TINY),
    "cond": Rule(
        lambda f, x, y, w: lax.cond(jnp.sum(y) > 0, f, lambda x, y, w: jnp.sin(x) * y, x, y, w),
        _BODY_INPUTS, VECTOR, lambda a, b, w: max(1.0, b), _TINY,
    ),
    "fori_loop": Rule(
        lambda f, x, y, w: lax.fori_loop(0, 3, lambda _, c: f(c, y, w), x),
        _BODY_INPUTS, VECTOR, _one, _TINY,
    ),
    "vmap": Rule(
        lambda f, x, rows, w: jax.vmap(f, (None, 0, None))(x, rows, w),
        _SCANNED, MATRIX, _one, _TINY,
    ),
    "scan_carry": Rule(
        lambda f, x, rows, w: lax.scan(lambda c, row: (f(c, row, w), None), x, rows)[0],
        _SCANNED, VECTOR, _one, _TINY,
    ),
    "scan_stacked": Rule(
        lambda f, x, rows, w: lax.scan(lambda c, row: (f(c, row, w), c * row), x, rows)[1],
        _SCANNED, MATRIX, lambda a, b, w: max(1.0, a) * b, _TINY,
    ),
    "scan_reverse_remat": Rule(
        lambda f, x, rows, w: lax.scan(
            jax.checkpoint(lambda c, row: (f(c, row, w), None)), x, rows, reverse=True)[0],
        _SCANNED, VECTOR, _one, _TINY,
    ),
}  # fmt: skip


@st.composite
def random_programs(draw: st.DrawFn, max_instructions: int = 8, max_depth: int = 2) -> Program:
    """Programs with fan-out, skips, dead code, shared weights, and bodies under jit, scan, ...

    Bodies are nested at most `max_depth` deep; 0 leaves the higher-order operations out.
    """
    extra = draw(st.lists(st.sampled_from([VECTOR, MATRIX]), max_size=2))
    params = (VECTOR, MATRIX, *extra)
    length = draw(st.integers(1, max_instructions))
    instructions, _ = _draw_instructions(draw, params, 1.0, length, max_depth)
    last = len(params) + length - 1
    others = draw(st.lists(st.integers(0, last - 1), max_size=1))
    return Program(params, instructions, (last, *others))


def _draw_instructions(
    draw: st.DrawFn, shapes: tuple[Shape, ...], bound: float, length: int, depth: int
) -> tuple[tuple[Instruction, ...], tuple[Shape, ...]]:
    bounds = (bound,) * len(shapes)
    instructions: list[Instruction] = []
    for _ in range(length):
        line, rule = _draw_instruction(draw, shapes, bounds, depth)
        instructions.append(line)
        shapes = (*shapes, rule.output)
        bounds = (*bounds, rule.bound(*(bounds[i] for i in line.inputs)))
    return tuple(instructions), shapes


def _draw_instruction(
    draw: st.DrawFn, shapes: tuple[Shape, ...], bounds: tuple[float, ...], depth: int
) -> tuple[Instruction, Rule]:
    has_body = depth > 0 and draw(st.integers(0, 3)) == 3
    table = HIGHER_ORDER if has_body else RULES
    name = draw(st.sampled_from(list(table)))
    rule = table[name]
    fitting = [i for i, bound in enumerate(bounds) if bound <= rule.limit]
    inputs = tuple(
        draw(_recent_or_any([i for i in fitting if shapes[i] == shape])) for shape in rule.inputs
    )
    body = _draw_body(draw, depth - 1) if has_body else ()
    return Instruction(name, inputs, body), rule


def _draw_body(draw: st.DrawFn, depth: int) -> tuple[Instruction, ...]:
    """A function of two vectors and a matrix, with a bounded vector as its result."""
    length = draw(st.integers(1, 3))
    body, shapes = _draw_instructions(draw, _BODY_INPUTS, _TINY, length, depth)
    newest = max(i for i, shape in enumerate(shapes) if shape == VECTOR)
    return (*body, Instruction("tanh_v", (newest,)))


def _recent_or_any(indices: list[int]) -> st.SearchStrategy[int]:
    """Mostly the newest register, so that programs are deep."""
    return st.just(indices[-1]) | st.sampled_from(indices)
