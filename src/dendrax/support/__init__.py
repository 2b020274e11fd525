"""What every folder may use: words of settings, how errors are worded, tables, files, memory.

Nothing here knows of graphs or rules.

- Errors: `complain` makes one (the public function that speaks, the problem, the user's line, the
  remedy), `one_of` checks a word, `nearest` guesses what was meant, `warn` warns.
- Words: the values that settings and names may have, as types and as tuples.
- Arguments: `integer`, `positive`, `fraction`, `seed_number`, `expanded` (a path).
- `html_table`, `write_atomically`, `check_memory`, `require_extra`: what their names say.
"""

from dendrax.support._arguments import expanded as expanded
from dendrax.support._arguments import fraction as fraction
from dendrax.support._arguments import integer as integer
from dendrax.support._arguments import positive as positive
from dendrax.support._arguments import seed_number as seed_number
from dendrax.support._atomic import SPECIAL as SPECIAL
from dendrax.support._atomic import is_special as is_special
from dendrax.support._atomic import write_atomically as write_atomically
from dendrax.support._errors import close_words as close_words
from dendrax.support._errors import complain as complain
from dendrax.support._errors import counted as counted
from dendrax.support._errors import in_short as in_short
from dendrax.support._errors import is_of_dendrax as is_of_dendrax
from dendrax.support._errors import is_ours as is_ours
from dendrax.support._errors import nearest as nearest
from dendrax.support._errors import nobody_speaking as nobody_speaking
from dendrax.support._errors import one_of as one_of
from dendrax.support._errors import printable as printable
from dendrax.support._errors import public as public
from dendrax.support._errors import shortened as shortened
from dendrax.support._errors import speaker as speaker
from dendrax.support._errors import speaking_as as speaking_as
from dendrax.support._errors import warn as warn
from dendrax.support._extras import install_command as install_command
from dendrax.support._extras import require_extra as require_extra
from dendrax.support._memory import available_memory as available_memory
from dendrax.support._memory import check_host_memory as check_host_memory
from dendrax.support._memory import check_memory as check_memory
from dendrax.support._memory import check_records as check_records
from dendrax.support._memory import in_words as in_words
from dendrax.support._memory import size_of as size_of
from dendrax.support._patterns import matching as matching
from dendrax.support._tables import html_table as html_table
from dendrax.support._tables import html_text as html_text
from dendrax.support._vertices import Modules as Modules
from dendrax.support._vertices import Vertices as Vertices
from dendrax.support._words import BATCH_LOSSES as BATCH_LOSSES
from dendrax.support._words import CHECKPOINT_NAMES as CHECKPOINT_NAMES
from dendrax.support._words import DATA_NAMES as DATA_NAMES
from dendrax.support._words import ENERGY_NAMES as ENERGY_NAMES
from dendrax.support._words import GRAPH_LAYOUTS as GRAPH_LAYOUTS
from dendrax.support._words import LEARNING_TIMES as LEARNING_TIMES
from dendrax.support._words import MODEL_NAMES as MODEL_NAMES
from dendrax.support._words import MODES as MODES
from dendrax.support._words import NON_FINITE_ACTIONS as NON_FINITE_ACTIONS
from dendrax.support._words import ON_DIVERGENCE as ON_DIVERGENCE
from dendrax.support._words import OPTIMIZER_NAMES as OPTIMIZER_NAMES
from dendrax.support._words import PACKAGE_NAMES as PACKAGE_NAMES
from dendrax.support._words import PAPER_PARTS as PAPER_PARTS
from dendrax.support._words import PROBLEM_NAMES as PROBLEM_NAMES
from dendrax.support._words import QUANTITIES as QUANTITIES
from dendrax.support._words import RULE_NAMES as RULE_NAMES
from dendrax.support._words import SCALES as SCALES
from dendrax.support._words import SCHEDULE_NAMES as SCHEDULE_NAMES
from dendrax.support._words import SHARDINGS as SHARDINGS
from dendrax.support._words import STARTS as STARTS
from dendrax.support._words import STEMS as STEMS
from dendrax.support._words import VERTICES as VERTICES
from dendrax.support._words import BatchLoss as BatchLoss
from dendrax.support._words import CheckpointName as CheckpointName
from dendrax.support._words import GraphLayout as GraphLayout
from dendrax.support._words import LearningTime as LearningTime
from dendrax.support._words import Mode as Mode
from dendrax.support._words import NonFiniteAction as NonFiniteAction
from dendrax.support._words import OnDivergence as OnDivergence
from dendrax.support._words import PackageName as PackageName
from dendrax.support._words import PaperPart as PaperPart
from dendrax.support._words import ProblemName as ProblemName
from dendrax.support._words import Quantity as Quantity
from dendrax.support._words import Scale as Scale
from dendrax.support._words import Sharding as Sharding
from dendrax.support._words import Start as Start
from dendrax.support._words import Stem as Stem
from dendrax.support._words import VerticesWord as VerticesWord
