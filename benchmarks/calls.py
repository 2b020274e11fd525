"""What a call costs in Python: tracing and lowering a long function, and every eager call.

Both as ratios Z-IL / JAX, in turns, the order changing each time. Each lowering is of a new
function; what both libraries remember of primitives and of inner jits is warm.
"""

import functools
import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
from rich.console import Console
from rich.progress import Progress
from rich.table import Table

import dendrax
from benchmarks.timing import interleaved
from dendrax.models import problem
from dendrax.support._words import ProblemName

LENGTHS = (500, 5_000, 50_000)
LOWERED = ("resnet18", "transformer12", "mlp100")
CALLED = ("mlp", "cnn", "rnn_scan", "resnet18", "transformer")

# A name, what makes the function (a new one, so that JAX traces it again), and its arguments.
Case = tuple[str, Callable[[], Any], tuple[Any, ...]]


@dataclass(frozen=True)
class Row:
    """One function: ``ratio`` is Z-IL / JAX, ``seconds`` are JAX's."""

    name: str
    what: str
    ratio: float
    seconds: float
    num_runs: int


def chain(length: int) -> Callable[[jax.Array], jax.Array]:
    """A function of about ``length`` operations, some with a skip connection."""

    def function(x: jax.Array) -> jax.Array:
        for _ in range(length // 4):
            x = jnp.sin(x) * 0.5 + x
            x = x - 0.1
        return jnp.sum(x)

    return function


def deep_mlp(weights: Any, x: jax.Array) -> jax.Array:
    """A multilayer perceptron and its loss, without an inner ``jit`` of its own."""
    for w, b in weights:
        x = jnp.tanh(x @ w + b)
    return jnp.mean(x**2)


def run(console: Console, seconds: float, longest: int) -> list[Row]:
    """Lower chains of up to ``longest`` operations, and models; call models eagerly."""
    lowered: list[Case] = [
        (f"chain of {n:,} operations", functools.partial(chain, n), (jnp.ones(8),))
        for n in LENGTHS
        if n <= longest
    ]
    lowered += [_model(name, small=False) for name in LOWERED]
    weights = [(0.1 * jnp.ones((32, 32)), jnp.zeros(32)) for _ in range(20)]
    eager: list[Case] = [
        ("MLP, 20 layers of 32", lambda: deep_mlp, (weights, jnp.ones((16, 32)))),
        *(_model(name, small=True) for name in CALLED),
    ]
    with Progress(console=console, transient=True) as progress:
        rows = [lowering(*case) for case in progress.track(lowered, description="lowering")]
        return rows + [
            calling(*case, seconds) for case in progress.track(eager, description="eager calls")
        ]


def _model(name: ProblemName, *, small: bool) -> Case:
    p = problem(name, small=small)
    return p.name, lambda: lambda *args: p.loss(*args), (p.model, p.inputs, p.target)


def lowering(name: str, make: Callable[[], Any], arguments: tuple[Any, ...]) -> Row:
    """Trace and lower a function by both, several times."""
    times: dict[Any, list[float]] = {dendrax: [], jax: []}
    began = time.perf_counter()
    while len(times[jax]) < 4 or (len(times[jax]) < 20 and time.perf_counter() - began < 10):
        for library in (dendrax, jax) if len(times[jax]) % 2 else (jax, dendrax):
            start = time.perf_counter()
            jax.jit(library.value_and_grad(make())).lower(*arguments)
            times[library].append(time.perf_counter() - start)
    ours, theirs = (statistics.median(times[library][1:]) for library in (dendrax, jax))
    return Row(name, "trace and lower", ours / theirs, theirs, len(times[jax]) - 1)


def calling(name: str, make: Callable[[], Any], arguments: tuple[Any, ...], seconds: float) -> Row:
    """Call a function eagerly by both, for about ``seconds``."""
    loss = make()
    ours, theirs = dendrax.value_and_grad(loss), jax.value_and_grad(loss)
    ratio, mine, count = interleaved(ours, theirs, arguments, seconds)
    return Row(name, "eager call", ratio, mine / ratio, count)


def table(rows: Sequence[Row]) -> Table:
    """The rows for people."""
    result = Table(title="The cost of a call, Z-IL / JAX")
    for title, justify in (
        ("function", "left"),
        ("what", "left"),
        ("ratio", "right"),
        ("JAX ms", "right"),
        ("runs", "right"),
    ):
        result.add_column(title, justify=justify)  # pyright: ignore[reportArgumentType]
    for row in rows:
        shown = f"{row.ratio:.2f}", f"{1e3 * row.seconds:,.1f}", str(row.num_runs)
        result.add_row(row.name, row.what, *shown)
    return result
