"""What every worker speaks: one JSON object per line in, one per line out.

    {"do": "prepare", "variant": "scan", "problem": "problem.npz", "num_steps": 20, "gamma": 0.1}
        -> {"compile_seconds": 1.2}
    {"do": "time", "variant": "scan", "repeat": 5, "seconds": 0.3}  -> {"seconds": [0.01, ...]}
    {"do": "update", "variant": "scan", "out": "gradient.npz"}      -> {}
    {"do": "forget"}                                                -> {}

An error comes back as ``{"error": "..."}`` and the worker goes on. A worker is a module that calls
`serve` with a function that builds updates. This file needs nothing but NumPy: it runs in every
library's environment.
"""

import json
import os
import sys
import time
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TextIO

import numpy as np

STRIDE = 2  # of every convolution; its padding is SAME


@dataclass(frozen=True)
class Problem:
    """A network's weights and biases (first layer first), a batch and its one-hot targets.

    A weight is (in, out) for a dense layer and (height, width, in, out) for a convolution; images
    and their flattening have the channels last. Between layers there is a tanh.
    """

    weights: list[np.ndarray]
    biases: list[np.ndarray]
    inputs: np.ndarray
    target: np.ndarray


@dataclass(frozen=True)
class Update:
    """``run()`` computes one whole update and waits for it; ``gradient`` reads what it returned.

    The gradient is two lists, of weights and of biases, in the layout of `Problem`.
    """

    run: Callable[[], Any]
    gradient: Callable[[Any], tuple[list[np.ndarray], list[np.ndarray]]]


Build = Callable[[Problem, str, int, float], Update]  # problem, variant, num_steps, gamma


def save(path: str, weights: Any, biases: Any, **more: Any) -> None:
    """Write weights and biases (of a network, or of its gradient), and more arrays, to a file."""
    layers = {f"w{k}": np.asarray(w) for k, w in enumerate(weights)}
    layers |= {f"b{k}": np.asarray(b) for k, b in enumerate(biases)}
    np.savez(path, **layers, **more)


def load_layers(path: str) -> tuple[list[np.ndarray], list[np.ndarray]]:
    """The weights and biases that `save` wrote."""
    with np.load(path) as file:
        count = sum(name.startswith("w") for name in file)
        return [file[f"w{k}"] for k in range(count)], [file[f"b{k}"] for k in range(count)]


def load_problem(path: str) -> Problem:
    """The problem that `save` wrote, with ``inputs`` and ``target``."""
    with np.load(path) as file:
        return Problem(*load_layers(path), file["inputs"], file["target"])


def serve(build: Build) -> None:
    """Answer requests until the other side closes the pipe."""
    answers = _keep_stdout()
    updates: dict[str, Update] = {}
    for line in sys.stdin:
        try:
            answer = _answer(json.loads(line), build, updates)
        except Exception as error:
            traceback.print_exc()
            answer = {"error": f"{type(error).__name__}: {error}"}
        print(json.dumps(answer), file=answers, flush=True)


def _keep_stdout() -> TextIO:
    """The real stdout, for answers alone; whatever a library prints goes to stderr instead."""
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    sys.stdout = sys.stderr
    return answers


def _answer(request: dict[str, Any], build: Build, updates: dict[str, Update]) -> dict[str, Any]:
    match request["do"]:
        case "prepare":
            return {"compile_seconds": _prepare(request, build, updates)}
        case "time":
            update = _prepared(request, updates)
            return {"seconds": _time(update, request["repeat"], request["seconds"])}
        case "update":
            update = _prepared(request, updates)
            save(request["out"], *update.gradient(update.run()))
            return {}
        case "forget":
            updates.clear()
            return {}
        case unknown:
            raise ValueError(f"unknown request {unknown!r}")


def _prepared(request: dict[str, Any], updates: dict[str, Update]) -> Update:
    if request["variant"] not in updates:
        raise ValueError(f"{request['variant']!r} is not prepared; has the worker been restarted?")
    return updates[request["variant"]]


def _prepare(request: dict[str, Any], build: Build, updates: dict[str, Update]) -> float:
    """Build an update; the seconds by which its first run, which compiles, exceeds the second."""
    problem = load_problem(request["problem"])
    update = build(problem, request["variant"], request["num_steps"], request["gamma"])
    updates[request["variant"]] = update
    first, second = _seconds(update), _seconds(update)
    return max(first - second, 0.0)


def _time(update: Update, repeat: int, limit: float) -> list[float]:
    """The seconds of each of ``repeat`` runs; of fewer, but at least one, if ``limit`` is spent.

    One run before them only warms the caches up, where there is time for it.
    """
    start, times = time.perf_counter(), []
    while len(times) <= repeat and (not times or time.perf_counter() - start < limit):
        times.append(_seconds(update))
    return times[1:] or times


def _seconds(update: Update) -> float:
    start = time.perf_counter()
    update.run()
    return time.perf_counter() - start
