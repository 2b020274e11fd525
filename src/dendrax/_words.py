"""The words that settings and names may be, each set once: as a type, and from it as a tuple.

Editors and type checkers read the types, what checks a setting and the command line read the
tuples. JAX is not imported here: the command line completes these words while a key is pressed.
"""

from typing import Literal, get_args

# ---- settings ------------------------------------------------------------------------------------

Vertices = Literal["primitive", "layer", "marked"]
Record = Literal["energy", "x", "mu", "epsilon", "statistics"]
Start = Literal["forward", "zeros", "noise"]
Timing = Literal["level", "end"]
BatchLoss = Literal["mean"]
Layout = Literal["auto", "dot", "own"]
Stem = Literal["cifar", "imagenet"]
Mode = Literal["min", "max"]
NonFinite = Literal["stop", "skip", "allow"]
Sharding = Literal["replicated", "fsdp", "levels"]
Which = Literal["best", "last"]

VERTICES: tuple[Vertices, ...] = get_args(Vertices)
RECORDS: tuple[Record, ...] = get_args(Record)
STARTS: tuple[Start, ...] = get_args(Start)
TIMINGS: tuple[Timing, ...] = get_args(Timing)
BATCH_LOSSES: tuple[BatchLoss, ...] = get_args(BatchLoss)
LAYOUTS: tuple[Layout, ...] = get_args(Layout)
STEMS: tuple[Stem, ...] = get_args(Stem)
MODES: tuple[Mode, ...] = get_args(Mode)
NONFINITE: tuple[NonFinite, ...] = get_args(NonFinite)
SHARDINGS: tuple[Sharding, ...] = get_args(Sharding)
WHICH: tuple[Which, ...] = get_args(Which)

# ---- names of what dendrax ships; catalogues say what they are -----------------------------------

RuleName = Literal["BP", "IL", "ZIL", "ErrorPC", "FixedPrediction", "IncrementalPC"]
ModelName = Literal["mlp", "fc_resnet", "cnn", "alexnet", "resnet18", "transformer"]
DataName = Literal["fashion_mnist", "mnist", "cifar10", "moby_dick", "text", "image_folder"]
OptimizerName = Literal["sgd", "adam", "adamw", "nadam", "adagrad", "rmsprop", "lion", "lamb"]
ScheduleName = Literal["constant", "cosine", "linear", "exponential"]
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

RULE_NAMES: tuple[RuleName, ...] = get_args(RuleName)
MODEL_NAMES: tuple[ModelName, ...] = get_args(ModelName)
DATA_NAMES: tuple[DataName, ...] = get_args(DataName)
OPTIMIZER_NAMES: tuple[OptimizerName, ...] = get_args(OptimizerName)
SCHEDULE_NAMES: tuple[ScheduleName, ...] = get_args(ScheduleName)
PROBLEM_NAMES: tuple[ProblemName, ...] = get_args(ProblemName)
