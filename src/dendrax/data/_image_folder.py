"""A user's own photographs, in folders named after their classes, as ImageNet comes."""

from __future__ import annotations

import os
import pathlib

import numpy as np
from numpy.typing import ArrayLike

from dendrax.data._files import BadFile, read_file
from dendrax.data._pillow import photograph
from dendrax.support import check_host_memory, complain, expanded, integer, speaking_as

_SUFFIXES = (".jpg", ".jpeg", ".png", ".bmp", ".webp", ".ppm", ".pgm")
_NAME = "dendrax.data.ImageFolder"


class ImageFolder:
    """Photographs in folders, decoded when they are asked for.

    The classes are the names of the folders in `path`, sorted; the samples are sorted by class and
    then by name. For ImageNet: `ImageFolder("imagenet/train")`. Decoding needs Pillow.

    **Arguments:**

    - `path`: the folder that holds one folder of photographs for each class.
    - `size`: height and width of the images. The shorter side of a photograph is scaled to
        `size * 256 / 224`, then the centre is cut out.

    !!! example

        ```python
        import numpy as np
        from dendrax.data import ImageFolder

        photographs = ImageFolder("imagenet/val")
        batch = np.random.default_rng(0).choice(len(photographs), 20, replace=False)
        x = photographs.images(batch) / 255.0
        x.shape  # -> (20, 224, 224, 3)
        y = photographs.labels[batch]
        ```
    """

    path: pathlib.Path
    size: int
    classes: tuple[str, ...]
    labels: np.ndarray
    """For each sample, the index of its class (int32)."""

    def __init__(self, path: str | os.PathLike[str], size: int = 224):
        with speaking_as(_NAME):
            self.path = expanded("path", path)
            self.size = integer("size", size)
            self.classes = _classes(self.path)
            # Only the names of files are kept, not their paths: there may be a million.
            names = [_photographs_in(self.path / name) for name in self.classes]
            self._names = [name for of_class in names for name in of_class]
            counts = [len(of_class) for of_class in names]
            self.labels = np.repeat(np.arange(len(counts), dtype=np.int32), counts)

    def __len__(self) -> int:
        return len(self._names)

    def __repr__(self) -> str:
        path = str(self.path)
        return f"ImageFolder({path!r}, {len(self)} photographs, {len(self.classes)} classes)"

    def images(self, indices: ArrayLike) -> np.ndarray:
        """Decodes the photographs `indices`: uint8 of shape `(n, size, size, 3)`."""
        with speaking_as(f"{_NAME}.images"):
            size = np.size(indices) * self.size * self.size * 3
            check_host_memory(
                f"{np.size(indices):,} images", size, remedy="Ask for fewer, or smaller ones."
            )
            found = np.empty((np.size(indices), self.size, self.size, 3), np.uint8)
            for place, index in enumerate(self._checked(indices)):
                found[place] = self._image(int(index))
            return found

    def _checked(self, indices: ArrayLike) -> np.ndarray:
        checked = np.asarray(indices)
        if not checked.size:
            return checked.ravel()
        if checked.dtype.kind not in "iu":
            raise complain(TypeError, f"indices are integers, got {checked.dtype}.")
        if checked.min() < 0 or checked.max() >= len(self):
            outside = checked.min() if checked.min() < 0 else checked.max()
            raise complain(IndexError, f"there is no photograph {outside} among {len(self)}.")
        return checked.ravel()

    def _image(self, index: int) -> np.ndarray:
        path = self.path / self.classes[self.labels[index]] / self._names[index]
        try:
            return photograph(path, "", read_file(path), self.size)
        except BadFile as error:
            remedy = "Replace it or take it away, and make the ImageFolder anew."
            raise complain(ValueError, str(error), remedy=remedy) from error


def _classes(path: pathlib.Path) -> tuple[str, ...]:
    if not path.is_dir():
        raise complain(FileNotFoundError, f"{path} is not a folder.")
    with os.scandir(path) as entries:
        # Hidden folders are those of other programs, such as .ipynb_checkpoints.
        names = sorted(e.name for e in entries if e.is_dir() and not e.name.startswith("."))
    if not names:
        flat = "photographs" if _names_of_photographs(path) else "nothing"
        raise complain(
            ValueError,
            f"{path} holds {flat}, where one folder for each class should be.",
            remedy=f"Move the photographs of a class into a folder of its own, {path}/<class>/.",
        )
    return tuple(names)


def _photographs_in(path: pathlib.Path) -> list[str]:
    names = _names_of_photographs(path)
    if not names:
        raise complain(
            ValueError,
            f"the folder {path} of a class holds no photographs ({', '.join(_SUFFIXES)}).",
            remedy="Take it away, or, if it holds the folders of the classes, pass it instead.",
        )
    return names


def _names_of_photographs(path: pathlib.Path) -> list[str]:
    with os.scandir(path) as entries:
        # macOS leaves files named ._x.jpg that are no photographs.
        names = (entry.name for entry in entries if not entry.name.startswith("."))
        return sorted(name for name in names if name.lower().endswith(_SUFFIXES))
