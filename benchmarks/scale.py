"""``python -m benchmarks.scale``: GPT-2 small learns by Z-IL what it learns by backpropagation.

The same few updates of AdamW, from the same start on the same batches, by ``jax.value_and_grad``
and by two rules of dendrax, one process after the other. Every loss and every bit of every weight
must be the same; the exit code is 1 if any is not. Time and memory are reported.
"""

import argparse
import dataclasses
import json
import math
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
from rich.console import Console
from rich.table import Table

from benchmarks.gpt2 import Sizes

CONTESTANTS = {"jax": "JAX", "bp": "BP()", "zil": "ZIL()"}


@dataclass(frozen=True)
class Setup:
    """What every contestant does."""

    sizes: Sizes = field(default_factory=Sizes)
    batch: int = 2
    context: int = 512
    num_updates: int = 5
    learning_rate: float = 6e-4
    seed: int = 0
    remat: bool = False

    def to_json(self) -> str:
        """The setup as one argument of a command line."""
        return json.dumps(dataclasses.asdict(self))

    @classmethod
    def from_json(cls, text: str) -> "Setup":
        """The inverse of ``to_json``."""
        values = json.loads(text)
        return cls(**{**values, "sizes": Sizes(**values["sizes"])})


@dataclass(frozen=True)
class Report:
    """What one contestant learned, as losses and checksums, and what it took."""

    num_parameters: int
    losses: list[float]
    weights: str
    moments: str
    seconds: list[float]
    cpu_seconds: list[float]
    compile_seconds: float
    temporary_bytes: int
    argument_bytes: int
    output_bytes: int
    resident_bytes: int

    @property
    def update_seconds(self) -> float:
        """The median, without the first update."""
        return float(np.median(self.seconds[1:] or self.seconds))

    @property
    def update_cpu_seconds(self) -> float:
        """The same in seconds of all cores, which other programs disturb less."""
        return float(np.median(self.cpu_seconds[1:] or self.cpu_seconds))


def main(arguments: Sequence[str] | None = None) -> int:
    """Parse the command line, run the contestants, print the table; 1 if they differ."""
    setup = _setup(arguments)
    console, progress = Console(), Console(stderr=True, highlight=False)
    try:
        reports = {name: launch(setup, name, progress) for name in CONTESTANTS}
    except ChildProcessError as error:
        progress.print(str(error), style="red", markup=False)
        return 1
    console.print(table(setup, reports))
    found = differences(reports)
    for text in found:
        console.print(text, style="red", markup=False)
    if not found:
        console.print("Every loss, every weight and every moment of AdamW is the same, bit by bit.")
    return 1 if found else 0


def launch(setup: Setup, contestant: str, progress: Console) -> Report:
    """The report of one contestant, from a process that ends before the next one starts."""
    command = [sys.executable, "-m", "benchmarks.scale_worker", contestant, setup.to_json()]
    report = None
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            for line in process.stdout:
                message = json.loads(line)
                report = message.get("report")
                if report is None:
                    progress.print(f"{CONTESTANTS[contestant]}: {message['now']}", markup=False)
        except BaseException:
            process.kill()
            raise
    if report is None:
        raise ChildProcessError(
            f"benchmarks.scale: the process of {CONTESTANTS[contestant]} ended without a report"
            f" (exit code {process.returncode}; -9 often means that memory ran out). Try a"
            " smaller --batch or --context."
        )
    return Report(**report)


def differences(reports: Mapping[str, Report]) -> list[str]:
    """Where a contestant departs from ``jax.value_and_grad``, in words; empty if nowhere."""
    expected = reports["jax"]
    found = []
    if not all(map(math.isfinite, expected.losses)):
        found.append("The losses are not finite, so nothing can be said.")
    for name, report in reports.items():
        where = f"{CONTESTANTS[name]} differs from {CONTESTANTS['jax']}:"
        for number, (a, b) in enumerate(zip(report.losses, expected.losses, strict=True), 1):
            if a != b:
                found.append(f"{where} the loss of update {number} is {a!r}, not {b!r}.")
        for what in ("weights", "moments"):
            if getattr(report, what) != getattr(expected, what):
                found.append(f"{where} the {what} after the last update.")
    return found


def table(setup: Setup, reports: Mapping[str, Report]) -> Table:
    """The losses side by side, then what they took, with the ratio of Z-IL to JAX."""
    first = reports["jax"]
    tokens = setup.batch * setup.context
    result = Table(
        title=f"{first.num_parameters:,} parameters, float32, {setup.batch} x {setup.context} ="
        f" {tokens} tokens per update{', remat' if setup.remat else ''}"
    )
    result.add_column("", no_wrap=True)
    for title in (*CONTESTANTS.values(), "Z-IL / JAX"):
        result.add_column(title, justify="right", no_wrap=True)
    for number in range(setup.num_updates):
        losses = [str(np.float32(report.losses[number])) for report in reports.values()]
        result.add_row(f"loss {number + 1}", *losses)
    result.add_section()
    for what in ("weights", "moments"):
        result.add_row(what, *(getattr(report, what)[:12] for report in reports.values()))
    result.add_section()
    for title, attribute, unit in _COSTS:
        values = {name: getattr(report, attribute) for name, report in reports.items()}
        cells = [f"{value / unit:,.1f}" for value in values.values()]
        result.add_row(title, *cells, f"{values['zil'] / max(values['jax'], 1e-9):.3f}")
    result.caption = (
        "JAX: jax.value_and_grad; BP(), ZIL(): dendrax.value_and_grad with this rule; "
        "weights, moments (of AdamW): sha256 after the last update, its first 12 digits; update: "
        "median without the first, one process after the other, so noisy; CPU: all cores; "
        "temporary, arguments, outputs: XLA's memory analysis; resident: the process' peak, "
        "compiler included"
    )
    return result


_COSTS = (
    ("update s", "update_seconds", 1),
    ("update CPU s", "update_cpu_seconds", 1),
    ("compile s", "compile_seconds", 1),
    ("temporary MB", "temporary_bytes", 1e6),
    ("arguments MB", "argument_bytes", 1e6),
    ("outputs MB", "output_bytes", 1e6),
    ("resident MB", "resident_bytes", 1e6),
)


def _setup(arguments: Sequence[str] | None) -> Setup:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.scale",
        description="A GPT-2-small-sized Transformer (124 M parameters) learns from Moby Dick, by "
        "jax.value_and_grad and by dendrax: same losses, same weights, how much time and memory.",
    )
    sizes, setup = Sizes(), Setup()
    add = parser.add_argument
    for name, value in vars(sizes).items():
        add(f"--{name.replace('_', '-')}", type=int, default=value, metavar="N", help="%(default)s")
    add("--batch", type=int, default=setup.batch, help="texts per update (%(default)s)")
    add("--context", type=int, default=setup.context, help="tokens of each (%(default)s)")
    add("--updates", type=int, default=setup.num_updates, help="%(default)s")
    add("--seed", type=int, default=setup.seed, help="%(default)s")
    add(
        "--remat",
        action="store_true",
        help="compute each layer again on the way back (on CPUs XLA frees no memory by it, for JAX "
        "or for Z-IL)",
    )
    options = parser.parse_args(arguments)
    for name, value in vars(options).items():
        if name != "seed" and type(value) is int and value < 1:
            parser.error(f"--{name.replace('_', '-')} must be at least 1, not {value}")
    if options.context > options.num_positions:
        parser.error(f"--context {options.context} exceeds --num-positions {options.num_positions}")
    if options.d_model % options.num_heads:
        parser.error(f"--d-model {options.d_model} is no multiple of --num-heads")
    return Setup(
        sizes=Sizes(**{name: getattr(options, name) for name in vars(sizes)}),
        batch=options.batch,
        context=options.context,
        num_updates=options.updates,
        seed=options.seed,
        remat=options.remat,
    )


if __name__ == "__main__":
    try:
        raise SystemExit(main())
    except KeyboardInterrupt:
        raise SystemExit(130) from None
