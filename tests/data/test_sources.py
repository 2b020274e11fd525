"""What `sources` says is what the loaders then find."""

import os

import pytest

from dendrax.data import cifar10, imagenet_photographs, mnist, sources
from tests.data import make

NAMES = [
    "fashion_mnist()",
    "fashion_mnist(full=True)",
    "mnist()",
    "cifar10()",
    "imagenet_photographs()",
    "moby_dick()",
]
FILES = {
    "fashion_mnist(full=True)": "fashion-mnist/train-images-idx3-ubyte",
    "mnist()": "mnist/mnist.npz",
    "cifar10()": "cifar-10-batches-bin/data_batch_1.bin",
    "imagenet_photographs()": "imagenet-photographs/imagenet_00_24.jpg",
}


def test_an_empty_machine(home):
    found = sources()
    assert [source.name for source in found] == NAMES
    assert [source.found for source in found] == [True, False, False, False, False, True]
    cache = home / ".cache/dendrax"
    for source in found:
        assert source.about
        assert os.path.isfile(source.where) if source.found else source.where == ""
        if not source.found:
            assert source.command == f"dendrax data get {source.name.partition('(')[0]}"
    assert not cache.exists()


@pytest.mark.parametrize("explicit", [True, False])
def test_files_are_found_without_being_opened(home, tmp_path, monkeypatch, explicit):
    folder = tmp_path / "own"
    for name in FILES.values():
        (folder / name).parent.mkdir(parents=True)
        (folder / name).write_bytes(b"not opened")
    if not explicit:
        monkeypatch.setenv("DENDRAX_DATA", str(folder))
    for source in sources(folder if explicit else None):
        assert source.found
        if source.name in FILES:
            assert source.where == str(folder / FILES[source.name])
            assert source.command.endswith(f" --data-dir {folder}") == explicit


def test_never_raises(home, tmp_path, monkeypatch):
    assert not any(source.found for source in sources(tmp_path / "none")[1:5])
    (tmp_path / "file").write_text("not a folder")
    monkeypatch.setenv("DENDRAX_DATA", str(tmp_path / "file"))
    assert not any(source.found for source in sources()[1:5])


@pytest.mark.parametrize("data_dir", ["", 3])
def test_what_is_no_path(home, data_dir):
    """An empty name is not the current folder, where the data would be found."""
    make.write_idx(home, make.small_images())
    for function in (sources, mnist, cifar10, imagenet_photographs):
        problem = (
            rf"{function.__name__}: data_dir={data_dir!r} is not a path(?s:.*)folder is \"\.\""
        )
        with pytest.raises(ValueError, match=problem):
            function(data_dir=data_dir)


def test_an_own_cache_folder(home, tmp_path, monkeypatch):
    make.write_idx(tmp_path / "dendrax/MNIST/raw", make.small_images())
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert sources()[2].where.startswith(str(tmp_path / "dendrax/MNIST/raw"))
    monkeypatch.setenv("XDG_CACHE_HOME", "relative")  # to be ignored, says the specification
    assert not sources()[2].found
