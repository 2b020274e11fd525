"""Members of the archives of package registries: wheels (zip), npm and Debian packages (tar).

Nothing of an archive is unpacked to disk unread. What a member may hold is bounded, whatever it
says of itself. What is wrong with an archive is a `BadFile`.
"""

from __future__ import annotations

import bz2
import gzip
import io
import lzma
import pathlib
import posixpath
import tarfile
from collections.abc import Iterator, Sequence
from typing import Any, BinaryIO

from dendrax.data import _files
from dendrax.data._files import BadFile, all_held, check_sizes, opened_zip, read_file, reading
from dendrax.support import in_words


def names_in_zip(path: pathlib.Path) -> list[str]:
    """The names of a zip file's members, sorted."""
    with opened_zip(path) as archive:
        return sorted(archive.namelist())


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
            check_sizes(path, [member.offset_data, member.size])  # what comes before is read, too
            name = posixpath.normpath(member.name)
            content = archive.extractfile(member) if member.isfile() and name in names else None
            if content is not None:
                found[name] = content.read()
    return [found[name] for name in all_held(path, names, set(found))]


def _decompressed(stream: BinaryIO) -> BinaryIO:
    start = stream.read(6)
    stream.seek(0)
    readers = {b"\x1f\x8b": gzip.open, b"BZh": bz2.open, b"\xfd7zXZ\x00": lzma.open}
    found: Any = next((reader for mark, reader in readers.items() if start.startswith(mark)), None)
    return stream if found is None else found(stream)


class _Bounded(io.RawIOBase):
    """A stream of which only so much is read, whatever its headers promise."""

    def __init__(self, path: pathlib.Path, stream: BinaryIO):
        self._path, self._stream, self._left = path, stream, _files.MAX_DATA_BYTES

    def read(self, size: int = -1) -> bytes:
        piece = self._stream.read(size if 0 <= size <= self._left else self._left + 1)
        self._left -= len(piece)
        if self._left < 0:
            raise BadFile(self._path, f"holds more than {in_words(_files.MAX_DATA_BYTES)}.")
        return piece
