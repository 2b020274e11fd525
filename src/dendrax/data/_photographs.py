"""Twenty photographs of ImageNet, as the wheel of foolbox holds them.

ImageNet itself is only to be had by those who sign for it; for a folder of it, see `ImageFolder`.
The photographs belong to those who took them, so dendrax reads them from the wheel and ships none.
"""

from __future__ import annotations

import hashlib
import pathlib
import re
from typing import NamedTuple

import numpy as np

from dendrax.data._data_set import DataDir, DataSet, Form, load
from dendrax.data._files import BadFile, from_zip, names_in_zip
from dendrax.data._pillow import photograph
from dendrax.support import integer, public

# Of the twenty files, one after the other.
SHA256 = "d625818dacf79cc40ced71ff12f1d4955c3d2655ae4b047b3c93b1819cb8f3fe"
_NAME = re.compile(r"foolbox/data/imagenet_\d\d_(\d{1,3})\.jpg")


class Photographs(NamedTuple):
    """Photographs of shape (n, size, size, 3), uint8, and their classes in ImageNet, 0 to 999."""

    images: np.ndarray
    labels: np.ndarray


class _Jpeg(NamedTuple):
    name: str
    content: bytes
    label: int


@public("dendrax.data.imagenet_photographs")
def imagenet_photographs(*, data_dir: DataDir = None, size: int = 224) -> Photographs:
    """Twenty photographs of ImageNet with their classes: one batch. Decoding them needs Pillow.

    **Arguments:**

    - `data_dir`: the folder that holds the wheel of foolbox. Nothing is looked for anywhere else.
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
    jpegs = _jpegs(path)
    images = [photograph(path, jpeg.name, jpeg.content, size) for jpeg in jpegs]
    return Photographs(np.stack(images), np.array([jpeg.label for jpeg in jpegs], np.int32))


def _jpegs(path: pathlib.Path) -> list[_Jpeg]:
    found = [match for match in map(_NAME.fullmatch, names_in_zip(path)) if match]
    names = [match[0] for match in found]
    contents = from_zip(path, names)
    digest = hashlib.sha256(b"".join(contents)).hexdigest()
    if digest != SHA256:
        raise BadFile(
            path,
            f"does not hold the twenty photographs of foolbox 3.3.4, but {len(names)} "
            f"with SHA-256 {digest[:12]}..., not {SHA256[:12]}...",
        )
    labels = [int(match[1]) for match in found]
    return [_Jpeg(*each) for each in zip(names, contents, labels, strict=True)]


def _data_set(size: int) -> DataSet[Photographs]:
    return DataSet(
        name="the twenty ImageNet photographs",
        about="20 photographs of ImageNet with their classes; rights with the photographers",
        command="python -m pip download --no-deps foolbox==3.3.4",
        accepts="foolbox-3.3.4-py3-none-any.whl",
        forms=(Form("foolbox-*.whl", lambda path: _read(path, size)),),
    )


PHOTOGRAPHS = _data_set(224)
