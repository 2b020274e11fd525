"""The command line: ``dendrax demo``, ``paper``, ``data``, ``explore`` and ``show``."""

import sys


def main() -> None:
    """The entry point of the ``dendrax`` command."""
    try:
        from dendrax.cli._main import app

        app()
    except KeyboardInterrupt:
        sys.exit(130)
