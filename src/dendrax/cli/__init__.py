"""The command line: one function for each command of ``dendrax``, and their help."""

import sys


def main() -> None:
    """The entry point of the ``dendrax`` command."""
    try:
        from dendrax.cli._main import app

        app()
    except KeyboardInterrupt:
        sys.exit(130)
