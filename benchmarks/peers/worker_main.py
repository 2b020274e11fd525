"""The worker of the main environment: JAX's backpropagation, the loops by hand, and dendrax."""

from collections.abc import Callable
from typing import Any

import jax
import numpy as np

from benchmarks import handwritten
from benchmarks.handwritten import WORKLOADS, Params, Workload
from benchmarks.peers.protocol import Problem, Update, serve


def build(problem: Problem, variant: str, num_steps: int, gamma: float) -> Update:
    """One of `VARIANTS` on the workload whose weights the problem has."""
    params, inputs, target = jax.device_put(
        (list(zip(problem.weights, problem.biases, strict=True)), problem.inputs, problem.target)
    )
    function = VARIANTS[variant](_workload(problem), num_steps, gamma)
    return Update(lambda: jax.block_until_ready(function(params, inputs, target)), _gradient)


def _workload(problem: Problem) -> Workload:
    shapes = [w.shape for w in problem.weights]
    for workload in WORKLOADS.values():
        if [layer.weight_shape for layer in workload.layers] == shapes:
            return workload
    raise ValueError(f"no workload has weights of shapes {shapes}")


def _gradient(result: tuple[jax.Array, Params]) -> tuple[list[np.ndarray], list[np.ndarray]]:
    weights, biases = zip(*result[1], strict=True)
    return [np.asarray(w) for w in weights], [np.asarray(b) for b in biases]


def _dendrax(rule: str, workload: Workload, **settings: Any) -> Callable[..., Any]:
    import dendrax  # only here, so that the other variants run whatever state dendrax is in

    loss = handwritten.loss_function(workload)
    return jax.jit(dendrax.value_and_grad(loss, rule=getattr(dendrax, rule)(**settings)))


VARIANTS: dict[str, Callable[[Workload, int, float], Callable[..., Any]]] = {
    "bp": lambda workload, steps, gamma: handwritten.bp(workload),
    "il": handwritten.il,
    "fixed": handwritten.fixed_prediction,
    "dendrax-zil": lambda workload, steps, gamma: _dendrax("ZIL", workload),
    "dendrax-il": lambda workload, steps, gamma: _dendrax(
        "IL", workload, num_steps=steps, gamma=gamma
    ),
    "dendrax-fixed": lambda workload, steps, gamma: _dendrax(
        "FixedPrediction", workload, num_steps=steps, gamma=gamma
    ),
}


if __name__ == "__main__":
    serve(build)
