"""The command line: ``dendrax demo``, ``dendrax paper``, ``dendrax data``."""

from dendrax.cli._main import main as main
