"""Vertices, ports, levels, and where errors flow. No array maths.

What enters: vertices, from `dendrax.tracing`. What leaves: the same graph with levels and delays.
The forms of a graph, and why there is more than one:

- `Graph`: operations in program order, some of them a `Region` with a graph inside. Written out
  (`dendrax.tracing.flatten`) it has no regions but what the user marked, and scans with value
  nodes inside.
- `Quotient`: the graph of the value nodes, as a rule and a reader see them; a `Cone` of operations
  is the function of each.
- A view (`dendrax.inference.View`): a graph of operations and where it is cut; a rule runs on it.
- `LevelledGraph`: the level of each vertex and the delay of each edge.
- `Flow`: which outputs have an error and which inputs get a message, for given seeds.
"""

from dendrax.graph._check import checked as checked
from dendrax.graph._graph import Edge as Edge
from dendrax.graph._graph import Flow as Flow
from dendrax.graph._graph import Graph as Graph
from dendrax.graph._graph import Pictured as Pictured
from dendrax.graph._graph import Port as Port
from dendrax.graph._graph import Vertex as Vertex
from dendrax.graph._graph import flow_of as flow_of
from dendrax.graph._graph import identity as identity
from dendrax.graph._graph import reaches as reaches
from dendrax.graph._graph import with_unique_names as with_unique_names
from dendrax.graph._level import LevelledGraph as LevelledGraph
from dendrax.graph._level import contract_graph as contract_graph
from dendrax.graph._level import level_graph as level_graph
from dendrax.graph._live import EVERYWHERE as EVERYWHERE
from dendrax.graph._live import Liveness as Liveness
from dendrax.graph._live import liveness as liveness
from dendrax.graph._quotient import Cone as Cone
from dendrax.graph._quotient import Quotient as Quotient
from dendrax.graph._quotient import asked_step as asked_step
from dendrax.graph._quotient import moving_vertices as moving_vertices
from dendrax.graph._quotient import operations_of as operations_of
from dendrax.graph._quotient import quotient as quotient
from dendrax.graph._region import Jit as Jit
from dendrax.graph._region import Region as Region
from dendrax.graph._region import Remat as Remat
from dendrax.graph._region import Scan as Scan
from dendrax.graph._region import is_marked as is_marked
from dendrax.graph._region import is_stacked as is_stacked
