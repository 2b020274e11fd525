"""`audit`: which rules are local, and who is caught."""

import dataclasses
import re

import jax
import jax.numpy as jnp
import optax
import pytest

import dendrax
from dendrax import BP, IL, ZIL, ErrorPC, FixedPrediction, IncrementalPC
from dendrax.models import problem
from tests.sampling import rotating

LOCAL = {
    "zil": ZIL(),
    "original": ZIL(levelled=False),
    "il": IL(),
    "levelled": IL(levelled=True),
    "momentum": IL(optimizer=optax.sgd(0.1, momentum=0.9)),
    "scheduled": IL(optimizer=optax.sgd(optax.linear_schedule(0.1, 0.01, 20))),  # with a clock
    "fixed": FixedPrediction(),
    "incremental": IncrementalPC(),
}
GLOBAL = {"bp": BP(), "error": ErrorPC()}
MODELS = ["mlp", "cnn", "rnn", "fc_resnet", "transformer"]


def audit(name, rule, **kwargs):
    p = problem(name, small=True)
    return dendrax.audit(p.loss, p.model, p.inputs, p.target, rule=rule, **kwargs)


@pytest.mark.parametrize(("name", "rule"), rotating(MODELS, LOCAL))
def test_local_rules(name, rule):
    found = audit(name, rule)
    assert found.local and not found.offenders
    assert str(found).endswith(": local")
    learning = {update.name for update in found.updates if update.kind == "parameter"}
    assert len(learning) == len(jax.tree.leaves(problem(name, small=True).model))


@pytest.mark.parametrize("rule", GLOBAL.values(), ids=GLOBAL)
@pytest.mark.parametrize("name", MODELS)
def test_global_rules(name, rule):
    found = audit(name, rule)
    assert not found.local and found.offenders
    assert "NOT local" in str(found)


@pytest.mark.parametrize("rule", [IL(), FixedPrediction(), ZIL()], ids=["il", "fixed", "zil"])
@pytest.mark.parametrize("vertices", ["primitive", "layer"])
def test_local_for_every_choice_of_vertices(rule, vertices):
    assert audit("transformer", rule, vertices=vertices).local


def test_backpropagation_reads_far_away_vertices():
    found = audit("mlp", BP(), vertices="layer")
    by_name = {update.name: update for update in found.updates}
    first = by_name["model.layers[0].weight"]
    assert "layer(model.layers[1])" in first.far and "model.layers[2].weight" in first.far
    assert by_name["model.layers[2].weight"].local  # the last layer is next to the loss


def test_what_inference_learning_reads():
    """A value node: its own, its inputs, its users, and what these use. A weight: its layer."""
    by_name = {update.name: set(update.reads) for update in audit("mlp", IL()).updates}
    assert by_name["layer(model.layers[0])"] <= {
        "inputs",
        "layer(model.layers[0])",
        "layer(model.layers[1])",
        "model.layers[0].weight",
        "model.layers[0].bias",
        "model.layers[1].weight",
        "model.layers[1].bias",
    }
    assert "layer(model.layers[1])" in by_name["layer(model.layers[0])"]
    assert "target" in by_name["layer(model.layers[1])"]
    assert "target" not in by_name["model.layers[0].weight"]


@dataclasses.dataclass(frozen=True)
class Telepathic(IL):
    """IL whose first layer feels the mean of the last."""

    def step(self, net, state):
        after = super().step(net, state)
        first, *_, last = after.x
        return after._replace(x={**after.x, first: after.x[first] + jnp.mean(state.x[last])})


def deep(w, x):
    for u in w:
        x = jnp.tanh(x @ u)
    return jnp.sum(x)


def test_a_rule_that_is_deliberately_not_local_is_caught():
    args = [jnp.eye(3)] * 6, jnp.ones((2, 3))
    assert dendrax.audit(deep, *args, rule=IL()).local
    found = dendrax.audit(deep, *args, rule=Telepathic())
    (offender,) = found.offenders
    assert offender.name == "layer(w[0])" and offender.far == ("layer(w[4])",)
    assert "layer(w[4])" in str(found)


def test_an_optimizer_that_is_not_local_is_caught():
    """Clipping by the global norm couples every value node with every other."""
    optimizer = optax.chain(optax.clip_by_global_norm(1.0), optax.sgd(0.1))
    found = audit("fc_resnet", IL(optimizer=optimizer))
    assert not found.local
    assert all(offender.kind == "value node" for offender in found.offenders)


@dataclasses.dataclass(frozen=True)
class Oracle(FixedPrediction):
    """Knows all errors before the first step."""

    def start(self, net, memory=None):
        state = super().start(net)
        for _ in range(8):
            state = super().step(net, state)
        return state

    def step(self, net, state):
        return state


def test_a_start_that_knows_too_much_is_caught():
    assert not audit("mlp", Oracle(), vertices="primitive").local


def test_names_may_clash_and_chains_may_be_long():
    def loss(w, x):
        for _ in range(1200):
            x = jnp.sin(x)
        return jnp.sum(jnp.tanh(x @ w["tanh"]) @ w["sin"])

    w = {"tanh": jnp.eye(3), "sin": jnp.eye(3)}
    assert dendrax.audit(loss, w, jnp.ones((2, 3)), rule=IL()).local


@dataclasses.dataclass(frozen=True)
class Blackboard(IL):
    """IL that keeps a number which belongs to nobody and that all can write on."""

    def start(self, net, memory=None):
        return super().start(net), jnp.zeros((), jnp.float32)

    def step(self, net, state):
        state, board = state
        total = sum(jnp.sum(x) for x in state.x.values())
        return super().step(net, state), board + total

    def look(self, net, state):
        return super().look(net, state if hasattr(state, "x") else state[0])


def test_shared_memory_is_caught():
    found = audit("mlp", Blackboard())
    assert [offender.name for offender in found.offenders] == ["(shared state)"]


def test_an_output_to_be_clamped():
    p = problem("mlp", small=True)
    assert dendrax.audit(p.predict, p.model, p.inputs, rule=IL()).local
    assert not dendrax.audit(p.predict, p.model, p.inputs, rule=BP()).local


def test_errors_name_the_function():
    with pytest.raises(TypeError, match=r"dendrax.audit: rule must be a rule, got 'il'"):
        dendrax.audit(lambda w: w, 1.0, rule="il")


def test_the_table_names_what_is_read():
    args = [jnp.eye(3)] * 12, jnp.ones((2, 3))
    lines = str(dendrax.audit(deep, *args, rule=IL())).splitlines()
    assert lines[0].split() == ["update", "of", "a", "local", "reads"]
    assert re.fullmatch(r"w\[0\] +parameter +yes +layer\(w\[0\]\), w\[0\], x", lines[1])
    assert lines[-2].startswith("(dmu/dx") and "weight transport" in lines[-2]
    assert lines[-1].endswith(": local")
    lines = str(dendrax.audit(deep, *args, rule=BP())).splitlines()
    assert re.search(r"x; far away: (.+, ){6}and \d+ more$", lines[1])
    assert lines[-1] == "BP(): NOT local: 11 updates read what is far away"
    one = dendrax.audit(deep, args[0][:2], args[1], rule=BP())
    assert "dot_general, x; far away: dot_general_1, w[1]</td>" in one._repr_html_()
    assert one.verdict == "NOT local: 1 update reads what is far away"
