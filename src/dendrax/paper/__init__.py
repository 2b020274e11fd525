"""The paper's experiments, and some beyond it: measured, kept on disk, and reported.

The files: `_library` (data), `_atari` (games) and `agent` (who plays them), `_subjects` (networks
and batches of the tables), `_divergence` (Tables 1 and 3), `_speed` (Table 2), `_courses` and
`_training` (learning), `_playing` (the agent's scores), `_beyond` (IL against BP, error waves),
`_pictures` (one network at work, to look at); `_store` and `_run` (measuring, and going on after an
interruption); `_tables`, `_claims`, `_plots`, `_brief` and `_story` (what is shown), `_contents`
(in which sections), `_report` and `_page` (the writer of reports); `_paper` (all of it).
"""

from dendrax.support import require_extra as _require_extra

with _require_extra("dendrax.paper", "paper"):
    import equinox as _equinox  # noqa: F401  # pyright: ignore[reportUnusedImport]
    import optax as _optax  # noqa: F401  # pyright: ignore[reportUnusedImport]
    import rich as _rich  # noqa: F401  # pyright: ignore[reportUnusedImport]

from dendrax.paper._atari import GAMES as GAMES
from dendrax.paper._atari import Atari as Atari
from dendrax.paper._claims import Claim as Claim
from dendrax.paper._contents import Report as Report
from dendrax.paper._library import Library as Library
from dendrax.paper._paper import PARTS as PARTS
from dendrax.paper._paper import Paper as Paper
from dendrax.paper._report import Table as Table
from dendrax.paper._report import is_report as is_report
from dendrax.paper._store import is_store as is_store
from dendrax.paper._story import OPENING as OPENING
from dendrax.paper._story import Chapter as Chapter
