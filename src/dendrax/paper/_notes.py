"""What stands below the tables: how their numbers came about."""

_RESNET = (
    "The paper has one ResNet, ResNet18 in its text and fully connected in its appendix: its "
    "figures stand beside both."
)
TABLE1 = (
    "Euclidean distance to the update of jax.grad, not relative, as in the paper; in mean over the "
    "networks of a row. original: Z-IL without levels. Z-IL: compiled, against compiled jax.grad. "
    "Z-IL, dynamics: every value node moves at every step; operation by operation, as is the "
    "jax.grad that it and original Z-IL are compared with. A vertex is a layer, but for the "
    "dynamics of FC-ResNet and Transformer, where it is an operation (inside layers their residual "
    "streams are added up in another order than JAX's, and the last bit may differ). 0 is 0.0. "
    f"{_RESNET}"
)
TABLE2 = (
    "Medians of jitted updates (BP and Z-IL in turns), in mean over the networks of a row. BP is "
    "jax.grad. 95 %: where the ratio lies in resamples of the measured times. T: the steps of IL. "
    f"The paper's times are those of two graphics cards; only the ratios compare. {_RESNET}"
)
TABLE3 = (
    "As Table 1. no level-timed update: all weights learn at the end. initial error: at the "
    "start, value nodes differ from their predictions by noise. overflow: the dynamics "
    "left the range of the dtype. "
    f"{_RESNET}"
)
NETWORKS = "Models of dendrax.models; weights drawn in float32."
TRAINING = (
    "accuracy: on the test set, at the end, in mean over the runs (from different starts) and with "
    "their standard deviation; ResNet18 normalises by the statistics of 500 test images. BP is "
    "jax.grad. IncrementalPC moves the weights at its own rate (SGD); the gradients of the others "
    "are given to AdamW. updates: slow rules make fewer. weights = BP's: at how many points of the "
    "learning curve every bit of every weight is that of the BP run. ms/update: by the clock, "
    "evaluation and compiling apart, whatever else the machine was doing (Table 2 measures speed)."
)
PLAYING = (
    "Scores of whole games, mean ± standard deviation over games. BP is jax.grad. weights = BP's: "
    "at how many measurements every bit of every weight is that of the agent that learned by BP."
)
BEYOND = "Relative: 0 is backpropagation's gradient, 1 as far from it as no gradient."
