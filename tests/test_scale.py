"""The benchmark that trains GPT-2 small, on a model of a few thousand parameters."""

import dataclasses
import shutil
import sys
from collections.abc import Iterator

import jax
import numpy as np
import pytest
from rich.console import Console

from benchmarks import gpt2, scale
from benchmarks.scale import CONTESTANTS, Report, Setup, differences, launch
from benchmarks.scale_worker import checksum, train

SETUP = Setup(sizes=gpt2.Sizes(1, 16, 2, 32, 100, 16), batch=2, context=8, num_updates=3)
TINY = [
    *("--num-layers=1", "--d-model=16", "--num-heads=2", "--hidden-size=32"),
    *("--vocab-size=100", "--num-positions=16", "--context=8", "--updates=3"),
]


@pytest.fixture(autouse=True)
def as_in_the_benchmark(strict_dtypes: None) -> Iterator[None]:
    with jax.enable_x64(False), jax.numpy_dtype_promotion("standard"):
        yield


@pytest.fixture(scope="module")
def reports() -> dict[str, Report]:
    with jax.enable_x64(False), jax.numpy_dtype_promotion("standard"):
        return {name: _train(SETUP, name) for name in CONTESTANTS}


@pytest.fixture(scope="module")
def other() -> Report:
    """Z-IL from another start, on other texts."""
    with jax.enable_x64(False), jax.numpy_dtype_promotion("standard"):
        return _train(dataclasses.replace(SETUP, seed=1), "zil")


def _train(setup: Setup, contestant: str) -> Report:
    return train(setup, contestant, lambda text: None)


def test_the_sizes_are_those_of_gpt2_small():
    shapes = jax.eval_shape(lambda key: gpt2.initial(gpt2.Sizes(), key), jax.random.key(0))
    assert sum(leaf.size for leaf in jax.tree.leaves(shapes)) == 124_439_808


def test_the_novel_is_numbered_by_frequency():
    tokens = gpt2.novel(50257)
    counts = np.bincount(tokens)
    assert (np.diff(counts) <= 0).all() and counts[-1] >= 1
    np.testing.assert_array_equal(gpt2.novel(100), np.minimum(tokens, 99))


@pytest.mark.slow
def test_no_position_sees_the_future():
    weights = gpt2.initial(SETUP.sizes, jax.random.key(0))
    tokens = np.arange(8)[None]
    other = np.where(tokens < 5, tokens, 50)
    logits = jax.jit(gpt2._logits, static_argnums=(2, 3))
    a, b = (logits(weights, x, 2, False) for x in (tokens, other))
    assert (a[:, :5] == b[:, :5]).all() and (a[:, 5:] != b[:, 5:]).any()


def test_every_contestant_learns_the_same_bits(reports: dict[str, Report]):
    assert differences(reports) == []
    assert len({report.weights for report in reports.values()}) == 1
    assert len(set(reports["zil"].losses)) == SETUP.num_updates


@pytest.mark.slow
def test_remat_learns_the_same_bits():
    setup = dataclasses.replace(SETUP, remat=True)
    assert differences({name: _train(setup, name) for name in ("jax", "zil")}) == []


def test_the_comparison_fails_for_another_seed(reports: dict[str, Report], other: Report):
    found = differences({**reports, "zil": other})
    assert any("the loss of update 1 is" in text for text in found)
    assert any("the weights after the last update" in text for text in found)


def test_the_comparison_fails_for_the_last_bit_of_one_loss(reports: dict[str, Report]):
    *losses, last = reports["zil"].losses
    nearest = float(np.nextafter(np.float32(last), np.float32(0)))
    other = dataclasses.replace(reports["zil"], losses=[*losses, nearest])
    assert differences({**reports, "zil": other}) == [
        f"ZIL() differs from JAX: the loss of update 3 is {nearest!r}, not {last!r}."
    ]


def test_losses_that_are_not_finite_prove_nothing(reports: dict[str, Report]):
    broken = dataclasses.replace(reports["jax"], losses=[float("inf")] * 3)
    assert "not finite" in differences(dict.fromkeys(CONTESTANTS, broken))[0]


@pytest.mark.parametrize("place", ["first", "second"])
def test_the_checksum_sees_one_bit(place: str):
    tree = {"first": np.ones(3, np.float32), "second": np.ones((2, 2), np.float32)}
    changed = {name: leaf.copy() for name, leaf in tree.items()}
    changed[place].flat[-1] = np.nextafter(np.float32(1), np.float32(2))
    assert checksum(tree) != checksum(changed)
    assert checksum(tree) == checksum({name: leaf.copy() for name, leaf in tree.items()})


@pytest.mark.slow
def test_a_process_reports_what_was_learned(
    reports: dict[str, Report], capsys: pytest.CaptureFixture[str]
):
    report = launch(SETUP, "zil", Console(stderr=True))
    assert differences({**reports, "zil": report}) == []
    assert report.resident_bytes > report.temporary_bytes > 0
    assert "ZIL(): update 3 of 3, loss" in capsys.readouterr().err


def test_a_process_that_dies_is_an_error(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(sys, "executable", shutil.which("false"))
    with pytest.raises(ChildProcessError, match=r"BP\(\) ended without a report \(exit code 1;"):
        launch(SETUP, "bp", Console(stderr=True))


@pytest.mark.parametrize("code", [0, 1])
def test_the_exit_code(
    code: int,
    reports: dict[str, Report],
    other: Report,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
):
    def instead(setup: Setup, contestant: str, progress: Console) -> Report:
        assert setup == SETUP
        return other if code and contestant == "zil" else reports[contestant]

    monkeypatch.setattr(scale, "launch", instead)
    assert scale.main(TINY) == code
    printed = capsys.readouterr().out
    assert ("bit by bit" in printed) == (code == 0)
    assert ("ZIL() differs from JAX" in printed) == (code == 1)
    assert reports["jax"].weights[:12] in printed


@pytest.mark.parametrize(
    "arguments, message",
    [
        (["--context=17"], "--context 17 exceeds --num-positions 16"),
        (["--updates=0"], "--updates must be at least 1, not 0"),
        (["--num-heads=3"], "--d-model 16 is no multiple of --num-heads"),
    ],
)
def test_arguments_that_do_not_fit(
    arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]
):
    with pytest.raises(SystemExit):
        scale.main([*TINY, *arguments])
    assert message in capsys.readouterr().err
