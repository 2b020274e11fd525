"""Words on the command line: completed, explained, and answered with the nearest one."""

import os
import re
import subprocess
import sys

import jax
import pytest
import typer
from typer.main import get_command

from dendrax.cli import _group, main
from dendrax.cli._main import _SETTINGS, _read_vertices, app
from dendrax.support import _words
from dendrax.train import Settings
from dendrax.train._plan import USUAL


@pytest.fixture(autouse=True)
def usual_types():
    with jax.enable_x64(False), jax.numpy_dtype_promotion("standard"):
        yield


def _complete(line: str) -> tuple[list[str], list[str]]:
    """What bash is offered after a line, and which heavy modules that took."""
    program = """
import sys
from dendrax.cli import main
try:
    main()
finally:
    print("HEAVY", *sorted({"jax", "numpy", "optax", "dendrax.train"} & set(sys.modules)))
"""
    words = line.split(" ")
    asked = {"COMP_WORDS": line, "COMP_CWORD": str(len(words) - 1)}
    done = subprocess.run(
        [sys.executable, "-c", program],
        env={**os.environ, **asked, "_DENDRAX_COMPLETE": "complete_bash"},
        capture_output=True,
        text=True,
    )
    assert (done.returncode, done.stderr) == (0, "")
    *offered, heavy = done.stdout.splitlines()
    return [word for word in offered if word], heavy.split()[1:]


@pytest.mark.parametrize(
    ("line", "offered"),
    [
        ("dendrax tr", ["train"]),
        ("dendrax train --micro", ["--micro-batches"]),
        ("dendrax train --model ", list(_words.MODEL_NAMES)),
        ("dendrax train --rule I", ["IL", "IncrementalPC"]),
        ("dendrax train --data m", ["mnist", "moby_dick"]),
        ("dendrax train --optimizer ada", ["adam", "adamw", "adagrad"]),
        ("dendrax train --schedule co", ["constant", "cosine"]),
        ("dendrax train --vertices ", list(_words.VERTICES)),
        ("dendrax paper tab", ["table1", "table2", "table3"]),
        ("dendrax explore res", ["resnet18"]),
        ("dendrax train --model q", []),
        ("dendrax qqqq ", []),
        ("dendrax qqqq --m", []),
    ],
)
def test_the_shell_completes_words_without_jax(line, offered):
    assert _complete(line) == (offered, [])


@pytest.mark.parametrize(
    ("text", "read"),
    [
        (None, None),
        ("layer", "layer"),
        ("Block", ("Block",)),
        ("Block,embed", ("Block", "embed")),
        ("my.block", ("my.block",)),
        ("*", ("*",)),
    ],
)
def test_a_choice_of_vertices_is_a_word_or_modules(text, read):
    assert _read_vertices(text) == read


def test_the_shell_is_told_how(dendrax, monkeypatch):
    monkeypatch.setenv("_TYPER_COMPLETE_TEST_DISABLE_SHELL_DETECTION", "1")  # whoever runs this
    shown = dendrax("--show-completion", "bash")
    assert shown.code == 0 and "_DENDRAX_COMPLETE=complete_bash" in shown.stdout


def _parameters():
    commands = get_command(app).commands  # pyright: ignore[reportAttributeAccessIssue]
    return [(name, p) for name, command in commands.items() for p in command.params]


@pytest.mark.parametrize("command", ["demo", "paper", "explore", "show", "data", "train"])
def test_help_shows_the_default_of_every_option(dendrax, command, monkeypatch):
    monkeypatch.setenv("COLUMNS", "400")
    lines = dendrax(command, "--help").stdout.splitlines()
    options = [p for name, p in _parameters() if name == command and p.opts[0].startswith("--")]
    for option in options:
        line = next(line for line in lines if line.startswith(f"│ {option.opts[0]} "))
        assert "[default: " in line, option.opts


def test_the_defaults_in_the_help_are_those_of_a_run():
    shown = {p.name: p.show_default for name, p in _parameters() if name == "train"}
    for name in _SETTINGS:
        usual = getattr(Settings(), name)
        assert usual is None or shown[name] == str(usual)
    assert {name: shown[name] for name in USUAL} == USUAL


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("trian",), "dendrax: there is no command 'trian'. Did you mean 'train'?"),
        (("qqqq",), "dendrax: there is no command 'qqqq'. There are: demo, paper, explore, "),
        (
            ("train", "--modle", "cnn"),
            "dendrax train: there is no option --modle. Did you mean '--mode' or '--model'?",
        ),
        (("show", "mlp", "-q"), "dendrax show: there is no option -q. There are: --args, --argnu"),
        (("--vresion",), "dendrax: there is no option --vresion. Did you mean '--version'"),
        (("paper", "tabel1"), "dendrax paper: invalid value for 'part': 'tabel1' is not known. Di"),
        (("paper", "qqqq"), "'qqqq' is not known. There are: table1, table2, table3, training, "),
        (("paper",), "dendrax paper: missing argument 'part'. Choose from: table1, table2, table3"),
        (("train", "--vertices", "layers"), "'layers' is not known. Did you mean 'layer'?"),
        (("train", "--sharding", "qq"), "'qq' is not known. There are: replicated, fsdp, levels."),
        (("train", "--epochs", "two"), "dendrax train: invalid value for '--epochs': "),
        (("explore",), "dendrax explore: missing argument 'FUNCTION'."),
    ],
)
def test_a_line_that_is_none_is_refused_in_a_sentence(dendrax, monkeypatch, words, said):
    monkeypatch.setenv("COLUMNS", "40")
    shown = dendrax(*words)
    assert (shown.code, shown.stdout) == (2, "")
    first, second = shown.stderr.splitlines()
    assert said in first and second.endswith(" --help shows how it is used.")


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--model", "cnnn"), "there is no model 'cnnn'. Did you mean 'cnn'?"),
        (("--model", "resnet"), "there is no model 'resnet'. Did you mean 'resnet18'?"),
        (("--model", "qqqq"), "There are: mlp, fc_resnet, cnn"),
        (("--model", "mlp(hiden=3)"), "mlp has no setting 'hiden'. Did you mean 'hidden_sizes'?"),
        (("--model", "mlp(corpus=3)"), "mlp has no setting 'corpus'."),
        (("--rule", "zil"), "there is no rule 'zil'. Did you mean 'ZIL'?"),
        (("--rule", "IL(init='zero')"), "IL: init='zero' is not known. Did you mean 'zeros'?"),
        (("--data", "mnits"), "there is no data 'mnits'. Did you mean 'mnist'?"),
        (("--data", "text(pth='x')"), "data text has no setting 'pth'. Did you mean 'path'?"),
        (("--optimizer", "adm"), "there is no optimizer 'adm'. Did you mean 'adam'?"),
        (("--optimizer", "adam(clp=1)"), "adam has no setting 'clp'. Did you mean 'clip'?"),
        (("--schedule", "cosin"), "there is no schedule 'cosin'. Did you mean 'cosine'?"),
        (("--schedule", "cosine(rate=1)"), "cosine has no setting 'rate'."),
        (("--monitor", "test_los"), "monitor='test_los' is not measured. Did you mean 'test_lo"),
        (("--optimizer", "adam(clip=-1)"), "optimizer clip=-1 must be a number above 0."),
    ],
)
def test_a_run_is_refused_before_it_is_announced(dendrax, tmp_path, monkeypatch, words, said):
    monkeypatch.setenv("COLUMNS", "40")
    monkeypatch.chdir(tmp_path)
    shown = dendrax("train", "--steps", 2, *words)
    assert (shown.code, shown.stdout) == (1, "")
    assert shown.stderr.startswith("dendrax train: ") and said in shown.stderr
    assert "learns" not in shown.stderr and "epoch" not in shown.stderr
    assert list(tmp_path.iterdir()) == []


def test_a_model_to_explore_that_is_none(dendrax, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    shown = dendrax("explore", "resnet")
    assert shown.code == 1 and "'resnet' names no function. Did you mean 'resnet18'?" in (
        shown.stderr
    )
    shown = dendrax("show", "qqqq")
    assert shown.code == 1 and "names no function. Write module:function" in shown.stderr


def test_nothing_typed_is_answered_with_the_help(dendrax):
    shown = dendrax()
    assert "Usage: dendrax" in shown.stdout + shown.stderr and "explore" in (
        shown.stdout + shown.stderr
    )


def test_the_end_of_the_input_is_no_traceback(dendrax, monkeypatch):
    def stop(*_):
        raise typer.Abort

    monkeypatch.setattr("dendrax.cli._paper.run", stop)
    assert dendrax("paper", "table1", "--quick") == (1, "", "")


def test_suggestions_are_never_empty():
    assert _group.suggestion("cnnn", ["cnn", "rnn"]) == "Did you mean 'cnn' or 'rnn'?"
    assert _group.suggestion("qqq", ["cnn", "rnn"]) == "There are: cnn, rnn."
    assert _group.suggestion("qqq", []) == ""


@pytest.mark.parametrize(
    ("words", "match"),
    [
        (["show", "own.py:end"], r"calling 'own.py:end': your code ended the program \(SystemExit"),
        (["show", "own.py:f", "--args", "exit(0)"], r"--args 'exit\(0\)': your code ended the"),
        (["show", "own.py:leave"], r"your code ended the program \(SystemExit: 0\).\n  at .*own"),
        (["show", "own.py:f", "--args", "-" * 20_000], r"--args '-----.*\(20,000 characters\)'"),
        (["show", "own.py:f", "--argnums", "9" * 5_000], r"--argnums '999.*\(5,000 characters\)'"),
        (["show", "x" * 20_000], r"'xxxxx.*\(20,000 characters\)' names no function"),
        (["show", "-" * 20_000], r"there is no option ------.*\(20,000 characters\)"),
        (["train", "--out", ""], r"--out '' is not a path. The current folder is '\.'"),
        (["train", "--out="], r"--out '' is not a path. The current folder is '\.'"),
        (["train", "--resume", "--out", "a\x1b[2J"], r"no run in a\\x1b\[2J to go on with"),
        (["train", "/x" * 2_500], r"cannot read /x/x.* \(5,0.. characters\)"),
    ],
)
def test_hostile_words(dendrax, tmp_path, monkeypatch, words, match):
    """A few lines, an exit code, and nothing on the disk."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "own.py").write_text(
        "def f(x=1.0): return x\ndef leave(x=1.0): raise SystemExit(0)\n"
        "def end(): raise SystemExit(0)\n"
    )
    shown = dendrax(*words)
    assert shown.code not in (0, None) and re.search(match, shown.stderr), shown.stderr
    assert len(shown.stderr) < 1_500 and len(shown.stderr.splitlines()) < 12
    assert {path.name for path in tmp_path.iterdir()} <= {"own.py", "__pycache__"}


@pytest.mark.parametrize(
    ("problem", "match"),
    [
        (OSError(28, "No space left on device"), r"dendrax: No space left on device\.\n"),
        (PermissionError(13, "Permission denied", "a\x1bb"), r"a\\x1bb: Permission denied\.\n"),
        (RuntimeError("Unable to initialize backend 'nosuch'"), r"JAX does not start. Unable"),
    ],
)
def test_what_the_system_says_is_a_sentence(monkeypatch, problem, match):
    """The last resort: no traceback for a path, a terminal or a device of the user's."""

    def fail():
        raise problem

    monkeypatch.setattr("dendrax.cli._main.app", fail)
    monkeypatch.setattr(sys, "argv", ["dendrax", "data"])
    with pytest.raises(SystemExit, match=match):
        main()


def test_a_current_folder_that_is_gone(monkeypatch):
    def gone():
        raise FileNotFoundError(2, "No such file or directory")

    monkeypatch.setattr("os.getcwd", gone)
    monkeypatch.setattr("dendrax.cli._main.app", gone)
    monkeypatch.setattr(sys, "argv", ["dendrax", "data"])
    with pytest.raises(SystemExit, match=r"the current folder does not exist any more"):
        main()
