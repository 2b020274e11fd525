"""A run in words: model, data, rule, optimizer, schedule and settings, by a TOML file or a caller.

```toml
model = "mlp(hidden_sizes=[256, 256])"
data = "fashion_mnist"
rule = "IL(num_steps=20, gamma=0.02)"

[optimizer]
name = "adamw"
learning_rate = 0.001

[schedule]
name = "cosine"
warmup = 100

[train]
epochs = 10
batch_size = 100
```
"""

from __future__ import annotations

import dataclasses
import os
import pathlib
import tomllib
from collections.abc import Callable, Collection, Mapping
from typing import Any

import jax

from dendrax._settings import check_vertices
from dendrax.named import (
    Named,
    check_keys,
    check_settings,
    digest_of,
    find_named,
    find_rule,
    read_named,
    rules,
)
from dendrax.support import (
    Vertices,
    complain,
    expanded,
    in_short,
    is_ours,
    is_special,
    public,
    shortened,
)
from dendrax.train._catalogue import (
    DATA,
    MODELS,
    check_update,
    find_data,
    find_model,
    loss_of,
    measure_of,
)
from dendrax.train._engine import Moment
from dendrax.train._fit import Fitted, fit
from dendrax.train._folder import CODE, as_of_now, read_about
from dendrax.train._optimizers import OPTIMIZERS, SCHEDULES, find_optimizer
from dendrax.train._samples import batches_per_epoch
from dendrax.train._settings import Settings

NAMED = ("model", "data", "rule", "optimizer", "schedule")
SECTIONS = (*NAMED, "train", "vertices")
MAX_PLAN_BYTES = 20_000  # what is nested a thousand times takes Python minutes to read
USUAL = {"model": "mlp", "data": "fashion_mnist", "rule": "ZIL", "schedule": "constant"}


@dataclasses.dataclass(frozen=True)
class Plan:
    """A run that can be written in a file. Make one with `dendrax.train.plan`."""

    model: Named
    data: Named
    rule: Named
    optimizer: Named | None
    schedule: Named
    settings: Settings
    vertices: Vertices | None = None

    @public("dendrax.train.Plan.fit")
    def fit(
        self,
        folder: str | os.PathLike[str] | None = None,
        *,
        resume: bool = False,
        watch: Callable[[Moment], None] | None = None,
    ) -> Fitted:
        """Do it; see `dendrax.train.fit`."""
        rule = find_rule(self.rule)
        corpus = find_data(self.data)
        per_epoch = batches_per_epoch(corpus.train, self.settings.batch_size)
        total = self.settings.total(per_epoch)
        optimizer = find_optimizer(self.optimizer, self.schedule, rule, total)
        model = find_model(self.model, corpus, jax.random.key(self.settings.seed))
        check_update(model, corpus, self.settings.batch_size)
        return fit(
            model,
            loss_of(corpus),
            corpus.train,
            optimizer=optimizer,
            rule=rule,
            vertices=self.vertices,
            test=corpus.test,
            measure=measure_of(corpus),
            settings=self.settings,
            folder=folder,
            resume=resume,
            about=self.about(),
            watch=watch,
        )

    def about(self) -> dict[str, Any]:
        """What the run depends on beside its settings, in words."""
        named = {name: getattr(self, name) for name in NAMED}
        code = {name: value and digest_of(value) for name, value in named.items()}
        words = {name: value and str(value) for name, value in named.items() if name != "rule"}
        return {**words, CODE: {name: digest for name, digest in code.items() if digest}}


@public("dendrax.train.plan")
def plan(source: str | os.PathLike[str] | Mapping[str, Any] | None = None, **more: Any) -> Plan:
    """A run from a TOML file, or from a dictionary like one.

    **Arguments:**

    - `source`: the path of a TOML file, or a dictionary, with `model`, `data`, `rule`, `optimizer`
      and `schedule`, each a name or a table with `name` and settings; `vertices`; and `train`, the
      arguments of `dendrax.train.Settings`. A file names code of your own by a file beside it,
      `my_model.py:build`.
    - `more`: the same by keyword; it overrides what is in the file, and may name any code, also
      `module:function`.

    **Returns:** a `Plan`; its `fit(folder)` does it.

    !!! example

        ```python
        from dendrax import train

        plan = train.plan(model="mlp(hidden_sizes=[32])", rule="IL", train={"steps": 20})
        found = plan.fit()
        found.step  # -> 20
        print(found.history[-1]["test_accuracy"])
        ```
    """
    read, beside = _read(source)
    written = {**read, **{name: value for name, value in more.items() if name != "train"}}
    check_keys("the plan", [*written, *more], SECTIONS)
    train = _newer(
        _table("train", written.get("train", {})), _table("train", more.get("train", {}))
    )
    names = [entry.name for entry in dataclasses.fields(Settings)]
    check_keys("[train]", train, names)
    chosen = {**USUAL, **{name: value for name, value in written.items() if name in NAMED}}
    named: Any = {
        name: read_named(name, value, None if name in more else beside)
        for name, value in chosen.items()
    }
    made = Plan(
        **{"optimizer": None, **named}, settings=Settings(**train), vertices=written.get("vertices")
    )
    _check_names(made)
    return made


def _check_names(chosen: Plan) -> None:
    """What does not exist, or has no such setting, is found before the data are read."""
    find_rule(chosen.rule)
    if chosen.vertices is not None:
        check_vertices("vertices", chosen.vertices)
    for section, known in _shipped().items():
        named = getattr(chosen, section)
        if section != "rule" and named is not None and ":" not in named.name:
            more = ("clip", "accumulate") if section == "optimizer" else ()
            check_settings(named, find_named(named, known), more, given=_GIVEN.get(section, ()))


_GIVEN = {"model": ("corpus", "key"), "schedule": ("rate", "total")}  # not by the user


def _newer(old: Mapping[str, Any], new: Mapping[str, Any]) -> dict[str, Any]:
    """Both, of which the new overrides the old. Epochs and steps say the same in two ways."""
    kept = {name: value for name, value in old.items() if name != "steps" or "epochs" not in new}
    return {**kept, **new}


def plan_of_run(folder: str | os.PathLike[str], said: Collection[str] = ()) -> dict[str, Any]:
    """The plan of the run in a folder, to go on with it; empty if there is none yet.

    A folder may come from anybody: it names what dendrax ships, or it is refused. What the user has
    ``said`` anew (``model``, ``data``, ...) is left out.
    """
    about = read_about(expanded("folder", folder))
    if about is None:
        return {}
    about = as_of_now(about)
    if missing := [name for name in NAMED if name not in about]:
        raise complain(
            ValueError,
            f"the run in {folder} was not made from a plan: it has no {missing[0]}.",
            remedy="Go on with it by dendrax.train.fit(..., resume=True), as it was begun.",
        )
    words = {name: about[name] for name in (*NAMED, "vertices") if about.get(name) is not None}
    words = {name: value for name, value in words.items() if name not in said}
    for name in (name for name in NAMED if name in words):
        _check_shipped(read_named(name, words[name]), folder)
    names = [entry.name for entry in dataclasses.fields(Settings)]
    return {**words, "train": {name: about[name] for name in names if name in about}}


def _check_shipped(named: Named, folder: str | os.PathLike[str]) -> None:
    if named.name not in _shipped()[named.section]:
        raise complain(
            ValueError,
            f"the run in {folder} has the {named.section} {shortened(named.name)!r}, which dendrax "
            "does not ship, and code that a folder names is not run.",
            remedy=f"If it is yours, name it as the run was begun: --{named.section} "
            "file.py:function, or the file of the plan.",
        )


def _shipped() -> dict[str, Mapping[str, Callable[..., Any]]]:
    return {
        "model": MODELS,
        "data": DATA,
        "rule": rules(),
        "optimizer": OPTIMIZERS,
        "schedule": SCHEDULES,
    }


def _read(
    source: str | os.PathLike[str] | Mapping[str, Any] | None,
) -> tuple[dict[str, Any], pathlib.Path | None]:
    """What is written, and the folder of the file in which it is."""
    if source is None or isinstance(source, Mapping):
        return dict(source or {}), None
    path = expanded("source", source)
    try:
        size = path.stat().st_size
        if is_special(path) or size > MAX_PLAN_BYTES:
            what = f"has {size:,} bytes" if size else "is a pipe or a device, not a file"
            raise complain(
                ValueError,
                f"{path} {what}.",
                remedy=f"A plan has at most {MAX_PLAN_BYTES:,} bytes.",
            )
        return tomllib.loads(path.read_text("utf-8")), path.absolute().parent
    except OSError as problem:
        raise complain(
            type(problem), f"cannot read {path}: {problem.strerror or problem}."
        ) from problem
    except RecursionError:
        raise complain(ValueError, f"{path} is nested too deeply for a plan.") from None
    except ValueError as problem:  # not UTF-8, not TOML, or a number too long for Python
        if is_ours(problem):
            raise
        raise complain(ValueError, f"{path} is not TOML: {problem}.") from problem


def _table(name: str, value: Any) -> Mapping[str, Any]:
    if not isinstance(value, Mapping):
        raise complain(ValueError, f"[{name}] must be a table of settings, got {in_short(value)}.")
    return value
