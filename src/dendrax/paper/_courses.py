"""What is learned in the training experiments: a model, data, a loss and an optimizer.

Between the runs of a course only the rule differs, but for two things that their settings say:
incremental PC moves the weights by its own rate, and slow rules make fewer updates. Every course
has integer classes as targets (the next character, for the text), so its accuracy is the share of
classes that are right.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax

from dendrax import BP, IL, ZIL, ErrorPC, FixedPrediction, IncrementalPC, data
from dendrax.models import MLP, AlexNet, ResNet18, Transformer, cross_entropy_loss
from dendrax.paper._library import Library, Samples
from dendrax.paper._subjects import described
from dendrax.rules import Rule
from dendrax.train import chosen


@dataclass(frozen=True)
class Course:
    """One thing to learn.

    - ``samples``: inputs and integer classes.
    - ``make``: draws the model from a ``key=``.
    - ``classes``: the number of classes.
    - ``num_updates``, ``batch_size``, ``learning_rate``, ``weight_decay``: of the optimizer.
    - ``rules``: who learns it, by name; None is `jax.grad`.
    - ``shorter``: rules that are slow make only one of so many updates.
    - ``seeds``: how many times BP, Z-IL and IL learn it, from different starts.
    - ``num_points``: of the learning curve.
    """

    name: str
    samples: Samples
    make: Callable[..., Any]
    classes: int
    batch_size: int
    num_updates: int
    learning_rate: float
    rules: dict[str, Rule | None]
    shorter: dict[str, int] = field(default_factory=dict)
    seeds: int = 1
    num_points: int = 20
    weight_decay: float = 0.01

    def length(self, name: str) -> int:
        """The number of updates that the rule of this name makes."""
        return self.num_updates // self.shorter.get(name, 1)

    def optimizer(self, name: str) -> optax.GradientTransformation:
        """AdamW with a cosine schedule. Incremental PC has a rate of its own, and takes it."""
        rule = self.rules[name]
        if rule is not None and rule.moves_parameters:
            return optax.sgd(rule.learning_rate)
        schedule = optax.cosine_decay_schedule(self.learning_rate, self.length(name))
        return optax.adamw(schedule, weight_decay=self.weight_decay)

    def settings(self, name: str) -> dict[str, Any]:
        """All that a run depends on but the seed, as JSON can say it."""
        rule = self.rules[name]
        own_rate = rule.learning_rate if rule is not None and rule.moves_parameters else None
        return {
            "course": self.name,
            "model": described(self.make),
            "data": self.samples.name,
            "shape": list(self.samples.train_inputs.shape),
            "rule_settings": "jax.grad" if rule is None else repr(rule),
            "optimizer": "AdamW, cosine schedule" if own_rate is None else "SGD",
            "batch_size": self.batch_size,
            "num_updates": self.length(name),
            "learning_rate": self.learning_rate if own_rate is None else own_rate,
            "weight_decay": self.weight_decay if own_rate is None else 0.0,
            "num_points": self.num_points,
        }

    def loss(self, model: Any, inputs: jax.Array, labels: jax.Array) -> jax.Array:
        """The cross entropy of a batch, in mean over it (and over the positions of a text)."""
        target = jax.nn.one_hot(labels, self.classes, dtype=jnp.float32)
        return cross_entropy_loss(model, inputs, target)

    def order(self, seed: int, update: int) -> np.ndarray:
        """The samples of one update: a new permutation for each pass over the data."""
        return chosen(self.samples.train_labels, self.batch_size, seed, update).astype(np.int32)


def courses(library: Library, *, quick: bool) -> list[Course]:
    """MLP and AlexNet on FashionMNIST, ResNet18 on CIFAR-10, a Transformer on Moby Dick."""
    return [
        mlp_course(library, quick=quick),
        _alexnet(library, quick),
        _resnet18(library, quick),
        _transformer(quick),
    ]


def mlp_course(library: Library, *, quick: bool) -> Course:
    """Every rule learns FashionMNIST.

    With a larger learning rate the weights grow until IL's inference, at this gamma, is no longer
    stable.
    """
    samples, sizes = library.fashion, (128, 128) if quick else (512, 512)
    return Course(
        f"MLP, 2 layers of {sizes[0]}",
        _flat(samples),
        functools.partial(MLP, 784, sizes, 10, activation=jax.nn.relu),
        10,
        batch_size=100,
        num_updates=200 if quick else 15 * len(samples.train_labels) // 100,
        learning_rate=0.001 if quick else 0.0003,
        rules={
            "BP": None,
            "Z-IL": ZIL(),
            "IL": IL(num_steps=20, gamma=0.02, batch="mean"),
            "BP, dendrax": BP(),
            "FixedPrediction": FixedPrediction(),
            "ErrorPC": ErrorPC(num_steps=10, gamma=0.1, batch="mean"),
            "IncrementalPC": IncrementalPC(
                num_steps=10, gamma=0.02, learning_rate=0.01, batch="mean"
            ),
        },
        shorter={} if quick else {"FixedPrediction": 3, "ErrorPC": 3, "IncrementalPC": 3},
        seeds=1 if quick else 3,
    )


def _alexnet(library: Library, quick: bool) -> Course:
    width = 4 if quick else 12
    return Course(
        f"AlexNet, width {width}",
        library.fashion,
        functools.partial(AlexNet, (28, 28, 1), 10, width=width),
        10,
        batch_size=20,
        num_updates=100 if quick else 2000,
        learning_rate=0.0005,
        rules={"BP": None, "Z-IL": ZIL(), "IL": IL(num_steps=20, gamma=0.02, batch="mean")},
        shorter={"IL": 2 if quick else 10},
    )


def _resnet18(library: Library, quick: bool) -> Course:
    width = 4 if quick else 8
    samples = library.fashion if quick else library.colour
    return Course(
        f"ResNet18, width {width}",
        samples,
        functools.partial(ResNet18, samples.train_inputs.shape[-1], 10, width=width),
        10,
        batch_size=20,
        num_updates=60 if quick else 2000,
        learning_rate=0.001,
        rules={"BP": None, "Z-IL": ZIL(), "IL": IL(num_steps=20, gamma=0.02, batch=20)},
        shorter={"IL": 6 if quick else 20},
        num_points=10,
    )


def _transformer(quick: bool) -> Course:
    size, length = (32, 16) if quick else (128, 64)
    samples, classes = _characters(length)
    # The loss is a mean over samples and positions, and each position is to have its full energy.
    il = IL(num_steps=20, gamma=0.02, batch=20 * length)
    return Course(
        f"Transformer, 1 layer of {size}",
        samples,
        functools.partial(
            Transformer, None, size, classes, num_heads=4, vocab_size=classes, causal=True
        ),
        classes,
        batch_size=20,
        num_updates=200 if quick else 3000,
        learning_rate=0.003,
        rules={"BP": None, "Z-IL": ZIL(), "IL": il},
        shorter={"IL": 4 if quick else 6},
    )


def _flat(samples: Samples) -> Samples:
    train, test = (
        images.reshape(len(images), -1) for images in (samples.train_inputs, samples.test_inputs)
    )
    return Samples(samples.name, train, samples.train_labels, test, samples.test_labels)


def _characters(length: int) -> tuple[Samples, int]:
    """Moby Dick in pieces, and the size of its alphabet; a label is the next character."""
    text = data.moby_dick()
    train, test = (
        data.sequences(part, length).astype(np.int32) for part in (text.train, text.test)
    )
    samples = Samples("Moby Dick", train[:, :-1], train[:, 1:], test[:, :-1], test[:, 1:])
    return samples, len(text.alphabet)
