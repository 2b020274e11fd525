"""Print which value nodes `"layer"` and modules' names choose for networks of three libraries.

python tools/value_nodes.py [words in the name of a network]
"""

from __future__ import annotations

import sys
from pathlib import Path

from rich.console import Console
from rich.table import Table

import dendrax

sys.path.insert(0, str(Path(__file__).parent.parent))

from tests.cases.networks import NETWORKS


def edges_per_node(graph: dendrax.Graph) -> int:
    """How many value nodes a vertex reads, at the most."""
    nodes = set(graph.nodes)
    return max(sum(v in nodes for v in graph.inputs(user)) for user in graph.active)


def main(words: list[str]) -> None:
    table = Table("network", "choice", "value nodes", "most edges", "which", show_lines=True)
    for name, network in NETWORKS.items():
        if not all(word.lower() in name.lower() for word in words):
            continue
        fun, args = network.make()
        for choice in ("layer", network.modules):
            graph = dendrax.trace(fun, *args, vertices=choice)
            names = [f"{v.name} {list(v.shape)}" for v in graph.nodes]
            shown = [name.replace("[", r"\[") for name in names]
            listed = ", ".join(shown[:6]) + f", ... ({len(shown)})" * (len(shown) > 6)
            said = choice if isinstance(choice, str) else ", ".join(choice)
            table.add_row(name, said, str(len(names)), str(edges_per_node(graph)), listed)
    Console().print(table)


if __name__ == "__main__":
    main(sys.argv[1:])
