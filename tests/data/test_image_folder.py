"""ImageFolder: which photographs, which labels, which pixels; and the twenty of foolbox."""

import hashlib

import numpy as np
import pytest

from dendrax.data import ImageFolder, _photographs, imagenet_photographs
from tests.data import make

pytest.importorskip("PIL", reason="Pillow is not installed: pip install pillow")
RED, GREEN, GREY = (200, 10, 20), (10, 200, 20), (90, 90, 90)


def plain(colour, height=40, width=60):
    return np.full((height, width, 3), colour, np.uint8)


@pytest.fixture
def folder(tmp_path):
    for name in ("n02", "n01"):
        (tmp_path / name).mkdir()
    (tmp_path / "n01/b.JPEG").write_bytes(make.encode(plain(GREEN), "JPEG"))
    (tmp_path / "n01/a.png").write_bytes(make.encode(plain(RED)))
    (tmp_path / "n02/c.jpg").write_bytes(make.encode(plain(GREY), "JPEG"))
    (tmp_path / "n01/notes.txt").write_text("not a photograph")
    (tmp_path / "n01/._a.png").write_text("macOS leaves these")
    (tmp_path / ".hidden").mkdir()
    (tmp_path / "classes.txt").write_text("not a folder")
    return tmp_path


def test_classes_and_labels(folder):
    found = ImageFolder(folder)
    assert found.classes == ("n01", "n02") and len(found) == 3
    assert found.labels.tolist() == [0, 0, 1] and found.labels.dtype == np.int32
    assert repr(found) == f"ImageFolder({str(folder)!r}, 3 photographs, 2 classes)"


def test_images_in_the_order_of_the_indices(folder):
    found = ImageFolder(str(folder), size=32).images(np.array([2, 0, 1, 0]))
    assert found.shape == (4, 32, 32, 3) and found.dtype == np.uint8
    expected = np.array([GREY, RED, GREEN, RED])[:, None, None, :]
    assert np.abs(found.astype(int) - expected).max() <= 3  # JPEG is not exact
    assert ImageFolder(folder).images(range(2)).shape == (2, 224, 224, 3)
    assert ImageFolder(folder, 8).images([]).shape == (0, 8, 8, 3)
    assert ImageFolder(folder, 8).images(2).shape == (1, 8, 8, 3)


def test_nothing_is_opened_before_it_is_asked_for(folder):
    (folder / "n01/a.png").write_bytes(b"")
    found = ImageFolder(folder, 8)
    assert found.images([1, 2]).shape == (2, 8, 8, 3)
    problem = r"ImageFolder.images: .*a.png is empty(?s:.*)Replace it or take it away"
    with pytest.raises(ValueError, match=problem):
        found.images([0])


@pytest.mark.parametrize(("height", "width"), [(256, 400), (400, 256), (256, 256)])
def test_the_centre_of_the_photograph(tmp_path, height, width):
    """At a shorter side of 256 nothing is scaled: size 224 is exactly the centre."""
    pixels = np.random.default_rng(0).integers(0, 256, (height, width, 3), np.uint8)
    (tmp_path / "a").mkdir()
    (tmp_path / "a/a.png").write_bytes(make.encode(pixels))
    top, left = (height - 224) // 2, (width - 224) // 2
    found = ImageFolder(tmp_path).images([0])[0]
    assert (found == pixels[top : top + 224, left : left + 224]).all()


@pytest.mark.parametrize("size", [1, 7, 64])
@pytest.mark.parametrize(("height", "width"), [(1, 1), (3, 500), (500, 3)])
def test_any_shape_gives_the_size(tmp_path, height, width, size):
    (tmp_path / "a").mkdir()
    (tmp_path / "a/a.png").write_bytes(make.encode(plain(RED, height, width)))
    assert (ImageFolder(tmp_path, size).images([0]) == np.array(RED)).all()


MODES = {
    "grey": (make.encode(plain(GREY)[..., 0]), GREY),
    "grey, 16 bits": (make.encode(np.full((40, 60), 90 * 256 + 200, np.uint16)), GREY),
    "transparent": (make.encode(np.dstack([plain(RED), plain(GREY)[..., 0]])), RED),
    "black and white": (make.encode(plain((255, 255, 255)), mode="1"), (255, 255, 255)),
    "palette": (make.encode(plain((255, 0, 0)), mode="P"), (255, 0, 0)),
    "print": (make.encode(plain((255, 0, 0)), "JPEG", mode="CMYK"), (255, 0, 0)),
    "webp": (make.encode(plain(GREY), "WEBP"), GREY),
}


@pytest.mark.parametrize(("content", "colour"), MODES.values(), ids=MODES)
def test_every_kind_of_image_becomes_rgb(tmp_path, content, colour):
    (tmp_path / "a").mkdir()
    (tmp_path / "a/a.png").write_bytes(content)  # Pillow goes by the content, not by the name
    found = ImageFolder(tmp_path, size=16).images([0])
    assert found.shape == (1, 16, 16, 3)
    assert np.abs(found.astype(int) - np.array(colour)).max() <= 3


def test_damaged_photographs(folder):
    (folder / "n01/a.png").write_bytes(b"hello")
    content = make.encode(np.random.default_rng(0).integers(0, 256, (64, 64, 3), np.uint8), "JPEG")
    (folder / "n01/b.JPEG").write_bytes(content[: len(content) // 2])
    for index, name in enumerate(("a.png", "b.JPEG")):
        with pytest.raises(ValueError, match=f"{name} is there, but cannot be decoded") as error:
            ImageFolder(folder).images([index])
        assert "BytesIO" not in str(error.value)


def test_a_photograph_that_is_gone(folder):
    found = ImageFolder(folder)
    (folder / "n01/a.png").unlink()
    with pytest.raises(ValueError, match=r"a.png cannot be read: No such file"):
        found.images([0])


@pytest.mark.parametrize("path", ["", None, 3])
def test_what_is_no_path(path):
    problem = rf"ImageFolder: path={path!r} is not a path(?s:.*)The current folder is"
    with pytest.raises(ValueError, match=problem):
        ImageFolder(path)


def test_wrong_folders(tmp_path, folder):
    with pytest.raises(
        FileNotFoundError, match=r"dendrax.data.ImageFolder: .*/none is not a folder"
    ):
        ImageFolder(tmp_path / "none")
    flat = r"n01 holds photographs, where one folder for each class(?s:.*)Move the.*n01/<class>/"
    with pytest.raises(ValueError, match=flat):
        ImageFolder(folder / "n01")
    with pytest.raises(ValueError, match=r"\.hidden holds nothing, where one folder"):
        ImageFolder(folder / ".hidden")
    (folder / "n03").mkdir()
    with pytest.raises(ValueError, match=r"n03 of a class holds no photographs(?s:.*)pass it"):
        ImageFolder(folder)


@pytest.mark.parametrize("size", [0, -1, 2.5, True, "224"])
def test_wrong_sizes(folder, size):
    with pytest.raises(ValueError, match=r"ImageFolder: size=.* must be an integer, at least 1"):
        ImageFolder(folder, size)
    with pytest.raises(ValueError, match=r"imagenet_photographs: size=.* must be an integer"):
        imagenet_photographs(size=size)


def test_sizes_of_numpy(folder):
    assert ImageFolder(folder, np.int64(8)).images([0]).shape == (1, 8, 8, 3)


def test_wrong_indices(folder):
    found = ImageFolder(folder)
    for index in (-1, 3):
        with pytest.raises(IndexError, match=f"images: there is no photograph {index} among 3"):
            found.images([0, index])
    with pytest.raises(TypeError, match="images: indices are integers, got float64"):
        found.images([0.5])


class TestPhotographs:
    """The twenty of foolbox, made two."""

    FILES = {  # noqa: RUF012
        "imagenet_01_559.jpg": make.encode(plain(GREEN), "JPEG"),
        "imagenet_00_24.jpg": make.encode(plain(RED), "JPEG"),
    }

    @pytest.fixture(autouse=True)
    def published(self, home, monkeypatch):
        digest = hashlib.sha256(b"".join(c for _, c in sorted(self.FILES.items()))).hexdigest()
        monkeypatch.setattr(_photographs, "SHA256", digest)

    def test_they_are_read(self, cache):
        (cache / "imagenet-photographs").mkdir()
        for name, content in self.FILES.items():
            (cache / "imagenet-photographs" / name).write_bytes(content)
        images, labels = imagenet_photographs(size=16)
        assert images.shape == (2, 16, 16, 3) and images.dtype == np.uint8
        assert labels.tolist() == [24, 559]
        assert np.abs(images[0].astype(int) - np.array(RED)).max() <= 3

    def test_missing(self):
        with pytest.raises(FileNotFoundError, match=r"dendrax data get imagenet_photographs"):
            imagenet_photographs()

    def test_other_photographs(self, tmp_path):
        (tmp_path / "imagenet_00_24.jpg").write_bytes(b"hello")
        problem = "does not hold the twenty photographs of foolbox 3.3.4, but 1 "
        with pytest.raises(ValueError, match=f"dendrax.data.imagenet_photographs: .*{problem}"):
            imagenet_photographs(data_dir=tmp_path)

    def test_a_photograph_that_cannot_be_decoded(self, tmp_path, monkeypatch):
        monkeypatch.setattr(_photographs, "SHA256", hashlib.sha256(b"hello").hexdigest())
        (tmp_path / "imagenet_00_24.jpg").write_bytes(b"hello")
        with pytest.raises(ValueError, match=r"jpg is there, but cannot be decoded as an image"):
            imagenet_photographs(data_dir=tmp_path)


def test_no_other_program_is_started(folder, tmp_path):
    """Pillow would start Ghostscript for this."""
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / "a.png").write_bytes(b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 9 9\n")
    with pytest.raises(ValueError, match=r"a\.png .*cannot be decoded .*no format"):
        ImageFolder(tmp_path).images([0])
