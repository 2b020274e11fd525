"""Table 2: the time of one weight update by BP, Z-IL and IL, in turns and in one process.

BP is jitted `jax.grad`, not ours. An update is the gradient and a step of gradient descent. Only
ratios mean anything: the paper's milliseconds are those of two graphics cards.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import jax
import numpy as np

import dendrax
from dendrax import IL, ZIL
from dendrax.experiments._store import Cell, Work
from dendrax.experiments._subjects import Batch, Subject
from dendrax.models import squared_error_loss

Update = Callable[[], float]  # runs one update and says how many seconds it took


def speed_cells(
    subjects: Sequence[Subject], *, seed: int, dtype: str, seconds: float
) -> list[Cell]:
    """One measurement per subject, in which the rules take turns."""
    return [_cell(subject, seed, dtype, seconds) for subject in subjects]


def _cell(subject: Subject, seed: int, dtype: str, seconds: float) -> Cell:
    # The loss is a mean over the batch, and each sample is to have its own full energy.
    il = IL(num_steps=subject.num_steps, gamma=0.1, batch=subject.batch_size)
    settings = {
        **subject.settings,
        "num_steps": subject.num_steps,
        "seed": seed,
        "dtype": dtype,
        "seconds": seconds,
    }

    def measure(work: Work) -> Mapping[str, Any]:
        with jax.enable_x64(dtype == "float64"):
            batch = subject.batch(seed, dtype)
            gradients = {"bp": jax.grad, "zil": _with(ZIL()), "il": _with(il)}
            updates = {}
            for rule, transform in gradients.items():
                work.report(0.1 * len(updates), f"compiling {rule}")
                updates[rule] = _compiled(transform, subject.learning_rate, batch)
            return _in_turns(updates, seconds, work)

    return Cell("speed", f"{subject.row} ({subject.name}), {dtype}: speed", settings, measure)


def _with(rule: Any) -> Callable[[Any], Any]:
    return lambda fun: dendrax.grad(fun, rule=rule)


def _compiled(transform: Callable[[Any], Any], rate: float, batch: Batch) -> Update:
    def update(model: Any, inputs: Any, target: Any) -> Any:
        gradient = transform(squared_error_loss)(model, inputs, target)
        return jax.tree.map(lambda weight, slope: weight - rate * slope, model, gradient)

    compiled = jax.jit(update).lower(*batch).compile()
    jax.block_until_ready(compiled(*batch))

    def timed() -> float:
        start = time.perf_counter()
        jax.block_until_ready(compiled(*batch))
        return time.perf_counter() - start

    return timed


def _in_turns(updates: Mapping[str, Update], seconds: float, work: Work) -> dict[str, Any]:
    """BP and Z-IL in turns, each first as often as second; then IL, which takes long, alone."""
    pairs, order = [], ("bp", "zil")
    start = time.perf_counter()
    while (spent := time.perf_counter() - start) < seconds or len(pairs) < 10:
        work.report(0.3 + 0.4 * min(1.0, spent / seconds), "BP and Z-IL in turns")
        took = {rule: updates[rule]() for rule in order}
        pairs.append((took["bp"], took["zil"]))
        order = order[::-1]
    relaxed = []
    start = time.perf_counter()
    while (spent := time.perf_counter() - start) < seconds or len(relaxed) < 3:
        work.report(0.7 + 0.3 * min(1.0, spent / seconds), "IL")
        relaxed.append(updates["il"]())
    return _medians(np.array(pairs), np.array(relaxed))


def _medians(pairs: np.ndarray, relaxed: np.ndarray) -> dict[str, Any]:
    (bp, zil), il = np.median(pairs, axis=0), np.median(relaxed)
    low, high = _interval(pairs)
    return {
        "bp_ms": 1e3 * float(bp),
        "zil_ms": 1e3 * float(zil),
        "il_ms": 1e3 * float(il),
        "zil_over_bp": float(zil / bp),
        "zil_over_bp_low": low,
        "zil_over_bp_high": high,
        "il_over_bp": float(il / bp),
        "num_pairs": len(pairs),
    }


def _interval(pairs: np.ndarray) -> tuple[float, float]:
    """Where the ratio of medians lies in 95 % of resamples: the noise of this machine."""
    generator = np.random.default_rng(0)
    chosen = generator.integers(len(pairs), size=(500, min(len(pairs), 2000)))
    medians = np.median(pairs[chosen], axis=1)
    low, high = np.quantile(medians[:, 1] / medians[:, 0], (0.025, 0.975))
    return float(low), float(high)
