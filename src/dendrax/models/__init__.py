"""Models of the paper, as batched Equinox modules, and ready-made learning problems around them.

Nothing here needs the rest of dendrax but its words and how errors are worded: a model is an
ordinary JAX function of its parameters.
"""

from dendrax.support import require_extra as _require_extra

with _require_extra("dendrax.models", "models"):
    import equinox as _equinox  # noqa: F401  # pyright: ignore[reportUnusedImport]

from ._cnn import CNN, AlexNet
from ._digest import digest
from ._dtype import astype
from ._mlp import MLP
from ._problem import PROBLEMS, Problem, cross_entropy_loss, problem, squared_error_loss
from ._resnet import FCResNet, ResNet18
from ._rnn import RNN
from ._transformer import Transformer

__all__ = [
    "CNN",
    "MLP",
    "PROBLEMS",
    "RNN",
    "AlexNet",
    "FCResNet",
    "Problem",
    "ResNet18",
    "Transformer",
    "astype",
    "cross_entropy_loss",
    "digest",
    "problem",
    "squared_error_loss",
]
