"""`import dendrax` is all that is typed: names are found, listed, and loaded when they are used."""

import ast
import functools
import importlib.util
import inspect
import io
import json
import pathlib
import pickle
import pydoc
import re
import subprocess
import sys

import jax.numpy as jnp
import pytest

import dendrax
from dendrax.support import _words

EXTRAS = ("equinox", "optax", "flax", "matplotlib", "orbax", "PIL", "rich", "typer", "ale_py")
NEEDS = dendrax._NEEDS  # pyright: ignore
SUBMODULES = tuple(NEEDS)


def _run(program: str) -> str:
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_importing_dendrax_loads_neither_jax_nor_an_extra():
    watched = {"jax", "numpy", "dendrax.draw", *EXTRAS}
    shown = _run(f"import dendrax, sys; print(sorted({watched} & set(sys.modules)))")
    assert shown.strip() == "[]"


def test_one_import_is_enough():
    lines = [f"assert dendrax.{name}.__name__ == 'dendrax.{name}'" for name in SUBMODULES]
    program = "import dendrax\nassert callable(dendrax.grad)\n" + "\n".join(lines)
    _run(program + "\ndendrax.train.fit, dendrax.draw.graph, dendrax.nnx.grad")


def test_any_name_may_be_the_first_that_is_used():
    """Files of the core register with each other, whichever of them is loaded first."""
    firsts = {home: name for name, home in dendrax._HOME_OF.items()}  # pyright: ignore
    program = f"""
import jax, sys
def eight_times(x):
    return jax.lax.scan(lambda c, _: (jax.jit(lambda c: c * 2)(c), None), x, None, length=3)[0]
for name in {[*firsts.values()]}:
    for module in [module for module in sys.modules if module.split(".")[0] == "dendrax"]:
        del sys.modules[module]
    import dendrax
    assert callable(getattr(dendrax, name)), name
    assert dendrax.grad(eight_times)(2.0) == 8.0, name
"""
    _run(program)


def test_types_and_run_time_know_the_same_names():
    tree = ast.parse(inspect.getsource(dendrax))
    block = next(node for node in tree.body if isinstance(node, ast.If))
    typed = [node for node in block.body if isinstance(node, ast.ImportFrom)]
    names = {(node.module, alias.name): alias.asname for node in typed for alias in node.names}
    assert all(name == alias for (_, name), alias in names.items())
    homes = {(f"dendrax.{home}", name) for name, home in dendrax._HOME_OF.items()}  # pyright: ignore
    assert set(names) == homes | {("dendrax", name) for name in SUBMODULES}


def test_only_public_names_are_listed():
    listed = dir(dendrax)
    assert [name for name in listed if name.startswith("_")] == ["__version__"]
    assert {"grad", "IL", "train", "draw", "explore"} <= set(listed)
    assert not {"annotations", "importlib", "typing", "cli", "paper"} & set(listed)
    assert all(hasattr(dendrax, name) for name in listed)


def test_a_star_brings_functions_and_classes_but_hides_no_module():
    found: dict[str, object] = {}
    exec("from dendrax import *", found)
    assert {"grad", "ZIL", "explore", "Graph"} <= set(found)
    assert not set(SUBMODULES) & set(found)


def test_names_are_pickled():
    for thing in (dendrax.IL(num_steps=3, batch="sum"), dendrax.grad, dendrax.Graph, dendrax.ZIL):
        assert pickle.loads(pickle.dumps(thing)) == thing


def test_an_unknown_name_is_answered_with_the_nearest():
    with pytest.raises(AttributeError, match=r"grads'\. Did you mean 'value_and_grad'\?"):
        dendrax.value_and_grads  # noqa: B018  # pyright: ignore
    with pytest.raises(AttributeError, match=r"'trian'\. Did you mean 'train'\?"):
        dendrax.trian  # noqa: B018  # pyright: ignore
    with pytest.raises(AttributeError, match=r"no attribute 'qqqq'\.$"):
        dendrax.qqqq  # noqa: B018  # pyright: ignore
    with pytest.raises(AttributeError, match=r"no attribute '__wrapped__'\.$"):
        dendrax.__wrapped__  # noqa: B018  # pyright: ignore
    assert not hasattr(dendrax, "value_and_grads")


def test_the_nearest_name_is_said_once():
    """Python has a guess of its own, of the same name."""
    done = subprocess.run(
        [sys.executable, "-c", "import dendrax; dendrax.value_and_grads"],
        capture_output=True,
        text=True,
    )
    assert done.stderr.count("Did you mean") == 1


MISSING = """
import sys
for package in {packages}:
    sys.modules[package] = None
import dendrax, inspect, pydoc, rlcompleter
"""


def test_a_missing_extra_is_named_on_first_use_and_breaks_nothing_else():
    program = (
        MISSING.format(packages=EXTRAS)
        + """
assert {*dir(dendrax)} >= {"draw", "data", "placement", "grad"}
assert not {*dir(dendrax)} & {"train", "models", "equinox", "nnx"}
assert dict(inspect.getmembers(dendrax))["draw"] is dendrax.draw
text = pydoc.plain(pydoc.render_doc(dendrax))
assert "dendrax.train" in text and 'the extra `train`' in text and "value_and_grad(fun" in text
completer = rlcompleter.Completer({"dendrax": dendrax})
assert completer.complete("dendrax.value", 0) == "dendrax.value_and_grad("
for name in ("train", "models", "equinox", "nnx"):
    try:
        getattr(dendrax, name)
    except ImportError as problem:
        assert f"dendrax.{name} needs what is not installed" in str(problem)
        assert "pip install" in str(problem)
    else:
        raise AssertionError(name)
print("fine")
"""
    )
    assert _run(program).strip() == "fine"


@pytest.mark.parametrize("needs", sorted({*NEEDS.values()}), ids=" ".join)
def test_submodules_need_no_more_than_is_said(needs):
    """Every other extra is missing, but for what the needed ones import themselves."""
    names = [name for name in SUBMODULES if NEEDS[name] == needs]
    imports = "".join(f"import {'flax.nnx' if need == 'flax' else need}\n" for need in needs)
    missing = f"[package for package in {EXTRAS} if package not in sys.modules]"
    program = f"import sys\n{imports}{MISSING.format(packages=missing)}"
    lines = "\n".join(f"dendrax.{name}" for name in names)
    assert _run(f"{program}{lines}\nprint('fine')").strip() == "fine"


def test_help_shows_every_name():
    shown = io.StringIO()
    pydoc.Helper(output=shown).help(dendrax)
    _, contents = shown.getvalue().split("\nPACKAGE CONTENTS\n")  # before it, the docstring
    for name in (*dendrax._HOME_OF, *SUBMODULES):  # pyright: ignore
        line = rf"^    (class {name}\(|{name}\(|{name}$|{name} \(package\)$)"
        assert re.search(line, contents, re.MULTILINE), name


def test_a_notebook_loads_the_drawing():
    program = """
import dendrax, sys
graph = dendrax.trace(lambda x: x * x, 2.0)
assert "dendrax.draw" not in sys.modules
print(graph._repr_svg_()[:40])
"""
    assert "svg" in _run(program)


# ---- words of settings ---------------------------------------------------------------------------


def test_tuples_are_those_of_the_types():
    """Each line is ``NAMES: tuple[Name, ...] = get_args(Name)``, and each type has one."""
    body = ast.parse(inspect.getsource(_words)).body
    plain = [ast.unparse(node.targets[0]) for node in body if isinstance(node, ast.Assign)]
    types = [name for name in plain if not name.isupper()]
    tuples = [ast.unparse(node).split(": ")[1] for node in body if isinstance(node, ast.AnnAssign)]
    assert tuples == [f"tuple[{name}, ...] = get_args({name})" for name in types]


def test_types_of_words_have_names_of_their_own():
    types = {name for name in vars(_words) if name[0].isupper() and not name.isupper()}
    for path in pathlib.Path(dendrax.__file__).parent.rglob("*.py"):
        nodes = ast.walk(ast.parse(path.read_text()))
        classes = {node.name for node in nodes if isinstance(node, ast.ClassDef)}
        assert not types & classes, path


def test_catalogues_have_what_is_named():
    from dendrax.models._problem import _BUILDERS
    from dendrax.named._user_code import rules
    from dendrax.rules import Rule
    from dendrax.rules._start import _STARTS
    from dendrax.train import _catalogue, _optimizers
    from dendrax.vertices._choose import CHOICES

    assert tuple(rules()) == _words.RULE_NAMES
    public = {
        name
        for name, value in inspect.getmembers(dendrax, inspect.isclass)
        if issubclass(value, Rule) and value is not Rule
    }
    assert public == {*_words.RULE_NAMES}
    assert ("primitive", *CHOICES) == _words.VERTICES
    assert tuple(_STARTS) == _words.STARTS
    assert tuple(_BUILDERS) == _words.PROBLEM_NAMES
    assert tuple(_catalogue.DATA) == _words.DATA_NAMES
    assert tuple(_catalogue.MODELS) == _words.MODEL_NAMES
    assert tuple(_optimizers.OPTIMIZERS) == _words.OPTIMIZER_NAMES
    assert tuple(_optimizers.SCHEDULES) == _words.SCHEDULE_NAMES


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (lambda: dendrax.grad(abs, vertices="layers"), "vertices='layers' is not known. Did you "),
        (lambda: dendrax.IL(batch="men"), r"IL: batch='men' is not known. Did you mean 'mean'\?"),
        (
            lambda: dendrax.IL(init="zero", batch="sum"),
            r"init='zero' is not known. Did you mean 'zeros'\?",
        ),
        (lambda: dendrax.ZIL(timing="ends"), r"timing='ends' is not known. Did you mean 'end'\?"),
        (lambda: dendrax.ZIL(timing=3), r"timing=3 is not known.\n  Use one of: 'level', 'end'\."),
        (lambda: dendrax.ZIL(timing="qq"), r"'qq' is not known.\n  Use one of: 'level', 'end'\."),
        (lambda: dendrax.models.problem("resnet"), r"'resnet'\. Did you mean 'resnet18'\?"),
        (
            lambda: dendrax.IL(num_steps=10**5000, batch="sum"),
            "IL: num_steps is more than 2,147,483,647",
        ),
        (lambda: dendrax.models.problem("qqqq"), r"'qqqq'\. Choose from mlp, cnn"),
    ],
)
def test_a_word_that_is_none_is_answered_with_the_nearest(make, said):
    with pytest.raises(ValueError, match=said):
        make()


def test_a_vertex_that_is_not_there():
    graph = dendrax.trace(lambda w, x: w * x, 2.0, 3.0)
    with pytest.raises(KeyError, match=r"no vertex named 'mull'\. Did you mean 'mul'\?"):
        graph["mull"]
    with pytest.raises(KeyError, match=r"no vertex named 'qqqq'\. Its vertices are w, mul\."):
        graph["qqqq"]
    long = dendrax.trace(lambda w: functools.reduce(lambda x, _: jnp.sin(x), range(40), w), 2.0)
    with pytest.raises(KeyError, match=r"Its vertices are w, sin, .*sin_28, and 11 more\."):
        long["qqqq"]


# ---- what a type checker refuses -----------------------------------------------------------------

RIGHT = """
import dendrax, dendrax.equinox, dendrax.nnx
from dendrax import train
def f(x: float) -> float: return x
def rows(graph: dendrax.Graph, name: str) -> None:
    dendrax.grad(f, vertices="layer"); dendrax.trace(f, 1.0, vertices="marked")
    dendrax.run(graph, dendrax.IL(batch="mean", init="zeros"), record="energy")
    dendrax.run(graph, dendrax.IL(batch=3, init=lambda v, mu: mu), record=("energy", "x"))
    dendrax.ZIL(timing="end", init="noise"); dendrax.draw.graph(graph, layout="own")
    dendrax.IncrementalPC(init="forward"); dendrax.ErrorPC(batch="mean")
    train.Settings(mode="max", monitor="a", nonfinite="skip", sharding="fsdp")
    train.load("folder", f, which="last"); dendrax.models.problem("mlp")
    dendrax.models.ResNet18(stem="imagenet", key=None)  # pyright: ignore[reportArgumentType]
    dendrax.value_and_grad, dendrax.train, dendrax.data, dendrax.placement, dendrax.certify.check
"""
WRONG = """
import dendrax, dendrax.equinox, dendrax.nnx
from dendrax import train
def f(x: float) -> float: return x
def rows(graph: dendrax.Graph) -> None:
    dendrax.grad(f, vertices="layers")
    dendrax.value_and_grad(f, vertices="layers")
    dendrax.vjp(f, 1.0, vertices="layers")
    dendrax.trace(f, 1.0, vertices="layers")
    dendrax.check(f, 1.0, vertices="layers")
    dendrax.audit(f, 1.0, vertices="layers")
    dendrax.explore(f, 1.0, vertices="layers")
    dendrax.equinox.filter_grad(f, vertices="layers")
    dendrax.nnx.grad(f, vertices="layers")
    dendrax.placement.place(f, 1.0, vertices="layers")
    train.fit(f, f, (), optimizer=None, vertices="layers")
    dendrax.run(graph, dendrax.ZIL(), record="enrgy")
    dendrax.run(graph, dendrax.ZIL(), record=("energy", "y"))
    dendrax.IL(batch="men")
    dendrax.ErrorPC(batch="men")
    dendrax.IncrementalPC(batch="men")
    dendrax.IL(init="zero")
    dendrax.IncrementalPC(init="zero")
    dendrax.ZIL(init="zero")
    dendrax.ZIL(timing="ends")
    dendrax.draw.graph(graph, layout="dots")
    train.Settings(mode="least")
    train.Settings(nonfinite="halt")
    train.Settings(sharding="fspd")
    train.load("folder", f, which="first")
    dendrax.models.problem("resnet")
    dendrax.models.ResNet18(stem="cifra", key=None)  # pyright: ignore[reportOptionalMemberAccess]
    dendrax.value_and_grads
"""


def test_pyright_refuses_words_that_are_none(tmp_path):
    """Every line of the wrong ones, and none of the right ones."""
    if importlib.util.find_spec("pyright") is None:
        pytest.skip("pyright is not installed")
    for name, text in (("right", RIGHT), ("wrong", WRONG)):
        (tmp_path / f"{name}.py").write_text(text)
    source = pathlib.Path(dendrax.__file__).parents[1]
    (tmp_path / "pyrightconfig.json").write_text(f'{{"extraPaths": ["{source}"]}}')
    command = [sys.executable, "-m", "pyright", "--outputjson", "-p", str(tmp_path)]
    command += ["--pythonpath", sys.executable]
    done = subprocess.run(command, capture_output=True, text=True)
    found = json.loads(done.stdout)["generalDiagnostics"]
    errors = [entry for entry in found if entry["severity"] == "error"]
    by_file = {
        name: {
            entry["range"]["start"]["line"]
            for entry in errors
            if entry["file"].endswith(f"{name}.py")
        }
        for name in ("right", "wrong")
    }
    first = WRONG.splitlines().index("def rows(graph: dendrax.Graph) -> None:") + 1
    assert by_file["right"] == set(), errors
    assert by_file["wrong"] == set(range(first, len(WRONG.splitlines()))), errors
