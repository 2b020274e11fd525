"""The real full sets, if they are on this machine: the known checksums pass, and more."""

import numpy as np
import pytest

from dendrax.data import cifar10, fashion_mnist, imagenet_photographs, mnist, sources


@pytest.fixture
def full(request):
    """Skips unless the set is there."""
    source = next(source for source in sources() if source.name == request.param)
    if not source.found:
        pytest.skip(f"not on this machine; to get it: {source.command}")
    return source.where.rpartition("/")[0]


@pytest.mark.parametrize("full", ["fashion_mnist(full=True)"], indirect=True)
def test_fashion_mnist(full):
    """The subset that ships is the first of each class."""
    images, subset = fashion_mnist(data_dir=full), fashion_mnist()
    assert images.train_images.shape == (60000, 28, 28)
    for k in range(10):
        first = images.train_images[images.train_labels == k][:500]
        assert (first == subset.train_images[subset.train_labels == k]).all()
        first = images.test_images[images.test_labels == k][:100]
        assert (first == subset.test_images[subset.test_labels == k]).all()


@pytest.mark.parametrize("full", ["mnist()"], indirect=True)
def test_mnist(full):
    images = mnist(data_dir=full)
    assert len(images.train_images) in (55000, 60000)
    assert images.train_labels[-55000:][:5].tolist() == [7, 3, 4, 6, 1]
    counts = [980, 1135, 1032, 1010, 982, 892, 958, 1028, 974, 1009]
    assert np.bincount(images.test_labels).tolist() == counts


@pytest.mark.parametrize("full", ["cifar10()"], indirect=True)
def test_cifar10(full):
    images = cifar10(data_dir=full)
    assert images.train_images.shape == (50000, 32, 32, 3)
    assert (np.bincount(images.train_labels) == 5000).all()
    # The mean colour, as everybody who normalises CIFAR-10 knows it.
    mean = images.train_images.mean((0, 1, 2)) / 255
    np.testing.assert_allclose(mean, [0.4914, 0.4822, 0.4465], atol=1e-4)


@pytest.mark.parametrize("full", ["imagenet_photographs()"], indirect=True)
def test_imagenet_photographs(full):
    images, labels = imagenet_photographs(data_dir=full)
    assert images.shape == (20, 224, 224, 3)
    assert labels[:4].tolist() == [243, 559, 438, 990] and labels.max() < 1000
