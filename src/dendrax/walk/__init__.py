"""The one pair of walks: `record` forwards, `send_back` backwards.

What enters: a function and its inputs. Forwards each vertex that an active input reaches is noted
on a `Tape`, with its own way back. Backwards errors at the outputs enter, and errors at the inputs
leave; each message is added at a *slot* of the tape, in the order in which JAX adds it. Regions
(`jit`, `remat`, `scan`) do the same with their body.

- `Local` says how one vertex is run and linearised: `exact` as JAX does, `fast` for loops,
  `feedback` by other weights.
- `hoisted` takes out of a loop's step what does not change.
- `record_call` records a user's function as it is; no graph is made.
"""

from dendrax.walk._feedback import feedback as feedback
from dendrax.walk._hoist import Hoisted as Hoisted
from dendrax.walk._hoist import carried_as as carried_as
from dendrax.walk._hoist import hoisted as hoisted
from dendrax.walk._record_call import record_call as record_call
from dendrax.walk._regions import exact as exact
from dendrax.walk._regions import fast as fast
from dendrax.walk._wave import PARAMETER as PARAMETER
from dendrax.walk._wave import Local as Local
from dendrax.walk._wave import Tape as Tape
from dendrax.walk._wave import handed_on as handed_on
from dendrax.walk._wave import plain as plain
from dendrax.walk._wave import port as port
from dendrax.walk._wave import reached as reached
from dendrax.walk._wave import record as record
from dendrax.walk._wave import send_back as send_back
from dendrax.walk._wave import send_terms as send_terms
from dendrax.walk._wave import watched as watched
