"""Value nodes in loops where not every step has one: made of data alone, dead, or the output."""

import dataclasses

import jax
import jax.numpy as jnp
import optax
import pytest

import dendrax
from dendrax import IL, ErrorPC, FixedPrediction, Gaussian, Huber, IncrementalPC
from tests.compare import close
from tests.sampling import rotating
from tests.test_stacked import arguments, cell, half, last, lstm, of, written_out

RULES = [
    IL(batch="sum"),
    FixedPrediction(num_steps=9),
    IncrementalPC(num_steps=3, batch="sum"),
    ErrorPC(num_steps=3, batch="sum"),
]


@dendrax.vertex
def act(h):
    return jnp.tanh(h)


# ---- losses --------------------------------------------------------------------------------------


def zeros():
    return jnp.zeros((2, 3)), jnp.zeros((2, 3))


def run_lstm(scan, w, xs, reverse=False):
    return scan(lambda hc, x: (lstm(w["lstm"], *hc, x), None), zeros(), xs, reverse=reverse)


def dead_at_the_end(scan, w, xs):
    (h, _), _ = run_lstm(scan, w, xs)
    return half(h @ w["o"])


def dead_at_the_start(scan, w, xs):
    (h, _), _ = run_lstm(scan, w, xs, reverse=True)
    return half(h @ w["o"])


def dead_but_read(scan, w, xs):
    (h, c), _ = run_lstm(scan, w, xs)
    return half(h @ w["o"] * jnp.mean(jax.lax.stop_gradient(c)))


def made_of_data_at_first(scan, w, xs):
    h, _ = scan(lambda h, x: (act(h) @ w["h"] + x, None), jnp.ones((2, 3)), xs)
    return half(h @ w["o"])


def made_of_data_for_two_steps(scan, w, xs):
    body = lambda c, x: ((act(c[1]), c[0] @ w["h"] + x), None)
    (a, b), _ = scan(body, (jnp.ones((2, 3)), jnp.ones((2, 3))), xs)
    return half((a + b) @ w["o"])


def dead_in_each_inner_loop(scan, w, xs):
    def outer(total, x):
        body = lambda hc, s: (lstm(w["lstm"], *hc, x * s), None)
        (h, _), _ = scan(body, zeros(), jnp.arange(3.0) + 1, reverse=True)
        return total + cell(w["h"], h, x), None

    return half(scan(outer, zeros()[0], xs, reverse=True)[0])


LOSSES = [
    dead_at_the_end,
    dead_at_the_start,
    dead_but_read,
    made_of_data_at_first,
    made_of_data_for_two_steps,
    dead_in_each_inner_loop,
]


def both(program, length=4):
    args = arguments(length)
    traced = (of(program, scan) for scan in (jax.lax.scan, written_out))
    return [dendrax.trace(fun, *args, vertices="marked") for fun in traced]


@pytest.mark.parametrize(("program", "rule"), rotating(LOSSES, RULES))
def test_every_rule_learns_as_in_the_loop_written_out(program, rule):
    found, expected = (
        jax.jit(dendrax.value_and_grad(of(program, scan), rule=rule, vertices="marked"))
        for scan in (jax.lax.scan, written_out)
    )
    assert close(found(*arguments()), expected(*arguments()), ulps=4096)


def test_what_is_not_live_is_where_it_is_predicted_and_costs_nothing():
    graph, by_hand = both(dead_at_the_end)
    result = dendrax.run(
        graph, IL(num_steps=4, batch="sum"), record=["x", "mu", "epsilon", "energy"]
    )
    expected = dendrax.run(by_hand, IL(num_steps=4, batch="sum"), record="energy")
    assert close(result.energy, expected.energy, ulps=1024)
    h, c = result.epsilon[-1]["scan[3]/lstm"]
    assert (h != 0).all() and (c == 0).all()
    assert (result.x[-1]["scan[3]/lstm"][1] == result.mu[-1]["scan[3]/lstm"][1]).all()
    assert (result.epsilon[-1]["scan[2]/lstm"][1] != 0).all()


def norm(mu, x):
    return jnp.sqrt(jnp.sum((mu - x) ** 2) + 1e-3)


def with_a_constant(mu, x):
    return jnp.log(jnp.cosh(mu - x)) + 1.0


ENERGIES = [
    norm,
    with_a_constant,
    Huber(0.1),
    dendrax.Categorical(axis=1),
    Gaussian(precision=jnp.arange(1.0, 4.0)),
]


@pytest.mark.parametrize(
    ("program", "energy"), rotating([dead_at_the_end, made_of_data_at_first, last], ENERGIES)
)
def test_energies_are_of_single_steps(program, energy):
    rule = IL(num_steps=5, energies=energy, batch="sum")
    found, expected = (dendrax.run(graph, rule, record="energy") for graph in both(program))
    assert close(found.gradient, expected.gradient, ulps=1024)
    assert close(found.energy, expected.energy, ulps=1024)


# ---- outputs with a target -----------------------------------------------------------------------


def last_state(scan, w, xs):
    return scan(lambda h, x: (cell(w["h"], h, x), None), jnp.ones((2, 3)), xs)[0]


def all_states(scan, w, xs):
    return scan(lambda h, x: (h := cell(w["h"], h, x), h), jnp.ones((2, 3)), xs)


def last_state_of_two_loops(scan, w, xs):
    def outer(h, x):
        return scan(lambda h, s: (cell(w["h"], h, x * s), None), h, jnp.arange(3.0) + 1)[0], None

    return scan(outer, jnp.ones((2, 3)), xs)[0]


def both_states(scan, w, xs):
    return run_lstm(scan, w, xs)[0]


def one_state(scan, w, xs):
    return run_lstm(scan, w, xs)[0][0]


def state_and_a_readout(scan, w, xs):
    def body(h, x):
        h = cell(w["h"], h, x)
        return h, jnp.sin(h)

    return scan(body, jnp.ones((2, 3)), xs)


OUTPUTS = [
    last_state,
    all_states,
    last_state_of_two_loops,
    both_states,
    one_state,
    state_and_a_readout,
]


@pytest.mark.parametrize(("program", "rule"), rotating(OUTPUTS, RULES))
def test_an_output_that_a_loop_hands_on_is_clamped_as_it_is_written_out(program, rule):
    target = jax.tree.map(lambda y: 0.3 * jnp.ones_like(y), program(jax.lax.scan, *arguments()))
    found, expected = (
        dendrax.run(graph, rule, target=target, record="energy") for graph in both(program)
    )
    assert close(found.gradient, expected.gradient, ulps=1024)
    assert close(found.energy, expected.energy, ulps=1024)


def test_one_step_whose_result_is_the_output_has_no_value_node():
    w, xs = arguments(1)
    with pytest.raises(ValueError, match="no marked function lies between"):
        dendrax.trace(of(last_state, jax.lax.scan), w, xs, vertices="marked")
    graph = dendrax.trace(of(last_state, jax.lax.scan), w, xs, vertices="layer")
    assert not graph.nodes


def test_a_cotangent_pulls_at_the_last_step():
    fun = [of(last_state, scan) for scan in (jax.lax.scan, written_out)]
    pulls = [dendrax.vjp(f, *arguments(), rule=IL(batch="sum"), vertices="marked")[1] for f in fun]
    found, expected = (pull(jnp.ones((2, 3))) for pull in pulls)
    assert close(found, expected, ulps=1024)


# ---- single steps --------------------------------------------------------------------------------


def test_single_steps_are_held():
    args, value = arguments(), jnp.full((2, 3), 0.3)
    holds = (
        {"scan[1]/cell": value, "scan[3]/cell": (value, value > 0)},
        {"cell_1": value, "cell_3": value},
    )
    found, expected = (
        dendrax.value_and_grad(
            of(last, scan), rule=IL(5, batch="sum"), vertices="marked", hold=hold
        )(*args)
        for scan, hold in zip((jax.lax.scan, written_out), holds, strict=True)
    )
    assert close(found, expected, ulps=1024)
    some = jnp.zeros((4, 1, 1), bool).at[0].set(True)
    both = {"scan[2]/cell": value, "scan/cell": (0.0, some)}
    one, other = (
        dendrax.value_and_grad(
            of(last, jax.lax.scan), rule=IL(5), vertices="marked", hold=dict(pairs)
        )(*args)
        for pairs in (both.items(), reversed(both.items()))
    )
    assert close(one, other, ulps=0)
    held = {"scan[9]/cell": value}
    with pytest.raises(KeyError, match=r"hold: scan has 4 steps[\s\S]*counted from 0"):
        dendrax.value_and_grad(
            of(last, jax.lax.scan), rule=IL(5, batch="sum"), vertices="marked", hold=held
        )(*args)


def test_delays_written_out_cannot_run_where_a_vertex_stands_for_all_steps():
    graph, _ = both(last)
    expanded = dendrax.level(graph).expand()
    with pytest.raises(ValueError, match=r"scan/cell is one vertex for all steps(.|\n)*levelled"):
        dendrax.run(expanded, IL(3, batch="sum"))
    assert dendrax.run(graph, IL(3, levelled=True, batch="sum")).num_steps == 3


def test_a_mark_inside_cond_is_told_of_once_for_all_steps():
    def loss(w, xs):
        def body(h, x):
            return jax.lax.cond(x[0, 0] > 0, lambda h: cell(w["h"], h, x), jnp.sin, h) @ w[
                "h2"
            ], None

        return half(jax.lax.scan(body, jnp.ones((2, 3)), xs)[0])

    with pytest.warns(UserWarning) as told:
        dendrax.trace(loss, *arguments(), vertices="layer")
    assert len([w for w in told if "marked function 'cell'" in str(w.message)]) == 1


# ---- the audit -----------------------------------------------------------------------------------


@dataclasses.dataclass(frozen=True)
class SumsOverSteps(dendrax.Rule):
    batch = "sum"

    def step(self, net, state):
        slope = net.look(state).slope
        return {port: x + 0.1 * jnp.cumsum(slope[port], 0) for port, x in state.items()}


@pytest.mark.parametrize(
    "rule",
    [
        SumsOverSteps(),
        IL(optimizer=optax.lamb(0.1), batch="sum"),
        IL(optimizer=optax.adafactor(0.1), batch="sum"),
    ],
)
def test_a_rule_that_mixes_steps_is_caught(rule):
    with jax.numpy_dtype_promotion("standard"):  # as optax expects
        found = dendrax.audit(of(last, jax.lax.scan), *arguments(), rule=rule, vertices="marked")
    assert not found.local
    assert "far away: other steps of scan/cell" in str(found)


@pytest.mark.parametrize(
    "rule",
    [
        IL(batch="sum"),
        FixedPrediction(),
        IncrementalPC(batch="sum"),
        IL(optimizer=optax.adam(0.1), batch="sum"),
    ],
)
def test_rules_that_keep_steps_apart_are_local(rule):
    fun = of(dead_in_each_inner_loop, jax.lax.scan)
    with jax.numpy_dtype_promotion("standard"):
        assert dendrax.audit(fun, *arguments(), rule=rule, vertices="marked").local


# ---- values that are read without an error -------------------------------------------------------


def test_the_dynamics_of_zil_are_exact_where_a_node_is_read_without_an_error():
    layer = dendrax.vertex(lambda p, x: jnp.tanh(x @ p))

    def loss(w, x):
        a = layer(w[0], x)
        b = layer(w[1], jax.lax.stop_gradient(a))
        return jnp.sum((layer(w[2], b) * a) ** 2)

    args = [jnp.eye(3) * 0.3 + 0.1] * 3, jnp.arange(6.0).reshape(2, 3)
    graph = dendrax.trace(loss, *args, vertices="marked")
    found = dendrax.run(graph, dendrax.ZIL(), record="energy").gradient
    assert close(found, jax.grad(loss)(*args), ulps=4)
