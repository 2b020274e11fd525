"""One vertex's own function: evaluate it, linearise it.

The only folder that calls `jax.vjp`, and only ever on one vertex's function.

What enters: a function and its inputs. What leaves: its outputs and its way back.

- `Equation`, `Constant`: functions of vertices. `Applied`: a primitive with its parameters.
- `differentiate`, `Pullback`, `Linear`: a function's pullback, term by term on sums kept as JAX
  keeps them. `Contraction`, `Convolution`: those of products, for loops on a CPU; `ByPlatform`:
  these there, and JAX's own on every other platform.
- `count_terms`: into how many terms a message falls. `derivative`: of an energy.
"""

from dendrax.local._contraction import Contraction as Contraction
from dendrax.local._contraction import is_contraction as is_contraction
from dendrax.local._convolution import Convolution as Convolution
from dendrax.local._convolution import is_convolution as is_convolution
from dendrax.local._explain import cannot_differentiate as cannot_differentiate
from dendrax.local._explain import explaining as explaining
from dendrax.local._function import Constant as Constant
from dendrax.local._function import Equation as Equation
from dendrax.local._function import is_inexact as is_inexact
from dendrax.local._linear import Applied as Applied
from dendrax.local._linear import Linear as Linear
from dendrax.local._linear import Pullback as Pullback
from dendrax.local._linear import Reach as Reach
from dendrax.local._linear import differentiate as differentiate
from dendrax.local._linear import differentiate_primitive as differentiate_primitive
from dendrax.local._linear import reach as reach
from dendrax.local._partials import derivative as derivative
from dendrax.local._platform import ByPlatform as ByPlatform
from dendrax.local._platform import on_cpu as on_cpu
from dendrax.local._terms import count_terms as count_terms
