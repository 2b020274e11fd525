"""Whose code runs: the user's, what lies beside a plan, and nothing that a folder names."""

import json

import pytest

from dendrax import train
from dendrax.named._named import read_named
from dendrax.train._checkpoint import FORMAT
from dendrax.train._plan import plan_of_run
from tests.train.cases import OWN, file


@pytest.fixture
def own_run(tmp_path, monkeypatch):
    """A run with code of the user's, and the plan that it was made from."""
    monkeypatch.chdir(tmp_path)
    file(tmp_path, OWN, "own.py")
    words = {"model": "own.py:build(width=3)", "data": "own.py:load", "train": {"steps": 1}}
    plan = train.plan(words, train={"batch_size": 10})
    plan.fit("run")
    return plan


@pytest.mark.parametrize("section", ["model", "data", "rule", "optimizer", "schedule"])
@pytest.mark.parametrize(
    "words", ["os:mkdir(path='made')", "evil.py:run", " os : mkdir(path='made')", "builtins:exec"]
)
def test_a_folder_names_no_code(tmp_path, monkeypatch, section, words):
    monkeypatch.chdir(tmp_path)
    file(tmp_path, "import os; os.mkdir('made')\nrun = print", "evil.py")
    ours = {"model": "mlp()", "data": "fashion_mnist()", "rule": "ZIL()", "schedule": "constant()"}
    about = {**ours, "optimizer": None, section: words}
    (tmp_path / "run").mkdir()
    (tmp_path / "run/run.json").write_text(json.dumps({"format": FORMAT, "about": about}))
    with pytest.raises(ValueError, match=r"does not ship, and code that a folder names is not run"):
        plan_of_run("run")
    assert not (tmp_path / "made").exists()


def test_code_of_ones_own_is_named_anew(own_run):
    with pytest.raises(ValueError, match=r"has the model 'own.py:build'.*\n.*--model file.py:fun"):
        plan_of_run("run")
    said = {"model": "own.py:build(width=3)", "data": "own.py:load"}
    again = train.plan(plan_of_run("run", said), **said)
    assert again.fit("run", resume=True).step == 1
    other = train.plan(plan_of_run("run", said), model="own.py:build", data="own.py:load")
    with pytest.raises(ValueError, match=r"holds a run with model = 'own.py:build\(width=3\)'"):
        other.fit("run", resume=True)


def test_code_that_has_changed_since_gives_a_warning(own_run, tmp_path):
    file(tmp_path, OWN + "\n# changed", "own.py")
    with pytest.warns(UserWarning, match=r"the code of the model and the data has changed since"):
        own_run.fit("run", resume=True)
    own_run.fit("run", resume=True)  # said once


def test_a_file_names_code_beside_it(tmp_path, monkeypatch):
    (tmp_path / "plans").mkdir()
    file(tmp_path, OWN, "plans/own.py")
    words = 'model = "own.py:build"\ndata = "own.py:load"\n[train]\nsteps = 1\nbatch_size = 10'
    path = file(tmp_path, words, "plans/plan.toml")
    monkeypatch.chdir(tmp_path)  # not where the file is
    assert train.plan(path).fit("run").step == 1
    assert train.plan(path).fit("run", resume=True).step == 1


@pytest.mark.parametrize(
    "name", ["os:mkdir", "numpy.random:seed", "../own.py:build", "/own.py:build", "a/../../b.py:f"]
)
@pytest.mark.parametrize("section", ["model", "data", "rule", "optimizer", "schedule"])
def test_a_file_names_no_other_code(tmp_path, section, name):
    path = file(tmp_path, f'{section} = "{name}"')
    with pytest.raises(ValueError, match=rf"the {section} '{name}', which is not beside it"):
        train.plan(path).fit()


@pytest.mark.parametrize("name", ["os.mkdir", "mkdir", "__spec__.loader.get_data"])
def test_a_file_names_nothing_that_its_code_imports(tmp_path, name):
    file(tmp_path, "import os\nfrom os import mkdir\n", "own.py")
    path = file(tmp_path, f"rule = \"own.py:{name}(path='{tmp_path}/made')\"")
    with pytest.raises(ValueError, match=rf"'own.py:{name}', which that file only imports"):
        train.plan(path).fit()
    assert not (tmp_path / "made").exists()


def test_a_link_beside_a_file_leads_nowhere(tmp_path):
    (tmp_path / "plans").mkdir()
    file(tmp_path, OWN, "own.py")
    (tmp_path / "plans" / "own.py").symlink_to(tmp_path / "own.py")
    path = file(tmp_path, 'model = "own.py:build"', "plans/plan.toml")
    with pytest.raises(ValueError, match=r"the model 'own.py:build', which is not beside it"):
        train.plan(path).fit()


@pytest.mark.parametrize(
    "text",
    [
        "IL()(num_steps=5)",
        "IL(**{'num_steps': 5})",
        "IL(num_steps=5).__class__",
        "IL(num_steps=open('x'))",
        "IL(num_steps=().__class__)",
        "IL(5)",
        "IL(gamma=1.0, gamma=2.0)",
        "IL(gamma=" + "-" * 9000 + "1)",
        "IL(gamma=" + "-" * 20_000 + "1)",
        "IL(gamma=" + "[" * 5000 + "]" * 5000 + ")",
        "IL(num_steps=5",
        "IL(gamma={[1]})",
        "IL(gamma={[1]: 2})",
        "IL(num_steps=0x" + "f" * 4000 + ")",
        "IL(gamma=[0x" + "f" * 4000 + "])",
        "IL(gamma=0x" + "f" * 4000 + " + 1j)",
    ],
)
def test_settings_are_literals(text):
    with pytest.raises(ValueError, match=r"rule .* cannot be read"):
        read_named("rule", text)
