"""The learning rules, and what rules are written with."""

from dendrax.inference import Bernoulli as Bernoulli
from dendrax.inference import Categorical as Categorical
from dendrax.inference import Energy as Energy
from dendrax.inference import Gaussian as Gaussian
from dendrax.inference import Huber as Huber
from dendrax.inference import Laplace as Laplace
from dendrax.inference import Look as Look
from dendrax.inference import Network as Network
from dendrax.inference import Rule as Rule
from dendrax.inference import settle as settle
from dendrax.rules.bp import BP as BP
from dendrax.rules.error_pc import ErrorPC as ErrorPC
from dendrax.rules.fixed_prediction import FixedPrediction as FixedPrediction
from dendrax.rules.il import IL as IL
from dendrax.rules.incremental import IncrementalPC as IncrementalPC
from dendrax.rules.zil import ZIL as ZIL
from dendrax.walk import exact as exact
from dendrax.walk import fast as fast
from dendrax.walk import feedback as feedback
