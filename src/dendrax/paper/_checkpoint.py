"""A tree of arrays and some JSON in one file, which is there as a whole or not at all."""

from __future__ import annotations

import io
import json
import pathlib
import zipfile
from typing import Any, TypeVar

import jax
import jax.numpy as jnp
import numpy as np

from dendrax.support import write_atomically

T = TypeVar("T")


def save_arrays(path: pathlib.Path, tree: Any, notes: Any) -> None:
    """Write the leaves of a tree, and notes that JSON can say."""
    stream = io.BytesIO()
    arrays = {"notes": np.array(json.dumps(notes))}
    arrays |= {f"leaf{i}": np.asarray(leaf) for i, leaf in enumerate(jax.tree.leaves(tree))}
    np.savez(stream, allow_pickle=False, **arrays)
    write_atomically(path, stream.getvalue())


def load_arrays(path: pathlib.Path, like: T) -> tuple[T, Any] | None:
    """The tree and the notes; None if there is no such file, or it is not of this tree."""
    expected, structure = jax.tree.flatten(like)
    try:
        # Through memory: np.load leaves a file open that it cannot read.
        with np.load(io.BytesIO(path.read_bytes()), allow_pickle=False) as file:
            leaves = [file[f"leaf{i}"] for i in range(len(file.files) - 1)]
            notes = json.loads(str(file["notes"]))
    except (OSError, KeyError, ValueError, EOFError, zipfile.BadZipFile):
        return None
    if [_kind(leaf) for leaf in leaves] != [_kind(leaf) for leaf in expected]:
        return None
    return jax.tree.unflatten(structure, map(jnp.asarray, leaves)), notes


def _kind(leaf: Any) -> tuple[Any, Any]:
    return np.shape(leaf), np.asarray(leaf).dtype
