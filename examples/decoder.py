"""A generative network of images, which the examples share: what it is, how it learns and sees.

It decodes an image from a few latents. Nobody says what the latents of an image are: they are free,
and settle together with the hidden value nodes while the image is held. Then each weight learns
from the error that it feeds. What an image's latents were is kept, and is where they start when the
image comes again.
"""

from __future__ import annotations

import argparse
import dataclasses
import functools
import itertools
import os
import pathlib
import sys
import zipfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
import rich.console
import rich.progress
import rich.table
from matplotlib import colormaps
from matplotlib.figure import Figure

import dendrax
from dendrax.data import fashion_mnist

WIDTHS = (20, 128, 256, 784)


class Way(NamedTuple):
    """How the network learns, and how it settles when it has learned."""

    name: str
    learns: dendrax.Rule
    epochs: int
    settles: dendrax.Rule


def falling_adam(num_steps: int) -> Any:
    """Large steps at first, and small ones in the end: Adam alone would never come to rest."""
    return optax.adam(optax.cosine_decay_schedule(0.1, num_steps, 0.05))


def local_rule(num_steps: int, precision: float) -> dendrax.Rule:
    return dendrax.IL(num_steps, precision=precision, optimizer=falling_adam(num_steps))


# The precision makes it dear for hidden value nodes to leave their predictions: latents must
# explain the image. Error-based predictive coding comes to the equilibrium in far fewer steps than
# inference learning, of which each step is local.
QUICK = dendrax.ErrorPC(num_steps=10, gamma=0.1, precision=30.0)
BY_ERRORS = Way("decoder", QUICK, 12, dataclasses.replace(QUICK, num_steps=500))
LOCAL = Way("decoder-local", local_rule(40, 10.0), 3, local_rule(500, 100.0))


# ---- the network ---------------------------------------------------------------------------------


def new_weights(widths: Sequence[int], images: np.ndarray, seed: int = 0) -> Any:
    """Weights and biases of each layer; at first the network shows the mean image, about."""
    generator = np.random.default_rng(seed)
    sizes = list(itertools.pairwise(widths))
    scales = [0.1, *(1.0 for _ in sizes[2:]), 0.1]  # latents are to grow, pixels to stay small
    weights = [
        (scale * generator.standard_normal((m, n), np.float32) / m**0.5, np.zeros(n, np.float32))
        for (m, n), scale in zip(sizes, scales, strict=True)
    ]
    return jax.tree.map(jnp.float32, [*weights[:-1], (weights[-1][0], images.mean(axis=0))])


def decode(weights: Any, z: Any) -> Any:
    """The images of latents."""
    for w, b in weights[:-1]:
        z = jnp.tanh(z @ w + b)
    w, b = weights[-1]
    return z @ w + b


class Learned(NamedTuple):
    """The weights, the latents of each image, and the energy of an image in each epoch."""

    weights: Any
    latents: np.ndarray
    energies: list[float]


def learn(
    images: np.ndarray,
    weights: Any,
    *,
    epochs: int,
    batch: int,
    rule: dendrax.Rule,
    rate: float = 0.001,
    prior: Any = None,
    spread: float = 0.1,
) -> Learned:
    """Weights that generate images, and the latents from which they do."""
    generator = np.random.default_rng(1)
    latents = spread * generator.standard_normal((len(images), len(weights[0][0])), np.float32)
    num_updates = len(images) // batch * epochs
    optimizer = optax.adam(optax.cosine_decay_schedule(rate, num_updates, 0.02))

    @jax.jit
    def update(weights: Any, state: Any, z: Any, image: Any) -> Any:
        learning = dendrax.value_and_grad(
            decode, rule=rule, free="z", target=image, prior=prior, has_result=True
        )
        (_, result), gradient = learning(weights, z)
        # With a target, energy and gradient are sums over the images.
        gradient = jax.tree.map(lambda g: g / batch, gradient)
        change, state = optimizer.update(gradient, state, weights)
        weights = optax.apply_updates(weights, change)
        return weights, state, result.args[1], result.energy / batch

    state, energies = optimizer.init(weights), []
    for chosen in watched("learning", list(shuffled(generator, len(images), batch, epochs))):
        weights, state, settled, energy = update(weights, state, latents[chosen], images[chosen])
        latents[chosen] = settled
        energies.append(float(energy))
    return Learned(weights, latents, np.mean(np.reshape(energies, (epochs, -1)), axis=1).tolist())


def shuffled(
    generator: np.random.Generator, count: int, batch: int, epochs: int
) -> Iterator[np.ndarray]:
    """The images of each update."""
    for _ in range(epochs):
        order = generator.permutation(count)
        yield from order[: count // batch * batch].reshape(-1, batch)


def infer(
    weights: Any,
    images: Any,
    mask: Any = None,
    *,
    rule: dendrax.Rule = BY_ERRORS.settles,
    prior: Any = None,
) -> dendrax.Settled:
    """Latents, `.args[1]`, that explain the images, or what a mask leaves of them."""
    settled = _settle(weights, images, mask, rule, prior)
    if settled.advice:
        print(settled.advice, file=sys.stderr)
    return settled


@functools.partial(jax.jit, static_argnames=("rule", "prior"))
def _settle(weights: Any, images: Any, mask: Any, rule: Any, prior: Any) -> dendrax.Settled:
    z = jnp.zeros((len(images), len(weights[0][0])))
    return dendrax.infer(
        decode, weights, z, free="z", target=images, mask=mask, prior=prior, rule=rule
    )


# ---- the images ----------------------------------------------------------------------------------


class Data(NamedTuple):
    """Images as rows of 784 pixels from 0 to 1, and their classes."""

    name: str
    train: np.ndarray
    train_labels: np.ndarray
    test: np.ndarray
    test_labels: np.ndarray


def load_images(tiny: bool) -> Data:
    """FashionMNIST: all of it if it is on this machine, else the subset that ships."""
    name, images = "FashionMNIST, 5000 images of it", fashion_mnist()
    if not tiny:
        try:
            name, images = "FashionMNIST, all 60000 images", fashion_mnist(full=True)
        except FileNotFoundError:
            print("The full set is not on this machine (`dendrax data` says how to get it).")
    few = slice(500) if tiny else slice(None)
    return Data(
        "FashionMNIST, 500 images of it" if tiny else name,
        flat(images.train_images[few]),
        images.train_labels[few],
        flat(images.test_images[: 50 if tiny else 1000]),
        images.test_labels[: 50 if tiny else 1000],
    )


def flat(images: np.ndarray) -> np.ndarray:
    return images.reshape(len(images), -1) / np.float32(255)


def trained(args: argparse.Namespace, data: Data, way: Way = BY_ERRORS) -> Any:
    """The weights that `generative.py` has left in the folder, or else new ones, left there."""
    path = args.out / f"{way.name}{'-tiny' * args.tiny}.npz"
    kept = _read_weights(path)
    if kept is not None:
        print(f"The weights of {path}")
        return kept
    # The same number of updates for the subset; a few images cannot teach much.
    epochs, batch = (10, 50) if args.tiny else (way.epochs * 60_000 // len(data.train), 500)
    weights = new_weights(WIDTHS, data.train)
    learned = learn(data.train, weights, epochs=epochs, batch=batch, rule=way.learns)
    write_weights(path, learned.weights)
    return learned.weights


def write_weights(path: pathlib.Path, weights: Any) -> None:
    """Whole or not at all, whatever happens."""
    unfinished = path.with_name(f".{path.name}")
    with unfinished.open("wb") as file:
        np.savez(file, *map(np.asarray, jax.tree.leaves(weights)))
    os.replace(unfinished, path)


def _read_weights(path: pathlib.Path) -> Any:
    """The weights in a file; `None` if there is none that fits."""
    try:
        with path.open("rb") as file, np.load(file) as arrays:
            leaves = [jnp.asarray(arrays[name]) for name in arrays.files]
    except FileNotFoundError:
        return None
    except (OSError, EOFError, ValueError, zipfile.BadZipFile):
        print(f"{path} cannot be read, and is made anew.")
        return None
    weights = list(zip(leaves[::2], leaves[1::2], strict=True))
    return weights if tuple(len(w) for w, _ in weights) == WIDTHS[:-1] else None


class Components(NamedTuple):
    """Principal components: the best that a linear network of as many latents can do."""

    mean: np.ndarray
    axes: np.ndarray
    variances: np.ndarray
    rest: float  # the variance of a pixel that the components do not explain

    def project(self, images: np.ndarray) -> np.ndarray:
        return self.mean + (images - self.mean) @ self.axes @ self.axes.T

    def complete(self, images: np.ndarray, mask: np.ndarray) -> np.ndarray:
        """What to expect of images, by all components, where only the mask is seen."""
        seen = self.axes[mask]
        precision = seen.T @ seen + np.diag(self.rest / self.variances)
        found = np.linalg.solve(precision, seen.T @ (images - self.mean)[:, mask].T)
        return self.mean + found.T @ self.axes.T


def principal_components(images: np.ndarray, count: int) -> Components:
    mean = images.mean(axis=0)
    variances, axes = np.linalg.eigh((images - mean).T @ (images - mean) / len(images))
    return Components(mean, axes[:, -count:], variances[-count:], variances[:-count].mean())


def squared_error(found: Any, images: Any, mask: Any = True) -> float:
    """Per pixel, where the mask is true."""
    where = np.broadcast_to(mask, np.shape(images))
    return float(np.mean((np.asarray(found) - np.asarray(images))[where] ** 2))


# ---- what is shown -------------------------------------------------------------------------------


def arguments(
    doc: str, argv: Sequence[str] | None, **more: Mapping[str, Any]
) -> argparse.Namespace:
    """What all examples ask for, and what one asks for besides."""
    parser = argparse.ArgumentParser(
        description=doc, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--out",
        type=pathlib.Path,
        default=pathlib.Path(),
        metavar="FOLDER",
        help="where the picture goes, and where trained weights are kept (default: here)",
    )
    parser.add_argument("--tiny", action="store_true", help="a few images, a few seconds")
    for name, settings in more.items():
        parser.add_argument(f"--{name}", **settings)
    args = parser.parse_args(argv)
    try:
        args.out.mkdir(parents=True, exist_ok=True)
    except OSError as problem:
        parser.error(f"--out {args.out}: {problem.strerror}")
    return args


def run(main: Callable[[], Any]) -> None:
    """A script that ends quietly at Ctrl-C."""
    try:
        main()
    except KeyboardInterrupt:
        print("Interrupted.", file=sys.stderr)
        sys.exit(130)


def watched(what: str, steps: Sequence[Any]) -> Iterable[Any]:
    """The steps, with a progress bar."""
    console = rich.console.Console(stderr=True)
    if not console.is_terminal:
        print(f"{what}: {len(steps)} updates", file=sys.stderr)
    return rich.progress.track(steps, what, console=console, disable=not console.is_terminal)


def show_table(title: str, header: Sequence[str], rows: Mapping[str, Sequence[Any]]) -> None:
    table = rich.table.Table(box=None, pad_edge=False)
    for k, name in enumerate(header):
        table.add_column(name, justify="right" if k else "left")
    for name, values in rows.items():
        table.add_row(name, *(f"{v:.4f}" if isinstance(v, float) else str(v) for v in values))
    print(f"{title}\n")
    rich.console.Console(width=100).print(table)
    print()


def save_picture(path: pathlib.Path, title: str, rows: Sequence[tuple[str, Any]]) -> None:
    """Rows of images with their names; pixels that are NaN are orange."""
    count = len(rows[0][1])
    grey = colormaps["gray_r"].with_extremes(bad="#f6c58f")
    figure = Figure(figsize=(1.6 + 0.62 * count, 0.66 * len(rows) + 0.5), dpi=110)
    axes = figure.subplots(len(rows), count, squeeze=False, gridspec_kw={"wspace": 0.06})
    for (name, images), line in zip(rows, axes, strict=True):
        line[0].text(-4, 14, name, ha="right", va="center", fontsize=10)
        for image, axis in zip(images, line, strict=True):
            axis.imshow(np.reshape(image, (28, 28)), cmap=grey, vmin=0, vmax=1)
            axis.set_axis_off()
    left, top = 1.55 / figure.get_figwidth(), 1 - 0.42 / figure.get_figheight()
    figure.subplots_adjust(left=left, right=0.99, top=top, bottom=0.02, hspace=0.06)
    figure.suptitle(title, fontsize=11, x=left, ha="left", y=1 - 0.1 / figure.get_figheight())
    figure.savefig(path, facecolor="white")
    print(f"The picture: {path}")
