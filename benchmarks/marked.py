"""What value nodes at marks, at delays and inside loops cost, beside what should cost the same.

- A CNN whose layers are marked functions, beside the loop by hand (`benchmarks.handwritten`).
- The same CNN with delays written out (``IL(levelled=True)``), beside the one without, each divided
  by its number of value nodes.
- An LSTM in a `jax.lax.scan`, its cell marked or as it is: its compile time, its first call and one
  step of IL.
- A Transformer of twelve layers in a `jax.lax.scan`: one step of IL.
"""

import functools
import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
from rich.console import Console
from rich.progress import Progress
from rich.table import Table

import dendrax
from benchmarks import handwritten
from benchmarks.first_calls import Library, launch
from benchmarks.handwritten import WORKLOADS, Params, Workload
from benchmarks.timing import build, interleaved
from dendrax.models import Problem

NUM_STEPS = 50  # of inference, for the CNN
BATCH, SIZE, TIME = 32, 128, 200  # of the LSTM
WIDTH, HEADS, TOKENS = 64, 4, 32  # of the Transformer


@dataclass(frozen=True)
class Row:
    """A ratio, and what it should be at most."""

    name: str
    ratio: float
    goal: float


def run(console: Console, seconds: float, num_calls: int) -> list[Row]:
    """Measure every row, with a bar meanwhile."""
    with Progress(console=console, transient=True) as progress:
        task = progress.add_task("", total=len(MEASURES))
        rows = []
        for name, (goal, measure) in MEASURES.items():
            progress.update(task, description=name)
            rows.append(Row(name, measure(seconds, num_calls), goal))
            progress.advance(task)
        return rows


def marked_loss(workload: Workload) -> Callable[[Params, jax.Array, jax.Array], jax.Array]:
    """The loss of a workload, with every layer but the last as a marked function."""

    def loss(params: Params, inputs: jax.Array, target: jax.Array) -> jax.Array:
        x, squash = inputs, lambda x: x
        for layer, (w, b) in zip(workload.layers, params, strict=True):

            def apply(w: jax.Array, b: jax.Array, x: jax.Array, layer: Any = layer) -> jax.Array:
                return layer.linear(w, x) + b

            last = layer is workload.layers[-1]
            x = (apply if last else dendrax.vertex(apply))(w, b, squash(x))
            squash = jnp.tanh
        return 0.5 * jnp.sum((x - target) ** 2)

    return loss


def _marked_cnn(seconds: float, num_calls: int) -> float:
    workload = WORKLOADS["cnn"]
    arguments, rule = workload.data(0), dendrax.IL(NUM_STEPS, gamma=handwritten.GAMMA, batch="sum")
    marked = dendrax.value_and_grad(marked_loss(workload), rule=rule, vertices="marked")
    ours, *_ = build(marked, arguments)
    theirs, *_ = build(handwritten.il(workload, NUM_STEPS), arguments)
    return interleaved(ours, theirs, arguments, seconds)[0]


def _levelled_cnn(seconds: float, num_calls: int) -> float:
    workload = WORKLOADS["cnn"]
    loss, arguments = handwritten.loss_function(workload), workload.data(0)
    graph = dendrax.trace(loss, *arguments)
    counts = len(dendrax.level(graph).expand().nodes), len(graph.nodes)
    levelled, plain = (
        build(_by(dendrax.IL(NUM_STEPS, levelled=flag, batch="sum"), loss, "primitive"), arguments)[
            0
        ]
        for flag in (True, False)
    )
    return interleaved(levelled, plain, arguments, seconds)[0] * counts[1] / counts[0]


def _by(rule: dendrax.Rule, loss: Callable[..., Any], vertices: Any) -> Callable[..., Any]:
    return dendrax.value_and_grad(loss, rule=rule, vertices=vertices)


def lstm(num_steps: int = TIME, *, marked: bool = True) -> Problem:
    """A sequence that an LSTM cell reads, marked or not, and what its last output should be."""
    keys = jax.random.split(jax.random.key(0), 4)
    weights = {
        "cell": jax.random.normal(keys[0], (2 * SIZE, 4 * SIZE)) / jnp.sqrt(2 * SIZE),
        "bias": jnp.zeros(4 * SIZE),
        "readout": jax.random.normal(keys[1], (SIZE, 10)) / jnp.sqrt(SIZE),
    }
    inputs = jax.random.normal(keys[2], (num_steps, BATCH, SIZE))
    target = jax.random.normal(keys[3], (BATCH, 10))
    cell = dendrax.vertex(_cell) if marked else _cell
    return Problem("lstm", weights, inputs, target, functools.partial(_lstm_loss, cell))


def _cell(weights: Any, h: jax.Array, c: jax.Array, x: jax.Array) -> tuple[jax.Array, jax.Array]:
    gates = jnp.concatenate([x, h], 1) @ weights["cell"] + weights["bias"]
    i, f, g, o = jnp.split(gates, 4, axis=1)
    c = jax.nn.sigmoid(f + 1) * c + jax.nn.sigmoid(i) * jnp.tanh(g)
    return jax.nn.sigmoid(o) * jnp.tanh(c), c


def _lstm_loss(cell: Any, weights: Any, inputs: jax.Array, target: jax.Array) -> jax.Array:
    def step(carry: tuple[jax.Array, jax.Array], x: jax.Array) -> Any:
        return cell(weights, carry[0], carry[1], x), None

    zeros = jnp.zeros_like(inputs[0])
    (h, _), _ = jax.lax.scan(step, (zeros, zeros), inputs)
    return jnp.mean(jnp.sum((h @ weights["readout"] - target) ** 2, 1)) / 2


def transformer(num_layers: int = 12) -> Problem:
    """A Transformer whose layers are the steps of a scan, over stacked weights."""
    keys = jax.random.split(jax.random.key(0), 8)
    shapes = {"qkv": (WIDTH, 3 * WIDTH), "out": (WIDTH, WIDTH)}
    shapes |= {"up": (WIDTH, 4 * WIDTH), "down": (4 * WIDTH, WIDTH)}
    weights: dict[str, Any] = {
        name: jax.random.normal(key, (num_layers, *shape)) / jnp.sqrt(shape[0])
        for key, (name, shape) in zip(keys, shapes.items(), strict=False)
    }
    weights["readout"] = jax.random.normal(keys[5], (WIDTH, 10)) / jnp.sqrt(WIDTH)
    inputs = jax.random.normal(keys[6], (BATCH, TOKENS, WIDTH))
    target = jax.random.normal(keys[7], (BATCH, 10))
    return Problem("scanned transformer", weights, inputs, target, _transformer_loss)


def _transformer_loss(weights: Any, inputs: jax.Array, target: jax.Array) -> jax.Array:
    def norm(x: jax.Array) -> jax.Array:
        return (x - x.mean(-1, keepdims=True)) * jax.lax.rsqrt(x.var(-1, keepdims=True) + 1e-5)

    def layer(x: jax.Array, w: Any) -> tuple[jax.Array, None]:
        heads = (norm(x) @ w["qkv"]).reshape(*x.shape[:-1], HEADS, -1)
        q, k, v = jnp.split(heads, 3, axis=-1)
        scores = jnp.einsum("bthd,bshd->bhts", q, k) / jnp.sqrt(q.shape[-1])
        mixed = jnp.einsum("bhts,bshd->bthd", jax.nn.softmax(scores), v)
        x = x + mixed.reshape(x.shape) @ w["out"]
        return x + jax.nn.gelu(norm(x) @ w["up"]) @ w["down"], None

    stacked = {name: w for name, w in weights.items() if name != "readout"}
    x, _ = jax.lax.scan(layer, inputs, stacked)
    return jnp.mean(jnp.sum((norm(x).mean(1) @ weights["readout"] - target) ** 2, 1)) / 2


def _compiling(choice: Any, seconds: float, num_calls: int) -> float:
    """Tracing, lowering and compiling for 500 steps, over the same for 50."""
    rule, found = dendrax.IL(), {50: [], 500: []}
    for turn in range(2 * max(num_calls, 1)):
        for length in (50, 500) if turn % 2 else (500, 50):
            p = lstm(length, marked=choice == "marked")
            jax.clear_caches()
            times = build(_by(rule, p.loss, choice), (p.model, p.inputs, p.target))[1:]
            found[length].append(sum(times))
    return statistics.median(found[500]) / statistics.median(found[50])


def _first_call(model: str, library: Library, seconds: float, num_calls: int) -> float:
    """IL's over that of `jax.value_and_grad`, each in a process of its own."""
    ours, theirs = [], []
    for _ in range(max(num_calls, 1)):
        ours.append(launch(model, library).total)
        theirs.append(launch(model, "jax").total)
    return statistics.median(ours) / statistics.median(theirs)


def _step(make: Callable[[], Problem], choice: Any, seconds: float, num_calls: int) -> float:
    """What 20 steps more cost, over 20 backpropagations."""
    p = make()
    arguments = (p.model, p.inputs, p.target)
    bp, *_ = build(jax.value_and_grad(p.loss), arguments)
    short, long = (build(_by(dendrax.IL(n), p.loss, choice), arguments)[0] for n in (10, 30))
    ratios = [interleaved(call, bp, arguments, seconds / 2)[0] for call in (short, long)]
    return (ratios[1] - ratios[0]) / 20


MEASURES: dict[str, tuple[float, Callable[[float, int], float]]] = {
    f"CNN, layers marked / the loop by hand, T = {NUM_STEPS}": (1.06, _marked_cnn),
    f"CNN, levelled / not, per value node, T = {NUM_STEPS}": (1.15, _levelled_cnn),
    "LSTM, marked, compiling 500 steps / 50": (1.2, partial(_compiling, "marked")),
    "LSTM as it is, compiling 500 steps / 50": (1.2, partial(_compiling, "layer")),
    f"LSTM, marked, {TIME} steps: first call of IL / of BP": (
        3.0,
        partial(_first_call, "lstm", "marked IL"),
    ),
    f"LSTM as it is, {TIME} steps: first call of IL / of BP": (
        3.0,
        partial(_first_call, "plain lstm", "IL"),
    ),
    f"LSTM, marked, {TIME} steps: a step of IL / BP": (0.4, partial(_step, lstm, "marked")),
    f"LSTM as it is, {TIME} steps: a step of IL / BP": (
        0.4,
        partial(_step, partial(lstm, marked=False), "layer"),
    ),
    "Transformer, 12 layers in a scan: a step of IL / BP": (
        1.0,
        partial(_step, transformer, "layer"),
    ),
}


def table(rows: Sequence[Row]) -> Table:
    """The measurements as a table."""
    found = Table(
        title="Value nodes at marks, at delays and inside loops (float32)",
        caption=f"LSTM: in a scan, batch {BATCH}, {SIZE} units; Transformer: batch {BATCH}, "
        f"{TOKENS} tokens, width {WIDTH}; medians",
    )
    for title in ("what", "ratio", "at most"):
        found.add_column(title, justify="left" if title == "what" else "right")
    for row in rows:
        found.add_row(row.name, f"{row.ratio:.3f}", f"{row.goal:.2f}")
    return found
