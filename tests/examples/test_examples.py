"""The scripts in examples/ run, show pictures, and reach what they claim.

In `make test` with a few images, in `make test-all` as they stand.
"""

import contextlib
import importlib
import pathlib
import signal
import subprocess
import sys
from collections.abc import Iterator
from types import ModuleType
from typing import Any

import jax
import numpy as np
import pytest
from PIL import Image

EXAMPLES = pathlib.Path(__file__).resolve().parents[2] / "examples"
SCRIPTS = ("generative", "memory", "label_inference", "completion", "inpainting")


@contextlib.contextmanager
def imported(name: str) -> Iterator[ModuleType]:
    """A script as Python finds it from its folder, with JAX as it is outside of the tests."""
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(EXAMPLES)
        with jax.enable_x64(False), jax.numpy_dtype_promotion("standard"):
            yield importlib.import_module(name)
        for module in (*SCRIPTS, "decoder"):
            sys.modules.pop(module, None)


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> pathlib.Path:
    """Where the trained network is kept for the scripts that share it."""
    return tmp_path_factory.mktemp("out")


def run(name: str, folder: pathlib.Path, *options: str) -> Any:
    with imported(name) as script:
        return script.main(["--out", str(folder), *options])


def check_picture(path: pathlib.Path) -> None:
    """A picture with something on it, on white."""
    with Image.open(path) as picture:
        assert picture.format == "PNG"
        pixels = np.asarray(picture.convert("L"))
    assert min(pixels.shape) > 150 and max(pixels.shape) < 2000
    assert pixels.max() == 255 and pixels.min() < 100
    assert np.mean(pixels == 255) > 0.2


# ---- a few images --------------------------------------------------------------------------------


def test_generative(folder, capsys):
    errors = run("generative", folder, "--tiny")
    assert errors["20 latents, decoded"] < 0.5 * errors["mean image"]
    check_picture(folder / "generative.png")
    printed = capsys.readouterr().out
    assert "500 images" in printed
    for name, error in errors.items():
        assert f"{name} {error:.4f}" in " ".join(printed.split())


def test_memory(folder):
    found = run("memory", folder, "--tiny")
    assert found["energy of an image, last"] < 0.1 * found["energy of an image, first"]
    assert found["completed"] < 0.1 * found["mean image"]
    assert found["identified"] == 20
    check_picture(folder / "memory.png")


def test_label_inference(folder):
    found = run("label_inference", folder, "--tiny")
    assert found["forward pass"] > 0.5
    assert abs(found["label inferred"] - found["forward pass"]) <= 0.01
    check_picture(folder / "label_inference.png")


@pytest.mark.parametrize(("name", "pieces"), [("completion", 4), ("inpainting", 4)])
def test_what_is_missing_is_found(name, pieces, folder):
    errors = run(name, folder, "--tiny")
    assert len(errors) == pieces
    for mean, _, found in errors.values():
        assert found < 0.8 * mean
    check_picture(folder / f"{name}.png")


# ---- what the scripts share ----------------------------------------------------------------------


def test_masked_pixels_are_not_seen():
    """Whatever they hold, the latents are the same."""
    with imported("decoder") as decoder:
        images = np.random.default_rng(0).random((3, 784), np.float32)
        weights = decoder.new_weights((4, 6, 784), images)
        mask = np.broadcast_to(np.arange(784) < 300, images.shape)
        rule = decoder.QUICK
        found = [
            decoder.infer(weights, np.where(mask, images, rest), mask, rule=rule).args[1]
            for rest in (np.float32("nan"), np.float32(0.0))
        ]
        assert np.isfinite(found[0]).all() and np.any(found[0] != 0)
        np.testing.assert_array_equal(*found)


def test_weights_that_are_kept_are_used_again(tmp_path, capsys):
    with imported("decoder") as decoder:
        args = decoder.arguments("", ["--out", str(tmp_path / "new"), "--tiny"])
        data = decoder.load_images(True)
        weights = decoder.new_weights(decoder.WIDTHS, data.train)
        path = args.out / "decoder-tiny.npz"
        decoder.write_weights(path, weights)
        jax.tree.map(np.testing.assert_array_equal, decoder.trained(args, data), weights)
        assert f"The weights of {path}" in capsys.readouterr().out
        assert [file.name for file in args.out.iterdir()] == [path.name]


@pytest.mark.parametrize("content", [b"", b"no archive", b"PK\x03\x04 half of one"])
def test_a_damaged_file_is_made_anew(content, tmp_path, capsys):
    with imported("decoder") as decoder:
        (tmp_path / "decoder.npz").write_bytes(content)
        assert decoder._read_weights(tmp_path / "decoder.npz") is None
    assert "cannot be read, and is made anew" in capsys.readouterr().out


def test_principal_components_are_the_conditional_mean():
    """That of a Gaussian with the components' covariance, and the rest on the diagonal."""
    with imported("decoder") as decoder:
        generator = np.random.default_rng(0)
        images = generator.random((30, 3)) @ generator.random((3, 12)) + generator.random((30, 12))
        pca = decoder.principal_components(images, 3)
        covariance = pca.axes * pca.variances @ pca.axes.T
        half = np.arange(12) < 6
        within = covariance[half][:, half] + pca.rest * np.eye(6)
        gain = covariance[:, half] @ np.linalg.inv(within)
        expected = pca.mean + (images - pca.mean)[:, half] @ gain.T
        np.testing.assert_allclose(pca.complete(images, half), expected, rtol=1e-8)
        spanned = pca.project(images)
        np.testing.assert_allclose(pca.project(spanned), spanned, rtol=1e-8)


@pytest.mark.parametrize("name", SCRIPTS)
def test_help(name, capsys):
    with imported(name) as script, pytest.raises(SystemExit) as done:
        script.main(["--help"])
    assert done.value.code == 0
    printed = capsys.readouterr().out
    assert "--out FOLDER" in printed and "--tiny" in printed and script.__doc__[:40] in printed


def test_a_folder_that_is_a_file_is_refused(tmp_path, capsys):
    (tmp_path / "file").write_text("")
    with pytest.raises(SystemExit) as done:
        run("memory", tmp_path / "file", "--tiny")
    assert done.value.code == 2
    assert "File exists" in capsys.readouterr().err


def test_without_the_full_set_the_subset_is_taken(monkeypatch, capsys):
    def not_here(full: bool = False) -> Any:
        if full:
            raise FileNotFoundError("not here")
        return subset

    with imported("decoder") as decoder:
        subset = decoder.fashion_mnist()
        monkeypatch.setattr(decoder, "fashion_mnist", not_here)
        assert len(decoder.load_images(False).train) == 5000
    assert "not on this machine" in capsys.readouterr().out


def test_ctrl_c_ends_a_script_in_one_line(tmp_path):
    command = [sys.executable, str(EXAMPLES / "memory.py"), "--out", str(tmp_path)]
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
    assert process.stderr is not None
    assert process.stderr.readline() == "learning: 3000 updates\n"
    process.send_signal(signal.SIGINT)
    _, said = process.communicate(timeout=60)
    assert process.returncode == 130
    assert said == "Interrupted.\n"
    assert not list(tmp_path.iterdir())


# ---- as they stand -------------------------------------------------------------------------------


@pytest.mark.slow
def test_generative_in_full(folder):
    """With all of FashionMNIST a sixth better than principal components."""
    errors = run("generative", folder)
    assert errors["20 latents, decoded"] < 0.88 * errors["20 principal components"]


@pytest.mark.slow
def test_generative_by_local_steps_in_full(folder):
    """About as good as principal components."""
    errors = run("generative", folder, "--local")
    assert errors["20 latents, decoded"] < 1.05 * errors["20 principal components"]


@pytest.mark.slow
def test_memory_in_full(folder):
    found = run("memory", folder)
    assert found["completed"] < 0.005
    assert found["mean image"] > 0.08
    assert found["identified"] == 100


@pytest.mark.slow
def test_label_inference_in_full(folder):
    found = run("label_inference", folder)
    assert found["forward pass"] > 0.8
    assert abs(found["label inferred"] - found["forward pass"]) <= 0.01


@pytest.mark.slow
@pytest.mark.parametrize("name", ["completion", "inpainting"])
def test_what_is_missing_is_found_in_full(name, folder):
    """Better than by principal components, whatever is missing."""
    for mean, linear, found in run(name, folder).values():
        assert found < 0.98 * linear and found < 0.5 * mean
