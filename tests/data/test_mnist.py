"""MNIST from IDX files and from keras' file."""

import numpy as np
import pytest

from dendrax.data import _mnist, mnist
from tests.data import make

IMAGES = make.small_images()


@pytest.fixture(autouse=True)
def published(home, monkeypatch):
    monkeypatch.setattr(_mnist, "SHA256", make.digests(IMAGES))


def test_idx_files(home):
    make.write_idx(home / "data/MNIST/raw", IMAGES, "")
    assert make.same(mnist(), IMAGES)


def test_the_images_of_the_wheel_are_published_too(home, monkeypatch):
    monkeypatch.setattr(_mnist, "WHEEL_SHA256", make.digests(make.small_images(seed=1)))
    make.write_idx(home / ".cache/dendrax/mnist", make.small_images(seed=1), "")
    assert make.same(mnist(), make.small_images(seed=1))


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


def _npz(**arrays):
    names = ("x_train", "y_train", "x_test", "y_test")
    held = {**dict(zip(names, IMAGES, strict=True)), **arrays}
    return {name: array for name, array in held.items() if array is not None}


KERAS = {
    "no test": (_npz(x_test=None), "does not hold x_test.npy"),
    "pickled": (_npz(x_test=np.array([{}])), "is damaged or cut short.*Object arrays"),
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
