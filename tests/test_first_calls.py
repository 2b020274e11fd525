"""The benchmark of first calls, on a ResNet50 of a few channels."""

import dataclasses
import io
import pathlib
import shutil
import sys
from collections.abc import Iterator

import jax
import pytest
from rich.console import Console

from benchmarks import first_calls, resnet50
from benchmarks.first_call_worker import GRADIENTS, measure
from benchmarks.first_calls import FirstCall, launch, run, summary, table, turns

CALLS = {
    "dendrax": [FirstCall(a, 4.0, 1.0, "same") for a in (1.0, 3.0, 100.0)],
    "jax": [FirstCall(a, 2.0, 0.5, "same") for a in (1.5, 0.0, 50.0)],
}


@pytest.fixture
def as_in_the_benchmark(strict_dtypes: None) -> Iterator[None]:
    with jax.enable_x64(False), jax.numpy_dtype_promotion("standard"):
        yield


def test_resnet50_has_its_parameters_and_its_shapes():
    p = resnet50.problem()
    assert sum(leaf.size for leaf in jax.tree.leaves(p.model)) == 25_557_032
    assert len(p.model.blocks) == 16
    assert jax.eval_shape(p.predict, p.model, p.inputs).shape == p.target.shape == (2, 1000)
    image = jax.ShapeDtypeStruct((2, 16, 16, 256), "float32")
    assert jax.eval_shape(p.model.blocks[3], image).shape == (2, 8, 8, 512)


@pytest.mark.slow
def test_both_libraries_find_the_same_bits(as_in_the_benchmark: None):
    p = resnet50.problem(width=2, num_classes=5, pixels=32)
    found = [measure(p, library) for library in GRADIENTS]
    assert len({call.digest for call in found}) == 1
    assert all(min(call.lowering, call.compiling, call.running) > 0 for call in found)


def test_the_order_changes_with_each_round():
    assert turns(3) == ["jax", "dendrax", "dendrax", "jax", "jax", "dendrax"]


def test_the_summary_has_ratios_of_medians():
    row = summary("a model", CALLS)
    assert (row.seconds, row.jax_seconds, row.num_runs) == (8.0, 4.0, 3)
    assert (row.ratio, row.lowering_ratio, row.compile_ratio) == (2.0, 2.0, 2.0)


def test_one_other_bit_is_seen():
    assert summary("a model", CALLS).same_bits
    other = [dataclasses.replace(CALLS["jax"][0], digest="other"), *CALLS["jax"][1:]]
    assert not summary("a model", {**CALLS, "jax": other}).same_bits


def test_the_table_shows_every_model(monkeypatch: pytest.MonkeyPatch):
    left = {library: iter(2 * calls) for library, calls in CALLS.items()}
    monkeypatch.setattr(first_calls, "launch", lambda name, library: next(left[library]))
    console = Console(file=io.StringIO(), width=120, record=True)
    console.print(table(run(console, 3)))
    printed = console.export_text()
    assert all(name in printed for name in first_calls.MODELS)
    assert "2.000" in printed and "at most 1.15" in printed


@pytest.mark.slow
def test_a_process_neither_reads_nor_writes_compiled_programs(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("JAX_COMPILATION_CACHE_DIR", str(tmp_path))
    monkeypatch.setenv("JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS", "0")
    monkeypatch.setenv("JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES", "-1")
    found = {launch("mlp", library).digest for library in ("dendrax", "jax")}
    assert len(found) == 1
    assert list(tmp_path.iterdir()) == []


def test_a_process_that_dies_is_an_error(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(sys, "executable", shutil.which("false"))
    with pytest.raises(ChildProcessError, match="calls resnet50 by jax ended with exit code 1"):
        launch("resnet50", "jax")
