"""One contestant of ``benchmarks.scale`` in a process of its own, which ends with its memory.

A ``Setup`` enters as JSON on the command line; lines of JSON leave on stdout: what it does now,
and in the end the ``Report``.
"""

import functools
import hashlib
import json
import resource
import sys
import time
from collections.abc import Callable
from typing import Any

import jax
import numpy as np
import optax

import dendrax
from benchmarks import gpt2
from benchmarks.scale import Report, Setup

GRADIENTS: dict[str, Callable[..., Any]] = {
    "jax": jax.value_and_grad,
    "bp": functools.partial(dendrax.value_and_grad, rule=dendrax.BP()),
    "zil": functools.partial(dendrax.value_and_grad, rule=dendrax.ZIL()),
}


def train(setup: Setup, contestant: str, say: Callable[[str], None]) -> Report:
    """Train for a few updates: every loss, checksums of what was learned, time and memory."""
    optimizer = _optimizer(setup)
    say("drawing the first weights")
    weights = jax.jit(gpt2.initial, static_argnums=0)(setup.sizes, jax.random.key(setup.seed))
    state = optimizer.init(weights)
    batches = _batches(setup, say)
    say("compiling")
    start = time.perf_counter()
    update = _update(setup, optimizer, GRADIENTS[contestant])
    compiled = update.lower(weights, state, batches[0]).compile()
    compile_seconds = time.perf_counter() - start
    num_parameters = sum(leaf.size for leaf in jax.tree.leaves(weights))
    losses, seconds, cpu_seconds = [], [], []
    for number, batch in enumerate(batches, 1):
        start, cpu_start = time.perf_counter(), time.process_time()
        loss, weights, state = jax.block_until_ready(compiled(weights, state, batch))
        seconds.append(time.perf_counter() - start)
        cpu_seconds.append(time.process_time() - cpu_start)
        losses.append(float(loss))
        say(f"update {number} of {len(batches)}, loss {loss:.4f}, {seconds[-1]:.1f} s")
    memory = compiled.memory_analysis()
    return Report(
        num_parameters=num_parameters,
        losses=losses,
        weights=checksum(weights),
        moments=checksum(state),
        seconds=seconds,
        cpu_seconds=cpu_seconds,
        compile_seconds=compile_seconds,
        temporary_bytes=memory.temp_size_in_bytes,
        argument_bytes=memory.argument_size_in_bytes,
        output_bytes=memory.output_size_in_bytes,
        resident_bytes=_peak_resident_bytes(),
    )


def checksum(tree: Any) -> str:
    """The sha256 of every byte of every array, with its place, type and shape."""
    digest = hashlib.sha256()
    for path, leaf in jax.tree_util.tree_leaves_with_path(tree):
        array = np.asarray(leaf)
        digest.update(f"{jax.tree_util.keystr(path)} {array.dtype} {array.shape}".encode())
        digest.update(np.ascontiguousarray(array).data)
    return digest.hexdigest()


def _update(setup: Setup, optimizer: Any, value_and_grad: Callable[..., Any]) -> Any:
    loss = functools.partial(gpt2.loss, num_heads=setup.sizes.num_heads, remat=setup.remat)

    @functools.partial(jax.jit, donate_argnums=(0, 1))
    def update(weights: Any, state: Any, tokens: jax.Array) -> Any:
        value, gradient = value_and_grad(loss)(weights, tokens)
        steps, state = optimizer.update(gradient, state, weights)
        return value, optax.apply_updates(weights, steps), state

    return update


def _optimizer(setup: Setup) -> Any:
    """AdamW with a linear warm-up; norms and biases do not decay."""
    peak, count = setup.learning_rate, setup.num_updates
    rate = optax.linear_schedule(peak / count, peak, max(count - 1, 1))
    matrices = functools.partial(jax.tree.map, lambda leaf: leaf.ndim > 1)
    return optax.adamw(rate, b2=0.95, weight_decay=0.1, mask=matrices)


def _batches(setup: Setup, say: Callable[[str], None]) -> np.ndarray:
    """``(num_updates, batch, context + 1)``: pieces from anywhere in the novel."""
    tokens = gpt2.novel(setup.sizes.vocab_size)
    different = len(np.unique(tokens))
    say(f"Moby Dick is {len(tokens):,} words and punctuation marks, {different:,} different")
    shape = (setup.num_updates, setup.batch, 1)
    starts = np.random.default_rng(setup.seed).integers(len(tokens) - setup.context, size=shape)
    return tokens[starts + np.arange(setup.context + 1)]


def _peak_resident_bytes() -> int:
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else 1024 * peak  # Linux counts in KiB


def _send(**message: Any) -> None:
    print(json.dumps(message), flush=True)


if __name__ == "__main__":
    report = train(Setup.from_json(sys.argv[2]), sys.argv[1], lambda text: _send(now=text))
    _send(report=vars(report))
