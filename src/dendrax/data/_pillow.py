"""The only file that uses Pillow, and only when an image is decoded."""

from __future__ import annotations

import io
import pathlib
import struct
import zlib
from typing import TYPE_CHECKING, Any

import numpy as np

from dendrax.data._files import BadFile
from dendrax.support import require_extra

if TYPE_CHECKING:
    from PIL.Image import Image

# Not all that Pillow knows: for some it starts other programs.
FORMATS = ("JPEG", "PNG", "BMP", "WEBP", "PPM")
MAX_PIXELS = 80_000_000  # of a picture; ImageNet's largest has 61 million
# What Pillow raises over damaged files, depending on the format.
_DAMAGE = (OSError, EOFError, SyntaxError, ValueError, IndexError, struct.error, zlib.error)


def sheet(path: pathlib.Path, name: str, content: bytes, mode: str) -> np.ndarray:
    """The pixels of an image of one mode ("L" grey, "RGB"), the member ``name`` of ``path``."""
    image = _open(path, name, content)
    if image.mode != mode:
        raise BadFile(path, f"holds {name} in mode {image.mode}, where {mode} should be.")
    return np.array(image)


def photograph(path: pathlib.Path, name: str, content: bytes, size: int) -> np.ndarray:
    """A photograph as networks for ImageNet see it: shorter side to size * 256 / 224, the centre.

    Grey becomes RGB; transparency is dropped, as torchvision does it.
    """
    image = _rgb(_open(path, name, content))
    scale = round(size * 256 / 224) / min(image.size)
    width, height = (max(size, round(side * scale)) for side in image.size)
    if width * height > MAX_PIXELS:
        raise BadFile(path, f"is {image.width} x {image.height} pixels: too narrow to be cut out.")
    image = image.resize((width, height), _pillow().Resampling.BILINEAR)
    left, top = (width - size) // 2, (height - size) // 2
    return np.asarray(image.crop((left, top, left + size, top + size)))


def _open(path: pathlib.Path, name: str, content: bytes) -> Image:
    pillow = _pillow()
    try:
        image = pillow.open(io.BytesIO(content), formats=FORMATS)
        if image.width * image.height > MAX_PIXELS:  # a header may promise what is not there
            raise ValueError(f"{image.width} x {image.height} pixels are too many")
        image.load()
    except (*_DAMAGE, pillow.DecompressionBombError, pillow.DecompressionBombWarning) as error:
        what = f"holds {name}, which" if name else "is there, but"
        reason = _reason(pillow, error)
        raise BadFile(path, f"{what} cannot be decoded as an image ({reason}).") from error
    return image


def _reason(pillow: Any, error: Exception) -> str:
    # Pillow would name the object that it was given, which is not the caller's file.
    unknown = isinstance(error, pillow.UnidentifiedImageError)
    return "of no format that Pillow knows" if unknown else str(error)


def _rgb(image: Image) -> Image:
    if image.mode.startswith("I;16"):  # Pillow would clip 16 bits of grey at 255, not scale them
        image = _pillow().fromarray((np.asarray(image) >> 8).astype(np.uint8))
    if image.mode == "P":  # a palette with transparency goes to RGB by way of RGBA, or Pillow warns
        image = image.convert("RGBA")
    return image if image.mode == "RGB" else image.convert("RGB")  # which would be a copy


def _pillow() -> Any:
    with require_extra("decoding images", "train"):
        import PIL.Image
    return PIL.Image
