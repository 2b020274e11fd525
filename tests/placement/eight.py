"""In a process with eight devices: what `test_devices` compares, as JSON.

``python -m tests.placement.eight RULE MODEL DTYPE``
"""

import json
import os
import sys

os.environ["XLA_FLAGS"] = "--xla_force_host_platform_device_count=8"

import jax
import jax.numpy as jnp

import dendrax
from dendrax import placement
from dendrax.models import MLP, problem
from tests.compare import distance, same

RULES = {"zil": dendrax.ZIL(), "il": dendrax.IL(num_steps=4, gamma=0.05, batch="sum")}


def one_device(rule, loss, args):
    """The reference: for Z-IL JAX's own gradient, as two programs; for IL the same steps."""
    if isinstance(rule, dendrax.IL):
        return placement.place(loss, *args, devices=1, rule=rule).value_and_grad(*args)
    value, pullback = jax.jit(lambda p, *rest: jax.vjp(lambda q: loss(q, *rest), p))(*args)
    return value, jax.jit(lambda pull, one: pull(one))(pullback, jnp.ones_like(value))[0]


def problem_of(model, dtype):
    """A small problem; the MLP is deep enough for eight devices."""
    p = problem(model, small=True, dtype=dtype)
    if model != "mlp":
        return p.loss, (p.model, p.inputs, p.target)
    x = jax.random.normal(jax.random.key(0), (8, 12), dtype)
    deep = MLP(12, [16] * 8, p.target.shape[-1], key=jax.random.key(1))
    target = jax.nn.one_hot(jnp.arange(8) % p.target.shape[-1], p.target.shape[-1], dtype=dtype)
    return p.loss, (jax.tree.map(lambda leaf: leaf.astype(dtype), deep), x, target)


def main(rule: str, model: str, dtype: str) -> None:
    chosen = RULES[rule]
    loss, args = problem_of(model, dtype)
    expected = one_device(chosen, loss, args)
    compiled = jax.jit(dendrax.value_and_grad(loss, rule=chosen))(*args)
    # Of the whole gradient: of a bias before a normalisation, which is zero, all is rounding.
    rounding, nothing = 100 * float(jnp.finfo(dtype).eps), jax.tree.map(jnp.zeros_like, compiled)
    found = {}
    for count in (2, 4, 8):
        placed = placement.place(loss, *args, devices=count, rule=chosen)
        result, audit = placed.value_and_grad(*args), placed.audit()
        found[count] = {
            "same": same(result, expected),
            "close": distance(result, compiled) <= rounding * distance(result, nothing),
            "local": audit.local,
            "counted": audit.links == placed.links,
            "links": [(link.source, link.target) for link in placed.links],
            "devices": len({d for leaf in jax.tree.leaves(result[1]) for d in leaf.devices()}),
        }
    print(json.dumps(found))


if __name__ == "__main__":
    jax.config.update("jax_enable_x64", sys.argv[3] == "float64")
    main(*sys.argv[1:])
