"""Files that promise more than they hold, or hold more than there is room for."""

import gzip
import os
import struct
import tracemalloc
import zipfile
import zlib

import numpy as np
import PIL.Image
import pytest

from dendrax.data import ImageFolder, _files, _pillow, text
from dendrax.data._archives import from_deb, from_tar
from dendrax.data._files import MAX_DATA_BYTES, BadFile, from_npz, from_zip, read_file
from tests.data import make


def test_more_than_may_be_read(tmp_path):
    content = bytes(20_000)
    (tmp_path / "a").write_bytes(content)
    (tmp_path / "a.gz").write_bytes(gzip.compress(content))
    for name in ("a", "a.gz"):
        assert read_file(tmp_path / name, most=20_000) == content
        with pytest.raises(BadFile, match=rf"{name} holds more than 20 kB"):
            read_file(tmp_path / name, most=19_999)


def test_images_for_which_there_is_no_room(tmp_path, monkeypatch):
    (tmp_path / "class").mkdir()
    (tmp_path / "class" / "a.png").write_bytes(make.encode(np.zeros((8, 8, 3), np.uint8)))
    folder = ImageFolder(tmp_path, size=8)
    monkeypatch.setattr("dendrax.support._memory.available_memory", lambda: 8 * 8 * 3 * 2)
    assert folder.images([0, 0]).shape == (2, 8, 8, 3)
    with pytest.raises(MemoryError, match=r"3 images would take 576 bytes, and 384 bytes are"):
        folder.images([0, 0, 0])


def test_a_text_for_which_there_is_no_room(tmp_path, monkeypatch):
    (tmp_path / "a.txt.gz").write_bytes(gzip.compress(b"ab" * 1000))
    assert len(text(tmp_path / "a.txt.gz").train) == 1800
    monkeypatch.setattr("dendrax.data._text.available_memory", lambda: 20 * 1500.0)
    with pytest.raises(ValueError, match=r"data\.text: .*a\.txt\.gz holds more than 1\.5 kB"):
        text(tmp_path / "a.txt.gz")


@pytest.mark.parametrize("name", ["a.txt", "a.txt.gz"])
def test_a_text_that_is_too_long_is_not_read_to_find_out(tmp_path, monkeypatch, name):
    monkeypatch.setattr(_files, "MAX_DATA_BYTES", 1_000_000)
    monkeypatch.setattr("dendrax.data._text.available_memory", lambda: 20 * 30_000_000.0)
    with (gzip.open if name == "a.txt.gz" else open)(tmp_path / name, "wb") as stream:
        stream.write(b"ab" * 20_000_000)
    tracemalloc.start()
    with pytest.raises(ValueError, match=r"(?s)holds more than 30 MB.*Name another file"):
        text(tmp_path / name)
    assert tracemalloc.get_traced_memory()[1] < 6_000_000
    tracemalloc.stop()


def test_an_archive_that_promises_too_much(tmp_path):
    """Its directory says so, before anything is decompressed."""
    make.write_zip(tmp_path / "a.whl", {"x": b"x" * 10})
    content = (tmp_path / "a.whl").read_bytes()
    size = content.rindex(b"PK\x01\x02") + 24  # in the central directory: size without compression
    lying = content[:size] + struct.pack("<I", MAX_DATA_BYTES + 1) + content[size + 4 :]
    (tmp_path / "a.whl").write_bytes(lying)
    with pytest.raises(BadFile, match=r"a\.whl promises 200 MB, where 200 MB are the most"):
        from_zip(tmp_path / "a.whl", ["x"])


@pytest.mark.parametrize("kind", [zipfile.ZIP_DEFLATED, zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA])
def test_an_archive_that_holds_more_than_it_promises(tmp_path, kind):
    with zipfile.ZipFile(tmp_path / "a.whl", "w", kind) as archive:
        archive.writestr("x", bytes(50_000_000))
    content = (tmp_path / "a.whl").read_bytes()
    size = content.rindex(b"PK\x01\x02") + 24
    (tmp_path / "a.whl").write_bytes(content[:size] + struct.pack("<I", 10) + content[size + 4 :])
    tracemalloc.start()
    with pytest.raises(BadFile, match=r"a\.whl (is damaged|holds x in a compression)"):
        from_zip(tmp_path / "a.whl", ["x"])
    assert tracemalloc.get_traced_memory()[1] < 10_000_000
    tracemalloc.stop()


def test_a_name_that_is_a_book(tmp_path, monkeypatch):
    monkeypatch.setattr("dendrax.data._files.MAX_DATA_BYTES", 1_000_000)
    (tmp_path / "a.tgz").write_bytes(make.tar({"x" * 3_000_000: b"", "y": b"y"}, "w:gz"))
    with pytest.raises(BadFile, match=r"a\.tgz holds more than 1 MB"):
        from_tar(tmp_path / "a.tgz", ["y"])


def test_a_large_picture_is_held_once():
    """One of 80 million pixels, in 200 kB, took 1.2 GB."""
    image = PIL.Image.new("RGB", (8, 8))
    assert _pillow._rgb(image) is image
    assert _pillow._rgb(PIL.Image.new("L", (8, 8))).mode == "RGB"


def test_a_picture_that_is_a_line(tmp_path):
    (tmp_path / "class").mkdir()
    (tmp_path / "class" / "a.png").write_bytes(make.encode(np.zeros((60_000, 1), np.uint8)))
    with pytest.raises(ValueError, match=r"a\.png is 1 x 60000 pixels: too narrow"):
        ImageFolder(tmp_path).images([0])


@pytest.mark.parametrize(("name", "read"), [("a.tgz", from_tar), ("a.deb", from_deb)])
def test_a_member_that_promises_too_much(tmp_path, name, read):
    plain = bytearray(make.tar({"x": b"x", "y": b"y"}, "w:"))
    plain[124:136] = b"%011o\0" % (MAX_DATA_BYTES + 1)
    plain[148:156] = b" " * 8
    plain[148:156] = b"%06o\0 " % sum(plain[:512])
    packed = gzip.compress(bytes(plain))
    content = packed if name == "a.tgz" else make.ar({"data.tar.gz": packed})
    (tmp_path / name).write_bytes(content)
    with pytest.raises(BadFile, match=rf"{name} promises 200 MB"):
        read(tmp_path / name, ["y"])


def array_file(header: str, content: bytes = b"") -> bytes:
    text = header.encode().ljust(117) + b"\n"
    return b"\x93NUMPY\x01\x00" + struct.pack("<H", len(text)) + text + content


@pytest.mark.parametrize(
    ("content", "match"),
    [
        (
            array_file("{'descr': '|u1', 'fortran_order': False, 'shape': (10**12,)}"),
            "is damaged",
        ),
        (
            array_file("{'descr': '|u1', 'fortran_order': False, 'shape': (1000000000000,)}", b"1"),
            "is damaged",
        ),
        (
            array_file("{'descr': '|O', 'fortran_order': False, 'shape': (1,)}", b"8" * 8),
            "Object arrays",
        ),
        (b"\x93NUMPY\x09\x00", r"is damaged .*version"),
        (b"GIF89a", "is damaged"),
        (array_file("{("), "is damaged"),
        (array_file("{[]: 1, 'descr': '|u1'}"), "is damaged"),
        (array_file("-" * 110 + "1"), "is damaged"),
    ],
)
def test_arrays_that_lie(tmp_path, content, match):
    make.write_zip(tmp_path / "a.npz", {"x.npy": content})
    with pytest.raises(BadFile, match=match):
        from_npz(tmp_path / "a.npz", ["x"])


@pytest.mark.parametrize("order", ["C", "F"])
def test_arrays_that_do_not(tmp_path, order):
    array = np.asarray(np.arange(24, dtype=">i4").reshape(2, 3, 4), order=order)
    np.savez(tmp_path / "a.npz", x=array, y=np.array("text"), z=np.zeros((0, 3)))
    found = from_npz(tmp_path / "a.npz", ["x", "y", "z"])
    assert (found[0] == array).all() and found[0].dtype == array.dtype
    assert str(found[1]) == "text" and found[2].shape == (0, 3)
    found[0][0] = 1  # it can be written to


def png(width: int, height: int) -> bytes:
    """A picture of which the header promises so many pixels, and that holds none."""

    def chunk(kind: bytes, content: bytes) -> bytes:
        return (
            struct.pack(">I", len(content))
            + kind
            + content
            + struct.pack(">I", zlib.crc32(kind + content))
        )

    header = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", b"") + chunk(b"IEND", b"")


@pytest.mark.parametrize("size", [(10_000, 10_000), (100_000, 100_000), (2**31 - 1, 2**31 - 1)])
def test_a_picture_that_lies(tmp_path, size):
    (tmp_path / "class").mkdir()
    (tmp_path / "class" / "a.png").write_bytes(png(*size))
    with pytest.raises(ValueError, match=r"a\.png .* cannot be decoded .*(pixels|large)"):
        ImageFolder(tmp_path).images([0])


@pytest.mark.parametrize("make_it", [os.mkfifo, lambda path: path.symlink_to("/dev/zero")])
def test_what_is_no_file_is_not_waited_for(tmp_path, make_it):
    (tmp_path / "class").mkdir()
    make_it(tmp_path / "class" / "a.png")
    with pytest.raises(ValueError, match=r"a\.png is a pipe or a device, not a file"):
        ImageFolder(tmp_path).images([0])
    for read in (from_zip, from_tar, from_deb, from_npz):
        with pytest.raises(BadFile, match=r"a\.png is a pipe or a device"):
            read(tmp_path / "class" / "a.png", ["x"])
