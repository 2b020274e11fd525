"""Twenty photographs of ImageNet, as the wheel of foolbox holds them.

ImageNet itself is only to be had by those who sign for it; for a folder of it, see `ImageFolder`.
The photographs belong to those who took them, so dendrax ships none: `dendrax data get` has them.
"""

from __future__ import annotations

import hashlib
import pathlib
import re
from typing import NamedTuple

import numpy as np

from dendrax.data._data_set import DataDir, DataSet, Form, load
from dendrax.data._files import BadFile, read_file
from dendrax.data._pillow import photograph
from dendrax.support import integer, public

# Of the twenty files, one after the other.
SHA256 = "d625818dacf79cc40ced71ff12f1d4955c3d2655ae4b047b3c93b1819cb8f3fe"
FOLDER = "imagenet-photographs"
NAME = re.compile(r"imagenet_\d\d_(\d{1,3})\.jpg")  # the label is in it


class Photographs(NamedTuple):
    """Photographs of shape (n, size, size, 3), uint8, and their classes in ImageNet, 0 to 999."""

    images: np.ndarray
    labels: np.ndarray


@public("dendrax.data.imagenet_photographs")
def imagenet_photographs(*, data_dir: DataDir = None, size: int = 224) -> Photographs:
    """Twenty photographs of ImageNet with their classes: one batch. Decoding them needs Pillow.

    **Arguments:**

    - `data_dir`: the folder that holds them. Nothing is looked for anywhere else.
    - `size`: height and width of the images, cut out of the photographs as `ImageFolder` does it.

    **Returns:**

    `Photographs`: `images` of shape `(20, size, size, 3)`, and `labels`, 0 to 999.

    !!! example

        ```python
        from dendrax.data import imagenet_photographs

        images, labels = imagenet_photographs()
        x = images / 255.0
        ```
    """
    return load(_data_set(integer("size", size)), data_dir)


def _read(path: pathlib.Path, size: int) -> Photographs:
    """All of the folder in which ``path`` lies."""
    found = [(p, m) for p in sorted(path.parent.iterdir()) if (m := NAME.fullmatch(p.name))]
    contents = [read_file(photo) for photo, _ in found]
    digest = hashlib.sha256(b"".join(contents)).hexdigest()
    if digest != SHA256:
        raise BadFile(
            path.parent,
            f"does not hold the twenty photographs of foolbox 3.3.4, but {len(found)} "
            f"with SHA-256 {digest[:12]}..., not {SHA256[:12]}...",
        )
    named = zip(found, contents, strict=True)
    images = [photograph(photo, "", content, size) for (photo, _), content in named]
    return Photographs(np.stack(images), np.array([int(m[1]) for _, m in found], np.int32))


def _data_set(size: int) -> DataSet[Photographs]:
    return DataSet(
        name="the twenty ImageNet photographs",
        about="20 photographs of ImageNet with their classes; rights with the photographers",
        get="imagenet_photographs",
        accepts=f"{FOLDER}, as dendrax data get makes it",
        forms=(Form("imagenet_*_*.jpg", lambda path: _read(path, size)),),
        packages=("foolbox-*.whl",),
        subfolders=("", FOLDER),
    )


PHOTOGRAPHS = _data_set(224)
