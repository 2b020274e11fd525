"""``dendrax train``: a run, what it says on the way, and how it ends."""

from __future__ import annotations

import contextlib
import pathlib
import sys
import warnings
from collections.abc import Iterator, Mapping
from typing import Any, NoReturn

import jax
from rich.console import Console
from rich.table import Table

from dendrax import train
from dendrax.cli._speaking import say, speaking
from dendrax.draw._structure import rule_text
from dendrax.named import find_rule
from dendrax.support import complain, speaking_as


def run(
    file: pathlib.Path | None,
    named: Mapping[str, str | None],
    settings: Mapping[str, Any],
    *,
    out: pathlib.Path,
    resume: bool,
    peers: Mapping[str, Any],
) -> None:
    """Connect, train, and say what came of it."""
    console = Console(stderr=True, highlight=False)
    with speaking_as("dendrax train"), _speaking(console):
        if peers:
            train.connect(**peers)
        chosen = _plan(file, named, settings, out if resume else None)
        first = jax.process_index() == 0
        watch = train.bar(console, title=_introduced(chosen, out)) if first else None
        found = chosen.fit(out, resume=resume, watch=watch)
        if first:
            _finish(console, found, out)
    if found.reason == "interrupted":
        sys.exit(train.INTERRUPTED)


def _plan(
    file: pathlib.Path | None,
    named: Mapping[str, str | None],
    settings: Mapping[str, Any],
    resumed: pathlib.Path | None,
) -> train.Plan:
    """From the file, or from the run that goes on; the command line overrides both."""
    said = {name: value for name, value in named.items() if value is not None}
    source: Any = file
    if file is None and resumed is not None:
        source = train.plan_of_run(resumed, said)
        if not source and not said:
            raise complain(
                FileNotFoundError,
                f"there is no run in {resumed} to go on with.",
                remedy="Name the folder of a run, or what is to begin there: a plan, or --model.",
            )
    counts = {name: value for name, value in settings.items() if value is not None}
    return train.plan(source, **said, train=counts)


def _introduced(chosen: train.Plan, out: pathlib.Path) -> str:
    devices = f"{jax.device_count()} device{'s' * (jax.device_count() > 1)}"
    if jax.process_count() > 1:
        devices += f" in {jax.process_count()} processes"
    rule = rule_text(find_rule(chosen.rule))
    return f"{chosen.model.name} learns {chosen.data.name} by {rule} on {devices}, in {out}"


def _finish(console: Console, found: train.Fitted, out: pathlib.Path) -> None:
    if found.history:
        console.print(_table(found))
    with contextlib.suppress(ImportError):  # plots are an extra
        if found.history:
            train.curves(found.history, out / train.CURVES)
            say(console, f"The curves: {out / train.CURVES}")
    best = f", the best in {out / 'best' / str(found.best_step)}" if found.best_step else ""
    say(console, f"The checkpoints: {out / 'last'}{best}")
    if found.skipped:
        say(console, f"{found.skipped} updates were not finite, and were left out.", "yellow")
    if found.reason == "patience":
        say(console, f"Stopped early, after {found.step} updates: it did not get better.")
    if found.reason == "interrupted":
        say(
            console,
            f"Stopped after {found.step} updates, and saved. dendrax train --resume --out {out} "
            "goes on from there.",
            "yellow",
        )


def _table(found: train.Fitted, most: int = 12) -> Table:
    """The evaluations, or, if there are none, the losses; of many the last, of names the first."""
    lines = [line for line in found.history if any(key.startswith("test_") for key in line)]
    lines = (lines or found.history)[-most:]
    hidden = ("seconds", "updates_per_second", "epoch")
    columns = [name for name in lines[-1] if name not in hidden][:most]
    table = Table()
    for name in columns:
        table.add_column(name.replace("_", " "), justify="right")
    for line in lines:
        row = [line.get(name) for name in columns]
        table.add_row(*("" if value is None else f"{value:.6g}" for value in row))
    return table


@contextlib.contextmanager
def _speaking(console: Console) -> Iterator[None]:
    """Warnings in a line, and a second Ctrl-C in one, too."""
    with warnings.catch_warnings():
        warnings.showwarning = lambda text, *_: say(console, str(text), "yellow")
        try:
            with speaking(console, leave=_leave):
                yield
        except KeyboardInterrupt:
            _leave(console, "Stopped at once. What was saved before is whole.", train.INTERRUPTED)


def _leave(console: Console, text: str, code: int = 1) -> NoReturn:
    say(console, text, "red")
    if train.has_peers() or code == train.INTERRUPTED:
        # The usual way out waits for all processes, and the others may be dead; and for threads
        # that are in the middle of a checkpoint.
        train.leave(code)
    sys.exit(code)
