"""FashionMNIST: the subset that ships with the package, made by ``tools/make_fashion_subset.py``.

Photographs of clothes by Zalando SE (2017), under the MIT licence that lies beside the data.
"""

from __future__ import annotations

import importlib.resources
from typing import NamedTuple

import numpy as np

CLASSES = (
    "T-shirt/top",
    "trouser",
    "pullover",
    "dress",
    "coat",
    "sandal",
    "shirt",
    "sneaker",
    "bag",
    "ankle boot",
)


class Images(NamedTuple):
    """Grey images of 28 x 28 pixels (uint8), and their classes (0 to 9)."""

    train_images: np.ndarray
    train_labels: np.ndarray
    test_images: np.ndarray
    test_labels: np.ndarray


def fashion_mnist() -> Images:
    """5000 training and 1000 test images of FashionMNIST, the same number of each class.

    !!! example

        ```python
        from dendrax.data import fashion_mnist

        images = fashion_mnist()
        x = images.train_images.reshape(-1, 784) / 255.0
        ```
    """
    file = importlib.resources.files("dendrax.data") / "fashion_mnist_subset.npz"
    with file.open("rb") as stream, np.load(stream, allow_pickle=False) as arrays:
        return Images(*(arrays[name] for name in Images._fields))
