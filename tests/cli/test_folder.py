"""The folder of ``--out``: an earlier run's is gone on from, and others' is not touched."""

import pytest


def contents(folder):
    """Every file below a folder, and every folder."""
    return {
        path.relative_to(folder).as_posix(): path.read_bytes() if path.is_file() else None
        for path in folder.rglob("*")
    }


FOREIGN = {
    "a file": {"notes.txt": "mine"},
    "a hidden file": {".notes": "mine"},
    "a table": {"table1-float64.csv": "mine"},
    "a report": {"report.html": "mine", "report.md": "mine"},
    "results of others": {"results.json": '{"accuracy": 1}'},
    "results of others that look damaged": {"results.json": "mine"},
    "work of others": {"work/thesis.tex": "mine", "report.md": "mine"},
    "a file that is called work": {"work": "mine"},
}


@pytest.mark.parametrize("command", [("paper", "table1"), ("demo",)])
@pytest.mark.parametrize("name", FOREIGN)
def test_a_folder_of_others_is_refused_and_not_touched(small, dendrax, tmp_path, command, name):
    for path, text in FOREIGN[name].items():
        (tmp_path / path).parent.mkdir(exist_ok=True)
        (tmp_path / path).write_text(text)
    before = contents(tmp_path)
    shown = dendrax(*command, "--out", tmp_path)
    assert shown.code == 1 and shown.stdout == ""
    assert shown.stderr == (
        f"dendrax: {tmp_path} is not empty, and no run of dendrax has written to it. Choose "
        "another folder with --out.\n"
    )
    assert contents(tmp_path) == before


@pytest.mark.parametrize("name", ["new", "new/below/that", "empty"])
def test_a_new_folder_is_made(small, dendrax, tmp_path, name):
    (tmp_path / "empty").mkdir()
    assert dendrax("paper", "table1", "--out", tmp_path / name).code == 0
    assert (tmp_path / name / "report.html").is_file()


def test_an_earlier_run_may_have_stopped_before_its_first_measurement(small, dendrax, tmp_path):
    (tmp_path / "work").mkdir()
    assert dendrax("paper", "table1", "--out", tmp_path).code == 0


@pytest.mark.parametrize("lost", ["work", "report"])
def test_half_of_an_earlier_run_is_enough(small, dendrax, tmp_path, lost):
    """A report whose measurements were cleared away; measurements whose report was."""
    assert dendrax("paper", "table1", "--out", tmp_path).code == 0
    old = [tmp_path / "results.json", tmp_path / "report.md", tmp_path / "report.html"]
    for path in (tmp_path / "work").glob("*") if lost == "work" else old:
        path.unlink()
    if lost == "work":
        (tmp_path / "work").rmdir()
    assert dendrax("paper", "table1", "--out", tmp_path).code == 0


def test_a_users_own_files_in_the_folder_of_a_run_survive(small, dendrax, tmp_path):
    assert dendrax("paper", "table1", "--out", tmp_path).code == 0
    mine = {"mine.csv": b"1,2", "notes.txt": b"mine", "plots/mine.svg": b"<svg/>"}
    for name, content in mine.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_bytes(content)
    dendrax("paper", "all", "--out", tmp_path)
    after = contents(tmp_path)
    assert {name: after.get(name) for name in mine} == mine


@pytest.mark.parametrize("name", ["file", "file/below", "file/far/below"])
def test_a_folder_that_cannot_be_written(small, dendrax, tmp_path, name):
    (tmp_path / "file").write_text("mine")
    shown = dendrax("paper", "table1", "--out", tmp_path / name)
    assert shown.code == 1 and shown.stdout == ""
    assert shown.stderr.startswith(f"dendrax: cannot write to {tmp_path / name}: ")
    assert shown.stderr.endswith(". Choose another folder with --out.\n")
    assert contents(tmp_path) == {"file": b"mine"}


def test_a_folder_without_the_right_to_write(small, dendrax, tmp_path, monkeypatch):
    """By a fake: tests may run as root, who may write everywhere."""

    def refuse(self, *args, **kwargs):
        raise PermissionError(13, "Permission denied", str(self))

    monkeypatch.setattr("pathlib.Path.mkdir", refuse)
    shown = dendrax("paper", "table1", "--out", tmp_path / "new")
    assert shown.code == 1 and shown.stdout == "" and "Permission denied" in shown.stderr
