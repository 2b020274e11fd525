"""Which values are value nodes: a graph of operations -> the graph of the chosen vertices.

What enters: a graph as it was traced, and a choice. What leaves: its `Quotient`, whose vertices are
the value nodes and the outputs. `unrolled` is the same with a vertex for each step of a loop.
"""

from dendrax.vertices._choose import unrolled as unrolled
from dendrax.vertices._choose import with_vertices as with_vertices
