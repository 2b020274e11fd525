"""dendrax: predictive coding for any JAX function.

- `value_and_grad`, `grad`, `vjp`: as JAX's, by a learning rule. `vertex` marks a function as one
  elementary function of a network.
- `ZIL`, `BP`, `IL`, `IncrementalPC`, `FixedPrediction`, `ErrorPC`: the rules. `Rule` is what your
  own is made of, with `feedback` weights, and `settle` for rules within rules.
- `Gaussian`, `Laplace`, `Huber`, `Bernoulli`, `Categorical`: what holds value nodes to their
  predictions. `Energy` is what your own is made of.
- `infer`: where value nodes and free arguments settle (`Settled`).
- `trace`, `level`, `run`: a function's graph (`Graph` of `Vertex`), its levels (`LevelledGraph`),
  and a rule on it over time (`Result`).
- `check`, `audit`: how far a gradient is from JAX's (`Certificate`), what updates read (`Audit`).
- `explore`: a page on which errors run through a graph.

Submodules, each loaded when it is first used, so that `import dendrax` is all that is typed:

- `dendrax.draw`: pictures and plots. `dendrax.data`: data sets. `dendrax.placement`: levels over
  devices. `dendrax.rules`, `dendrax.certify`: what is in the lists above, and more of it.
- With Equinox (the extra `models`): `dendrax.models`, and `dendrax.equinox`, its
  gradients. With Flax (the extra `nnx`): `dendrax.nnx`, its gradients.
- With Optax, too (the extra `train`): `dendrax.train`, runs that can be stopped and resumed.
"""

import importlib as _importlib
import importlib.util as _util
import typing as _typing

from dendrax.support import nearest as _nearest

__version__ = "0.1.0"

if _typing.TYPE_CHECKING:  # what follows for editors and type checkers; at run time see __getattr__
    from dendrax import certify as certify
    from dendrax import data as data
    from dendrax import draw as draw
    from dendrax import equinox as equinox
    from dendrax import models as models
    from dendrax import nnx as nnx
    from dendrax import placement as placement
    from dendrax import rules as rules
    from dendrax import train as train
    from dendrax._api import grad as grad
    from dendrax._api import value_and_grad as value_and_grad
    from dendrax._api import vjp as vjp
    from dendrax._graphs import level as level
    from dendrax._graphs import run as run
    from dendrax._graphs import trace as trace
    from dendrax._infer import Settled as Settled
    from dendrax._infer import infer as infer
    from dendrax.certify import Audit as Audit
    from dendrax.certify import Certificate as Certificate
    from dendrax.certify import audit as audit
    from dendrax.certify import check as check
    from dendrax.draw import explore as explore
    from dendrax.graph import Graph as Graph
    from dendrax.graph import LevelledGraph as LevelledGraph
    from dendrax.graph import Vertex as Vertex
    from dendrax.inference import Result as Result
    from dendrax.rules import BP as BP
    from dendrax.rules import IL as IL
    from dendrax.rules import ZIL as ZIL
    from dendrax.rules import Bernoulli as Bernoulli
    from dendrax.rules import Categorical as Categorical
    from dendrax.rules import Energy as Energy
    from dendrax.rules import ErrorPC as ErrorPC
    from dendrax.rules import FixedPrediction as FixedPrediction
    from dendrax.rules import Gaussian as Gaussian
    from dendrax.rules import Huber as Huber
    from dendrax.rules import IncrementalPC as IncrementalPC
    from dendrax.rules import Laplace as Laplace
    from dendrax.rules import Rule as Rule
    from dendrax.rules import feedback as feedback
    from dendrax.rules import settle as settle
    from dendrax.tracing import vertex as vertex
else:  # a checker that saw __getattr__ would believe in any name
    _NAMES = {
        "_api": ("grad", "value_and_grad", "vjp"),
        "_graphs": ("level", "run", "trace"),
        "_infer": ("Settled", "infer"),
        "graph": ("Graph", "LevelledGraph", "Vertex"),
        "inference": ("Result",),
        "tracing": ("vertex",),
        "certify": ("Audit", "Certificate", "audit", "check"),
        "draw": ("explore",),
        "rules": (
            *("BP", "IL", "ZIL", "ErrorPC", "FixedPrediction", "IncrementalPC"),
            *("Bernoulli", "Categorical", "Energy", "Gaussian", "Huber", "Laplace"),
            *("Rule", "feedback", "settle"),
        ),
    }
    _HOME_OF = {name: home for home, names in _NAMES.items() for name in names}
    # Submodules, and the packages without which they cannot be imported.
    _NEEDS = {
        **dict.fromkeys(("certify", "data", "draw", "placement", "rules"), ()),
        **dict.fromkeys(("equinox", "models"), ("equinox",)),
        "train": ("equinox", "optax"),
        "nnx": ("flax",),
    }
    # Without submodules: `from dendrax import *` would load them all, and hide Equinox.
    __all__ = sorted(_HOME_OF)

    def __getattr__(name: str) -> _typing.Any:
        if name in _NEEDS:
            return _importlib.import_module(f"dendrax.{name}")
        if name not in _HOME_OF:
            public = () if name.startswith("_") else (*_HOME_OF, *_NEEDS)
            text = f"module 'dendrax' has no attribute {name!r}.{_nearest(name, public)}"
            raise AttributeError(text, name=name)
        value = getattr(_importlib.import_module(f"dendrax.{_HOME_OF[name]}"), name)
        globals()[name] = value
        return value

    def __dir__() -> list[str]:
        # What is listed can be had: pydoc, inspect and completion ask for all of it.
        usable = [name for name, needs in _NEEDS.items() if all(map(_util.find_spec, needs))]
        return sorted([*_HOME_OF, *usable, "__version__"])
