"""A generative network learns FashionMNIST by predictive coding, with 20 free latents.

Then it is shown images that it has never seen, and infers their latents. They are decoded from the
latents alone: hidden value nodes that have settled absorb what the latents do not explain, so they
do not count. Principal components with as many coordinates are what to compare with.
"""

from __future__ import annotations

from collections.abc import Sequence

import decoder


def main(argv: Sequence[str] | None = None) -> dict[str, float]:
    local = {"action": "store_true", "help": "by inference learning, each step of it local"}
    args = decoder.arguments(__doc__ or "", argv, local=local)
    way = decoder.LOCAL if args.local else decoder.BY_ERRORS
    data = decoder.load_images(args.tiny)
    weights = decoder.trained(args, data, way)

    settled = decoder.infer(weights, data.test, rule=way.settles)
    images = decoder.decode(weights, settled.args[1])
    pca = decoder.principal_components(data.train, decoder.WIDTHS[0])
    linear = pca.project(data.test)

    errors = {
        "mean image": decoder.squared_error(data.train.mean(axis=0), data.test),
        "20 principal components": decoder.squared_error(linear, data.test),
        "20 latents, decoded": decoder.squared_error(images, data.test),
        "with the settled hidden nodes": decoder.squared_error(settled.output, data.test),
    }
    title = f"{len(data.test)} test images; trained on {data.name}"
    decoder.show_table(
        title, ("", "squared error per pixel"), {name: [e] for name, e in errors.items()}
    )
    decoder.save_picture(
        args.out / "generative.png",
        "Images that the network has not seen, from 20 numbers each",
        [("original", data.test[:12]), ("PCA", linear[:12]), ("predictive coding", images[:12])],
    )
    return errors


if __name__ == "__main__":
    decoder.run(main)
