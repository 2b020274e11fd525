"""A user's function and its arguments -> jaxpr -> `Graph`.

What enters: any JAX function, models among its arguments. What leaves: a `Graph`, and a `Call`
that knows the way back to the user's trees.

- `Arguments`: flattened, named, sorted into parameters, free arguments and data.
- `trace_call` stages the function and builds the graph; `jit`, `remat` and `scan` are opened.
- `flatten` writes regions out: scans unrolled, inner jits gone but for the user's marks;
  `flattened_body` does so inside a scan that stays one.
- `Follower`: follows some values through a function; the base of the recorder in `dendrax.walk`.
- `vertex` marks a function; `is_named` says which vertices are results of modules that were asked
  for (`trace_call(..., vertices=("Block",))` has them named).
"""

from dendrax.tracing._arguments import Arguments as Arguments
from dendrax.tracing._arguments import check_parameters as check_parameters
from dendrax.tracing._arguments import flatten_arguments as flatten_arguments
from dendrax.tracing._arguments import flatten_models as flatten_models
from dendrax.tracing._arguments import normalise_argnums as normalise_argnums
from dendrax.tracing._call import Call as Call
from dendrax.tracing._call import Results as Results
from dendrax.tracing._call import as_pair as as_pair
from dendrax.tracing._call import check_scalar as check_scalar
from dendrax.tracing._call import flatten_results as flatten_results
from dendrax.tracing._call import trace_call as trace_call
from dendrax.tracing._call import trace_models as trace_models
from dendrax.tracing._call import without_aux as without_aux
from dendrax.tracing._flatten import Flat as Flat
from dendrax.tracing._flatten import Opens as Opens
from dendrax.tracing._flatten import Place as Place
from dendrax.tracing._flatten import flatten as flatten
from dendrax.tracing._flatten import flattened as flattened
from dendrax.tracing._flatten import flattened_body as flattened_body
from dendrax.tracing._flatten import is_stack as is_stack
from dendrax.tracing._follow import FollowedValue as FollowedValue
from dendrax.tracing._follow import Follower as Follower
from dendrax.tracing._mark import is_named as is_named
from dendrax.tracing._mark import marks_inside as marks_inside
from dendrax.tracing._mark import vertex as vertex
from dendrax.tracing._modules import check_modules as check_modules
from dendrax.tracing._open import fixed_trip_count as fixed_trip_count
from dendrax.tracing._resized import Resizable as Resizable
