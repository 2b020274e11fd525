"""Rules at work on a graph: what holds it, the loop over time, what was recorded.

What enters: a graph, a rule, the values of the leaves, a `Clamp`. What leaves: a `Result`.

- `Network`: the graph as predictive coding sees it, with numbers.
- `Relaxation`: a rule that moves value nodes over time. `Timed`: one whose parameters learn when an
  error reaches them, as a wave or by the full `Dynamics`.
- `arrivals`: the errors of a wave as it arrives, without the dynamics.
"""

from dendrax.inference._arrivals import arrivals as arrivals
from dendrax.inference._arrivals import size as size
from dendrax.inference._dynamics import Dynamics as Dynamics
from dendrax.inference._dynamics import Init as Init
from dendrax.inference._dynamics import Schedule as Schedule
from dendrax.inference._equations import add_messages as add_messages
from dendrax.inference._equations import prediction_error as prediction_error
from dendrax.inference._equations import value_change as value_change
from dendrax.inference._network import Clamp as Clamp
from dendrax.inference._network import Network as Network
from dendrax.inference._network import Pullbacks as Pullbacks
from dendrax.inference._network import Values as Values
from dendrax.inference._network import Wiring as Wiring
from dendrax.inference._network import course_to as course_to
from dendrax.inference._network import evaluate as evaluate
from dendrax.inference._network import wire as wire
from dendrax.inference._records import Record as Record
from dendrax.inference._relax import Relaxation as Relaxation
from dendrax.inference._relax import Step as Step
from dendrax.inference._relax import View as View
from dendrax.inference._rule import Rule as Rule
from dendrax.inference._run import Result as Result
from dendrax.inference._run import as_flat as as_flat
from dendrax.inference._run import clamp_for as clamp_for
from dendrax.inference._run import flat_target as flat_target
from dendrax.inference._run import graph_for as graph_for
from dendrax.inference._run import is_wave as is_wave
from dendrax.inference._run import record_graph as record_graph
from dendrax.inference._run import relaxed_graph as relaxed_graph
from dendrax.inference._run import run_loss_over_time as run_loss_over_time
from dendrax.inference._run import run_over_time as run_over_time
from dendrax.inference._run import run_rule as run_rule
from dendrax.inference._timed import Timed as Timed
