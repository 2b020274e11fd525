"""The networks of the paper, each with a real batch on which one update is measured.

Settings are those of the paper's appendix where it gives them: batches of 20 and learning rate
0.01, 32 and 0.001 for the agent. (It does not for ResNet18, which has batches of 2.) The quick form
keeps MLP, RNN and FC-ResNet as they are and narrows the others.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from dendrax.models import (
    MLP,
    AlexNet,
    FCResNet,
    ResNet18,
    Transformer,
    astype,
)
from dendrax.paper import agent
from dendrax.paper._atari import GAMES, has_atari
from dendrax.paper._library import Library, Samples
from dendrax.paper.agent import QSettings
from dendrax.support import Vertices


class Batch(NamedTuple):
    """A model, what it is shown, and what it should have said; float32."""

    model: Any
    inputs: jax.Array
    target: jax.Array


@dataclass(frozen=True)
class Subject:
    """One network on one data set: a cell of the paper's tables is the mean over its subjects.

    - ``row``: the row of the tables.
    - ``name``: what tells it from the others of its row.
    - ``model``: how the model is made.
    - ``data``: where the batch comes from.
    - ``num_steps``: the steps that IL takes, 20 for small networks and 100 for others.
    - ``graph``: the vertices of Z-IL's dynamics. Where a residual stream lies inside layers,
      these add up its messages in another order than JAX; with ``"primitive"`` the stream has
      vertices of its own, and the additions are JAX's to the last bit.
    - ``draw``: makes the batch from a seed.
    """

    row: str
    name: str
    model: str
    data: str
    batch_size: int
    learning_rate: float
    num_steps: int
    graph: Vertices
    draw: Callable[[int], Batch]

    @property
    def settings(self) -> dict[str, Any]:
        """All that its numbers depend on, as JSON can say it."""
        names = ("row", "name", "model", "data", "batch_size", "learning_rate")
        return {name: getattr(self, name) for name in names}

    def batch(self, seed: int, dtype: str) -> Batch:
        """The batch, drawn in float32 and then cast, so that all precisions start alike."""
        return Batch(*astype(tuple(self.draw(seed)), dtype))


def subjects(library: Library, *, quick: bool) -> list[Subject]:
    """All that can be measured with the data at hand."""
    found = [*_mlps(library), *_alexnets(library, quick), *_rnns(quick)]
    return [*found, _fc_resnet(library), _resnet18(library, quick), _transformer(quick)]


def _mlps(library: Library) -> Iterator[Subject]:
    for layers in (2, 3, 4):
        make = functools.partial(MLP, 784, (128,) * layers, 10)
        name = f"{layers} layers of 128"
        yield _classifier("MLP", name, library.fashion, make, num_steps=20, flat=True)


def _alexnets(library: Library, quick: bool) -> Iterator[Subject]:
    width = 8 if quick else 64
    small = functools.partial(AlexNet, (28, 28, 1), 10, width=width)
    yield _classifier("AlexNet", f"28x28, width {width}", library.fashion, small)
    if not quick and library.photographs is not None:
        large = functools.partial(AlexNet, (224, 224, 3), 1000, width=width)
        name = f"224x224, width {width}"
        yield _classifier("AlexNet", name, library.photographs, large, classes=1000)


def _rnns(quick: bool) -> Iterator[Subject]:
    if not has_atari():
        return
    for game in GAMES[:1] if quick else GAMES:
        data = f"transitions, {QSettings.window} observations each"
        yield Subject("RNN", game, "RNN()", data, 32, 0.001, 100, "layer", _player(game))


def _player(game: str) -> Callable[[int], Batch]:
    return lambda seed: Batch(*agent.transitions(game, seed=seed))


def _fc_resnet(library: Library) -> Subject:
    make = functools.partial(FCResNet, 784, 256, 10)
    found = _classifier("FC-ResNet", "5 layers of 256", library.fashion, make, flat=True)
    return dataclasses.replace(found, graph="primitive")


def _resnet18(library: Library, quick: bool) -> Subject:
    width, batch = (4, 4) if quick else (64, 2)
    samples = library.fashion if quick else library.colour
    make = functools.partial(ResNet18, samples.train_inputs.shape[-1], 10, width=width)
    return _classifier("ResNet18", f"width {width}", samples, make, batch=batch)


def _transformer(quick: bool) -> Subject:
    """One layer on random data, as in the paper."""
    size, heads, batch, time = (32, 4, 4, 8) if quick else (128, 8, 20, 16)

    make = functools.partial(Transformer, size, size, size, num_heads=heads)

    def draw(seed: int) -> Batch:
        keys = jax.random.split(jax.random.key(seed), 3)
        model = make(key=keys[0])
        inputs, target = (jax.random.normal(k, (batch, time, size), jnp.float32) for k in keys[1:])
        return Batch(model, inputs, target)

    name = f"1 layer of {size}, {time} positions"
    made = described(make)
    return Subject("Transformer", name, made, "random", batch, 0.01, 100, "primitive", draw)


def _classifier(
    row: str,
    name: str,
    samples: Samples,
    make: Callable[..., Any],
    *,
    num_steps: int = 100,
    batch: int = 20,
    classes: int = 10,
    flat: bool = False,
) -> Subject:
    """A network on a random batch of labelled samples, the target one-hot."""

    def draw(seed: int) -> Batch:
        chosen = np.random.default_rng(seed).permutation(len(samples.train_labels))[:batch]
        inputs = samples.train_inputs[chosen]
        inputs = inputs.reshape(batch, -1) if flat else inputs
        target = np.eye(classes, dtype=np.float32)[samples.train_labels[chosen]]
        return Batch(make(key=jax.random.key(seed)), jnp.asarray(inputs), jnp.asarray(target))

    made = described(make)
    return Subject(row, name, made, samples.name, batch, 0.01, num_steps, "layer", draw)


def described(make: Callable[..., Any]) -> str:
    """How a model is made, in words that are the same in every process."""
    if not isinstance(make, functools.partial):
        return make.__name__
    named = [f"{name}={_word(value)}" for name, value in sorted(make.keywords.items())]
    return f"{make.func.__name__}({', '.join([*map(_word, make.args), *named])})"


def _word(value: Any) -> str:
    return value.__name__ if callable(value) else repr(value)
