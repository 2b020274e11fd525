"""What the paper prints: "Reverse Differentiation via Predictive Coding", Tables 1, 2 and 3.

The distances depend on the scale and the initialisation of networks that the paper does not give.
They are printed beside ours, and nothing is tuned towards them. (Its ResNet is ResNet18 in the
text and a fully connected network in the appendix: both are built, and share its figures.)
"""

from typing import NamedTuple


class Milliseconds(NamedTuple):
    """Time of one weight update on two GTX 1080 Ti: only the ratios can be compared."""

    bp: float
    il: float
    zil: float


class Ablations(NamedTuple):
    """Distance to BP of Z-IL, and of Z-IL without each of its three conditions."""

    zil: float
    timing: float
    noise: float
    gamma: float


ROWS = ("MLP", "AlexNet", "RNN", "FC-ResNet", "ResNet18", "Transformer")

TABLE1 = {
    "MLP": 0.0,
    "AlexNet": 0.0,
    "RNN": 0.0,
    "FC-ResNet": 4.53e7,
    "ResNet18": 4.53e7,
    "Transformer": 7.29e4,
}

TABLE2 = {
    "MLP": Milliseconds(3.72, 594.25, 3.81),
    "AlexNet": Milliseconds(8.61, 661.53, 8.86),
    "RNN": Milliseconds(5.64, 420.01, 5.67),
    "FC-ResNet": Milliseconds(12.43, 1452.34, 12.53),
    "ResNet18": Milliseconds(12.43, 1452.34, 12.53),
    "Transformer": Milliseconds(20.43, 1842.64, 20.53),
}

TABLE3 = {
    "MLP": Ablations(0.0, 1.42e2, 7.22, 8.67e4),
    "RNN": Ablations(0.0, 6.05e3, 9.60, 6.91e5),
    "AlexNet": Ablations(0.0, 5.93e5, 7.93e2, 9.87e8),
    "FC-ResNet": Ablations(0.0, 9.43e7, 4.53e5, 6.44e9),
    "ResNet18": Ablations(0.0, 9.43e7, 4.53e5, 6.44e9),
    "Transformer": Ablations(0.0, 1.12e11, 3.41e6, 8.63e16),
}
