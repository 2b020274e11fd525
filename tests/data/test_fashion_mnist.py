"""FashionMNIST from IDX files, and every way in which these are wrong."""

import gzip

import numpy as np
import pytest

from dendrax.data import _fashion_mnist, fashion_mnist
from tests.data import make

NAME = "dendrax.data.fashion_mnist"
IMAGES = make.small_images()
COMMAND = "dendrax data get fashion_mnist"


@pytest.fixture(autouse=True)
def published(home, monkeypatch):
    """The small images are the published ones."""
    monkeypatch.setattr(_fashion_mnist, "SHA256", make.digests(IMAGES))


def test_the_subset_needs_no_files():
    images = fashion_mnist()
    assert images.train_images.shape == (5000, 28, 28) and images.train_images.dtype == np.uint8
    assert (np.bincount(images.test_labels) == 100).all()


@pytest.mark.parametrize("suffix", ["", ".gz"])
@pytest.mark.parametrize("below", [".", "FashionMNIST/raw", "fashion-mnist"])
def test_idx_files(tmp_path, below, suffix):
    make.write_idx(tmp_path / "d" / below, IMAGES, suffix)
    found = fashion_mnist(data_dir=tmp_path / "d")
    assert make.same(found, IMAGES)
    found.train_images[0] = 0  # the caller's own


def test_idx_files_with_a_dot_in_the_name(tmp_path):
    make.write_idx(tmp_path / "d", IMAGES, "")
    for path in list((tmp_path / "d").iterdir()):
        path.rename(path.with_name(path.name.replace("-idx", ".idx")))
    assert make.same(fashion_mnist(data_dir=tmp_path / "d"), IMAGES)


@pytest.mark.parametrize(
    "place", [".cache/dendrax", "data/FashionMNIST/raw", ".keras/datasets/fashion-mnist"]
)
def test_usual_places(home, place):
    make.write_idx(home / place, IMAGES)
    assert make.same(fashion_mnist(full=True), IMAGES)


def test_order_of_places(home, monkeypatch, tmp_path):
    """DENDRAX_DATA, the cache, the others: a later one is not even opened."""
    make.write_idx(home / "data/FashionMNIST/raw", make.small_images(seed=1))
    with pytest.raises(
        ValueError, match=rf"{NAME}: data.*does not hold the published train-images"
    ):
        fashion_mnist(full=True)
    make.write_idx(home / ".cache/dendrax", IMAGES)
    assert make.same(fashion_mnist(full=True), IMAGES)
    make.write_idx(tmp_path / "own", make.small_images(seed=2))
    monkeypatch.setenv("DENDRAX_DATA", str(tmp_path / "own"))
    with pytest.raises(ValueError, match=rf"own.*published(?s:.*)get it again: {COMMAND}"):
        fashion_mnist(full=True)


def test_missing(home):
    with pytest.raises(FileNotFoundError) as error:
        fashion_mnist(full=True)
    folder = home / ".cache/dendrax"
    assert str(error.value).startswith(f"{NAME}: FashionMNIST is in none of: {folder}, ")
    assert f"Get it: {COMMAND}\n" in str(error.value)
    assert "Or pass data_dir=, a folder that holds train-images-idx3-ubyte" in str(error.value)


def test_a_data_dir_is_the_only_place(home, tmp_path):
    make.write_idx(home / ".cache/dendrax", IMAGES)
    with pytest.raises(FileNotFoundError, match=f"{NAME}: data_dir=.* does not hold FashionMNIST"):
        fashion_mnist(data_dir=tmp_path)
    with pytest.raises(FileNotFoundError, match=r"is not a folder(?s:.*)--data-dir '.*a b'"):
        fashion_mnist(data_dir=tmp_path / "a b")


def _cut(content):
    return content[: len(content) // 2]


def _idx_of(array):
    return lambda content: gzip.compress(make.idx(array))


def _flip_the_last_pixel(content):
    raw = gzip.decompress(content)
    return gzip.compress(raw[:-1] + bytes([raw[-1] ^ 1]))


SPOILT = {
    "empty": (lambda content: b"", "is empty"),
    "cut short": (_cut, "is damaged or cut short"),
    "not compressed": (lambda content: b"hello, world", "is damaged or cut short"),
    "not IDX": (lambda content: gzip.compress(b"hello"), "is not an IDX file of bytes.*b'hell'"),
    "nothing in it": (lambda content: gzip.compress(b""), "is not an IDX file"),
    "only a header": (lambda content: gzip.compress(b"\0\0\x08\x03\0"), "header is not complete"),
    "cut before compression": (
        lambda content: gzip.compress(gzip.decompress(content)[:-5]),
        "holds 15675 bytes, its header promises 20 x 28 x 28",
    ),
    "labels": (
        _idx_of(IMAGES.train_labels),
        r"holds labels \(1 dimension\), where images \(3 dimensions\) should be",
    ),
    "two dimensions": (_idx_of(IMAGES.train_images[0]), "holds 2 dimensions, where images"),
    "the test images": (
        _idx_of(IMAGES.test_images),
        r"published train-images-idx3-ubyte: shape \(10, 28, 28\), SHA-256 .{12}\.\.\., not",
    ),
    "one bit": (_flip_the_last_pixel, "does not hold the published train-images-idx3-ubyte"),
}


@pytest.mark.parametrize(("spoil", "problem"), SPOILT.values(), ids=SPOILT)
def test_spoilt_idx_files(tmp_path, spoil, problem):
    make.write_idx(tmp_path / "d", IMAGES)
    path = tmp_path / "d" / "train-images-idx3-ubyte.gz"
    path.write_bytes(spoil(path.read_bytes()))
    with pytest.raises(ValueError, match=problem) as error:
        fashion_mnist(data_dir=tmp_path / "d")
    first, *rest = str(error.value).splitlines()
    assert first.startswith(f"{NAME}: {path} ")
    assert rest == [f"  Delete {path} and get it again: {COMMAND} --data-dir {tmp_path / 'd'}"]


def test_images_where_labels_should_be(tmp_path):
    make.write_idx(tmp_path / "d", IMAGES._replace(test_labels=IMAGES.test_images))
    with pytest.raises(ValueError, match=r"holds images \(3 dimensions\), where labels"):
        fashion_mnist(data_dir=tmp_path / "d")


def test_an_incomplete_folder(tmp_path):
    make.write_idx(tmp_path / "d", IMAGES)
    (tmp_path / "d" / "t10k-labels-idx1-ubyte.gz").unlink()
    problem = "d holds some of the four files, but neither t10k-labels-idx1-ubyte nor"
    with pytest.raises(ValueError, match=problem) as error:
        fashion_mnist(data_dir=tmp_path / "d")
    assert "\n  Get it again: " in str(error.value)  # nothing is to be deleted


def test_images_of_another_size(tmp_path, monkeypatch):
    other = make.small_images((14, 14))
    monkeypatch.setattr(_fashion_mnist, "SHA256", make.digests(other))
    make.write_idx(tmp_path / "d", other)
    with pytest.raises(
        ValueError, match=r"images of shape \(20, 14, 14\) and labels of .* \(20,\)"
    ):
        fashion_mnist(data_dir=tmp_path / "d")
