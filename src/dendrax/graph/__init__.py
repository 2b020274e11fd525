"""Vertices, ports, levels, and where errors flow. No array maths.

What enters: vertices, from `dendrax.tracing`. What leaves: the same graph with levels and delays.
The forms of a graph, and why there is more than one:

- `Graph`: vertices in program order, some of them a `Region` with a graph inside. Written out
  (`dendrax.tracing.flatten`) it has no regions but those that the user marked.
- `Graph` with a `Detail`: vertices are groups of operations, as a rule and a reader see them.
- `LevelledGraph`: the level of each vertex and the delay of each edge.
- `Flow`: which outputs have an error and which inputs get a message, for given seeds.
"""

from dendrax.graph._check import checked as checked
from dendrax.graph._graph import Detail as Detail
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
from dendrax.graph._region import Jit as Jit
from dendrax.graph._region import Region as Region
from dendrax.graph._region import Remat as Remat
from dendrax.graph._region import Scan as Scan
from dendrax.graph._region import is_marked as is_marked
from dendrax.graph._region import reaches_inputs as reaches_inputs
