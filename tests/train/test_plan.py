"""Plans: what can be named, in a file or by a caller, and what is wrong with one."""

import json
import os

import jax
import numpy as np
import optax
import pytest
from PIL import Image

from dendrax import IL, ZIL, models, train
from dendrax.named._named import Named, find_rule, read_named
from dendrax.train._catalogue import find_data, find_model
from dendrax.train._checkpoint import FORMAT
from dendrax.train._optimizers import find_optimizer
from dendrax.train._plan import plan_of_run
from tests.train.cases import OWN, bits, file

SHORT = {"steps": 3, "batch_size": 20, "evaluate_every": 3}


def test_a_file(tmp_path):
    path = file(
        tmp_path,
        """
        model = "mlp(hidden_sizes=[8])"
        rule = { name = "IL", num_steps = 4, gamma = 0.05 }
        [data]
        name = "fashion_mnist"
        full = false
        [optimizer]
        name = "adamw"
        learning_rate = 0.01
        clip = 1.0
        [schedule]
        name = "cosine"
        warmup = 2
        [train]
        steps = 3
        batch_size = 20
        """,
    )
    plan = train.plan(path)
    assert find_rule(plan.rule) == IL(num_steps=4, gamma=0.05)
    assert plan.settings.steps == 3
    found = plan.fit(tmp_path / "run")
    assert found.step == 3 and 0 <= found.history[-1]["test_accuracy"] <= 1
    again = train.plan(plan_of_run(tmp_path / "run"))
    assert again.settings == plan.settings
    assert again.fit(tmp_path / "run", resume=True).step == 3


def test_value_nodes_may_be_modules(tmp_path):
    text = 'model = "mlp(hidden_sizes=[8])"\nrule = "IL(num_steps=2)"\nvertices = ["Linear"]'
    plan = train.plan(file(tmp_path, text), train=SHORT)
    assert plan.fit(tmp_path / "run").step == 3
    again = train.plan(plan_of_run(tmp_path / "run"))
    assert again.vertices == ["Linear"]
    assert again.fit(tmp_path / "run", resume=True).step == 3
    with pytest.raises(ValueError, match=r"'Linea', but no module of it is called. Did you mean"):
        train.plan(plan_of_run(tmp_path / "run"), vertices=["Linea"]).fit()


def test_a_run_of_the_old_default_batch_says_so(tmp_path):
    """It goes on as it was begun: its loss counts as a sum over samples."""
    small = {"model": "mlp(hidden_sizes=[4])", "train": {"steps": 1, "batch_size": 4}}
    plan = train.plan(rule="IL(num_steps=2, batch='sum')", **small)
    plan.fit(tmp_path / "run")
    record = tmp_path / "run" / "run.json"
    record.write_text(record.read_text().replace("batch='sum'", "batch=None"))
    with pytest.warns(UserWarning, match=r"batch=None was the default.*goes on so"):
        assert train.plan(plan_of_run(tmp_path / "run")).fit(tmp_path / "run", resume=True).step
    record.write_text(record.read_text().replace("batch='sum'", "batch=None"))
    other = train.plan(rule="IL(num_steps=2)", **small)
    with pytest.raises(ValueError, match=r"batch=None was the default[\s\S]*batch='sum'"):
        other.fit(tmp_path / "run", resume=True)


def test_what_the_caller_says_counts_more(tmp_path):
    path = file(tmp_path, 'rule = "IL"\n[train]\nepochs = 3\nseed = 5')
    plan = train.plan(path, rule="ZIL", train={"epochs": 1})
    assert find_rule(plan.rule) == ZIL()
    assert (plan.settings.epochs, plan.settings.seed) == (1, 5)


@pytest.mark.parametrize(
    ("said", "total"),
    [
        ({}, 30),
        ({"epochs": 2}, 20),
        ({"steps": 7}, 7),
        ({"epochs": 2, "steps": 7}, 7),
        ({"seed": 1}, 30),
    ],
)
def test_epochs_of_the_caller_replace_the_steps_of_the_file(tmp_path, said, total):
    path = file(tmp_path, "[train]\nepochs = 1\nsteps = 30")
    assert train.plan(path, train=said).settings.total(per_epoch=10) == total


@pytest.mark.parametrize(
    ("model", "data"),
    [
        ("mlp", "fashion_mnist"),
        pytest.param(
            "cnn(channels=[2, 3], hidden_size=8)", "fashion_mnist", marks=pytest.mark.slow
        ),
        pytest.param("fc_resnet(hidden_size=8)", "fashion_mnist", marks=pytest.mark.slow),
        pytest.param("alexnet(width=1)", "fashion_mnist", marks=pytest.mark.slow),
        pytest.param("resnet18(width=2)", "fashion_mnist", marks=pytest.mark.slow),
        ("transformer(d_model=8, num_layers=1, num_heads=2)", "moby_dick(length=16)"),
    ],
)
def test_every_model_learns(model, data):
    """The loss goes down, on batches that it has not seen before."""
    often = {"steps": 40, "batch_size": 20, "log_every": 1}
    plan = train.plan(model=model, data=data, optimizer="adam(learning_rate=0.01)", train=often)
    losses = [line["loss"] for line in plan.fit().history if "loss" in line]
    assert len(losses) == 40
    assert np.mean(losses[-10:]) < 0.9 * np.mean(losses[:3])


@pytest.mark.parametrize(
    ("what", "match"),
    [
        ("none", r"own.py:returned returned an array without samples"),
        ("negative", r"returned the label -1; labels are counted from 0"),
        ("shapes", r"returned inputs of shape \(5,\), and test inputs of \(3,\)"),
        ("floats", r"the labels of own.py:returned are float64 and int64"),
        ("two", r"own.py:returned returned tuple"),
    ],
)
def test_data_of_ones_own_that_are_of_no_use(tmp_path, monkeypatch, what, match):
    monkeypatch.chdir(tmp_path)
    file(tmp_path, OWN, "own.py")
    with pytest.raises((TypeError, ValueError), match=match):
        train.plan(data=f"own.py:returned(what={what!r})", train={"batch_size": 10}).fit()


def test_two_samples_will_do(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    file(tmp_path, OWN, "own.py")
    model = "mlp(hidden_sizes=[3])"
    settings = {"batch_size": 2, "steps": 2}
    found = train.plan(model=model, data="own.py:load(count=2)", train=settings).fit()
    assert found.step == 2


def test_models_and_data_of_ones_own(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    file(tmp_path, OWN, "own.py")
    plan = train.plan(
        model="own.py:build(width=6)",
        data="own.py:load(count=50)",
        optimizer="adam(learning_rate=0.05)",
        train={"batch_size": 10, "epochs": 20},
    )
    assert plan.fit().history[-1]["test_accuracy"] > 0.8
    with pytest.raises(ValueError, match=r"these data want \(2, 2\): 2 classes"):
        train.plan(model="own.py:wrong", data="own.py:load", train={"batch_size": 10}).fit()
    with pytest.raises(ValueError, match=r"has no setting 'widht'. Did you mean 'width'"):
        train.plan(
            model="own.py:build(widht=6)", data="own.py:load", train={"batch_size": 10}
        ).fit()


@pytest.mark.parametrize(
    ("written", "match"),
    [
        ({"modle": "mlp"}, r"no setting 'modle'. Did you mean 'model'"),
        ({"train": {"epoch": 3}}, r"\[train\] has no setting 'epoch'. Did you mean 'epochs'"),
        ({"train": 3}, r"\[train\] must be a table"),
        ({"train": {"epochs": "3"}}, r"epochs='3' must be an integer"),
        ({"rule": "ILL"}, r"no rule 'ILL'. Did you mean 'IL'"),
        (
            {"rule": "IL(num_step=3)"},
            r"rule IL has no setting 'num_step'. Did you mean 'num_steps'",
        ),
        ({"rule": "IL(3)"}, r"rule 'IL\(3\)' cannot be read"),
        ({"rule": "IL(num_steps=)"}, r"cannot be read"),
        ({"rule": {"num_steps": 3}}, r"\[rule\] needs a name"),
        ({"rule": "IL(num_steps=-3)"}, r"num_steps"),
        ({"model": 3}, r"\[model\] needs a name"),
    ],
)
def test_what_is_wrong_with_a_plan(written, match):
    with pytest.raises((ValueError, TypeError), match=match):
        train.plan(written)


@pytest.mark.parametrize(
    ("written", "match"),
    [
        ({"model": "transformer"}, r"learns from tokens, and these data are images"),
        ({"data": "moby_dick"}, r"mlp learns from images or arrays, .* are tokens"),
        ({"model": "mpl"}, r"no model 'mpl'. Did you mean 'mlp'"),
        ({"model": "mlp(hidden=3)"}, r"model mlp has no setting 'hidden'. Did you mean 'hidden_s"),
        ({"model": "mlp(activation='rellu')"}, r"no activation 'rellu'"),
        ({"data": "fashion"}, r"no data 'fashion'. Did you mean 'fashion_mnist'"),
        ({"data": "text"}, r"data text needs path"),
        ({"data": "text(path='nowhere.txt')"}, r"nowhere.txt is not a file"),
        ({"optimizer": "adan"}, r"no optimizer 'adan'. Did you mean 'adam'"),
        ({"optimizer": "adam(lr=0.1)"}, r"no setting 'lr'(?s:.*)learning_rate.*clip, accumulate"),
        (
            {"optimizer": "adam(learning_rate=-1)"},
            r"learning_rate=-1 must be a finite number above 0",
        ),
        ({"optimizer": "adam(accumulate=0)"}, r"accumulate=0 must be an integer, at least 1"),
        ({"schedule": "cosine(warm=1)"}, r"no setting 'warm'. Did you mean 'warmup'"),
        ({"rule": "IncrementalPC", "optimizer": "adam"}, r"moves the weights itself"),
        ({"vertices": "layers"}, r"vertices='layers' is not known"),
    ],
)
def test_what_is_wrong_is_named_before_anything_is_written(written, match, tmp_path):
    with pytest.raises((ValueError, OSError), match=match):
        train.plan(written, train=SHORT).fit(tmp_path / "run")
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize("text", ["a = ", "[model"])
def test_a_file_that_is_not_toml(tmp_path, text):
    with pytest.raises(ValueError, match=r"plan.toml is not TOML"):
        train.plan(file(tmp_path, text))


def test_a_file_that_is_not_there(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"cannot read .*plan.toml"):
        train.plan(tmp_path / "plan.toml")


def test_settings_are_read_as_python_writes_them():
    assert read_named("model", "mlp") == Named("model", "mlp")
    assert read_named("model", "mlp( a = [1, 2], b='x')") == Named(
        "model", "mlp", {"a": [1, 2], "b": "x"}
    )
    assert str(read_named("rule", "IL(batch='mean')")) == "IL(batch='mean')"


def test_folders_of_images_have_the_same_classes(tmp_path):
    for name in ("train/cat", "train/dog", "test/cat"):
        (tmp_path / name).mkdir(parents=True)
        Image.new("RGB", (8, 8)).save(tmp_path / name / "one.png")
    data = {"name": "image_folder", "path": str(tmp_path / "train"), "size": 8}
    with pytest.raises(ValueError, match=r"do not have the same classes"):
        train.plan(data={**data, "test_path": str(tmp_path / "test")}).fit()


def test_a_model_that_cannot_take_the_data(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    file(
        tmp_path,
        OWN + "\ndef narrow(key):\n    return Net(jnp.ones((4, 3)), jnp.ones((3, 2)))\n",
        "own.py",
    )
    with pytest.raises(ValueError, match=r"cannot take inputs of shape \(2, 5\)"):
        train.plan(model="own.py:narrow", data="own.py:load", train={"batch_size": 10}).fit()


def test_a_function_that_makes_no_rule(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    file(tmp_path, "def rule():\n    return 3\n", "own_rule.py")
    with pytest.raises(TypeError, match=r"own_rule.py:rule made int, which is no rule"):
        train.plan(rule="own_rule.py:rule")


def test_a_run_without_a_plan_cannot_be_planned(tmp_path):
    (tmp_path / "run.json").write_text(json.dumps({"format": FORMAT, "about": {"rule": "ZIL()"}}))
    with pytest.raises(ValueError, match=r"was not made from a plan: it has no model"):
        plan_of_run(tmp_path)


@pytest.mark.parametrize(
    ("text", "match"),
    [
        ("a = " + "[" * 5000 + "]" * 5000, "nested too deeply"),
        ("a" + ".a" * 50_000 + " = 1", "has 100,005 bytes.(.|\\n)*at most 20,000"),
        ("\xff", "is not TOML"),
        ("a = " + "9" * 5000, "is not TOML: Exceeds the limit"),
    ],
)
def test_a_file_that_cannot_be_read(tmp_path, text, match):
    (tmp_path / "plan.toml").write_bytes(text.encode("latin1"))
    with pytest.raises(ValueError, match=match):
        train.plan(tmp_path / "plan.toml")


def test_a_number_in_a_table_that_is_too_large(tmp_path):
    text = "[optimizer]\nname = 'adam'\nlearning_rate = 0x" + "f" * 5000
    with pytest.raises(ValueError, match=r"\[optimizer\] has a number that is too large"):
        train.plan(file(tmp_path, text))


def test_a_pipe_is_no_plan(tmp_path):
    os.mkfifo(tmp_path / "plan.toml")
    with pytest.raises(ValueError, match=r"plan.toml is a pipe or a device, not a file"):
        train.plan(tmp_path / "plan.toml")


@pytest.mark.parametrize(
    "model",
    ["mlp(hidden_sizes='abc')", "mlp(hidden_sizes=[1e308])", "transformer(num_heads=0)"],
)
def test_settings_that_make_no_model(model):
    data = "moby_dick" if model.startswith("transformer") else "fashion_mnist"
    with pytest.raises(ValueError, match=r"Plan.fit: model .* cannot be made: .* must be an? "):
        train.plan(model=model, data=data, train=SHORT).fit()


@pytest.mark.parametrize(
    ("model", "match"),
    [
        ("mlp(hidden_sizes=[1000000000])", r"would take .* TB, and .*GB are available"),
        ("fc_resnet(num_layers=1001)", r"num_layers=1001 must be an integer from 1 to 1000"),
        (f"mlp(hidden_sizes={[1] * 1001})", r"length of hidden_sizes=1001 must be an integer fr"),
    ],
)
def test_models_for_which_there_is_no_room(model, match):
    with pytest.raises((MemoryError, ValueError), match=match):
        train.plan(model=model, train=SHORT).fit()


def test_there_is_nothing_to_plot(tmp_path):
    for history in ([], tmp_path):
        with pytest.raises(ValueError, match=r"there is nothing to plot"):
            train.curves(history)


def test_the_schedule_reaches_the_optimizer():
    named, total = Named("optimizer", "sgd", {"learning_rate": 0.5}), 10
    optimizer = find_optimizer(named, Named("schedule", "linear"), ZIL(), total)
    params = {"w": np.float32(0)}
    state, moves = optimizer.init(params), []
    for _ in range(total + 1):
        change, state = optimizer.update({"w": np.float32(1)}, state, params)
        moves.append(float(-change["w"]))
    expected = [0.5 * (1 - step / total) for step in range(total + 1)]
    assert moves == pytest.approx(expected, abs=1e-6)


def test_clipping_and_accumulation():
    named = Named("optimizer", "sgd", {"learning_rate": 1.0, "clip": 0.5, "accumulate": 2})
    optimizer = find_optimizer(named, Named("schedule", "constant"), ZIL(), 10)
    params = {"w": np.float32(0)}
    state, moves = optimizer.init(params), []
    for _ in range(2):
        change, state = optimizer.update({"w": np.float32(3)}, state, params)
        params = optax.apply_updates(params, change)
        moves.append(float(params["w"]))
    assert moves == [0.0, -0.5]


def test_incremental_pc_moves_the_weights_by_its_own_rate():
    """One update of one step is the rate times a gradient: twice the rate goes twice as far."""

    def moved(rate):
        rule = f"IncrementalPC(num_steps=1, gamma=0.02, learning_rate={rate})"
        plan = train.plan(model="mlp(hidden_sizes=[8])", rule=rule, train={**SHORT, "steps": 1})
        begin = find_model(plan.model, find_data(plan.data), jax.random.key(0))
        return jax.tree.leaves(jax.tree.map(np.subtract, plan.fit().model, begin))[-1]

    once, twice = moved(0.25), moved(0.5)
    np.testing.assert_allclose(twice, 2 * once, atol=1e-6)
    assert np.max(np.abs(once)) > 1e-2


def test_a_plan_is_its_seed():
    plans = [
        train.plan(model="mlp(hidden_sizes=[4])", train={**SHORT, "seed": seed})
        for seed in (1, 1, 2)
    ]
    found, again, other = (plan.fit().model for plan in plans)
    assert bits(found) == bits(again) != bits(other)
    assert models.digest(found) == models.digest(again) != models.digest(other)
    assert jax.tree.structure(found) == jax.tree.structure(other)


@pytest.mark.parametrize("setting", ["b1='x'", "b2=[1]", "eps={}"])
def test_optimizers_with_settings_of_no_use(setting):
    """Optax itself finds them when the run is under way."""
    named = read_named("optimizer", f"adam({setting})")
    with pytest.raises(ValueError, match=r"(?s)optimizer adam\(.*\) makes no update: .*settings"):
        find_optimizer(named, Named("schedule", "constant"), ZIL(), 10)


@pytest.mark.parametrize("half_life", [0, -1, "'x'", "1e999"])
def test_half_lives_of_no_use(half_life):
    schedule = read_named("schedule", f"exponential(half_life={half_life})")
    with pytest.raises(ValueError, match=r"half_life=.* must be a finite number above 0"):
        find_optimizer(None, schedule, ZIL(), 10)


@pytest.mark.parametrize(
    ("written", "match"),
    [
        (r'rule = "a\u0000.py:build"', r"rule 'a\\x00\.py:build', which is not beside it"),
        (f'"{"k" * 15_000}" = 1', r"the plan has no setting 'kkk.*\(15,002 characters\)"),
        (f"[train]\nseed = 0x{'f' * 9_000}", r"seed=int\(\.\.\.\) must be an integer from 0"),
        (f'model = "{"m" * 9_000}"', r"there is no model 'mmm.*\(9,000 characters\)"),
    ],
)
def test_plans_that_hold_too_much(tmp_path, written, match):
    (tmp_path / "plan.toml").write_text(written)
    with pytest.raises(ValueError, match=match) as problem:
        train.plan(tmp_path / "plan.toml")
    assert len(str(problem.value)) < 1_500


@pytest.mark.parametrize(
    ("folder", "match"),
    [
        ("a\0b", r"folder='a\\x00b' is not a path"),
        ("~nosuchuser/x", r"there is no home folder ~nosuchuser"),
        ("x" * 300, r"run\.json cannot be read: File name too long"),
        ("x/" * 3_000, r"cannot be read: File name too long"),
    ],
)
def test_folders_that_cannot_be(folder, match):
    with pytest.raises(ValueError, match=match) as problem:
        plan_of_run(folder)
    assert len(str(problem.value)) < 1_500


def test_curves_of_what_no_run_measured():
    with pytest.raises(ValueError, match=r"history is not what a run measured"):
        train.curves([{"a": "b"}])


def test_an_update_for_which_there_is_no_room(monkeypatch):
    """Attention over a chapter; nothing is computed to find out."""
    monkeypatch.setattr("dendrax.support._memory.available_memory", lambda: 1e9)
    plan = train.plan(model="transformer", data="moby_dick(length=4000)", train=SHORT)
    with pytest.raises(MemoryError, match=r"one array of an update would take .* GB, and 1 GB"):
        plan.fit()


def test_attention_over_a_book():
    with pytest.raises(ValueError, match=r"length=100000 must be an integer from 1 to 10000"):
        find_data(read_named("data", "moby_dick(length=100000)"))


def test_labels_with_gaps(tmp_path):
    (tmp_path / "own.py").write_text(
        "import numpy as np\n"
        "def load(): return np.ones((9, 3)), np.full(9, 10**8), np.ones((9, 3)), np.zeros(9, int)\n"
    )
    with pytest.raises(ValueError, match=r"the label 100000000 among 9; labels are counted from"):
        find_data(Named("data", f"{tmp_path}/own.py:load"))


def test_curves_of_thousands_of_names():
    history = [{"step": 1, **{f"k{n}": 1.0 for n in range(3_000)}}]
    with pytest.warns(UserWarning, match=r"2,977 of 3,000 measures are left out"):
        assert len(train.curves(history).axes) == 24
