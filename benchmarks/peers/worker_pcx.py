"""The worker of pcx 0.6.3: an `EnergyModule` of its layers and vodes, trained as in its tutorials.

A vode holds the pre-activation of a layer, so that the energies are ours; the tanh comes before
the next layer. As in the tutorials, a network is written for one example and mapped over the batch,
energies are added over the batch, and the whole update is jitted. The variants:

- ``unrolled``: the inference steps are a Python loop, as in the library's tutorials.
- ``scan``: they are a `pxf.scan`, as in its later examples.
"""

# pyright: reportMissingImports=false

import math
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pcx.functional as pxf
import pcx.nn as pxnn
import pcx.predictive_coding as pxc
import pcx.utils as pxu

from benchmarks.peers.protocol import STRIDE, Problem, Update, serve

VODES = pxc.VodeParam | pxc.VodeParam.Cache
INIT = (pxc.STATUS.INIT, None)  # the status goes back to None: a scan's carry may not change


class Network(pxc.EnergyModule):
    """Layers of the problem's shapes, each followed by a vode; the last vode is clamped."""

    def __init__(self, problem: Problem) -> None:
        super().__init__()
        self.layers = [_layer(w) for w in problem.weights]
        self.vodes = [pxc.Vode() for _ in problem.weights]
        self.vodes[-1].h.frozen = True
        for layer, w, b in zip(self.layers, *_to_pcx(problem), strict=True):
            layer.nn.weight.set(jnp.asarray(w))
            layer.nn.bias.set(jnp.asarray(b))

    def __call__(self, x: jax.Array, y: jax.Array | None) -> jax.Array:
        for k, (layer, vode) in enumerate(zip(self.layers, self.vodes, strict=True)):
            x = jnp.tanh(x) if k else x
            x = x.reshape(-1) if isinstance(layer, pxnn.Linear) else x
            x = vode(layer(x))
        if y is not None:
            self.vodes[-1].set("h", y)
        return self.vodes[-1].get("u")


def _layer(w: np.ndarray) -> pxnn.Layer:
    if w.ndim == 2:
        return pxnn.Linear(*w.shape)
    *size, channels, out_channels = w.shape
    return pxnn.Conv2d(channels, out_channels, tuple(size), (STRIDE, STRIDE), "SAME")


@pxf.vmap(pxu.M(VODES).to((None, 0)), in_axes=(0, 0), out_axes=0)
def forward(x: jax.Array, y: jax.Array | None, *, model: Network) -> jax.Array:
    return model(x, y)


@pxf.vmap(pxu.M(VODES).to((None, 0)), in_axes=(0,), out_axes=(None, 0), axis_name="batch")
def energy(x: jax.Array, *, model: Network) -> tuple[jax.Array, jax.Array]:
    output = model(x, None)
    return jax.lax.psum(model.energy(), "batch"), output


def infer(x: jax.Array, *, model: Network, optim_h: pxu.Optim) -> None:
    """One step of all value nodes down the energy's gradient."""
    wanted = pxu.M_hasnot(pxc.VodeParam, frozen=True).to([False, True])
    with pxu.step(model, clear_params=pxc.VodeParam.Cache):
        _, g = pxf.value_and_grad(wanted, has_aux=True)(energy)(x, model=model)
    optim_h.step(model, g["model"])


def unrolled(num_steps: int, x: jax.Array, *, model: Network, optim_h: pxu.Optim) -> None:
    for _ in range(num_steps):
        infer(x, model=model, optim_h=optim_h)


def scan(num_steps: int, x: jax.Array, *, model: Network, optim_h: pxu.Optim) -> None:
    def step(_: Any, x: jax.Array, *, model: Network, optim_h: pxu.Optim) -> tuple[Any, None]:
        infer(x, model=model, optim_h=optim_h)
        return x, None

    pxf.scan(step, xs=jnp.arange(num_steps))(x, model=model, optim_h=optim_h)


def make_update(loop: Callable[..., None]) -> Any:
    """The tutorials' ``train_on_batch``, which hands back the weights' gradient."""

    @pxf.jit(static_argnums=0)
    def update(
        num_steps: int, x: jax.Array, y: jax.Array, *, model: Network, optim_h: pxu.Optim
    ) -> Any:
        model.train()
        with pxu.step(model, INIT, clear_params=pxc.VodeParam.Cache):
            forward(x, y, model=model)
        optim_h.init(pxu.M_hasnot(pxc.VodeParam, frozen=True)(model))
        loop(num_steps, x, model=model, optim_h=optim_h)
        optim_h.clear()
        with pxu.step(model, clear_params=pxc.VodeParam.Cache):
            wanted = pxu.M(pxnn.LayerParam).to([False, True])
            _, g = pxf.value_and_grad(wanted, has_aux=True)(energy)(x, model=model)
        return [(layer.nn.weight.get(), layer.nn.bias.get()) for layer in g["model"].layers]

    return update


def build(problem: Problem, variant: str, num_steps: int, gamma: float) -> Update:
    """Gradients summed over the batch, after ``num_steps`` steps from the forward pass."""
    model = Network(problem)
    images = problem.inputs.ndim == 4
    inputs = problem.inputs.transpose(0, 3, 1, 2) if images else problem.inputs
    x, y = jax.device_put((inputs, problem.target))
    optim_h = pxu.Optim(lambda: optax.sgd(gamma))
    with pxu.step(model, INIT, clear_params=pxc.VodeParam.Cache):
        forward(x, y, model=model)  # gives the vodes their shapes, or the second call compiles anew
    update = make_update({"unrolled": unrolled, "scan": scan}[variant])
    return Update(
        lambda: jax.block_until_ready(update(num_steps, x, y, model=model, optim_h=optim_h)),
        lambda gradient: _from_pcx(problem, gradient),
    )


def _to_pcx(problem: Problem) -> tuple[list[np.ndarray], list[np.ndarray]]:
    """Weights with the output first; convolutions, and the dense layer above, channels first."""
    weights = [
        w.transpose(3, 2, 0, 1) if w.ndim == 4 else w[order].T
        for w, order in zip(problem.weights, _orders(problem), strict=True)
    ]
    pairs = zip(problem.weights, problem.biases, strict=True)
    return weights, [b[:, None, None] if w.ndim == 4 else b for w, b in pairs]


def _from_pcx(problem: Problem, gradient: Any) -> tuple[list[np.ndarray], list[np.ndarray]]:
    """A gradient in pcx's layout, in ours."""
    weights = [
        np.asarray(w).transpose(2, 3, 1, 0) if w.ndim == 4 else np.asarray(w).T[np.argsort(order)]
        for (w, _), order in zip(gradient, _orders(problem), strict=True)
    ]
    return weights, [np.asarray(b).reshape(-1) for _, b in gradient]


def _orders(problem: Problem) -> list[np.ndarray]:
    """For each layer, which of its inputs comes where when images have their channels first."""
    orders = []
    shape = problem.inputs.shape[1:]
    for w in problem.weights:
        places = np.arange(math.prod(shape)).reshape(shape)
        orders.append(np.moveaxis(places, -1, 0).reshape(-1))
        spatial = tuple(math.ceil(size / STRIDE) for size in shape[:-1])
        shape = (*spatial, w.shape[-1]) if w.ndim == 4 else w.shape[1:]
    return orders


if __name__ == "__main__":
    serve(build)
