"""IDX files, the format of MNIST: two zeros, 8 for bytes, number of dimensions, sizes, bytes."""

from __future__ import annotations

import pathlib

import numpy as np

from dendrax.data._files import BadFile, read_file
from dendrax.data._images import Digests, Images, check_digest, check_structure, idx_header

FILES = (  # in the order of the fields of Images
    "train-images-idx3-ubyte",
    "train-labels-idx1-ubyte",
    "t10k-images-idx3-ubyte",
    "t10k-labels-idx1-ubyte",
)
ANY_FILE = "t*[-.]idx?-ubyte*"
_HOLDS = {1: "labels (1 dimension)", 3: "images (3 dimensions)"}


def read_folder(any_file: pathlib.Path, *published: Digests) -> Images:
    """The four files of the folder in which ``any_file`` lies, compressed or not.

    Each has one of the digests that were ``published`` for it.
    """
    arrays: list[np.ndarray] = []
    paths = [_existing(any_file.parent, name) for name in FILES]
    for path, name, digests in zip(paths, FILES, zip(*published, strict=True), strict=True):
        array = parse(path, read_file(path), dimensions=3 if "images" in name else 1)
        check_digest(path, name, array, *digests)
        arrays.append(array)
    return check_structure(paths[0], Images(*arrays), (28, 28))


def parse(path: pathlib.Path, content: bytes, dimensions: int) -> np.ndarray:
    """The array in an IDX file, which must have as many ``dimensions``."""
    if len(content) < 4 or content[:3] != b"\x00\x00\x08":
        raise BadFile(path, f"is not an IDX file of bytes: it begins with {content[:4]!r}.")
    if content[3] != dimensions:
        holds = _HOLDS.get(content[3], f"{content[3]} dimensions")
        raise BadFile(path, f"holds {holds}, where {_HOLDS[dimensions]} should be.")
    start = 4 + 4 * dimensions
    if len(content) < start:
        raise BadFile(path, "is cut short: its header is not complete.")
    shape = np.frombuffer(content[4:start], ">u4").astype(object)  # exact, however large
    if len(content) - start != shape.prod():
        sizes = " x ".join(map(str, shape))
        raise BadFile(path, f"holds {len(content) - start} bytes, its header promises {sizes}.")
    return np.frombuffer(content, np.uint8, offset=start).reshape(tuple(shape)).copy()


def as_idx(array: np.ndarray) -> bytes:
    """An array of bytes as an IDX file."""
    return idx_header(array) + array.tobytes()


def _existing(folder: pathlib.Path, name: str) -> pathlib.Path:
    # Unpacked copies of the original files are often called train-images.idx3-ubyte.
    for spelling in (name, name.replace("-idx", ".idx")):
        for path in (folder / spelling, folder / f"{spelling}.gz"):
            if path.is_file():
                return path
    raise BadFile(folder, f"holds some of the four files, but neither {name} nor {name}.gz.")
