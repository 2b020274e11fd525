"""Levels over devices: each device holds some levels of a function, and talks to its neighbours."""

from dendrax.placement._audit import PlacementAudit as PlacementAudit
from dendrax.placement._place import place as place
from dendrax.placement._placed import Learner as Learner
from dendrax.placement._placed import Placed as Placed
from dendrax.placement._wires import Link as Link
