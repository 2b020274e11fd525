"""The learning rules."""

from dendrax.inference import Rule as Rule
from dendrax.inference import Timed as Timed
from dendrax.rules.bp import BP as BP
from dendrax.rules.error_pc import ErrorPC as ErrorPC
from dendrax.rules.fixed_prediction import FixedPrediction as FixedPrediction
from dendrax.rules.il import IL as IL
from dendrax.rules.incremental import IncrementalPC as IncrementalPC
from dendrax.rules.zil import ZIL as ZIL
