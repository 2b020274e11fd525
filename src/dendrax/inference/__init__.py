"""Rules at work on a graph: what holds it, the loop over time, what was recorded.

What enters: a graph, a rule, the values of the leaves, a `Clamp`. What leaves: a `Result`.

- `View`: a graph and its cuts. `Network`: a view with numbers, which is what a rule sees.
- `Look`: the network at given value nodes: predictions, errors, messages, energies.
- `Rule`: where to start, one time step, what the parameters learn. `settle` is the loop.
- `Energy`: what a value node costs; `energies_of` says which has which. `Clamp`: what holds the
  network: a loss, targets, value nodes held by name, priors of free arguments.
- `Descent`: how the energy went, and whether inference diverged; `notice` speaks up.
- `Dynamics`: Z-IL's, in which every edge waits; `arrivals`: its errors at the time of arrival.
"""

from dendrax.inference._arrivals import arrivals as arrivals
from dendrax.inference._arrivals import size as size
from dendrax.inference._batch import check_batch as check_batch
from dendrax.inference._clamp import Clamp as Clamp
from dendrax.inference._clamp import Free as Free
from dendrax.inference._clamp import Hold as Hold
from dendrax.inference._clamp import Pull as Pull
from dendrax.inference._clamp_for import clamp_for as clamp_for
from dendrax.inference._clamp_for import flat_target as flat_target
from dendrax.inference._descent import Descent as Descent
from dendrax.inference._descent import view_names as view_names
from dendrax.inference._dynamics import Dynamics as Dynamics
from dendrax.inference._dynamics import Init as Init
from dendrax.inference._dynamics import Schedule as Schedule
from dendrax.inference._energies import Energies as Energies
from dendrax.inference._energies import OneEnergy as OneEnergy
from dendrax.inference._energies import energies_of as energies_of
from dendrax.inference._energies import frozen_energies as frozen_energies
from dendrax.inference._energies import said_by as said_by
from dendrax.inference._energy import Bernoulli as Bernoulli
from dendrax.inference._energy import Categorical as Categorical
from dendrax.inference._energy import Energy as Energy
from dendrax.inference._energy import Gaussian as Gaussian
from dendrax.inference._energy import Huber as Huber
from dendrax.inference._energy import Laplace as Laplace
from dendrax.inference._energy import check_precision as check_precision
from dendrax.inference._equations import largest as largest
from dendrax.inference._equations import prediction_error as prediction_error
from dendrax.inference._evaluate import Cuts as Cuts
from dendrax.inference._evaluate import Values as Values
from dendrax.inference._evaluate import evaluate as evaluate
from dendrax.inference._learn import Learned as Learned
from dendrax.inference._learn import Outcome as Outcome
from dendrax.inference._learn import first_memory as first_memory
from dendrax.inference._learn import learn as learn
from dendrax.inference._learn import settled_arguments as settled_arguments
from dendrax.inference._network import Look as Look
from dendrax.inference._network import Network as Network
from dendrax.inference._notice import advice as advice
from dendrax.inference._notice import notice as notice
from dendrax.inference._notice import step_of as step_of
from dendrax.inference._records import Record as Record
from dendrax.inference._rule import Rule as Rule
from dendrax.inference._run import Result as Result
from dendrax.inference._run import as_flat as as_flat
from dendrax.inference._run import check_settles as check_settles
from dendrax.inference._run import graph_for as graph_for
from dendrax.inference._run import keeps_step as keeps_step
from dendrax.inference._run import record_graph as record_graph
from dendrax.inference._run import refuse_cycle as refuse_cycle
from dendrax.inference._run import relaxed_graph as relaxed_graph
from dendrax.inference._run import run_rule as run_rule
from dendrax.inference._samples import is_shared as is_shared
from dendrax.inference._settle import network_of as network_of
from dendrax.inference._settle import relax as relax
from dendrax.inference._settle import settle as settle
from dendrax.inference._trust import check_no_memory as check_no_memory
from dendrax.inference._trust import check_wave as check_wave
from dendrax.inference._view import View as View
from dendrax.inference._view import view_of as view_of
