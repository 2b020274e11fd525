"""Which values are value nodes: a graph of operations -> a graph of the chosen vertices.

What enters: a flat graph and a choice. What leaves: the graph whose vertices are the value nodes
and the outputs, each a `Group` of operations.
"""

from dendrax.vertices._choose import Group as Group
from dendrax.vertices._choose import moving_vertices as moving_vertices
from dendrax.vertices._choose import with_vertices as with_vertices
