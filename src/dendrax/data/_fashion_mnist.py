"""FashionMNIST: the subset that ships with the package, made by ``tools/make_fashion_subset.py``.

Photographs of clothes by Zalando SE (2017), under the MIT licence that lies beside the data. The
full set is read from the four IDX files that Debian's package and every other tool have.
"""

from __future__ import annotations

import importlib.resources
import pathlib

import numpy as np

from dendrax.data._data_set import DataDir, DataSet, Form, load
from dendrax.data._idx import ANY_FILE, FILES, read_folder
from dendrax.data._images import Images
from dendrax.support import public

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
SHA256 = (  # of the four IDX files, decompressed
    "c59f468a2f672dc815687fe0f83887768d799fd8a3f3276145d20f83aa44d888",
    "bad3541b69d912435c50bb6ba87bec294ff4f6a2e1246121d8633921760443d9",
    "5b4141f0afbad91edebe8549f8fcffe087ea10ca49f1dbef5c9a5cd8815ce37b",
    "0402a96d92fd2663957122ceb108a494c5af83dab82d92729df917d7dec38c34",
)
SUBSET = "fashion_mnist_subset.npz"


@public("dendrax.data.fashion_mnist")
def fashion_mnist(full: bool = False, *, data_dir: DataDir = None) -> Images:
    """FashionMNIST: 5000 training and 1000 test images of it, or all 60000 and 10000.

    **Arguments:**

    - `full`: all images, which must be on this machine; an error says how to get them. Without it,
        the subset that ships with dendrax, the same number of each class.
    - `data_dir`: the folder that holds the full set. Nothing is looked for anywhere else.

    **Returns:**

    `Images`: grey images of 28 x 28 pixels, and their classes.

    !!! example

        ```python
        from dendrax.data import fashion_mnist

        images = fashion_mnist()
        x = images.train_images.reshape(-1, 784) / 255.0
        x.shape  # -> (5000, 784)
        ```
    """
    if full or data_dir is not None:
        return load(FASHION_MNIST, data_dir)
    file = importlib.resources.files("dendrax.data") / SUBSET
    with file.open("rb") as stream, np.load(stream, allow_pickle=False) as arrays:
        return Images(*(arrays[name] for name in Images._fields))


def _from_folder(path: pathlib.Path) -> Images:
    return read_folder(path, SHA256)


FASHION_MNIST = DataSet(
    name="FashionMNIST",
    about="60000 + 10000 grey images of clothes, 28 x 28; MIT licence",
    get="fashion_mnist",
    accepts=f"{FILES[0]}(.gz) and its three companions",
    forms=(Form(ANY_FILE, _from_folder),),
    packages=("dataset-fashion-mnist_*.deb",),
    subfolders=("", "FashionMNIST/raw", "fashion-mnist"),
    usual=(
        "/usr/share/datasets/fashion-mnist",
        "data/FashionMNIST/raw",
        "~/data/FashionMNIST/raw",
        "~/.keras/datasets/fashion-mnist",
    ),
)
