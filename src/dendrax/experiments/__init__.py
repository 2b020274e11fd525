"""The paper's experiments, and some beyond it: measured, kept on disk, and reported.

The files: `_library` (data), `_subjects` (networks and batches of the tables), `_divergence`
(Tables 1 and 3), `_speed` (Table 2), `_courses` and `_training` (learning), `_playing` (the agent),
`_beyond` (IL against BP, error waves), `_pictures` (one network at work, to look at); `_store` and
`_run` (measuring, and going on after an interruption); `_tables`, `_claims`, `_plots`, `_brief` and
`_story` (what is shown), `_contents`, `_page`, `_report` (where); `_paper` (all of it).
"""

from dendrax.support import require_extra as _require_extra

with _require_extra("dendrax.experiments", "paper"):
    import equinox as _equinox  # noqa: F401  # pyright: ignore[reportUnusedImport]
    import optax as _optax  # noqa: F401  # pyright: ignore[reportUnusedImport]

from dendrax.experiments._library import Library as Library
from dendrax.experiments._paper import PARTS as PARTS
from dendrax.experiments._paper import Paper as Paper
