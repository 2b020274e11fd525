"""How long, how often, how many: the settings of a run that are plain values."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from dendrax.support import (
    MODES,
    NON_FINITE_ACTIONS,
    SHARDINGS,
    Mode,
    NonFiniteAction,
    Sharding,
    complain,
    integer,
    one_of,
    public,
    seed_number,
)


@dataclass(frozen=True)
class Settings:
    """How a run goes. Everything is counted in updates, so that a run can be repeated exactly.

    **Arguments:**

    - `epochs`: passes over the data. `steps`, if given, is the number of updates instead.
    - `batch_size`: samples in an update, over all devices and processes together.
    - `seed`: of the order of the samples, and of the keys that a loss may ask for.
    - `evaluate_every`, `checkpoint_every`: updates between evaluations and between checkpoints, by
      default an epoch. `log_every`: between lines with the loss alone, by default a tenth of that.
    - `keep`: how many of the last checkpoints are kept; the best one is kept in any case.
    - `patience`: stop after so many evaluations without a better one; by default never.
    - `monitor`, `mode`: what is better: the measure, and whether `"min"` or `"max"` of it. By
      default the loss of the evaluation (without one, of the training).
    - `nonfinite`: what happens at a loss or gradient that is not finite. `"stop"`: the run stops,
      and says which vertex was the first. `"skip"`: that update is left out. `"allow"`: the
      optimizer may deal with it (`optax.apply_if_finite` does).
    - `sharding`: parameters and the optimizer's state on every device (`"replicated"`), or spread
      over them (`"fsdp"`); or the model itself by levels (`"levels"`, see `dendrax.placement`):
      each device has its own vertices, parameters and optimizer.
    - `micro_batches`: with `sharding="levels"`, the pieces of a batch that follow each other
      through the devices.
    - `chunks`: compute the gradient in so many pieces of the batch, one after the other on each
      device, and add them up always in the same order: the result does then not depend on the
      number of devices, and needs less memory. To a rule that relaxes each piece is a batch of its
      own: with another `batch` than `"mean"` its size weighs the loss against its errors.
    """

    epochs: int = 5
    steps: int | None = None
    batch_size: int = 64
    seed: int = 0
    evaluate_every: int | None = None
    checkpoint_every: int | None = None
    log_every: int | None = None
    keep: int = 3
    patience: int | None = None
    monitor: str | None = None
    mode: Mode = "min"
    nonfinite: NonFiniteAction = "stop"
    sharding: Sharding = "replicated"
    chunks: int | None = None
    micro_batches: int = 1

    @public("dendrax.train.Settings")
    def __post_init__(self) -> None:
        for name in ("epochs", "batch_size", "keep", "micro_batches"):
            object.__setattr__(self, name, integer(name, getattr(self, name)))
        for name in _OPTIONAL:
            if getattr(self, name) is not None:
                object.__setattr__(self, name, integer(name, getattr(self, name)))
        object.__setattr__(self, "seed", seed_number(self.seed))
        one_of("mode", self.mode, MODES)
        one_of("nonfinite", self.nonfinite, NON_FINITE_ACTIONS)
        one_of("sharding", self.sharding, SHARDINGS)
        if self.mode == "max" and self.monitor is None:
            raise complain(
                ValueError,
                "mode='max' without a monitor would keep the model with the largest loss.",
                remedy="Say which measure is to be large, such as monitor='test_accuracy'.",
            )
        if self.micro_batches > 1 and self.sharding != "levels":
            raise complain(
                ValueError,
                f"micro_batches={self.micro_batches} are for sharding='levels'.",
                remedy="For less memory otherwise, use chunks.",
            )

    def total(self, per_epoch: int) -> int:
        """The number of updates."""
        return self.epochs * per_epoch if self.steps is None else self.steps

    def due(self, what: str, step: int, per_epoch: int) -> bool:
        """Whether something is to be done after so many updates."""
        usual = max(1, per_epoch // 10) if what == "log" else per_epoch
        every: Any = getattr(self, f"{what}_every")
        return step % (every or usual) == 0


_OPTIONAL = ("steps", "evaluate_every", "checkpoint_every", "log_every", "patience", "chunks")
