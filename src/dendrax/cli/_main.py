"""The commands and their help."""

import sys
from typing import Annotated

try:
    import typer
except ModuleNotFoundError as missing:  # the core does not need it
    sys.exit(f"dendrax: {missing}. The command line is an extra: pip install 'dendrax[cli,models]'")

from dendrax.cli import _demo

app = typer.Typer(
    add_completion=False, no_args_is_help=True, help="Predictive coding for any JAX function."
)


@app.callback()
def _commands() -> None:
    """Predictive coding for any JAX function."""


@app.command()
def demo(
    seconds: Annotated[float, typer.Option(help="How long to time each network.", min=0)] = 2.0,
) -> None:
    """Six networks: their levels and delays, Z-IL with and without levels, and its speed.

    Each network is an unmodified JAX function. Divergence is the Euclidean distance of one weight
    update to jax.grad's.
    """
    try:
        _demo.run(seconds)
    except KeyboardInterrupt:
        sys.exit(130)


def main() -> None:
    """The entry point of the ``dendrax`` command."""
    app()
