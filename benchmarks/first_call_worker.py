"""One first call of ``benchmarks.first_calls``, in a process of its own.

The names of a model and of a library enter on the command line; a ``FirstCall`` leaves as JSON on
stdout. ``python -m benchmarks.first_call_worker resnet50 dendrax`` tries one by hand.
"""

import argparse
import dataclasses
import functools
import hashlib
import json
import time
from collections.abc import Callable
from typing import Any

import jax
import numpy as np

import dendrax
from benchmarks import marked, resnet50
from benchmarks.first_calls import FirstCall, Library
from benchmarks.timing import build
from dendrax import models
from dendrax.models import Problem, problem

GRADIENTS: dict[Library, Callable[..., Any]] = {
    "dendrax": dendrax.value_and_grad,
    "jax": jax.value_and_grad,
    "marked IL": functools.partial(dendrax.value_and_grad, rule=dendrax.IL(), vertices="marked"),
    "IL": functools.partial(dendrax.value_and_grad, rule=dendrax.IL()),
}
PROBLEMS: dict[str, Callable[[], Problem]] = {
    "resnet50": resnet50.problem,
    "lstm": marked.lstm,
    "plain lstm": functools.partial(marked.lstm, marked=False),
    **{name: functools.partial(problem, name) for name in models.PROBLEMS},
}


def main() -> None:
    """Make the call that the command line names."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.first_call_worker")
    parser.add_argument("model", choices=PROBLEMS)
    parser.add_argument("library", choices=GRADIENTS)
    options = parser.parse_args()
    # A program that was found compiled on disk would say nothing about the first call.
    jax.config.update("jax_enable_compilation_cache", False)
    found = measure(PROBLEMS[options.model](), options.library)
    print(json.dumps(dataclasses.asdict(found)))


def measure(p: Problem, library: Library) -> FirstCall:
    """Trace, lower, compile and run the gradient of a problem by one library."""
    arguments = jax.block_until_ready((p.model, p.inputs, p.target))
    compiled, lowering, compiling = build(GRADIENTS[library](p.loss), arguments)
    start = time.perf_counter()
    found = jax.block_until_ready(compiled(*arguments))
    return FirstCall(lowering, compiling, time.perf_counter() - start, _digest(found))


def _digest(tree: Any) -> str:
    digest = hashlib.sha256()
    for leaf in jax.tree.leaves(tree):
        digest.update(np.asarray(leaf).tobytes())
    return digest.hexdigest()


if __name__ == "__main__":
    main()
