"""Bytes out of files, compressed files and the archives of package registries (wheel, npm, Debian).

Nothing is ever unpacked to disk, and no pickle is ever read. What a file or a member of an archive
may hold is bounded, whatever it says of itself. What is wrong with a file is a `BadFile`; whoever
knows the public function and the remedy turns it into an error.
"""

from __future__ import annotations

import bz2
import contextlib
import gzip
import io
import lzma
import math
import pathlib
import posixpath
import struct
import tarfile
import tokenize
import zipfile
import zlib
from collections.abc import Iterator, Sequence
from typing import IO, Any, BinaryIO

import numpy as np

from dendrax.support import in_words, is_special

MAX_DATA_BYTES = 200_000_000  # bytes, decompressed: every data set here has less
# What the standard library raises over damaged archives: besides its own kinds, a flipped bit can
# claim an unknown compression (RuntimeError) or make a number or a name unreadable (ValueError).
_DAMAGE = (
    OSError,
    EOFError,
    MemoryError,
    SyntaxError,
    ValueError,
    RuntimeError,
    tokenize.TokenError,
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
        if is_special(path):
            raise BadFile(path, "is a pipe or a device, not a file.")
        yield
    except (PermissionError, FileNotFoundError, IsADirectoryError) as error:
        raise BadFile(path, f"cannot be read: {error.strerror}.") from error
    except _DAMAGE as error:
        raise BadFile(path, f"is damaged or cut short ({error or 'unexpected end'}).") from error


def read_file(path: pathlib.Path, most: int = MAX_DATA_BYTES) -> bytes:
    """What a file holds, decompressed if its name ends in ``.gz``; at most so many bytes."""
    with reading(path):
        if not path.stat().st_size:
            raise BadFile(path, "is empty.")
        if most > MAX_DATA_BYTES and _length_of(path, most) > most:
            raise _too_long(path, most)
        with gzip.open(path) if path.suffix == ".gz" else path.open("rb") as stream:
            return _read_bounded(path, stream, most)


def _length_of(path: pathlib.Path, most: int) -> int:
    """How many bytes a file holds, decompressed; beyond ``most`` they are not counted any more."""
    if path.suffix != ".gz":
        return path.stat().st_size
    length = 0
    with gzip.open(path) as stream:  # read twice, rather than fill gigabytes and then refuse
        while length <= most and (piece := stream.read(2**20)):
            length += len(piece)
    return length


def gunzipped(path: pathlib.Path, content: bytes) -> bytes:
    """What a compressed member of the archive ``path`` holds."""
    with reading(path), gzip.open(io.BytesIO(content)) as stream:
        return _read_bounded(path, stream, MAX_DATA_BYTES)


def _read_bounded(path: pathlib.Path, stream: IO[bytes] | io.BufferedIOBase, most: int) -> bytes:
    content = bytearray()
    while piece := stream.read(2**20):
        content += piece
        if len(content) > most:
            raise _too_long(path, most)
    return bytes(content)


def _too_long(path: pathlib.Path, most: int) -> BadFile:
    return BadFile(path, f"holds more than {in_words(most)}, the most that is read of it.")


def from_zip(path: pathlib.Path, names: Sequence[str]) -> list[bytes]:
    """The members ``names`` of a zip file such as a wheel."""
    with _opened_zip(path) as archive:
        held = set(archive.namelist())
        members = [archive.getinfo(name) for name in _all_held(path, names, held)]
        _check_sizes(path, [member.file_size for member in members])
        return [_zip_member(path, archive, member) for member in members]


def _zip_member(path: pathlib.Path, archive: zipfile.ZipFile, member: zipfile.ZipInfo) -> bytes:
    if member.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
        raise BadFile(path, f"holds {member.filename} in a compression that is not read.")
    with archive.open(member) as stream:  # piece by piece: it may hold more than it promises
        return _read_bounded(path, stream, member.file_size)


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
            arrays.append(_parse_array(content))
    return arrays


def _parse_array(content: bytes) -> np.ndarray:
    """An array as numpy writes it. Its size is compared with its header's before it is made."""
    stream = io.BytesIO(content)
    version = np.lib.format.read_magic(stream)
    if version not in _HEADERS:
        raise ValueError(f"an array of version {version}")
    try:
        shape, fortran, dtype = _HEADERS[version](stream)
    except TypeError as problem:  # a header with a dictionary whose keys are lists
        raise ValueError(f"a header that cannot be read: {problem}") from problem
    held, promised = len(content) - stream.tell(), math.prod(shape) * dtype.itemsize
    if dtype.hasobject:
        raise ValueError("pickled objects, which are not read")
    if held != promised:
        raise ValueError(f"{held} bytes, its header promises {promised} of {dtype}")
    flat = np.frombuffer(content, dtype, offset=stream.tell())
    return flat.reshape(shape, order="F" if fortran else "C").copy()


_HEADERS = {
    (1, 0): np.lib.format.read_array_header_1_0,
    (2, 0): np.lib.format.read_array_header_2_0,
}


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
    with tarfile.open(fileobj=_Bounded(path, _decompressed(stream)), mode="r|") as archive:
        for member in archive:
            _check_sizes(path, [member.offset_data, member.size])  # what comes before is read, too
            name = posixpath.normpath(member.name)
            content = archive.extractfile(member) if member.isfile() and name in names else None
            if content is not None:
                found[name] = content.read()
    return [found[name] for name in _all_held(path, names, set(found))]


def _decompressed(stream: BinaryIO) -> BinaryIO:
    start = stream.read(6)
    stream.seek(0)
    readers = {b"\x1f\x8b": gzip.open, b"BZh": bz2.open, b"\xfd7zXZ\x00": lzma.open}
    found: Any = next((reader for mark, reader in readers.items() if start.startswith(mark)), None)
    return stream if found is None else found(stream)


class _Bounded(io.RawIOBase):
    """A stream of which only so much is read, whatever its headers promise."""

    def __init__(self, path: pathlib.Path, stream: BinaryIO):
        self._path, self._stream, self._left = path, stream, MAX_DATA_BYTES

    def read(self, size: int = -1) -> bytes:
        piece = self._stream.read(size if 0 <= size <= self._left else self._left + 1)
        self._left -= len(piece)
        if self._left < 0:
            raise BadFile(self._path, f"holds more than {in_words(MAX_DATA_BYTES)}.")
        return piece


def _check_sizes(path: pathlib.Path, sizes: Sequence[int]) -> None:
    if sum(sizes) > MAX_DATA_BYTES:
        raise BadFile(
            path, f"promises {in_words(sum(sizes))}, where {in_words(MAX_DATA_BYTES)} are the most."
        )


def _all_held(path: pathlib.Path, names: Sequence[str], held: set[str]) -> Sequence[str]:
    for name in names:
        if name not in held:
            raise BadFile(path, f"does not hold {name}.")
    return names
