"""``python -m benchmarks``: rules against JAX, IL against a loop by hand, and what calls cost."""

import argparse
import json
import pathlib

from rich.console import Console

from benchmarks import calls, first_calls, gradients, growth, inference, marked, noticing, rules
from benchmarks.handwritten import WORKLOADS
from dendrax.models import PROBLEMS


def main() -> None:
    """Parse the command line, run what it asks for, print tables, and write JSON if asked."""
    options = _options()
    console = Console()
    measured = gradients.run(console, options.models, options.seconds)
    if measured:
        console.print(gradients.table(measured))
    inferred = inference.run(console, options.workloads, options.seconds)
    if inferred:
        console.print(inference.table(inferred))
    costs = rules.run(console, options.workloads, options.seconds / 4)
    if costs:
        console.print(rules.table(costs))
    noticed = noticing.run(console, options.workloads, options.seconds / 2)
    if noticed:
        console.print(noticing.table(noticed))
    placed = marked.run(console, options.seconds, options.first_calls) if options.marked else []
    if placed:
        console.print(marked.table(placed))
    called = calls.run(console, options.seconds / 4, options.longest) if options.longest else []
    if called:
        console.print(calls.table(called))
    first = first_calls.run(console, options.first_calls) if options.first_calls else []
    if first:
        console.print(first_calls.table(first))
    grown = growth.run(console, options.largest)
    console.print(growth.table(grown))
    if options.json:
        tables = {
            "gradients": measured,
            "inference": inferred,
            "rules": costs,
            "noticing": noticed,
            "marked": placed,
            "calls": called,
            "first_calls": first,
            "growth": grown,
        }
        rows = {name: [vars(row) for row in found] for name, found in tables.items()}
        options.json.write_text(json.dumps(rows, indent=2) + "\n")


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks",
        description="Z-IL against jax.value_and_grad, IL against the same loop written by hand: "
        "jitted, interleaved, medians. Run on an idle machine.",
    )
    parser.add_argument("--models", nargs="*", default=list(gradients.MODELS), choices=PROBLEMS)
    parser.add_argument("--workloads", nargs="*", default=list(WORKLOADS), choices=list(WORKLOADS))
    parser.add_argument("--seconds", type=float, default=12.0, help="time per row (default 12)")
    parser.add_argument("--largest", type=int, default=100_000, help="largest graph to level")
    parser.add_argument(
        "--longest", type=int, default=50_000, help="longest chain to trace and lower (0: no calls)"
    )
    parser.add_argument(
        "--first-calls",
        type=int,
        default=3,
        metavar="N",
        help="first calls of each model by each library, each in a fresh process (default 3; 0: "
        "none)",
    )
    parser.add_argument(
        "--marked",
        action=argparse.BooleanOptionalAction,
        default=True,
        help="value nodes at marks, at delays and inside loops",
    )
    parser.add_argument("--json", type=pathlib.Path, help="also write the numbers to this file")
    options = parser.parse_args()
    if options.first_calls < 0:
        parser.error(f"--first-calls must be at least 0, not {options.first_calls}")
    return options


if __name__ == "__main__":
    try:
        main()
    except ChildProcessError as error:
        raise SystemExit(str(error)) from None
    except KeyboardInterrupt:
        raise SystemExit(130) from None
