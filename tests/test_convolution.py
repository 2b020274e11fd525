"""The convolution that stays fast inside a loop is JAX's own, in every layout."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

import dendrax
from dendrax import IL, FixedPrediction, _compat
from dendrax.local import is_convolution
from dendrax.walk import _regions
from dendrax.walk._regions import run_fast
from tests.sampling import rotating
from tests.test_contraction import operations

LAYOUTS = {
    2: [("NHWC", "HWIO", "NHWC"), ("NCHW", "OIHW", "NCHW"), ("CHWN", "IHWO", "NHWC")],
    1: [("NWC", "WIO", "NWC"), ("NCW", "OIW", "NCW")],
    3: [("NDHWC", "DHWIO", "NDHWC"), ("NCDHW", "OIDHW", "NCDHW")],
}
SETTINGS = {
    "plain": {},
    "stride": {"window_strides": 2},
    "stride_3": {"window_strides": 3, "padding": [(0, 1)]},
    "same": {"padding": "SAME", "window_strides": 2},
    "valid": {"padding": "VALID"},
    "uneven": {"padding": [(2, 0)]},
    "negative": {"padding": [(-1, 1)]},
    "wide": {"padding": [(4, 5)]},
    "dilated_kernel": {"rhs_dilation": 2, "padding": "SAME"},
    "dilated_image": {"lhs_dilation": 2, "padding": [(1, 2)]},
    "both": {"lhs_dilation": 2, "rhs_dilation": 2, "window_strides": 3, "padding": [(3, 2)]},
    "groups": {"feature_group_count": 2, "window_strides": 2},
    "depthwise": {"feature_group_count": 4},
    "grouped_dilated": {"feature_group_count": 2, "rhs_dilation": 2, "lhs_dilation": 2},
}


def case(layout, setting):
    """A convolution, an image and a kernel."""
    n = len(layout[0]) - 2  # the other two axes are batch and features
    settings = {"padding": [(1, 1)], "window_strides": 1, **setting}
    for name in ("window_strides", "lhs_dilation", "rhs_dilation"):
        if name in settings:
            settings[name] = (settings[name],) * n
    if not isinstance(settings["padding"], str):
        settings["padding"] = settings["padding"] * n
    groups = settings.get("feature_group_count", 1)
    sizes = {"N": 2, "C": 4, "I": 4 // groups, "O": 8, "D": 5, "H": 7, "W": 6}
    window = {"D": 2, "H": 3, "W": 3}
    rng = np.random.default_rng(0)
    image = jnp.asarray(rng.normal(size=[sizes[axis] for axis in layout[0]]))
    shape = [window.get(axis, sizes[axis]) for axis in layout[1]]
    kernel = jnp.asarray(rng.normal(size=shape))
    strides = settings.pop("window_strides")
    padding = settings.pop("padding")

    def convolve(image, kernel):
        return lax.conv_general_dilated(
            image, kernel, strides, padding, dimension_numbers=layout, **settings
        )

    return convolve, image, kernel


LAYOUT_NAMES = {f"{layout[0]}-{layout[1]}": layout for n in LAYOUTS for layout in LAYOUTS[n]}


@pytest.mark.parametrize(("layout", "setting"), rotating(LAYOUT_NAMES, SETTINGS))
def test_prediction_and_message_are_jaxs(layout, setting):
    convolve, image, kernel = case(layout, setting)
    graph = dendrax.trace(convolve, image, kernel, argnums=(0, 1))
    (operation,) = filter(is_convolution, operations(graph))

    @jax.jit
    def both(image, kernel):
        run = run_fast(operation, [image, kernel], [True, True])
        expected, pullback = jax.vjp(convolve, image, kernel)
        error = jnp.cos(expected)
        sums = [_compat.new_sum(jax.typeof(value)) for value in (image, kernel)]
        run.sender.send([error], sums)
        found = *run.outputs, *map(_compat.summed, sums)
        return found, (expected, *pullback(error))

    for found, expected in zip(*both(image, kernel), strict=True):
        np.testing.assert_allclose(found, expected, rtol=1e-12, atol=1e-12)


def network(convolve):
    def loss(w, x):
        h = jnp.tanh(x * w["scale"])
        h = jnp.tanh(convolve(jnp.sin(h * w["gate"]), w["kernel"]))
        return jnp.sum(h.reshape(-1) * w["out"])

    return loss


PLANAR = {layout[0]: layout for layout in LAYOUTS[2]}


@pytest.mark.parametrize(("layout", "setting"), rotating(PLANAR, ["same", "groups", "both"]))
def test_inside_a_network(layout, setting, monkeypatch):
    """The rules that use it give what they give with JAX's own pullback."""
    convolve, image, kernel = case(layout, SETTINGS[setting])
    size = convolve(image, kernel).size
    w = {
        "scale": jnp.full(image.shape, 0.7),
        "gate": jnp.full(image.shape, 1.3),
        "kernel": kernel,
        "out": jnp.cos(jnp.arange(size, dtype=float)),
    }
    loss = network(convolve)
    found = dendrax.grad(loss, rule=FixedPrediction())(w, image)
    for name, expected in jax.grad(loss)(w, image).items():
        np.testing.assert_allclose(found[name], expected, rtol=1e-9, atol=1e-10)
    rule = IL(num_steps=3, on_divergence="ignore", batch="sum")
    il = dendrax.grad(loss, rule=rule)(w, image)
    monkeypatch.setattr(_regions, "is_convolution", lambda function: False)
    for name, expected in dendrax.grad(loss, rule=rule)(w, image).items():
        np.testing.assert_allclose(il[name], expected, rtol=1e-9, atol=1e-10)
        assert not np.allclose(il[name], found[name], rtol=1e-3)  # it is not backprop that we see


def test_a_kernel_that_moves_is_left_to_jax():
    """A value node may itself be a kernel: then nothing about it is clamped."""

    def loss(w, x):
        kernel = jnp.tanh(w["a"] @ w["b"]).reshape(3, 3, 1, 2)
        h = lax.conv_general_dilated(
            jnp.sin(x * w["s"]), kernel, (1, 1), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC")
        )
        return jnp.sum(jnp.tanh(h) * w["out"])

    rng = np.random.default_rng(0)
    shapes = {"a": (9, 2), "b": (2, 2), "s": (1, 5, 5, 1), "out": (1, 5, 5, 2)}
    w = {name: jnp.asarray(rng.normal(size=shape)) for name, shape in shapes.items()}
    x = jnp.asarray(rng.normal(size=(1, 5, 5, 1)))
    found = dendrax.grad(loss, rule=FixedPrediction(), vertices="primitive")(w, x)
    for name, expected in jax.grad(loss)(w, x).items():
        np.testing.assert_allclose(found[name], expected, rtol=1e-9, atol=1e-11)


def test_groups_over_the_batch_are_left_to_jax():
    def convolve(image, kernel):
        return lax.conv_general_dilated(
            image,
            kernel,
            (1,),
            "VALID",
            dimension_numbers=("NWC", "WIO", "NWC"),
            batch_group_count=2,
        )

    graph = dendrax.trace(convolve, jnp.ones((4, 5, 3)), jnp.ones((2, 3, 4)))
    assert not any(map(is_convolution, operations(graph)))
