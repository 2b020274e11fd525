"""Lines for the shell in README.md, CONTRIBUTING.md, docs/*.md and the help: they can be typed."""

import shlex

import jax
import pytest
from typer.testing import CliRunner

from dendrax import train
from dendrax.cli._main import app
from tests.documentation.blocks import PAGES
from tests.documentation.shell import check_line, help_lines, shell_lines

LINES = [line for page in PAGES for line in shell_lines(page)] + help_lines()


@pytest.mark.parametrize("line", LINES, ids=str)
def test_lines_name_what_is_there(line):
    check_line(line.code)


def test_pages_and_help_are_read():
    places = {line.where for line in LINES if line.code.startswith("dendrax ")}
    assert places >= {"docs/reference.md", "docs/training.md", "dendrax train --help"}
    assert len(LINES) > 60


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ("dendrax trian --out runs/one", "no command dendrax trian"),
        ("dendrax train --modle cnn", "No such option.*--modle"),
        ("dendrax train --epochs three", "'--epochs': .*valid integer"),
        ("dendrax paper table9", "'table9' is not one of"),
        ("dendrax show", "Missing argument"),
        ("mpiexec -n 2 dendrax train --modle cnn", "No such option.*--modle"),
        ("srun --ntasks=2 dendrax train --modle cnn", "No such option.*--modle"),
        ("XLA_FLAGS=--one dendrax shwo loss", "no command dendrax shwo"),
        ("pip install . && make tset", "no target tset"),
        ('pip install "dendrax[tarin]"', "no extra 'tarin'"),
        ("python -m pytest tests/test_nothing.py", "there is no tests/test_nothing.py"),
        ("conda install dendrax", "nothing is known of 'conda'"),
        ("# only a comment", "nothing is known of ''"),
    ],
)
def test_wrong_lines_are_found(wrong, message):
    with pytest.raises(ValueError, match=message):
        check_line(wrong)


# ---- lines that are run --------------------------------------------------------------------------


def typed(start: str) -> list[str]:
    """What is typed of the lines in which these words occur, from there on."""
    words = [line.code[line.code.index(start) :] for line in LINES if start in line.code]
    return sorted({shlex.join(shlex.split(line, comments=True)) for line in words})


def run(line: str) -> str:
    """What a line of dendrax prints; it must succeed."""
    with jax.enable_x64(False), jax.numpy_dtype_promotion("standard"):
        done = CliRunner().invoke(app, shlex.split(line)[1:])
    assert done.exit_code == 0, done.output
    return done.output


@pytest.mark.parametrize(
    ("line", "printed"),
    [
        (typed("dendrax data")[0], "found   fashion_mnist()"),
        (typed("dendrax show model.py:loss")[0], "params[0]"),
        (typed("dendrax explore model.py:loss")[0], "The page: explorer.html"),
    ],
    ids=str,
)
def test_lines_that_are_run(line, printed, readers_folder):
    assert printed in run(line)


@pytest.fixture
def no_training(monkeypatch, readers_folder):
    """A run that ends before its first update, one to go on with, and processes to connect to."""

    def fit(model, *args, **kwargs):
        return train.Fitted(model, None, [], 0, 0, "finished")

    monkeypatch.setattr("dendrax.train._plan.fit", fit)
    monkeypatch.setattr("dendrax.train.connect", lambda method: None)
    monkeypatch.setattr("dendrax.train.plan_of_run", lambda folder, said: {"model": "cnn"})


@pytest.mark.parametrize("line", typed("dendrax train "), ids=str)
def test_lines_of_training_are_run_up_to_the_training(line, no_training):
    """Models, data, rules, optimizers, schedules and settings of that name are there."""
    assert "The checkpoints: " in run(line)


def test_a_line_of_training_with_a_wrong_name_fails(no_training):
    with pytest.raises(AssertionError, match="cnnn"):
        run("dendrax train --model cnnn")
