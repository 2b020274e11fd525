"""The folder in which a reader of the documentation would be."""

import sys

import numpy as np
import pytest
from PIL import Image

from tests.documentation.blocks import ROOT, page_blocks

MODEL = """
import jax.numpy as jnp

params, batch = [jnp.ones((3, 2)), jnp.ones((2, 2))], jnp.ones((5, 3))


def loss(params, batch):
    return jnp.mean((jnp.tanh(batch @ params[0]) @ params[1]) ** 2)
"""


@pytest.fixture
def readers_folder(tmp_path, monkeypatch):
    """The files that the documentation speaks of, and the plan that it shows."""
    monkeypatch.chdir(tmp_path)
    (plan,) = page_blocks(ROOT / "docs" / "training.md", "toml")
    (tmp_path / "plan.toml").write_text(plan.code)
    (tmp_path / "model.py").write_text(MODEL)
    (tmp_path / "notes.txt").write_text("Call me Ishmael. " * 200)
    (tmp_path / "script.py").write_text("import sys\n\nsys.exit(0)\n")
    for name in ("cat", "dog"):
        folder = tmp_path / "imagenet" / "val" / name
        folder.mkdir(parents=True)
        for k in range(10):
            Image.fromarray(np.full((8, 8, 3), k, np.uint8)).save(folder / f"{k}.png")
    monkeypatch.setattr(sys, "path", [*sys.path])
    yield tmp_path
    sys.modules.pop("model", None)
