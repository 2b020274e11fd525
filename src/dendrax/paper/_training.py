"""Training: the same course by different rules, from the same start.

At every point of the learning curve the weights are hashed. Two runs with the same hash have the
same weights to the last bit, so what the report says of BP and Z-IL can be checked from its data.
A run keeps a checkpoint at every point, and an interrupted one goes on from there: the hashes after
it are those of an uninterrupted run.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax

import dendrax
from dendrax.models import digest
from dendrax.paper._courses import Course
from dendrax.paper._store import Cell, Work
from dendrax.rules import Rule
from dendrax.train import Checkpoints

EVALUATED = 500  # samples at a time


class State(NamedTuple):
    """What a run carries from update to update."""

    model: Any
    optimizer: Any


@dataclass(frozen=True)
class Point:
    """One point of a learning curve; ``seconds`` is time spent on updates alone."""

    update: int
    seconds: float
    loss: float
    accuracy: float
    energy: float | None
    weights: str


def training_cells(courses: Sequence[Course], *, seed: int) -> list[Cell]:
    """One measurement per course, rule and start."""
    return [
        _cell(course, name, seed + repeat)
        for course in courses
        for name in course.rules
        for repeat in range(course.seeds if name in ("BP", "Z-IL", "IL") else 1)
    ]


def _cell(course: Course, name: str, seed: int) -> Cell:
    settings = {**course.settings(name), "rule": name, "seed": seed}

    def measure(work: Work) -> Mapping[str, Any]:
        with jax.enable_x64(False):
            kept = Checkpoints(work.folder / "checkpoints", keep=1, read_notes=_read_points)
            with contextlib.closing(kept):
                return {"points": [asdict(p) for p in _learn(course, name, seed, work, kept)]}

    return Cell("training", f"{course.name}, {name}, seed {seed}", settings, measure)


def _learn(
    course: Course, name: str, seed: int, work: Work, checkpoints: Checkpoints
) -> Iterator[Point]:
    """The points of the curve, those of an earlier, interrupted run first."""
    length = course.length(name)
    state, points = _resume(checkpoints, _start(course, name, seed))
    yield from points
    runner = _Runner(course, name)
    runner.warm_up(state, seed)
    stops = np.unique(np.linspace(0, length, course.num_points + 1).round().astype(int)[1:])
    for stop in stops[len(points) :]:
        first = points[-1].update if points else 0
        state, loss, seconds = runner.advance(state, seed, first, int(stop))
        spent = seconds + (points[-1].seconds if points else 0.0)
        accuracy, energy = runner.accuracy(state.model), runner.energy(state.model)
        points.append(Point(int(stop), spent, loss, accuracy, energy, digest(state.model)))
        checkpoints.save(int(stop), state, [asdict(point) for point in points])
        work.on_progress(
            int(stop) / length, f"{100 * accuracy:.1f} % after {stop} of {length} updates"
        )
        yield points[-1]


def _start(course: Course, name: str, seed: int) -> State:
    model = course.make(key=jax.random.key(seed))
    return State(model, course.optimizer(name).init(model))


def _resume(checkpoints: Checkpoints, start: State) -> tuple[State, list[Point]]:
    """What cannot be gone on from is done anew."""
    found, problems = checkpoints.load(start)
    checkpoints.set_aside(problems)
    return (start, []) if found is None else (found.state, found.notes)


def _read_points(notes: Any) -> list[Point]:
    try:
        return [Point(**point) for point in notes]
    except TypeError:
        raise ValueError("it has no points of a curve.") from None


class _Runner:
    """The compiled functions of one run."""

    def __init__(self, course: Course, name: str):
        self.course, self.name, self.rule = course, name, course.rules[name]
        self._inputs = jnp.asarray(course.samples.train_inputs)
        self._labels = jnp.asarray(course.samples.train_labels.astype(np.int32))
        self._update = jax.jit(self._one_update)
        self._guess = jax.jit(lambda model, inputs: jnp.argmax(model(inputs), axis=-1))
        self._energy = _energy_of(course, self.rule)

    def _one_update(self, state: State, inputs: Any, labels: Any, chosen: Any) -> Any:
        gradient_of = _value_and_grad(self.rule)
        loss, gradient = gradient_of(self.course.loss)(state.model, inputs[chosen], labels[chosen])
        optimizer = self.course.optimizer(self.name)
        change, after = optimizer.update(gradient, state.optimizer, state.model)
        return State(optax.apply_updates(state.model, change), after), loss

    def advance(self, state: State, seed: int, first: int, stop: int) -> tuple[State, float, float]:
        """Updates ``first`` to ``stop``: the state, the mean loss, and the seconds."""
        losses = []
        start = time.perf_counter()
        for update in range(first, stop):
            chosen = self.course.order(seed, update)
            state, loss = self._update(state, self._inputs, self._labels, chosen)
            losses.append(loss)
        jax.block_until_ready(state)
        seconds = time.perf_counter() - start
        return state, float(np.mean([float(loss) for loss in losses])), seconds

    def warm_up(self, state: State, seed: int) -> None:
        """Compiling is not learning: it is done before the clock starts."""
        chosen = self.course.order(seed, 0)
        jax.block_until_ready(self._update(state, self._inputs, self._labels, chosen))

    def accuracy(self, model: Any) -> float:
        """The share of the test set that is right."""
        samples, right = self.course.samples, 0
        for first in range(0, len(samples.test_labels), EVALUATED):
            piece = slice(first, first + EVALUATED)
            guess = self._guess(model, samples.test_inputs[piece])
            right += int(np.sum(np.asarray(guess) == samples.test_labels[piece]))
        return right / samples.test_labels.size

    def energy(self, model: Any) -> float | None:
        """The energy after inference on the first test samples; BP and Z-IL do not relax."""
        return None if self._energy is None else float(self._energy(model))


def _value_and_grad(rule: Rule | None) -> Callable[..., Any]:
    if rule is None:
        return jax.value_and_grad
    return lambda fun: dendrax.value_and_grad(fun, rule=rule)


def _energy_of(course: Course, rule: Rule | None) -> Callable[[Any], jax.Array] | None:
    if rule is None or not rule.relaxes:
        return None
    size, samples = course.batch_size, course.samples
    inputs = jnp.asarray(samples.test_inputs[:size])
    labels = jnp.asarray(samples.test_labels[:size].astype(np.int32))

    @jax.jit
    def energy(model: Any) -> jax.Array:
        graph = dendrax.trace(course.loss, model, inputs, labels, vertices="layer")
        return dendrax.run(graph, rule, model, inputs, labels, record=("energy",)).energy[-1]

    return energy
