"""What is done for XLA on a CPU is in programs for CPUs alone, wherever they are made."""

import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import export

import dendrax
from dendrax import BP, IL, ZIL, ErrorPC, FixedPrediction, IncrementalPC
from dendrax.local import _platform
from dendrax.walk import _regions
from tests.compare import close, same

RULES = [
    BP(),
    ZIL(),
    ZIL(gamma=0.5),
    IL(3, batch="sum"),
    IL(3, levelled=True, batch="sum"),
    IL(3, tol=1e-3, batch="sum"),
    FixedPrediction(3),
    IncrementalPC(3, batch="sum"),
    ErrorPC(3, batch="sum"),
]
LAYOUTS = re.compile(r"dim_numbers = (\[[^<]*?\]->\[[^]]*\])")
CONTRACTED = re.compile(r"contracting_dims = (\[[\d, ]*\] x \[[\d, ]*\])")


def loss(w, x):
    """Channels first: not what XLA likes on a CPU."""
    layout = ("NCHW", "OIHW", "NCHW")
    for kernel in w["kernels"]:
        x = jnp.tanh(
            jax.lax.conv_general_dilated(x, kernel, (1, 1), "SAME", dimension_numbers=layout)
        )
    h = jnp.tanh(x.reshape(len(x), -1) @ w["hidden"])
    return jnp.sum((h @ w["out"]) ** 2)


def arguments():
    rng = np.random.default_rng(0)
    shapes = {"hidden": (32, 5), "out": (5, 3)}
    w = {name: jnp.asarray(rng.normal(size=shape) / 4) for name, shape in shapes.items()}
    w["kernels"] = [jnp.asarray(rng.normal(size=s) / 4) for s in ((3, 4, 3, 3), (2, 3, 3, 3))]
    return w, jnp.asarray(rng.normal(size=(6, 4, 4, 4)))


def program(gradient, *platforms):
    """The program for some platforms, as it is exported from this machine."""
    return export.export(jax.jit(gradient), platforms=platforms)(*arguments())


def forms(gradient, platform):
    """The layouts of its convolutions, and the axes that its products contract."""
    text = program(gradient, platform).mlir_module()
    assert "convolution" in text and "dot_general" in text
    return set(LAYOUTS.findall(text)), set(CONTRACTED.findall(text))


@pytest.mark.parametrize("platform", ["cuda", "rocm", "tpu"])
@pytest.mark.parametrize("rule", RULES, ids=repr)
def test_accelerators_get_the_plain_products(rule, platform):
    layouts, contracted = forms(dendrax.value_and_grad(loss, rule=rule), platform)
    expected = forms(jax.value_and_grad(loss), platform)
    assert layouts <= expected[0] and contracted <= expected[1]


def test_a_cpu_gets_others():
    layouts, contracted = forms(dendrax.value_and_grad(loss, rule=IL(3, batch="sum")), "cpu")
    expected = forms(jax.value_and_grad(loss), "cpu")
    assert not layouts <= expected[0] and layouts != expected[0]
    plain = forms(dendrax.value_and_grad(loss, rule=IL(3, batch="sum")), "cuda")
    assert "[1] x [1]" in plain[1] and "[1] x [1]" not in contracted


def test_one_program_for_several_platforms_runs_here():
    gradient = jax.jit(dendrax.value_and_grad(loss, rule=IL(3, batch="sum")))
    assert same(program(gradient, "cpu", "cuda").call(*arguments()), gradient(*arguments()))


@pytest.mark.parametrize("rule", RULES[3:], ids=repr)
def test_the_plain_products_learn_the_same(rule, monkeypatch):
    found = dendrax.grad(loss, rule=rule)(*arguments())

    def elsewhere(cpu, elsewhere, *values):
        return elsewhere(*values)

    for module in (_platform, _regions):
        monkeypatch.setattr(module, "on_cpu", elsewhere)
    assert close(dendrax.grad(loss, rule=rule)(*arguments()), found, ulps=4096)
