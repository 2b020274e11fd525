"""`audit`: which rules are local, and who is caught."""

import dataclasses
import re

import jax
import jax.numpy as jnp
import optax
import pytest

import dendrax
from dendrax import BP, IL, ZIL, ErrorPC, FixedPrediction, IncrementalPC
from dendrax.certify.audit import relaxation_step
from dendrax.graph import Port
from dendrax.inference import clamp_for, relaxed_graph, view_of
from dendrax.models import problem
from dendrax.vertices import unrolled
from tests.compare import close
from tests.sampling import rotating

LOCAL = {
    "zil": ZIL(),
    "original": ZIL(levelled=False),
    "il": IL(batch="sum"),
    "levelled": IL(levelled=True, batch="sum"),
    "momentum": IL(optimizer=optax.sgd(0.1, momentum=0.9), batch="sum"),
    "scheduled": IL(
        optimizer=optax.sgd(optax.linear_schedule(0.1, 0.01, 20)), batch="sum"
    ),  # with a clock
    "fixed": FixedPrediction(),
    "incremental": IncrementalPC(batch="sum"),
}
GLOBAL = {"bp": BP(), "error": ErrorPC(batch="sum")}
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


@pytest.mark.parametrize(
    "rule", [IL(batch="sum"), FixedPrediction(), ZIL()], ids=["il", "fixed", "zil"]
)
@pytest.mark.parametrize("vertices", ["primitive", "layer"])
def test_local_for_every_choice_of_vertices(rule, vertices):
    assert audit("transformer", rule, vertices=vertices).local


def test_backpropagation_reads_far_away_vertices():
    found = audit("mlp", BP(), vertices="layer")
    by_name = {update.name: update for update in found.updates}
    first = by_name["model.layers[0].weight"]
    assert "layers[1]" in first.far and "model.layers[2].weight" in first.far
    assert by_name["model.layers[2].weight"].local  # the last layer is next to the loss


def test_what_inference_learning_reads():
    """A value node: its own, its inputs, its users, and what these use. A weight: its layer."""
    by_name = {update.name: set(update.reads) for update in audit("mlp", IL(batch="sum")).updates}
    assert by_name["layers[0]"] <= {
        "inputs",
        "layers[0]",
        "layers[1]",
        "model.layers[0].weight",
        "model.layers[0].bias",
        "model.layers[1].weight",
        "model.layers[1].bias",
    }
    assert "layers[1]" in by_name["layers[0]"]
    assert "target" in by_name["layers[1]"]
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
    assert dendrax.audit(deep, *args, rule=IL(batch="sum")).local
    found = dendrax.audit(deep, *args, rule=Telepathic(batch="sum"))
    (offender,) = found.offenders
    assert offender.name == "layer(w[0])" and offender.far == ("layer(w[4])",)
    assert "layer(w[4])" in str(found)


def test_an_optimizer_that_is_not_local_is_caught():
    """Clipping by the global norm couples every value node with every other."""
    optimizer = optax.chain(optax.clip_by_global_norm(1.0), optax.sgd(0.1))
    found = audit("fc_resnet", IL(optimizer=optimizer, batch="sum"))
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
    assert dendrax.audit(loss, w, jnp.ones((2, 3)), rule=IL(batch="sum")).local


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
    found = audit("mlp", Blackboard(batch="sum"))
    assert [offender.name for offender in found.offenders] == ["(shared state)"]


def test_an_output_to_be_clamped():
    p = problem("mlp", small=True)
    assert dendrax.audit(p.predict, p.model, p.inputs, rule=IL(batch="sum")).local
    assert not dendrax.audit(p.predict, p.model, p.inputs, rule=BP()).local


def test_errors_name_the_function():
    with pytest.raises(TypeError, match=r"dendrax.audit: rule must be a rule, got 'il'"):
        dendrax.audit(lambda w: w, 1.0, rule="il")


def test_the_table_names_what_is_read():
    args = [jnp.eye(3)] * 12, jnp.ones((2, 3))
    lines = str(dendrax.audit(deep, *args, rule=IL(batch="sum"))).splitlines()
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


# ---- what is audited is what runs ----------------------------------------------------------------

RELAXING = [
    IL(batch="sum"),
    IL(levelled=True, batch="sum"),
    FixedPrediction(),
    IncrementalPC(batch="sum"),
    ErrorPC(batch="sum"),
]


@dendrax.vertex
def cell(w, h, x):
    return jnp.tanh(h @ w + x)


def recurrent(w, xs):
    h, _ = jax.lax.scan(lambda h, x: (cell(w["h"], h, x), None), jnp.ones((2, 3)), xs)
    return jnp.sum((h @ w["o"]) ** 2)


def recurrent_arguments():
    return {"h": jnp.eye(3) / 2, "o": jnp.ones((3, 1))}, jnp.cos(jnp.arange(24.0)).reshape(4, 2, 3)


def first_step(rule, graph):
    """What the step that is audited moves, by name, and what is learned from it."""
    shown = relaxed_graph(rule, graph)
    step, (forward, state) = relaxation_step(
        rule, shown, graph.call.leaves(), clamp_for(graph, None)
    )
    start, *_ = step(forward, jax.tree.map(lambda aval: jnp.zeros(aval.shape, aval.dtype), state))
    _, after, _ = step(forward, start)
    view = view_of(shown)
    moved = getattr(after, "x", after)
    return {view.vertex(n).name: moved[n] for n in view.nodes}, step(forward, after)[2]


@pytest.mark.parametrize("rule", RELAXING, ids=repr)
def test_the_step_that_is_audited_is_the_one_that_runs(rule):
    args = [jnp.eye(3) * 0.5] * 4, jnp.cos(jnp.arange(6.0)).reshape(2, 3)
    graph = dendrax.trace(deep, *args, vertices=rule.vertices)
    x, gradient = first_step(rule, graph)
    what = "epsilon" if isinstance(rule, FixedPrediction | ErrorPC) else "x"
    result = dendrax.run(graph, dataclasses.replace(rule, num_steps=1), record=what)
    assert set(x) == {v.name for v in result.graph.nodes}
    for name, value in x.items():
        assert close(value, getattr(result, what)[1][name])
    learned = [gradient[Port(leaf.index)] for leaf in view_of(result.graph).graph.parameters]
    assert close(learned, result.gradient)


def test_the_vertices_that_are_audited_are_the_steps_of_the_loops_that_run():
    args = recurrent_arguments()
    graph = dendrax.trace(recurrent, *args, vertices="marked")
    x, _ = first_step(IL(batch="sum"), unrolled(graph))
    result = dendrax.run(graph, IL(num_steps=1, batch="sum"), record="x")
    assert set(x) == {f"scan[{t}]/cell" for t in range(4)}
    assert all(close(value, result.x[1][name]) for name, value in x.items())


def test_what_runs_instead_is_said():
    args = recurrent_arguments()
    found = dendrax.audit(recurrent, *args, rule=IL(batch="sum"), vertices="marked")
    assert found.local and "for each step of a loop" in str(found)
    assert "for each step of a loop" in found._repr_html_()
    assert "full dynamics" in dendrax.audit(recurrent, *args, rule=ZIL()).note
    for rule in (IL(batch="sum"), IL(levelled=True, batch="sum"), BP()):
        assert audit("mlp", rule).note == ""
    assert (
        dendrax.audit(recurrent, *args, rule=IL(levelled=True, batch="sum"), vertices="marked").note
        == ""
    )


@dataclasses.dataclass(frozen=True)
class Spy(IL):
    """IL whose first value node reads what its network knows of the others."""

    secret: str = "values"

    def step(self, net, state):
        after = super().step(net, state)
        first, *_ = after.x
        return after._replace(x={**after.x, first: after.x[first] + jnp.mean(self.read(net))})

    def read(self, net):
        if self.secret == "values":
            return list(net.values.values())[-1]
        if self.secret == "leaves":
            return net.leaves[4]
        if self.secret == "arguments":
            return net.view.graph.call.leaves()[4]
        return net.outputs[0] if self.secret == "outputs" else net.clamp.targets[0]


@pytest.mark.parametrize(
    ("secret", "far"),
    {
        "values": "layer(w[4])",
        "leaves": "w[4]",
        "arguments": "w[4]",
        "outputs": "w[5]",
        "targets": "output",
    }.items(),
)
def test_a_rule_that_reads_past_its_state_is_caught(secret, far):
    def output(w, x):
        for u in w[:-1]:
            x = jnp.tanh(x @ u)
        return x @ w[-1]

    args = [jnp.eye(3) / (k + 1) for k in range(6)], jnp.ones((2, 3))
    assert dendrax.audit(output, *args, rule=IL(batch="sum")).local
    (offender,) = dendrax.audit(output, *args, rule=Spy(secret=secret)).offenders
    assert offender.name == "layer(w[0])" and far in offender.far
