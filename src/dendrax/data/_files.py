"""Bytes out of files, compressed files and the archives of package registries (wheel, npm, Debian).

Nothing is ever unpacked to disk, and no pickle is ever read. What is wrong with a file is a
`BadFile`; whoever knows the public function and the remedy turns it into an error.
"""

from __future__ import annotations

import contextlib
import gzip
import io
import lzma
import pathlib
import posixpath
import struct
import tarfile
import zipfile
import zlib
from collections.abc import Iterator, Sequence
from typing import BinaryIO

import numpy as np

# What the standard library raises over damaged archives: besides its own kinds, a flipped bit can
# claim an unknown compression (RuntimeError) or make a number or a name unreadable (ValueError).
_DAMAGE = (
    OSError,
    EOFError,
    ValueError,
    RuntimeError,
    struct.error,
    zlib.error,
    lzma.LZMAError,
    tarfile.TarError,
    zipfile.BadZipFile,
)


class BadFile(Exception):
    """A file that is there, but is not what it should be: ``path`` and the rest of the sentence."""

    def __init__(self, path: pathlib.Path, problem: str):
        super().__init__(f"{path} {problem}")
        self.path = path


@contextlib.contextmanager
def reading(path: pathlib.Path) -> Iterator[None]:
    """While a file is read: whatever the system or a decompressor complains of is a `BadFile`."""
    try:
        yield
    except (PermissionError, FileNotFoundError, IsADirectoryError) as error:
        raise BadFile(path, f"cannot be read: {error.strerror}.") from error
    except _DAMAGE as error:
        raise BadFile(path, f"is damaged or cut short ({error or 'unexpected end'}).") from error


def read_file(path: pathlib.Path) -> bytes:
    """What a file holds, decompressed if its name ends in ``.gz``."""
    with reading(path):
        content = path.read_bytes()
        if not content:
            raise BadFile(path, "is empty.")
        return gzip.decompress(content) if path.suffix == ".gz" else content


def from_zip(path: pathlib.Path, names: Sequence[str]) -> list[bytes]:
    """The members ``names`` of a zip file such as a wheel."""
    with _opened_zip(path) as archive:
        held = set(archive.namelist())
        return [archive.read(name) for name in _all_held(path, names, held)]


def names_in_zip(path: pathlib.Path) -> list[str]:
    """The names of a zip file's members, sorted."""
    with _opened_zip(path) as archive:
        return sorted(archive.namelist())


def from_npz(path: pathlib.Path, names: Sequence[str]) -> list[np.ndarray]:
    """The arrays ``names`` of a file that numpy wrote.

    By way of `from_zip`, which checks the checksums first: numpy's own reader would parse a damaged
    header, and fail in many ways. One at a time, since they may be large.
    """
    arrays: list[np.ndarray] = []
    for name in names:
        (content,) = from_zip(path, [f"{name}.npy"])
        with reading(path):
            arrays.append(np.load(io.BytesIO(content), allow_pickle=False))
    return arrays


def from_tar(path: pathlib.Path, names: Sequence[str]) -> list[bytes]:
    """The members ``names`` of a tar file, compressed in any way, such as an npm package."""
    # Not `read_file`: tarfile decompresses as it reads, and CIFAR's archive is large.
    with reading(path), path.open("rb") as stream:
        return _members(path, stream, names)


def from_deb(path: pathlib.Path, names: Sequence[str]) -> list[bytes]:
    """The files ``names`` of a Debian package: an `ar` archive that holds a tar file of them."""
    with reading(path):
        for name, content in _ar_members(path, read_file(path)):
            if name.startswith("data.tar"):
                return _members(path, io.BytesIO(content), names)
    raise BadFile(path, "is not a Debian package: it has no member data.tar.")


@contextlib.contextmanager
def _opened_zip(path: pathlib.Path) -> Iterator[zipfile.ZipFile]:
    with reading(path):
        if not path.stat().st_size:
            raise BadFile(path, "is empty.")
        with zipfile.ZipFile(path) as archive:
            yield archive


def _ar_members(path: pathlib.Path, content: bytes) -> Iterator[tuple[str, bytes]]:
    """Names and contents. A header has 60 bytes: 16 of name, and from 48 on 10 digits of size."""
    if not content.startswith(b"!<arch>\n"):
        raise BadFile(path, "is not a Debian package: it does not begin with !<arch>.")
    start = 8
    while start + 60 <= len(content):
        size = int(content[start + 48 : start + 58])
        if size < 0 or start + 60 + size > len(content):
            raise EOFError(f"{len(content)} bytes, more are promised")
        name = content[start : start + 16].decode("ascii").strip().rstrip("/")
        yield name, content[start + 60 : start + 60 + size]
        start += 60 + size + size % 2


def _members(path: pathlib.Path, stream: BinaryIO, names: Sequence[str]) -> list[bytes]:
    """The members ``names`` of a tar file, in one pass: a compressed one cannot be sought in."""
    found: dict[str, bytes] = {}
    with tarfile.open(fileobj=stream, mode="r:*") as archive:
        for member in archive:
            name = posixpath.normpath(member.name)
            content = archive.extractfile(member) if member.isfile() and name in names else None
            if content is not None:
                found[name] = content.read()
    return [found[name] for name in _all_held(path, names, set(found))]


def _all_held(path: pathlib.Path, names: Sequence[str], held: set[str]) -> Sequence[str]:
    for name in names:
        if name not in held:
            raise BadFile(path, f"does not hold {name}.")
    return names
