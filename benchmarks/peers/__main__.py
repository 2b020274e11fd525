"""``python -m benchmarks.peers``: dendrax, the loop by hand, and other libraries, side by side."""

import argparse
import contextlib
import json
import tempfile
from collections.abc import Sequence
from pathlib import Path

from rich.console import Console
from rich.progress import Progress
from rich.table import Table

from benchmarks.handwritten import WORKLOADS
from benchmarks.peers.measure import CONTESTANTS, UNIT, Contestant, Row, Team, measure


def main() -> None:
    """Parse the command line, measure, print a table per T, and write JSON if asked."""
    options = _options()
    contestants = [c for c in CONTESTANTS if c is UNIT or _wanted(c, options.only)]
    console = Console()
    rows = run(console, contestants, options)
    for num_steps in options.num_steps:
        console.print(table([row for row in rows if row.num_steps == num_steps], num_steps))
    for row in rows:
        if row.error is not None:
            error = row.error.strip().split("\n")[0]
            where = f"{row.name} ({row.workload}, T = {row.num_steps})"
            console.print(f"{where}: {error}", style="red", markup=False)
    if options.json:
        options.json.write_text(json.dumps([vars(row) for row in rows], indent=2) + "\n")


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.peers",
        description="One update of inference learning in dendrax, by hand in JAX, and in other "
        "libraries, as multiples of jitted backpropagation. Run on an idle machine.",
    )
    add = parser.add_argument
    add("--workload", nargs="+", choices=WORKLOADS, default=list(WORKLOADS))
    add("--num-steps", nargs="+", type=int, default=[20, 100], metavar="T")
    add("--repeat", type=int, default=9, help="turns of each contestant (default 9)")
    add("--only", nargs="+", default=[], help="contestants whose name contains one of these")
    add("--environments", type=Path, default=Path(".venv-peers"), help="the peers' environments")
    add("--patience", type=float, default=900.0, help="seconds to wait for an answer")
    add("--json", type=Path, help="also write the numbers to this file")
    return parser.parse_args()


def _wanted(contestant: Contestant, only: Sequence[str]) -> bool:
    return not only or any(part.lower() in contestant.name.lower() for part in only)


def run(
    console: Console, contestants: Sequence[Contestant], options: argparse.Namespace
) -> list[Row]:
    """The rows of every workload and every T. The workers end with it, however it ends."""
    jobs = [(workload, T) for T in options.num_steps for workload in options.workload]
    rows: list[Row] = []
    with (
        tempfile.TemporaryDirectory() as folder,
        contextlib.closing(Team(options.environments, options.patience)) as team,
        Progress(console=console, transient=True) as progress,
    ):
        pieces = len(jobs) * len(contestants) * (options.repeat + 1)
        task = progress.add_task("starting", total=pieces)
        for workload, num_steps in jobs:
            rows += measure(
                team,
                contestants,
                workload,
                num_steps,
                options.repeat,
                Path(folder),
                lambda text: progress.update(task, advance=1, description=text),
            )
    return rows


def table(rows: Sequence[Row], num_steps: int) -> Table:
    """The rows of one T, a section per workload."""
    result = Table(title=f"T = {num_steps}, float32")
    for title in ("workload", "update"):
        result.add_column(title, no_wrap=True)
    for title in ("time / BP", "ms", "compile s", "distance"):
        result.add_column(title, justify="right", min_width=max(map(len, title.split())))
    for row, following in zip(rows, [*rows[1:], None], strict=True):
        last = following is None or following.workload != row.workload
        result.add_row(row.workload, row.name, *_cells(row), end_section=last)
    result.caption = (
        "time: median over interleaved runs, as a multiple of jitted jax.value_and_grad; "
        "compile: first run less second; distance: of the gradient to that by hand (for Z-IL to "
        "BP), relative to its norm"
    )
    return result


def _cells(row: Row) -> list[str]:
    if row.error is not None:
        return ["[red]failed", "", "", ""]
    return [
        _number(row.ratio),
        _number(row.median and 1e3 * row.median),
        _number(row.compile_seconds),
        "" if row.distance is None else f"{row.distance:.0e}" if row.distance else "0",
    ]


def _number(value: float | None) -> str:
    """Two decimals; none where the number is large, so that a table fits 80 columns."""
    return "" if value is None else f"{value:.2f}" if value < 1000 else f"{value:.0f}"


if __name__ == "__main__":
    try:
        main()
    except KeyboardInterrupt:
        raise SystemExit(130) from None
