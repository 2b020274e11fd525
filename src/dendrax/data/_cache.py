"""Images that are slow to decode are kept, decoded, in the cache folder: one file per data set.

The file remembers from which source it was made (path, size, time of change), so a changed source
is decoded anew. Nothing depends on it: without a writable cache folder, decoding takes longer.
"""

from __future__ import annotations

import contextlib
import io
import pathlib
from collections.abc import Callable

import numpy as np

from dendrax.data._data_set import cache_folder
from dendrax.data._files import BadFile, from_npz, reading
from dendrax.data._images import Images
from dendrax.support import write_atomically

_VERSION = 1  # of what is kept; a new number discards what older versions of dendrax wrote


def cached(name: str, source: pathlib.Path, make: Callable[[], Images]) -> Images:
    """What ``make()`` returns, or what it returned earlier for the same file ``source``."""
    file = cache_folder() / "decoded" / f"{name}.npz"
    key = _key(source)
    kept = _read(file, key)
    if kept is None:
        kept = make()
        _write(file, key, kept)
    return kept


def _key(source: pathlib.Path) -> str:
    with reading(source):
        status = source.stat()
        return f"{_VERSION}:{source.resolve()}:{status.st_size}:{status.st_mtime_ns}"


def _read(file: pathlib.Path, key: str) -> Images | None:
    """The kept images; none if there are none, if they are of another source, or damaged."""
    try:
        if str(*from_npz(file, ["key"])) != key:
            return None
        return Images(*from_npz(file, Images._fields))
    except BadFile:
        return None


def _write(file: pathlib.Path, key: str, images: Images) -> None:
    with contextlib.suppress(OSError):  # no room, or not our folder: then nothing is kept
        stream = io.BytesIO()
        np.savez(stream, allow_pickle=False, key=np.array(key), **images._asdict())
        write_atomically(file, stream.getvalue())
