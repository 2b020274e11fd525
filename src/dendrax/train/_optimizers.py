"""Optimizers and schedules by name."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import optax

from dendrax.named import Named, call_named, check_settings, find_named
from dendrax.rules import Rule
from dendrax.support import complain, integer, positive, shortened

OPTIMIZERS: dict[str, Callable[..., Any]] = {
    "sgd": optax.sgd,
    "adam": optax.adam,
    "adamw": optax.adamw,
    "nadam": optax.nadam,
    "adagrad": optax.adagrad,
    "rmsprop": optax.rmsprop,
    "lion": optax.lion,
    "lamb": optax.lamb,
}
RATES = {"sgd": 0.1, "lion": 1e-4}
USUAL_RATE = 1e-3


def _constant(rate: float, total: int) -> Any:
    return optax.constant_schedule(rate)


def _cosine(rate: float, total: int, warmup: int = 0, end: float = 0.0) -> Any:
    return optax.warmup_cosine_decay_schedule(
        rate if not warmup else 0.0, rate, warmup, max(total, warmup + 1), end
    )


def _linear(rate: float, total: int, warmup: int = 0, end: float = 0.0) -> Any:
    down = optax.linear_schedule(rate, end, max(total - warmup, 1))
    up = optax.linear_schedule(0.0, rate, max(warmup, 1))
    return down if not warmup else optax.join_schedules([up, down], [warmup])


def _exponential(rate: float, total: int, half_life: float = 1000) -> Any:
    updates: Any = positive("half_life", half_life)  # half of one is possible, too
    return optax.exponential_decay(rate, updates, 0.5)


SCHEDULES: dict[str, Callable[..., Any]] = {
    "constant": _constant,
    "cosine": _cosine,
    "linear": _linear,
    "exponential": _exponential,
}


def find_optimizer(named: Named | None, schedule: Named, rule: Rule, total: int) -> Any:
    """An optimizer for so many updates by a rule.

    Beside its own settings an optimizer has ``clip``, the largest norm of the whole gradient, and
    ``accumulate``, how many gradients make one update.
    """
    if rule.moves_parameters:
        return _for_incremental(named, rule)
    named = Named("optimizer", "adam") if named is None else named
    function = find_named(named, OPTIMIZERS)
    check_settings(named, function, ("clip", "accumulate"))
    settings = dict(named.settings)
    clip, accumulate = settings.pop("clip", None), settings.pop("accumulate", None)
    rate = settings.pop("learning_rate", RATES.get(named.name, USUAL_RATE))
    rate = positive("optimizer learning_rate", rate)
    rates = call_named(schedule, find_named(schedule, SCHEDULES), rate=rate, total=total)
    chosen = call_named(Named("optimizer", named.name, settings), function, learning_rate=rates)
    if named.name in OPTIMIZERS:
        _check_works(named, chosen)
    if clip is not None:
        clipped = optax.clip_by_global_norm(positive("optimizer clip", clip, finite=False))
        chosen = optax.chain(clipped, chosen)
    if accumulate is not None:
        chosen = optax.MultiSteps(chosen, integer("optimizer accumulate", accumulate))
    return chosen


def _for_incremental(named: Named | None, rule: Rule) -> Any:
    """Its weights have moved during inference, by its own rate: SGD repeats just that."""
    if named is not None:
        raise complain(
            ValueError,
            f"{type(rule).__name__} moves the weights itself, so that the optimizer {named} has no "
            "say.",
            remedy="Leave the optimizer out; the rule's own learning_rate counts.",
        )
    return optax.sgd(rule.learning_rate)


def _check_works(named: Named, optimizer: Any) -> None:
    """Optax looks at its settings only when it makes an update; nothing is computed here."""
    weight = jax.ShapeDtypeStruct((2,), jnp.float32)
    try:
        jax.eval_shape(lambda w: optimizer.update(w, optimizer.init(w), w), weight)
    except Exception as problem:
        reason = (str(problem).splitlines() or [type(problem).__name__])[0].rstrip(".")
        raise complain(
            ValueError,
            f"optimizer {shortened(str(named))} makes no update: {reason}.",
            remedy="Look at its settings.",
        ) from problem
