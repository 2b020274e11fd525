"""The command line: ``dendrax demo``."""

from dendrax.cli._main import main as main
