"""What data there are, and which of them are on this machine."""

from __future__ import annotations

import importlib.resources
from typing import Any, NamedTuple

from dendrax.data._cifar10 import CIFAR10
from dendrax.data._data_set import DataDir, DataSet, command_for, find
from dendrax.data._fashion_mnist import FASHION_MNIST, SUBSET
from dendrax.data._mnist import MNIST
from dendrax.data._photographs import PHOTOGRAPHS
from dendrax.data._text import MOBY_DICK
from dendrax.support import public


class Source(NamedTuple):
    """A data set: how to call it, whether and where it is, what gets it, what it is."""

    name: str
    found: bool
    where: str
    command: str
    about: str


@public("dendrax.data.sources")
def sources(data_dir: DataDir = None) -> list[Source]:
    """Every data set of `dendrax.data`, whether it is on this machine or not.

    Nothing is opened or decoded, so a file that is found may still turn out to be damaged.

    **Arguments:**

    - `data_dir`: the folder to look in. Without it, wherever the loaders look.

    **Returns:**

    A list of `Source`: `name` (a call), `found`, `where` (empty if not found), `command` (for a
    shell; empty if the data ship with dendrax) and `about` (what it is, and its licence).

    !!! example

        ```python
        from dendrax.data import sources

        for source in sources():
            print(source.name, source.where or source.command)
        ```
    """
    return [
        _shipped("fashion_mnist()", SUBSET, "5000 + 1000 images of FashionMNIST; MIT licence"),
        _to_get("fashion_mnist(full=True)", FASHION_MNIST, data_dir),
        _to_get("mnist()", MNIST, data_dir),
        _to_get("cifar10()", CIFAR10, data_dir),
        _to_get("imagenet_photographs()", PHOTOGRAPHS, data_dir),
        _shipped("moby_dick()", MOBY_DICK, "the novel, 1.2 million characters; public domain"),
    ]


def _shipped(name: str, file: str, about: str) -> Source:
    where = importlib.resources.files("dendrax.data") / file
    return Source(name, where.is_file(), str(where), "", about)


def _to_get(name: str, data_set: DataSet[Any], data_dir: DataDir) -> Source:
    found = find(data_set, data_dir)
    where = str(found[1]) if found else ""
    return Source(name, bool(found), where, command_for(data_set, data_dir), data_set.about)
