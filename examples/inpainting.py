"""A generative network paints what is missing in an image, whatever shape the hole has.

Only the pixels that are there are held; the others may be NaN. The latents settle, and the hole is
filled with what they decode to.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import decoder
import numpy as np
from PIL import Image, ImageDraw, ImageFont


def holes() -> dict[str, np.ndarray]:
    """Masks of 784 pixels, true where something is missing."""
    return {
        "stroke": _drawn(lambda draw: draw.line([(2, 24), (9, 7), (17, 21), (26, 3)], 255, 4)),
        "word": _drawn(
            lambda draw: draw.text((14, 14), "HIDE", 255, ImageFont.load_default(11), anchor="mm")
        ),
        "dots": np.random.default_rng(0).random(784) < 0.7,
        "disc": _drawn(lambda draw: draw.ellipse((7, 7, 20, 20), 255)),
    }


def _drawn(how: Callable[[ImageDraw.ImageDraw], None]) -> np.ndarray:
    picture = Image.new("L", (28, 28))
    how(ImageDraw.Draw(picture))
    return np.asarray(picture).ravel() > 100


def main(argv: Sequence[str] | None = None) -> dict[str, list[float]]:
    args = decoder.arguments(__doc__ or "", argv)
    data = decoder.load_images(args.tiny)
    weights = decoder.trained(args, data)
    pca = decoder.principal_components(data.train, decoder.WIDTHS[0])
    mean, few = data.train.mean(axis=0), slice(12, 24)

    errors, rows = {}, [("original", data.test[few])]
    for name, hole in holes().items():
        damaged = np.where(hole, np.nan, data.test)
        settled = decoder.infer(weights, damaged, ~np.isnan(damaged))
        found = np.asarray(decoder.decode(weights, settled.args[1]))
        guesses = (mean, pca.complete(data.test, ~hole), found)
        errors[name] = [decoder.squared_error(guess, data.test, hole) for guess in guesses]
        painted = np.where(hole, found, data.test)
        rows += [(name, damaged[few]), ("painted", painted[few])]
    decoder.show_table(
        f"squared error per pixel of the hole, {len(data.test)} test images",
        ("hole", "mean image", "20 principal components", "predictive coding"),
        errors,
    )
    decoder.save_picture(args.out / "inpainting.png", "Holes, and what is painted there", rows)
    return errors


if __name__ == "__main__":
    decoder.run(main)
