"""Which data there are on this machine, and which of them stand in for what is missing."""

from __future__ import annotations

import functools
import pathlib
from dataclasses import dataclass

import numpy as np

from dendrax import data
from dendrax.data import standardised


@dataclass(frozen=True)
class Samples:
    """Inputs (pixels of mean 0 and variance 1, or characters), their classes, and the source."""

    name: str
    train_inputs: np.ndarray
    train_labels: np.ndarray
    test_inputs: np.ndarray
    test_labels: np.ndarray


@dataclass(frozen=True)
class Library:
    """The data of the experiments.

    - ``data_dir``: where the full data sets lie; by default the usual places.
    - ``full``: whether to use them where they are found, or only what ships with dendrax.
    """

    data_dir: pathlib.Path | None = None
    full: bool = True

    @functools.cached_property
    def found(self) -> frozenset[str]:
        """The names of the data sets that are on this machine."""
        return frozenset(source.name for source in data.sources(self.data_dir) if source.found)

    @functools.cached_property
    def fashion(self) -> Samples:
        """FashionMNIST: the full set where there is one, else the subset that ships."""
        if self.full and "fashion_mnist(full=True)" in self.found:
            return _samples("FashionMNIST", data.fashion_mnist(full=True, data_dir=self.data_dir))
        return _samples("FashionMNIST subset", data.fashion_mnist())

    @functools.cached_property
    def colour(self) -> Samples:
        """CIFAR-10 where it is found, else FashionMNIST in its one colour."""
        if self.full and "cifar10()" in self.found:
            return _samples("CIFAR-10", data.cifar10(data_dir=self.data_dir))
        return self.fashion

    @functools.cached_property
    def photographs(self) -> Samples | None:
        """ImageNet photographs, or None."""
        if not self.full or "imagenet_photographs()" not in self.found:
            return None
        images, labels = data.imagenet_photographs(data_dir=self.data_dir)
        images = standardised(images, images)
        return Samples("ImageNet photographs (20)", images, labels, images, labels)


def _samples(name: str, images: data.Images) -> Samples:
    train, test = images.train_images, images.test_images
    return Samples(
        f"{name} ({len(train)} + {len(test)})",
        standardised(train, train),
        images.train_labels,
        standardised(test, train),
        images.test_labels,
    )
