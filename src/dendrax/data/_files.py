"""Bytes out of files and compressed files; arrays and members out of zip files.

Nothing is ever unpacked to disk, and no pickle is ever read. What a file or a member of an archive
may hold is bounded, whatever it says of itself. What is wrong with a file is a `BadFile`; whoever
knows the public function and the remedy turns it into an error.
"""

from __future__ import annotations

import contextlib
import gzip
import io
import lzma
import pathlib
import struct
import tarfile
import tokenize
import zipfile
import zlib
from collections.abc import Iterator, Sequence
from typing import IO

import numpy as np

from dendrax.support import in_words, is_special

MAX_DATA_BYTES = 200_000_000  # bytes, decompressed: every data set here has less
# What the standard library and numpy raise over damaged archives: besides its own kinds, a flipped
# bit can claim an unknown compression (RuntimeError) or make a number, a name or a header
# unreadable (ValueError, TypeError).
_DAMAGE = (
    OSError,
    EOFError,
    MemoryError,
    SyntaxError,
    TypeError,
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
    with opened_zip(path) as archive:
        held = set(archive.namelist())
        members = [archive.getinfo(name) for name in all_held(path, names, held)]
        check_sizes(path, [member.file_size for member in members])
        return [_zip_member(path, archive, member) for member in members]


def _zip_member(path: pathlib.Path, archive: zipfile.ZipFile, member: zipfile.ZipInfo) -> bytes:
    if member.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
        raise BadFile(path, f"holds {member.filename} in a compression that is not read.")
    with archive.open(member) as stream:  # piece by piece: it may hold more than it promises
        return _read_bounded(path, stream, member.file_size)


def from_npz(path: pathlib.Path, names: Sequence[str]) -> list[np.ndarray]:
    """The arrays ``names`` of a file that numpy wrote; what they hold is checked by `from_zip`."""
    contents = from_zip(path, [f"{name}.npy" for name in names])
    with reading(path):
        return [np.lib.format.read_array(io.BytesIO(content)) for content in contents]


@contextlib.contextmanager
def opened_zip(path: pathlib.Path) -> Iterator[zipfile.ZipFile]:
    """A zip file, while it is read."""
    with reading(path):
        if not path.stat().st_size:
            raise BadFile(path, "is empty.")
        with zipfile.ZipFile(path) as archive:
            yield archive


def check_sizes(path: pathlib.Path, sizes: Sequence[int]) -> None:
    """Raise if so many bytes are more than is read of a file."""
    if sum(sizes) > MAX_DATA_BYTES:
        raise BadFile(
            path, f"promises {in_words(sum(sizes))}, where {in_words(MAX_DATA_BYTES)} are the most."
        )


def all_held(path: pathlib.Path, names: Sequence[str], held: set[str]) -> Sequence[str]:
    """The names; raises unless all of them are held."""
    for name in names:
        if name not in held:
            raise BadFile(path, f"does not hold {name}.")
    return names
