"""An associative memory: a network learns 100 images by heart, and completes them from a half.

Every step of it is local. To remember, it holds the upper half of an image; the latents and hidden
value nodes settle, and the lower half is what they predict.
"""

from __future__ import annotations

from collections.abc import Sequence

import decoder
import jax.numpy as jnp
import numpy as np
import optax

import dendrax

UPPER = np.arange(784) < 392
PRIOR = dendrax.Gaussian(0.03)  # latents stay small, so that no mixture of two memories is cheap


def main(argv: Sequence[str] | None = None) -> dict[str, float]:
    args = decoder.arguments(__doc__ or "", argv)
    images = decoder.load_images(args.tiny).train[: 20 if args.tiny else 100]
    weights = decoder.new_weights((256, 256, 784), images)
    learned = decoder.learn(
        images,
        weights,
        epochs=200 if args.tiny else 3000,
        batch=len(images),
        rule=dendrax.IL(num_steps=20, optimizer=optax.adam(0.1)),
        rate=0.002 if args.tiny else 0.0005,
        prior=PRIOR,
        spread=0.0,
    )

    num_steps = 300 if args.tiny else 1800
    cue = np.where(UPPER, images, np.nan)  # what is not seen is not known
    settled = decoder.infer(
        learned.weights,
        cue,
        jnp.broadcast_to(UPPER, images.shape),
        rule=dendrax.IL(num_steps, optimizer=decoder.falling_adam(num_steps)),
        prior=PRIOR,
    )
    found = np.asarray(settled.output)
    distances = np.sum((found[:, None, ~UPPER] - images[None, :, ~UPPER]) ** 2, axis=-1)
    figures = {
        "mean image": decoder.squared_error(images.mean(axis=0), images, ~UPPER),
        "completed": decoder.squared_error(found, images, ~UPPER),
        "identified": int(np.sum(distances.argmin(axis=1) == np.arange(len(images)))),
        "energy of an image, first": learned.energies[0],
        "energy of an image, last": learned.energies[-1],
    }
    decoder.show_table(
        f"{len(images)} images learned by heart, completed from their upper halves",
        ("", "squared error per pixel of the lower half", "identified"),
        {
            "mean image": [figures["mean image"], ""],
            "completed": [figures["completed"], f"{figures['identified']} of {len(images)}"],
        },
    )
    decoder.save_picture(
        args.out / "memory.png",
        f"A memory of {len(images)} images, and what each upper half reminds it of",
        [("cue", cue[:12]), ("completed", found[:12]), ("original", images[:12])],
    )
    return figures


if __name__ == "__main__":
    decoder.run(main)
