"""A user's file is a module of its own: it hides no other, and Python finds it by its name."""

import copy
import importlib
import pickle
import random
import sys
import typing

import pytest

from dendrax.named import BadInput, imported

OWN = """
from __future__ import annotations
import dataclasses, random
from beside_it import answer

@dataclasses.dataclass
class Mine:
    count: int = answer
    more: Mine | None = None

def shuffled():
    return random.random()

def late():
    import late_beside_it
    return late_beside_it.answer
"""


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """With a file called ``random.py``, and two beside it; what is loaded is forgotten again."""
    below = tmp_path / "below"
    below.mkdir()
    for name, text in (
        ("random", OWN),
        ("beside_it", "answer = 7"),
        ("late_beside_it", "answer=8"),
    ):
        (below / f"{name}.py").write_text(text)
    before = dict(sys.modules)
    monkeypatch.setattr(sys, "path", [*sys.path])
    monkeypatch.chdir(tmp_path)
    yield below
    for name in {*sys.modules} - {*before}:
        if str(below) in str(getattr(sys.modules[name], "__file__", "")):
            del sys.modules[name]
    importlib.invalidate_caches()


def test_a_file_hides_no_module(folder):
    module = imported("below/random.py")
    assert module is not random and sys.modules["random"] is random
    assert 0 <= module.shuffled() < 1
    assert importlib.import_module("random") is random


def test_the_path_of_imports_stays_in_order(folder):
    before = list(sys.path)
    imported("below/random.py")
    assert sys.path[: len(before)] == before  # what is behind hides nothing
    imported("below/random.py")
    assert len(sys.path) <= len(before) + 2


def test_what_lies_beside_a_file_is_imported(folder):
    module = imported("below/random.py")
    assert module.answer == 7 and module.late() == 8


def test_a_file_beside_comes_before_one_of_the_same_name_elsewhere(folder):
    (folder.parent / "elsewhere").mkdir()
    (folder.parent / "elsewhere" / "beside_it.py").write_text("answer = 0")
    sys.path.insert(0, str(folder.parent / "elsewhere"))
    assert imported("below/random.py").answer == 7


def test_python_finds_what_a_file_defines(folder):
    mine = imported("below/random.py").Mine
    assert pickle.loads(pickle.dumps(mine(3))) == copy.deepcopy(mine(3))
    assert typing.get_type_hints(mine) == {"count": int, "more": mine | None}


def test_a_file_has_the_same_name_however_it_is_reached(folder):
    names = {imported(path).__name__ for path in ("below/random.py", str(folder / "random.py"))}
    (folder.parent / "random.py").write_text("")
    assert len(names) == 1 and imported("random.py").__name__ not in names


def test_a_file_with_dots_in_its_name_is_pickled(folder):
    (folder / "my rule.v2.py").write_text(OWN)
    mine = imported("below/my rule.v2.py").Mine
    assert pickle.loads(pickle.dumps(mine(3))) == mine(3)


def test_a_file_that_fails_leaves_nothing(folder):
    (folder / "broken.py").write_text("1 / 0")
    before = {*sys.modules}
    with pytest.raises(BadInput, match=r"(?s)broken.py' failed: ZeroDivisionError.*broken.py:1"):
        imported("below/broken.py")
    assert {*sys.modules} == before
