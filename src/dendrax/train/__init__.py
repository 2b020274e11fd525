"""Training by any rule: restartable runs, on one device or many.

For users: `fit`, `plan` (`Plan`), `Settings`, `Fitted`, `Arrays`, `load`, `curves`, `bar` (`Bar`,
`Moment`) and `connect`. The rest is for `dendrax.cli` and `dendrax.paper`: `Checkpoints`, `chosen`,
`plan_of_run`, `has_peers`, `leave`, `CURVES` and `INTERRUPTED`.
"""

from dendrax.support import require_extra as _require_extra

with _require_extra("dendrax.train", "train"):
    import equinox as _equinox  # noqa: F401  # pyright: ignore[reportUnusedImport]
    import optax as _optax  # noqa: F401  # pyright: ignore[reportUnusedImport]

from dendrax.train._bar import Bar as Bar
from dendrax.train._bar import bar as bar
from dendrax.train._checkpoint import Checkpoints as Checkpoints
from dendrax.train._distributed import INTERRUPTED as INTERRUPTED
from dendrax.train._distributed import connect as connect
from dendrax.train._distributed import has_peers as has_peers
from dendrax.train._distributed import leave as leave
from dendrax.train._engine import Moment as Moment
from dendrax.train._fit import Fitted as Fitted
from dendrax.train._fit import fit as fit
from dendrax.train._folder import CURVES as CURVES
from dendrax.train._load import load as load
from dendrax.train._plan import Plan as Plan
from dendrax.train._plan import plan as plan
from dendrax.train._plan import plan_of_run as plan_of_run
from dendrax.train._plots import curves as curves
from dendrax.train._samples import Arrays as Arrays
from dendrax.train._samples import chosen as chosen
from dendrax.train._settings import Settings as Settings
