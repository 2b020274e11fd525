"""Labelled images in memory, and the checks that they are what their data set says."""

from __future__ import annotations

import hashlib
import pathlib
from typing import NamedTuple

import numpy as np

from dendrax.data._files import BadFile


class Images(NamedTuple):
    """Images (uint8; grey: height x width, in colour: x 3) and their classes (uint8, 0 to 9)."""

    train_images: np.ndarray
    train_labels: np.ndarray
    test_images: np.ndarray
    test_labels: np.ndarray


def standardised(images: np.ndarray, all_images: np.ndarray) -> np.ndarray:
    """Float32 pixels of mean 0 and variance 1 over all images, with an axis for the colours."""
    images = images if images.ndim == 4 else images[..., None]
    mean, deviation = np.float32(all_images.mean()), np.float32(all_images.std())
    return (images.astype(np.float32) - mean) / deviation


Digests = tuple[str, str, str, str]  # in the order of the fields of Images


def idx_header(array: np.ndarray) -> bytes:
    """What an IDX file of an array of bytes begins with."""
    return bytes([0, 0, 8, array.ndim]) + np.array(array.shape, ">u4").tobytes()


def digest(array: np.ndarray) -> str:
    """SHA-256 of an array of bytes as an IDX file: the same for every packaging of a data set."""
    state = hashlib.sha256(idx_header(array))
    state.update(np.ascontiguousarray(array).data)
    return state.hexdigest()


def check_digest(path: pathlib.Path, what: str, array: np.ndarray, *published: str) -> None:
    """Raise unless an array is, to the last bit, one that was published."""
    found = digest(array)
    if found not in published:
        raise BadFile(
            path,
            f"does not hold the published {what}: "
            f"shape {array.shape}, SHA-256 {found[:12]}..., not {published[0][:12]}...",
        )


def check_digests(path: pathlib.Path, images: Images, expected: Digests) -> Images:
    """`check_digest` for each of the four arrays."""
    for what, array, known in zip(Images._fields, images, expected, strict=True):
        check_digest(path, what, array, known)
    return images


def check_structure(path: pathlib.Path, images: Images, shape: tuple[int, ...]) -> Images:
    """Raise unless there are bytes, images of one shape, and a label from 0 to 9 for each."""
    train_images, train_labels, test_images, test_labels = images
    for pixels, labels in ((train_images, train_labels), (test_images, test_labels)):
        if not pixels.dtype == labels.dtype == np.uint8:
            raise BadFile(path, f"holds {pixels.dtype} and {labels.dtype}, where bytes should be.")
        if pixels.shape[1:] != shape or labels.shape != pixels.shape[:1] or not labels.size:
            raise BadFile(
                path,
                f"holds images of shape {pixels.shape} and labels of shape {labels.shape}, "
                f"where (n, {', '.join(map(str, shape))}) and (n,) should be.",
            )
        if labels.max() > 9:
            raise BadFile(path, f"holds the label {labels.max()}: labels are 0 to 9.")
    return images
