"""Table 2: the time of one weight update by BP, Z-IL and IL, in one process.

BP and Z-IL take turns; IL, which takes up to a hundred times as long, follows. BP is jitted
`jax.grad`, not ours. An update is the gradient and a step of gradient descent. Only ratios mean
anything: the paper's milliseconds are those of two graphics cards.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import jax
import numpy as np

import dendrax
from dendrax import IL, ZIL
from dendrax.models import squared_error_loss
from dendrax.paper._store import Cell, Work
from dendrax.paper._subjects import Batch, Subject

MIN_PAIRS = 15
MIN_RELAXED = 2
BLOCKS = 50
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
        "il": repr(il),
        "counts": [MIN_PAIRS, MIN_RELAXED],
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
                work.on_progress(0.1 * len(updates), f"compiling {rule}")
                updates[rule] = _compiled(transform, subject.learning_rate, batch)
            return _measured(updates, seconds, work)

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


def _measured(updates: Mapping[str, Update], seconds: float, work: Work) -> dict[str, Any]:
    """BP and Z-IL in turns, each first as often as second; then IL, which takes long, alone."""
    pairs, order = [], ("bp", "zil")
    start = time.perf_counter()
    while (spent := time.perf_counter() - start) < seconds or len(pairs) < MIN_PAIRS:
        work.on_progress(0.3 + 0.4 * min(1.0, spent / seconds), "BP and Z-IL in turns")
        took = {rule: updates[rule]() for rule in order}
        pairs.append((took["bp"], took["zil"]))
        order = order[::-1]
    relaxed = []
    start = time.perf_counter()
    while (spent := time.perf_counter() - start) < seconds or len(relaxed) < MIN_RELAXED:
        work.on_progress(0.7 + 0.3 * min(1.0, spent / seconds), "IL")
        relaxed.append(updates["il"]())
    return _medians(np.array(pairs), np.array(relaxed))


def _medians(pairs: np.ndarray, relaxed: np.ndarray) -> dict[str, Any]:
    (bp, zil), il = np.median(pairs, axis=0), np.median(relaxed)
    ratios = block_ratios(pairs)
    return {
        "bp_ms": 1e3 * float(bp),
        "zil_ms": 1e3 * float(zil),
        "il_ms": 1e3 * float(il),
        "zil_over_bp": float(np.median(ratios)),
        "block_ratios": ratios.tolist(),
        "il_over_bp": float(il / bp),
        "num_pairs": len(pairs),
        "num_il": len(relaxed),
    }


def block_ratios(pairs: np.ndarray) -> np.ndarray:
    """The ratio of medians in each of at most fifty stretches of time.

    Machines drift: neighbouring measurements are alike, stretches of them nearly independent.
    """
    blocks = np.array_split(pairs, min(len(pairs), BLOCKS))
    return np.array([np.median(b[:, 1]) / np.median(b[:, 0]) for b in blocks])


def interval(networks: Sequence[Sequence[float]]) -> tuple[float, float]:
    """Where the mean ratio of some networks lies in 95 % of resamples of their stretches."""
    generator = np.random.default_rng(0)
    means = np.mean([_resampled(np.array(ratios), generator) for ratios in networks], axis=0)
    low, high = np.quantile(means, (0.025, 0.975))
    return float(low), float(high)


def _resampled(ratios: np.ndarray, generator: np.random.Generator) -> np.ndarray:
    chosen = generator.integers(len(ratios), size=(2000, len(ratios)))
    return np.median(ratios[chosen], axis=1)
