"""Make the subset of FashionMNIST that ships with dendrax, from the four files of the full set.

    python tools/make_fashion_subset.py FOLDER

FOLDER holds ``train-images-idx3-ubyte.gz`` and its three companions, for instance from Debian's
package ``dataset-fashion-mnist``. Of each class the first 500 training and the first 100 test
images are taken, in their original order.
"""

import gzip
import pathlib
import sys

import numpy as np

TARGET = pathlib.Path(__file__).parents[1] / "src/dendrax/data/fashion_mnist_subset.npz"


def read(path: pathlib.Path, header: int) -> np.ndarray:
    """The bytes after the header of an IDX file."""
    return np.frombuffer(gzip.decompress(path.read_bytes()), np.uint8, offset=header)


def first_of_each(labels: np.ndarray, count: int) -> np.ndarray:
    """The positions of the first ``count`` samples of each class."""
    return np.sort(np.concatenate([np.flatnonzero(labels == k)[:count] for k in range(10)]))


def main(folder: pathlib.Path) -> None:
    """Read, choose, write."""
    arrays = {}
    for name, split, count in (("train", "train", 500), ("test", "t10k", 100)):
        labels = read(folder / f"{split}-labels-idx1-ubyte.gz", 8)
        images = read(folder / f"{split}-images-idx3-ubyte.gz", 16).reshape(-1, 28, 28)
        chosen = first_of_each(labels, count)
        arrays |= {f"{name}_images": images[chosen], f"{name}_labels": labels[chosen]}
    np.savez_compressed(TARGET, **arrays)
    print(f"wrote {TARGET.name}: {TARGET.stat().st_size / 1e6:.1f} MB")


if __name__ == "__main__":
    main(pathlib.Path(sys.argv[1]))
