"""A generative network completes images that it has never seen, of which it sees one half.

The latents settle with half of the image held, and the rest is decoded from them. The same is done
with principal components: the mean of what is not seen, given what is (probabilistic PCA).
"""

from __future__ import annotations

from collections.abc import Sequence

import decoder
import numpy as np

ROW, COLUMN = np.divmod(np.arange(784), 28)
HALVES = {"upper": ROW < 14, "lower": ROW >= 14, "left": COLUMN < 14, "right": COLUMN >= 14}


def main(argv: Sequence[str] | None = None) -> dict[str, list[float]]:
    args = decoder.arguments(__doc__ or "", argv)
    data = decoder.load_images(args.tiny)
    weights = decoder.trained(args, data)
    pca = decoder.principal_components(data.train, decoder.WIDTHS[0])
    mean, few = data.train.mean(axis=0), slice(0, 12)

    errors, rows = {}, [("original", data.test[few])]
    for name, mask in HALVES.items():
        seen = np.where(mask, data.test, np.nan)
        settled = decoder.infer(weights, seen, np.broadcast_to(mask, seen.shape))
        found = np.asarray(decoder.decode(weights, settled.args[1]))
        guesses = (mean, pca.complete(data.test, mask), found)
        errors[name] = [decoder.squared_error(guess, data.test, ~mask) for guess in guesses]
        completed = np.where(mask, data.test, found)
        rows += [(f"{name} half", seen[few]), ("completed", completed[few])]
    decoder.show_table(
        f"squared error per pixel of the half that is not seen, {len(data.test)} test images",
        ("half that is seen", "mean image", "20 principal components", "predictive coding"),
        errors,
    )
    decoder.save_picture(
        args.out / "completion.png", "One half is seen, and the other is completed", rows
    )
    return errors


if __name__ == "__main__":
    decoder.run(main)
