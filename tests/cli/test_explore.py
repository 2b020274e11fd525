"""``dendrax explore`` and ``dendrax show``, with functions of the user's own."""

import sys

import pytest

MODULE = """
import jax.numpy as jnp

W = jnp.ones((3, 2), jnp.float32)

def loss(w, x):
    return jnp.mean(jnp.tanh(x @ w) ** 2)

def ready():
    return loss, W, jnp.ones((5, 3), jnp.float32)

def defaults(w=W):
    return jnp.sum(jnp.sin(w))

def vector(w=W):
    return jnp.sin(w)

def untraceable(w=W):
    return w if w.sum() > 0 else -w

def broken():
    raise RuntimeError("out of order")

def by_name(*, w):
    return jnp.sum(w)

class Model:
    @staticmethod
    def loss(w=W):
        return jnp.sum(jnp.cos(w))

number = 3
"""


@pytest.fixture(autouse=True)
def users_folder(tmp_path, monkeypatch):
    """A folder with a module of the user's, from which the command is called."""
    (tmp_path / "users_own.py").write_text(MODULE)
    (tmp_path / "wrong.py").write_text("import no_such_package\n")
    (tmp_path / "syntax.py").write_text("def f(:\n")
    (tmp_path / "nowhere_model.py").write_text("import nowhere\n")
    (tmp_path / "exits.py").write_text("import sys\nsys.exit(3)\n")
    (tmp_path / "opens.py").write_text("open('weights.npz')\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    yield tmp_path
    for name in ("users_own", "wrong", "syntax", "nowhere_model", "opens", "exits"):
        sys.modules.pop(name, None)


@pytest.mark.parametrize(
    "arguments",
    [
        ["users_own:ready"],
        ["users_own:defaults"],
        ["users_own:Model.loss"],
        ["users_own.py:loss", "--args", "W, jnp.ones((5, 3), W.dtype)"],
        ["users_own:vector", "--target", "W * 0"],
        [
            "users_own:ready",
            "--rule",
            "ZIL",
            "--rule",
            "IL(num_steps=3, batch='sum')",
            "--vertices",
            "primitive",
        ],
        ["users_own:ready", "--argnums", "0,1"],
        ["mlp"],
    ],
)
def test_explore_writes_the_page(dendrax, arguments, users_folder):
    code, out, err = dendrax("explore", *arguments, "--out", "page.html")
    assert (code, out) == (0, "")
    assert "The page: page.html" in err
    assert "<!doctype html>" in (users_folder / "page.html").read_text()


# What a rule's text could once run: everything, by way of the globals of any function.
ESCAPE = "IL(gamma=IL.__init__.__globals__['__builtins__']['open']('made', 'w') and 1)"


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["users_own"], "names no function. Write module:function"),
        (["users_own:nothing"], "has no 'nothing'. It has: loss, ready, defaults"),
        (["users_own:number"], "is int, not a function"),
        (["users_own:loss"], "needs arguments (w, x). Give them as Python"),
        (["nowhere:f"], "there is no module 'nowhere'. Is it installed, or in this folder?"),
        (["nowhere.py:f"], "there is no file nowhere.py"),
        (["wrong:f"], "failed: ModuleNotFoundError: No module named 'no_such_package'"),
        (["syntax:f"], "importing 'syntax' failed: SyntaxError"),
        (["users_own:broken"], "failed: RuntimeError: out of order"),
        (["users_own:untraceable"], "the function cannot be traced. TracerBoolConversionError"),
        (["users_own:vector"], "Give a target"),
        (["users_own:loss", "--args", "1/0"], "--args '1/0': ZeroDivisionError"),
        (["users_own:loss", "--args", "W"], "takes (w, x); --args gives 1 by position: missing"),
        (["users_own:by_name"], "needs arguments (w)"),
        (["nowhere_model:f"], "importing 'nowhere_model' failed: ModuleNotFoundError: No module"),
        (["nowhere_model.py:f"], "importing 'nowhere_model.py' failed: ModuleNotFoundError"),
        (["exits:f"], "importing 'exits' ended the program (SystemExit: 3)"),
        (["opens:f"], "importing 'opens' failed: FileNotFoundError"),
        (["users_own:ready", "--argnums", "a"], "--argnums 'a' is not a number"),
        (["users_own:ready", "--rule", "ILL"], "no rule 'ILL'. Did you mean 'IL'?"),
        (["users_own:ready", "--rule", "IL()(num_steps=5)"], "rule 'IL()(num_steps=5)' cannot be"),
        (["users_own:ready", "--rule", ESCAPE], "cannot be read. Write a name and its settings"),
        (["users_own:ready", "--rule", "IL(gamma=" + 20_000 * "-" + "1)"], "(20,011 characters)"),
        (["users_own:ready", "--rule", "IL(num_steps=-1)"], "not a positive integer"),
        (["users_own:ready", "--rule", "BP"], "BP has no value nodes that move over time"),
        (["users_own:ready", "--out", "."], "it is a folder"),
    ],
)
def test_what_explore_cannot_do(dendrax, arguments, words, users_folder):
    code, out, err = dendrax("explore", *arguments)
    assert (code, out) == (1, "")
    assert words in " ".join(err.split()), err
    assert "Traceback" not in err
    assert not (users_folder / "explorer.html").exists()
    assert not (users_folder / "made").exists()


def test_an_error_names_the_user_s_line(dendrax):
    _, _, err = dendrax("explore", "users_own:untraceable")
    line = 1 + MODULE.split("\n").index("    return w if w.sum() > 0 else -w")
    assert f"users_own.py:{line}" in err.replace("\n", "")


def test_a_mistake_of_dendrax_keeps_its_traceback(dendrax, monkeypatch):
    monkeypatch.setattr("dendrax.cli._explore.explore", int)  # called with the wrong arguments
    with pytest.raises(TypeError, match=r"int\(\)"):
        dendrax("explore", "users_own:ready")


def test_show_prints_levels_delays_parameters_and_times(dendrax):
    code, out, _ = dendrax("show", "transformer", "--rows", "5")
    assert code == 0
    for part in ("Levels", "Longest delays", "Parameters", "Slowest vertices", "learns at", "µs"):
        assert part in out
    assert "more" in out


def test_show_without_times(dendrax, monkeypatch):
    monkeypatch.setattr("dendrax.cli._show.timings", lambda graph: pytest.fail("was timed"))
    code, out, _ = dendrax("show", "users_own:ready", "--no-time")
    assert code == 0 and "Slowest" not in out
    assert "S5" in out and "t = 4" in out  # w, of level 5


def test_show_of_names_with_markup(dendrax, users_folder):
    (users_folder / "users_own.py").write_text(
        "import jax.numpy as jnp\n"
        "def ready():\n"
        "    name = '[red]:fire:[/red]'\n"
        "    return (lambda p: jnp.sum(p[name])), {name: jnp.ones(3)}\n"
    )
    code, out, _ = dendrax("show", "users_own:ready", "--no-time")
    assert code == 0 and "[red]:fire:[/red]" in out


@pytest.mark.parametrize("arguments", [["users_own:nothing"], ["nowhere:f"]])
def test_what_show_cannot_do(dendrax, arguments):
    code, out, err = dendrax("show", *arguments)
    assert (code, out) == (1, "") and err.startswith("dendrax: ")
