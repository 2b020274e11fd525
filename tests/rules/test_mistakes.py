"""What a rule of a user may get wrong is answered with its name, its line and a remedy."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import dendrax
from dendrax import IL
from tests.compare import close
from tests.rules.my_rules import Momentum
from tests.rules.test_my_rules import W, X, Y, bad, loss

HERE = r"[\s\S]*test_mistakes\.py:\d+ "


@dataclasses.dataclass(frozen=True)
class Plain(dendrax.Rule):
    tol: float = 1e-3
    batch = "sum"

    def step(self, net, x):
        slope = net.look(x).slope
        return {node: value + 0.1 * slope[node] for node, value in x.items()}


def plain(**methods):
    return dataclasses.dataclass(frozen=True)(type("Mine", (Plain,), methods))()


def _first(tree):
    return dict([*tree.items()][:1])


@pytest.mark.parametrize(
    ("rule", "message"),
    [
        (plain(look=lambda *_: None), rf"Mine.look returns NoneType, not a look{HERE}"),
        (plain(done=lambda *_: None), rf"Mine.done returns NoneType, not whether{HERE}"),
        (plain(done=lambda *_: jnp.ones(3) > 0), rf"Mine.done returns bool\[3\]{HERE}"),
        (plain(done=lambda *_: 1.0), rf"Mine.done returns float,{HERE}"),
        (
            plain(gradient=lambda s, net, x: dict.fromkeys(net.parameters)),
            rf"Mine.gradient returns NoneType for w\[0\], which is float64\[3,4\]{HERE}",
        ),
        (
            plain(gradient=lambda s, net, x: net.look(x, {"w": 1}).gradient),
            r"the parameters that a rule looks at are not[\s\S]*keys of net.parameters",
        ),
        (
            plain(
                gradient=lambda s, net, x: (
                    net.look(x, {k: v[:1] for k, v in net.parameters.items()}).gradient
                )
            ),
            r"the parameter w\[0\] has type float64 and shape \(3, 4\)[\s\S]*net.parameters",
        ),
        (
            plain(gradient=lambda s, net, x: net.look(x).with_errors(_first(x)).gradient),
            r"not one value for each value node",
        ),
        (plain(batch="men"), r"Mine: batch='men' is not known. Did you mean 'mean'"),
        (plain(batch=0), r"Mine: batch=0 is not the size of a batch"),
        (plain(energies=None), r"Mine: the energy of layer\(w\[0\]\) is None"),
        (plain(energies=dendrax.Gaussian), r"Mine: the energy of .*Gaussian"),
        (plain(num_steps=None), r"Mine: num_steps=None is not a number of steps"),
        (
            plain(gradient=lambda s, net, x: dendrax.settle(dendrax.ZIL(), net, x)),
            r"ZIL: num_steps=None is not a number of steps",
        ),
    ],
)
def test_a_mistake_is_answered(rule, message):
    with pytest.raises((TypeError, ValueError), match=message):
        dendrax.grad(loss, rule=rule)(W, X, Y)


def test_other_vertices_than_there_are():
    with pytest.raises(ValueError, match=r"Mine: vertices='layers' is not known.*'layer'"):
        dendrax.grad(loss, rule=bad(vertices="layers"))


def test_a_class_of_ones_own_in_place_of_a_rule():
    with pytest.raises(TypeError, match=r"(?s)got the class Momentum.*Write rule=Momentum\(\)"):
        dendrax.grad(loss, rule=Momentum)


@pytest.mark.parametrize("done", [True, np.True_])
def test_done_may_be_known_before(done):
    graph = dendrax.trace(loss, W, X, Y, vertices="layer")
    assert dendrax.run(graph, plain(done=lambda *_: done)).num_steps == 0


def test_il_with_another_end_cannot_be_placed():
    """Placed, it would silently learn as IL does."""
    for name in ("step", "look", "gradient", "memory", "steps"):
        rule = dataclasses.dataclass(frozen=True)(type("Mine", (IL,), {name: lambda *_: None}))()
        assert not rule.is_placeable
    assert IL(batch="sum").is_placeable


def test_the_slices_of_a_stacked_weight_have_one_number():
    drawn = []

    def draw(weight, k):
        drawn.append((weight.shape, k))
        return weight

    rule = dataclasses.dataclass(frozen=True)(
        type("Mine", (dendrax.BP,), {"local": dendrax.feedback(draw)})
    )()

    def stacked(w, x):
        return jnp.sum(jax.lax.scan(lambda h, u: (jnp.tanh(h @ u), None), x, w)[0])

    args = jnp.full((3, 4, 4), 0.1), jnp.ones((2, 4))
    assert close(dendrax.grad(stacked, rule=rule)(*args), jax.grad(stacked)(*args), ulps=100)
    assert set(drawn) == {((4, 4), 0)}


@pytest.mark.parametrize("name", ["step", "gradient", "memory"])
def test_a_method_that_a_wave_would_never_call(name):
    rule = dataclasses.dataclass(frozen=True)(
        type("Mine", (dendrax.BP,), {name: lambda self, *_: None})
    )()
    with pytest.raises(ValueError, match=rf"Mine is one pass .* its {name} would never{HERE}"):
        dendrax.grad(loss, rule=rule)
