"""A classifier infers the label of an image: the label is free, and settles.

The classifier learns by inference learning, with labels held. Then the label is an argument of its
loss like any other: it starts undecided, and moves with the value nodes until the energy is lowest.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

import decoder
import jax
import jax.numpy as jnp
import numpy as np
import optax
from matplotlib.figure import Figure

import dendrax

CLASSES = ("T-shirt", "trouser", "pullover", "dress", "coat", "sandal", "shirt", "sneaker", "bag")
CLASSES = (*CLASSES, "ankle boot")


def predict(weights: Any, image: Any) -> Any:
    return decoder.decode(weights, image)


def loss(weights: Any, image: Any, label: Any) -> Any:
    """A sum over the images, so each has its own full energy."""
    return jnp.sum((predict(weights, image) - label) ** 2) / 2


def learn(data: decoder.Data, epochs: int, batch: int = 100) -> Any:
    generator = np.random.default_rng(0)
    labels = np.eye(10, dtype=np.float32)[data.train_labels]
    weights = decoder.new_weights((784, 128, 10), labels)
    num_updates = len(labels) // batch * epochs
    optimizer = optax.adam(optax.cosine_decay_schedule(0.001, num_updates))

    @jax.jit
    def update(weights: Any, state: Any, image: Any, label: Any) -> Any:
        gradient = dendrax.grad(loss, rule=dendrax.IL(num_steps=20, batch="sum"))(
            weights, image, label
        )
        gradient = jax.tree.map(lambda g: g / batch, gradient)
        change, state = optimizer.update(gradient, state, weights)
        return optax.apply_updates(weights, change), state

    state = optimizer.init(weights)
    chosen = list(decoder.shuffled(generator, len(labels), batch, epochs))
    for one in decoder.watched("learning", chosen):
        weights, state = update(weights, state, data.train[one], labels[one])
    return weights


@functools.partial(jax.jit, static_argnums=3)
def settle(weights: Any, image: Any, label: Any, num_steps: int, start: Any = None) -> Any:
    """Where the label and the value nodes have come to after some more steps."""
    return dendrax.infer(
        loss,
        weights,
        image,
        label,
        free="label",
        rule=dendrax.IL(num_steps, batch="sum"),
        start=start,
    )


def course(weights: Any, image: Any, times: Sequence[int]) -> np.ndarray:
    """The label at some times; each time goes on from where the last one ended."""
    label, settled, before, found = jnp.full((len(image), 10), 0.1), None, 0, []
    for time in times:
        if time > before:
            settled = settle(weights, image, label, time - before, settled)
            label, before = settled.args[2], time
        found.append(label)
    return np.stack(found)


def main(argv: Sequence[str] | None = None) -> dict[str, float]:
    args = decoder.arguments(__doc__ or "", argv)
    data = decoder.load_images(args.tiny)
    weights = learn(data, epochs=10 if args.tiny else 5)
    labels = settle(weights, data.test, jnp.full((len(data.test), 10), 0.1), 200).args[2]
    forward = predict(weights, data.test)
    figures = {
        "forward pass": float(np.mean(np.argmax(forward, axis=1) == data.test_labels)),
        "label inferred": float(np.mean(np.argmax(labels, axis=1) == data.test_labels)),
        "both agree": float(np.mean(np.argmax(labels, axis=1) == np.argmax(forward, axis=1))),
    }
    decoder.show_table(
        f"{len(data.test)} test images; trained on {data.name}",
        ("", "accuracy"),
        {name: [value] for name, value in figures.items()},
    )
    times = (*range(20), *range(20, 101, 10))
    save_course(args.out / "label_inference.png", data.test[:6], weights, times)
    return figures


def save_course(path: Any, images: np.ndarray, weights: Any, times: Sequence[int]) -> None:
    """Each image, and below it how its label settles."""
    labels = course(weights, images, times)
    figure = Figure(figsize=(9.6, 3.6), dpi=110, layout="constrained")
    axes = figure.subplots(2, len(images), height_ratios=(1, 1.6), sharey="row")
    for k, (top, below) in enumerate(axes.T):
        top.imshow(images[k].reshape(28, 28), cmap="gray_r")
        top.set_axis_off()
        best = int(labels[-1, k].argmax())
        below.plot(times, labels[:, k], color="#c8ccd2", linewidth=1)
        below.plot(times, labels[:, k, best], color="#2f6db5", linewidth=2)
        below.set_title(CLASSES[best], fontsize=10, color="#2f6db5")
        below.spines[["top", "right"]].set_visible(False)
        below.set_xlabel("time step", fontsize=8)
        below.tick_params(labelsize=8)
    axes[1, 0].set_ylabel("label", fontsize=9)
    figure.suptitle("A label that is free settles where the energy is lowest", fontsize=11)
    figure.savefig(path, facecolor="white")
    print(f"The picture: {path}")


if __name__ == "__main__":
    decoder.run(main)
