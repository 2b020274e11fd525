"""dendrax: predictive coding for any JAX function."""

from dendrax import draw as draw
from dendrax._api import grad as grad
from dendrax._api import level as level
from dendrax._api import run as run
from dendrax._api import trace as trace
from dendrax._api import value_and_grad as value_and_grad
from dendrax._api import vjp as vjp
from dendrax._gradient import Result as Result
from dendrax._graph import Graph as Graph
from dendrax._graph import Vertex as Vertex
from dendrax._level import LevelledGraph as LevelledGraph
from dendrax._mark import vertex as vertex
from dendrax.certify import Audit as Audit
from dendrax.certify import Certificate as Certificate
from dendrax.certify import audit as audit
from dendrax.certify import check as check
from dendrax.draw import explore as explore
from dendrax.rules import BP as BP
from dendrax.rules import IL as IL
from dendrax.rules import ZIL as ZIL
from dendrax.rules import ErrorPC as ErrorPC
from dendrax.rules import FixedPrediction as FixedPrediction
from dendrax.rules import IncrementalPC as IncrementalPC

__version__ = "0.1.0"
