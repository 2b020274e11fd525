"""Rules of a user work wherever the shipped ones do, and do what their equations say."""

import dataclasses
import inspect
import pathlib

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import dendrax
from dendrax import BP, IL
from dendrax.models import problem
from tests.compare import close, distance, same
from tests.rules.my_rules import EverySecond, Feedback, Momentum

FILE = str(pathlib.Path(__file__).with_name("my_rules.py"))
RULES = [Momentum(), Feedback(), EverySecond()]


def loss(w, x, y):
    return jnp.sum((jnp.tanh(jnp.tanh(x @ w[0]) @ w[1]) @ w[2] - y) ** 2) / 2


def _args():
    rng = np.random.default_rng(0)
    shapes = ((3, 4), (4, 4), (4, 2), (5, 3), (5, 2))
    *w, x, y = (jnp.asarray(rng.normal(size=shape)) for shape in shapes)
    return w, x, y


with jax.enable_x64(True):
    W, X, Y = _args()


def energy(x, w):
    """F of the network by hand; ``x`` are the two hidden layers before tanh."""
    out = jnp.tanh(x[1]) @ w[2]
    mu = [X @ w[0], jnp.tanh(x[0]) @ w[1]]
    errors = [m - v for m, v in zip(mu, x, strict=True)]
    return sum(jnp.sum(e**2) for e in errors) / 2 + jnp.sum((out - Y) ** 2) / 2


def forward():
    first = X @ W[0]
    return [first, jnp.tanh(first) @ W[1]]


def test_each_is_at_most_25_lines():
    for rule in RULES:
        assert len(inspect.getsource(type(rule)).splitlines()) <= 25


# ---- what they do --------------------------------------------------------------------------------


def test_momentum_against_a_literal_loop():
    x, velocity = forward(), [0.0, 0.0]
    for _ in range(20):
        slope = jax.tree.map(jnp.negative, jax.grad(energy)(x, W))
        velocity = [0.5 * v + s for v, s in zip(velocity, slope, strict=True)]
        x = [u + 0.1 * v for u, v in zip(x, velocity, strict=True)]
    found = dendrax.grad(loss, rule=Momentum())(W, X, Y)
    assert close(found, jax.grad(energy, 1)(x, W), ulps=1e4)


def test_learning_at_every_second_step_against_a_literal_loop():
    x, total = forward(), jax.tree.map(jnp.zeros_like, W)
    for t in range(20):
        slope, gradient = jax.grad(energy, (0, 1))(x, W)
        x = [u - 0.1 * s for u, s in zip(x, slope, strict=True)]
        total = jax.tree.map(jnp.add, total, gradient) if t % 2 else total
    assert close(dendrax.grad(loss, rule=EverySecond())(W, X, Y), total, ulps=1e4)


def test_feedback_alignment_against_the_equations():
    """The weight's own message is its own; what goes down is turned by the other matrix."""

    @dataclasses.dataclass(frozen=True)
    class Aligned(BP):
        @property
        def local(self):
            return Feedback().local

    found = dendrax.grad(loss, rule=Aligned())(W, X, Y)
    a, b = jnp.tanh(X @ W[0]), jnp.tanh(jnp.tanh(X @ W[0]) @ W[1])
    out = b @ W[2] - Y
    drawn = [Feedback().draw(w, k) for k, w in enumerate(W)]
    second = out @ drawn[2].T * (1 - b**2)
    first = second @ drawn[1].T * (1 - a**2)
    assert close(found, [X.T @ first, a.T @ second, b.T @ out], ulps=1e4)


@pytest.mark.parametrize("name", ["mlp", "cnn"])
def test_feedback_by_the_weights_themselves_is_backprop(name):
    @dataclasses.dataclass(frozen=True)
    class True_(BP):
        local = dendrax.feedback(lambda weight, k: weight)

    p = problem(name, small=True)
    args = p.model, p.inputs, p.target
    found = jax.jit(dendrax.grad(p.loss, rule=True_()))(*args)
    assert close(found, jax.jit(jax.grad(p.loss))(*args), ulps=1e3)


def test_feedback_of_another_shape_is_refused():
    @dataclasses.dataclass(frozen=True)
    class Wrong(BP):
        local = dendrax.feedback(lambda weight, k: weight.T)

    with pytest.raises(ValueError, match=r"feedback: draw returned .* for a weight of"):
        dendrax.grad(loss, rule=Wrong())(W, X, Y)


# ---- wherever the shipped rules do ---------------------------------------------------------------


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: type(rule).__name__)
def test_everywhere(rule, tmp_path):
    value, gradient = jax.jit(dendrax.value_and_grad(loss, rule=rule))(W, X, Y)
    assert close(value, loss(W, X, Y))
    output, pullback = dendrax.vjp(lambda w: loss(w, X, Y), W, rule=rule)
    assert close(pullback(jnp.ones_like(output))[0], gradient, ulps=1e4)
    each = jax.vmap(lambda x, y: dendrax.grad(loss, rule=rule)(W, x[None], y[None]))(X, Y)
    alone = [dendrax.grad(loss, rule=rule)(W, X[i : i + 1], Y[i : i + 1]) for i in range(2)]
    assert all(close(jax.tree.map(lambda g, i=i: g[i], each), alone[i], 1e4) for i in range(2))
    graph = dendrax.trace(loss, W, X, Y, vertices="layer")
    result = dendrax.run(graph, rule, record=("x", "energy", "statistics"))
    assert close(result.gradient, gradient, ulps=1e4)
    assert len(result.energy) == 21 and not result.advice
    assert not dendrax.check(loss, W, X, Y, rule=rule).exact
    assert dendrax.audit(loss, W, X, Y, rule=rule).local
    page = dendrax.explore(loss, W, X, Y, rule=rule, path=tmp_path / "page.html")
    assert page.stat().st_size > 10_000


@pytest.mark.parametrize("name", ["Momentum", "Feedback", "EverySecond"])
def test_on_the_command_line(name, tmp_path):
    from typer.testing import CliRunner

    from dendrax.cli._main import app

    out = tmp_path / "run"
    words = ["train", "--model", "mlp", "--steps", "2", "--out", str(out), "--rule"]
    with jax.numpy_dtype_promotion("standard"):  # which Optax relies on
        found = CliRunner().invoke(app, [*words, f"{FILE}:{name}(num_steps=3)"])
    assert found.exit_code == 0, found.output


# ---- memory --------------------------------------------------------------------------------------


def test_memory_goes_from_update_to_update():
    both = dendrax.value_and_grad(loss, rule=Momentum(), has_result=True)
    (value, first), _ = both(W, X, Y)
    assert close(value, loss(W, X, Y))

    @jax.jit
    def again(memory):
        fun = dendrax.value_and_grad(loss, rule=Momentum(), has_result=True, memory=memory)
        return fun(W, X, Y)

    (_, second), gradient = again(first.memory)
    x, velocity = forward(), list(first.memory.values())
    for _ in range(20):
        slope = jax.tree.map(jnp.negative, jax.grad(energy)(x, W))
        velocity = [0.5 * v + s for v, s in zip(velocity, slope, strict=True)]
        x = [u + 0.1 * v for u, v in zip(x, velocity, strict=True)]
    assert close(gradient, jax.grad(energy, 1)(x, W), ulps=1e5)
    assert close(list(second.memory.values()), velocity, ulps=1e6)


def test_the_result_stands_after_the_auxiliary_data():
    def with_aux(w):
        return loss(w, X, Y), "aux"

    found = dendrax.value_and_grad(with_aux, has_aux=True, has_result=True)(W)
    (value, aux, result), gradient = found
    assert aux == "aux" and result.memory is None
    assert same(gradient, jax.grad(loss)(W, X, Y)) and same(value, loss(W, X, Y))


def test_training_carries_memory_and_saves_it(tmp_path):
    from dendrax import train

    x, y = np.asarray(X, "float32").repeat(4, 0), np.asarray(Y, "float32").repeat(4, 0)
    w = jax.tree.map(lambda a: a.astype("float32"), W)
    settings = train.Settings(steps=6, batch_size=4, checkpoint_every=3)

    def fit(name, **more):
        where = {"folder": tmp_path / name, "settings": settings, **more}
        return train.fit(w, loss, (x, y), rule=Momentum(), optimizer=optax.sgd(0.01), **where)

    whole = fit("whole")
    fit("parts", settings=dataclasses.replace(settings, steps=3))
    resumed = fit("parts", resume=True)
    assert same(resumed.model, whole.model)

    @dataclasses.dataclass(frozen=True)
    class Forgetful(Momentum):
        def memory(self, net, state):
            return net.zeros()

    rule = {"rule": Forgetful(), "optimizer": optax.sgd(0.01), "settings": settings}
    forgetful = train.fit(w, loss, (x, y), **rule)
    assert distance(forgetful.model, whole.model) > 1e-6
    with pytest.raises(ValueError, match=r"remembers something of the whole batch"):
        fit("chunks", settings=dataclasses.replace(settings, chunks=4))


# ---- bad rules -----------------------------------------------------------------------------------


def bad(**methods):
    """Momentum with other methods."""
    return dataclasses.dataclass(frozen=True)(type("Mine", (Momentum,), methods))()


KEPT = []


def _keeps(self, net, state):
    KEPT.append(state[0])
    return jax.tree.map(jnp.add, KEPT[0], state[0]), state[1]


def _branches(self, net, state):
    if next(iter(state[0].values())).sum() > 0:
        return state
    return state


def _wide(tree):
    return jax.tree.map(lambda a: jnp.concatenate([a, a]), tree)


HERE = r"[\s\S]*test_my_rules\.py:\d+ "
MISTAKES = {
    "another tree": (
        {"step": lambda self, net, state: state[0]},
        rf"Mine.step returns the tree .*, but was given{HERE}[\s\S]*other values",
    ),
    "another shape": (
        {"step": lambda self, net, state: (_wide(state[0]), state[1])},
        rf"Mine.step returns float64\[10,4\] for state\[0\].*which was float64\[5,4\]{HERE}",
    ),
    "another dtype": (
        {"step": lambda s, net, state: (jax.tree.map(jnp.float32, state[0]), state[1])},
        rf"Mine.step returns float32\[5,4\] for state\[0\].*which was float64{HERE}",
    ),
    "a forgotten parameter": (
        {"gradient": lambda s, net, state: dict([*s.look(net, state).gradient.items()][1:])},
        rf"Mine.gradient returns no gradient for 1 parameter: w\[0\].{HERE}[\s\S]*zeros where",
    ),
    "a gradient of another shape": (
        {"gradient": lambda s, net, state: _wide(s.look(net, state).gradient)},
        rf"Mine.gradient returns float64\[6,4\] for w\[0\], which is float64\[3,4\]{HERE}",
    ),
    "no gradient at all": (
        {"gradient": lambda self, net, state: 0.0},
        rf"Mine.gradient returns float, not a gradient for each parameter{HERE}",
    ),
    "a step that is not traceable": (
        {"step": _branches},
        rf"Mine.step needs the value of an array{HERE}\(_branches\)[\s\S]*jnp.where",
    ),
    "a kept tracer": (
        {"step": _keeps},
        rf"Mine.step uses a value of an earlier call, which it has kept{HERE}[\s\S]*the state",
    ),
    "looking at something else": (
        {"look": lambda self, net, state: net.look(list(state[0].values()))},
        r"(?s)not one value for each value node.*keys of net.values",
    ),
    "looking at another shape": (
        {"look": lambda self, net, state: net.look(_wide(state[0]))},
        r"value node layer\(w\[0\]\) has type float64 and shape \(5, 4\), and the rule looks at",
    ),
    "a number of steps that is none": (
        {"steps": lambda self, net: "many"},
        r"Mine: num_steps='many' is not a number of steps",
    ),
}


@pytest.mark.parametrize("name", MISTAKES)
@pytest.mark.filterwarnings("ignore")
def test_mistakes_name_the_rule_and_the_line(name):
    methods, message = MISTAKES[name]
    KEPT.clear()
    with pytest.raises((ValueError, TypeError), match=message), jax.check_tracer_leaks(False):
        for _ in range(2):
            jax.jit(dendrax.grad(loss, rule=bad(**methods)))(W, X, Y)


def test_a_rule_without_a_step():
    @dataclasses.dataclass(frozen=True)
    class Idle(dendrax.Rule):
        batch = "sum"

    with pytest.raises(NotImplementedError, match=r"(?s)Idle does not say .*Define step\(self"):
        dendrax.grad(loss, rule=Idle())(W, X, Y)


def test_a_rule_that_is_not_hashable():
    @dataclasses.dataclass
    class Loose(dendrax.Rule):
        gamma: float = 0.1

    with pytest.raises(TypeError, match=r"(?s)Loose cannot be hashed.*frozen=True"):
        dendrax.grad(loss, rule=Loose())


def test_memory_of_another_model():
    (_, other), _ = dendrax.value_and_grad(loss, rule=Momentum(), has_result=True)(W, X[:2], Y[:2])
    fun = dendrax.value_and_grad(loss, rule=Momentum(), memory=other.memory)
    with pytest.raises(ValueError, match=r"(?s)not one that Momentum leaves.*my_rules.py:\d+"):
        fun(W, X, Y)
    for rule in (IL(batch="sum"), BP(), dendrax.ZIL(gamma=0.5)):
        fun = dendrax.value_and_grad(loss, rule=rule, memory=other.memory)
        with pytest.raises(ValueError, match=r"(IL|BP|ZIL) has no memory"):
            fun(W, X, Y)


def test_an_energy_that_is_none():
    @dataclasses.dataclass(frozen=True)
    class Odd(IL):
        energies = staticmethod(lambda vertex: 1.0)
        batch: str = "sum"

    with pytest.raises(TypeError, match=r"Odd: the energy of layer\(w\[0\]\) is 1.0"):
        dendrax.grad(loss, rule=Odd())(W, X, Y)


def test_a_parameter_that_no_error_reaches_gets_zeros():
    def partly(params, x, y):
        return loss(params["w"], x, y)

    rule = EverySecond(num_steps=2)
    found = dendrax.grad(partly, rule=rule)({"w": W, "unused": jnp.ones(3, X.dtype)}, X, Y)
    assert same(found["unused"], jnp.zeros(3, X.dtype))
    assert same(found["w"], dendrax.grad(loss, rule=rule)(W, X, Y))
