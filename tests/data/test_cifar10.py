"""CIFAR-10 from the binary version; pickles are refused."""

import pytest

from dendrax.data import _cifar10, cifar10
from tests.data import make

IMAGES = make.small_images((32, 32, 3), train=50, test=10)


@pytest.fixture(autouse=True)
def published(home, monkeypatch):
    monkeypatch.setattr(_cifar10, "SHA256", make.digests(IMAGES))
    monkeypatch.setattr(_cifar10, "PER_BATCH", 10)


@pytest.mark.parametrize("below", ["", "cifar-10-batches-bin"])
def test_binary_folder(tmp_path, below):
    folder = tmp_path / "d" / below
    folder.mkdir(parents=True)
    for name, content in make.cifar_binary(IMAGES).items():
        (folder / name).write_bytes(content)
    assert make.same(cifar10(data_dir=tmp_path / "d"), IMAGES)


def _relabel(label):
    def spoil(members):
        members["test_batch.bin"] = bytes([label]) + members["test_batch.bin"][1:]

    return spoil


BINARY = {
    "cut short": (
        lambda m: m.update({"data_batch_2.bin": m["data_batch_2.bin"][:-1]}),
        "data_batch_2.bin has 30729 bytes, where 30730 should be",
    ),
    "labels": (_relabel(77), "label 77: labels are 0 to 9"),
    "one wrong label": (
        _relabel(9 - int(IMAGES.test_labels[0])),
        "does not hold the published test_labels",
    ),
}


@pytest.mark.parametrize(("spoil", "problem"), BINARY.values(), ids=BINARY)
def test_spoilt_binary_files(tmp_path, spoil, problem):
    members = make.cifar_binary(IMAGES)
    spoil(members)
    for name, content in members.items():
        (tmp_path / name).write_bytes(content)
    with pytest.raises(ValueError, match=f"dendrax.data.cifar10: .*{problem}") as error:
        cifar10(data_dir=tmp_path)
    assert str(error.value).endswith(f"dendrax data get cifar10 --data-dir {tmp_path}")


def test_an_incomplete_binary_folder(tmp_path):
    for name, content in make.cifar_binary(IMAGES).items():
        (tmp_path / name).write_bytes(content)
    (tmp_path / "data_batch_4.bin").unlink()
    with pytest.raises(ValueError, match=r"data_batch_4.bin cannot be read: No such file"):
        cifar10(data_dir=tmp_path)


@pytest.mark.parametrize("name", ["cifar-10-batches-py", "cifar-10-python.tar.gz"])
def test_pickles_are_not_read(home, name):
    (home / "data" / name).mkdir(parents=True)
    problem = f"cifar10: data/{name} holds pickles, which are not read(?s:.*)data get cifar10"
    with pytest.raises(FileNotFoundError, match=problem):
        cifar10()


def test_missing(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"does not hold CIFAR-10(?s:.*)data get"):
        cifar10(data_dir=tmp_path)
