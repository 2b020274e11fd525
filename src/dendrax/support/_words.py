"""The words that settings and names may be, each set once: as a type, and from it as a tuple.

Editors and type checkers read the types, what checks a setting and the command line read the
tuples. What is always written with settings, such as ``"adam(b1=0.9)"``, has no type.

JAX is not imported here: the command line completes these words while a key is pressed.
"""

from typing import Literal, get_args

# ---- settings ------------------------------------------------------------------------------------

VerticesWord = Literal["primitive", "layer", "parameter", "marked"]
Quantity = Literal["energy", "x", "mu", "epsilon", "statistics"]
Start = Literal["forward", "zeros", "noise"]
LearningTime = Literal["level", "end"]
BatchLoss = Literal["mean", "sum"]
GraphLayout = Literal["auto", "dot", "own"]
Scale = Literal["auto", "log", "linear"]
Stem = Literal["cifar", "imagenet"]
Mode = Literal["min", "max"]
OnDivergence = Literal["nan", "warn", "raise", "ignore"]
NonFiniteAction = Literal["stop", "skip", "allow"]
Sharding = Literal["replicated", "fsdp", "levels"]
CheckpointName = Literal["best", "last"]
PackageName = Literal["fashion_mnist", "mnist", "cifar10", "imagenet_photographs"]
PaperPart = Literal["table1", "table2", "table3", "training", "beyond"]

VERTICES: tuple[VerticesWord, ...] = get_args(VerticesWord)
QUANTITIES: tuple[Quantity, ...] = get_args(Quantity)
STARTS: tuple[Start, ...] = get_args(Start)
LEARNING_TIMES: tuple[LearningTime, ...] = get_args(LearningTime)
BATCH_LOSSES: tuple[BatchLoss, ...] = get_args(BatchLoss)
GRAPH_LAYOUTS: tuple[GraphLayout, ...] = get_args(GraphLayout)
SCALES: tuple[Scale, ...] = get_args(Scale)
STEMS: tuple[Stem, ...] = get_args(Stem)
MODES: tuple[Mode, ...] = get_args(Mode)
ON_DIVERGENCE: tuple[OnDivergence, ...] = get_args(OnDivergence)
NON_FINITE_ACTIONS: tuple[NonFiniteAction, ...] = get_args(NonFiniteAction)
SHARDINGS: tuple[Sharding, ...] = get_args(Sharding)
CHECKPOINT_NAMES: tuple[CheckpointName, ...] = get_args(CheckpointName)
PACKAGE_NAMES: tuple[PackageName, ...] = get_args(PackageName)
PAPER_PARTS: tuple[PaperPart, ...] = get_args(PaperPart)

# ---- names of what dendrax ships; catalogues say what they are -----------------------------------

RULE_NAMES = ("BP", "IL", "ZIL", "ErrorPC", "FixedPrediction", "IncrementalPC")
ENERGY_NAMES = ("Gaussian", "Laplace", "Huber", "Bernoulli", "Categorical")
MODEL_NAMES = ("mlp", "fc_resnet", "cnn", "alexnet", "resnet18", "transformer")
DATA_NAMES = ("fashion_mnist", "mnist", "cifar10", "moby_dick", "text", "image_folder")
OPTIMIZER_NAMES = ("sgd", "adam", "adamw", "nadam", "adagrad", "rmsprop", "lion", "lamb")
SCHEDULE_NAMES = ("constant", "cosine", "linear", "exponential")

ProblemName = Literal[
    "mlp",
    "cnn",
    "rnn",
    "rnn_scan",
    "fc_resnet",
    "resnet18",
    "transformer",
    "transformer12",
    "mlp100",
]
PROBLEM_NAMES: tuple[ProblemName, ...] = get_args(ProblemName)
