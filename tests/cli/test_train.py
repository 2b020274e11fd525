"""``dendrax train``, as a user meets it."""

import json
import subprocess
import sys

import jax
import pytest

from tests.train.launcher import in_two, with_mpiexec

SHORT = ("--model", "mlp(hidden_sizes=[8])", "--steps", 6, "--batch-size", 20)


@pytest.fixture(autouse=True)
def usual_types():
    with jax.enable_x64(False), jax.numpy_dtype_promotion("standard"):
        yield


def test_a_run_and_its_folder(dendrax, tmp_path):
    out = tmp_path / "run"
    shown = dendrax("train", *SHORT, "--out", out)
    assert shown.code == 0, shown.stderr
    assert "mlp learns fashion_mnist by ZIL()" in shown.stderr
    assert "test accuracy" in shown.stderr and str(out / "last") in shown.stderr
    lines = [json.loads(line) for line in (out / "metrics.jsonl").read_text().splitlines()]
    assert {"step", "loss", "test_loss", "test_accuracy", "updates_per_second"} <= set(lines[-1])
    assert (out / "curves.svg").read_text().startswith("<?xml")

    assert "holds a run already" in dendrax("train", *SHORT, "--out", out).stderr
    longer = dendrax("train", "--resume", "--steps", 8, "--out", out)
    assert longer.code == 0
    lines = [json.loads(line) for line in (out / "metrics.jsonl").read_text().splitlines()]
    assert lines[-1]["step"] == 8 and (out / "last" / "8").is_dir()
    other = dendrax("train", "--resume", "--seed", 3, "--out", out)
    assert other.code == 1 and "a run with seed = 0, and this one has 3" in other.stderr


@pytest.mark.parametrize(
    ("words", "text"),
    [
        (("--rule", "ILL"), "no rule 'ILL'. Did you mean 'IL'"),
        (("--model", "transformer"), "learns from tokens, and these data are images"),
        (("--model", "nowhere.py:build"), "there is no file nowhere.py"),
        (("plan.toml",), "cannot read plan.toml"),
        (("--batch-size", "0"), "batch_size=0 must be an integer"),
        (("--steps", "2", "--monitor", "beauty"), "monitor='beauty' is not measured"),
    ],
)
def test_mistakes_in_a_few_lines(dendrax, tmp_path, monkeypatch, words, text):
    monkeypatch.chdir(tmp_path)
    shown = dendrax("train", "--out", tmp_path / "run", *words)
    assert shown.code == 1
    assert text in shown.stderr and "Traceback" not in shown.stderr


def test_a_model_of_ones_own_that_fails_is_told_with_its_line(dendrax, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "own.py").write_text("def build(key):\n    return 1 / 0\n")
    shown = dendrax("train", "--model", "own.py:build", "--out", tmp_path / "run")
    assert shown.code == 1
    assert "ZeroDivisionError" in shown.stderr and "own.py:2" in shown.stderr


def test_help_explains(dendrax):
    shown = dendrax("train", "--help")
    assert "Ctrl-C saves and exits" in shown.stdout and "--resume" in shown.stdout


@pytest.mark.parametrize(
    ("words", "text"),
    [
        (("--cluster",), "no launcher started this process that JAX knows by itself"),
        (("--cluster", "--resume"), "no launcher started this process"),
        (("--cluster", "plan.toml"), "no launcher started this process"),
        (("--cluster", "slurm"), "no launcher started this process, as far as 'slurm' can tell"),
        (("--cluster", "slrum"), "JAX knows no launcher 'slrum'. Did you mean 'slurm'?"),
        (("--coordinator", "host:1"), "coordinator, num_processes and process_id go together"),
        (("--process-id", 0, "--cluster", "slurm"), "'slurm' says who is who, and 0 was said, too"),
    ],
)
def test_mistakes_about_peers(dendrax, tmp_path, words, text):
    shown = dendrax("train", "--out", tmp_path / "run", *words)
    assert shown.code == 1 and text in shown.stderr
    assert not (tmp_path / "run").exists()


def test_launch_is_gone(dendrax):
    shown = dendrax("launch", "-n", 2, "dendrax", "train")
    assert shown.code == 2
    assert "no command 'launch' any more" in shown.stderr
    assert "mpiexec -n 2 dendrax train --cluster mpi4py" in shown.stderr


@with_mpiexec
def test_two_processes_are_one_run(tmp_path):
    """And what one of them cannot do ends both."""
    command = in_two([sys.executable, "-m", "dendrax.cli", "train", *map(str, SHORT)])
    command += ["--out", str(tmp_path / "run"), "--cluster", "mpi4py"]
    first, second = (
        subprocess.run(command, capture_output=True, text=True, timeout=120) for _ in range(2)
    )
    assert first.returncode == 0 and "in 2 processes" in first.stderr, first.stderr
    assert second.returncode == 1 and "holds a run already" in second.stderr


def test_there_is_nothing_to_go_on_with(dendrax, tmp_path):
    """A typo in --out does not begin a run of something else."""
    shown = dendrax("train", "--resume", "--out", tmp_path / "nothere")
    assert shown.code == 1 and "nothere to go on with" in shown.stderr
    assert "what is to begin there: a plan, or --model" in shown.stderr
    assert not (tmp_path / "nothere").exists()
