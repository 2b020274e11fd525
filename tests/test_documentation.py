"""The code of the pages about training and placement runs."""

import importlib.util
import pathlib

import jax
import pytest

ROOT = pathlib.Path(__file__).resolve().parents[1]


def _code_blocks(page):
    spec = importlib.util.spec_from_file_location("make_pictures", ROOT / "tools/make_pictures.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.code_blocks(page)


@pytest.mark.parametrize("name", ["training.md", "placement.md"])
def test_the_code_of_a_page_runs(name, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    blocks = _code_blocks(ROOT / "docs" / name)
    assert blocks
    for block in blocks:
        with jax.enable_x64(False), jax.numpy_dtype_promotion("standard"):
            exec(compile(block, name, "exec"), {"__name__": "__main__"})
