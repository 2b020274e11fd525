"""The measurements of the tables and of the sweeps, on small real batches."""

import functools
import pathlib

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import dendrax
from dendrax import IL, ZIL
from dendrax.data import fashion_mnist
from dendrax.models import MLP, FCResNet
from dendrax.paper import Library, Paper
from dendrax.paper._beyond import beyond_cells, error_wave
from dendrax.paper._divergence import RULES, distance_between, divergence_cells
from dendrax.paper._speed import block_ratios, interval, speed_cells
from dendrax.paper._store import Work
from dendrax.paper._subjects import Batch, Subject, described, subjects

WORK = Work(pathlib.Path("unused"))


def images(size, batch=4):
    """Real images, every seventh pixel and so on: small, and not random."""
    found = fashion_mnist()
    pixels = found.train_images[:batch].reshape(batch, -1)[:, :: 784 // size][:, :size]
    target = np.eye(10, dtype=np.float32)[found.train_labels[:batch]]
    return jnp.asarray(pixels / np.float32(255), jnp.float32), jnp.asarray(target)


def subject(row, make, graph="layer"):
    draw = lambda seed: Batch(make(key=jax.random.key(seed)), *images(12))
    return Subject(row, "tiny", described(make), "subset", 4, 0.01, 5, graph, draw)


TINY = {
    "MLP": subject("MLP", functools.partial(MLP, 12, (8, 8), 10)),
    "FC-ResNet": subject("FC-ResNet", functools.partial(FCResNet, 12, 8, 10), "primitive"),
}


def distances(row, dtype="float64"):
    cells = divergence_cells([TINY[row]], list(RULES), seed=0, dtype=dtype)
    return {cell.settings["column"]: cell.measure(WORK)["distance"] for cell in cells}


@pytest.mark.parametrize("dtype", ["float64", pytest.param("float32", marks=pytest.mark.slow)])
def test_table_1_and_3(dtype):
    chain, skips = distances("MLP", dtype), distances("FC-ResNet", dtype)
    for found in (chain, skips):
        assert found["wavefront"] == found["dynamics"] == 0.0
        assert min(found[column] for column in ("timing", "noise", "gamma")) > 1e-4
    assert chain["original"] == 0.0 and skips["original"] > 1e-4


def test_the_distance_is_that_of_updates():
    (cell,) = divergence_cells([TINY["MLP"]], ["timing"], seed=0, dtype="float64")
    model, inputs, target = TINY["MLP"].batch(0, "float64")
    graph = dendrax.trace(lambda m, x: m(x), model, inputs, vertices="layer")
    off = dendrax.run(graph, ZIL(timing="end"), target=target).gradient
    loss = lambda m: jnp.sum((m(inputs) - target) ** 2) / 2
    expected = jax.tree.map(lambda a, b: 0.01 * (a - b), off, jax.grad(loss)(model))
    norm = np.sqrt(sum(float(jnp.sum(leaf**2)) for leaf in jax.tree.leaves(expected)))
    np.testing.assert_allclose(cell.measure(WORK)["distance"], norm, rtol=1e-12)


def test_distance_between():
    a, b = {"w": jnp.array([3.0, 0.0])}, {"w": jnp.array([0.0, 4.0])}
    assert distance_between(a, b) == 5.0 and distance_between(a, None) == 3.0
    assert distance_between(a, a) == 0.0
    assert np.isnan(distance_between(a, {"w": jnp.array([jnp.nan, 0.0])}))


def test_speed_is_measured_for_all_three():
    (cell,) = speed_cells([TINY["MLP"]], seed=0, dtype="float32", seconds=0.05)
    found = cell.measure(WORK)
    assert found["num_pairs"] >= 15
    assert found["il_over_bp"] == pytest.approx(found["il_ms"] / found["bp_ms"])
    assert len(found["block_ratios"]) <= 50 and found["num_il"] >= 2


def test_the_interval_narrows_and_covers():
    """Of 40 made-up machines with a true ratio of 1.01, nearly all say so."""
    generator = np.random.default_rng(0)
    widths, covered = [], 0
    for count in (100, 10_000):
        for _ in range(40):
            noise = generator.lognormal(sigma=0.1, size=(count, 2))
            low, high = interval([block_ratios(noise * [1.0, 1.01])])
            covered += low <= 1.01 <= high
        widths.append(high - low)
    assert covered >= 70 and widths[1] < widths[0] / 5


def test_how_a_model_is_made_is_part_of_what_is_measured():
    """A wider network is another measurement, also under the same name."""
    cells = []
    for width in (8, 9):
        wide = subject("MLP", functools.partial(MLP, 12, (width,), 10, activation=jnp.tanh))
        cells += [*divergence_cells([wide], ["noise"], seed=0, dtype="float64")]
        cells += speed_cells([wide], seed=0, dtype="float32", seconds=1.0)
    assert len({cell.key for cell in cells}) == 4
    assert described(functools.partial(MLP, 3, activation=jnp.tanh)) == "MLP(3, activation=tanh)"


@pytest.mark.slow  # tests/draw/test_pictures.py has it on a small network
def test_the_wave_of_zil_is_a_diagonal():
    model, inputs, target = TINY["FC-ResNet"].batch(0, "float64")
    sizes = np.array(error_wave(lambda m, x: m(x), (model, inputs), target, ZIL()))
    before = np.tril(np.ones_like(sizes, bool), -1)
    assert (sizes[before] == 0.0).all()
    assert (np.diagonal(sizes) > 0.0).all()
    relaxed = np.array(
        error_wave(
            lambda m, x: m(x), (model, inputs), target, IL(num_steps=6, gamma=0.1, batch="sum")
        )
    )
    assert (relaxed[:, 1:] > 0.0).sum() > (sizes[:, 1:7] > 0.0).sum()  # IL's errors leak


@pytest.mark.slow
def test_sweeps():
    cells = beyond_cells(Library(full=False), seed=0, quick=True)
    found = {cell.name: cell.measure(WORK) for cell in cells}
    precise = found["IL by precision: T = 100"]["distances"]
    assert precise == sorted(precise, reverse=True)
    for name in ("γ = 0.05", "γ = 0.2"):
        steps = found[f"IL by steps: {name}"]["distances"]
        assert steps == sorted(steps, reverse=True) and 0 < steps[-1] < steps[0] < 1


def test_without_full_data_and_games_something_is_left_out(tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.delenv("DENDRAX_DATA", raising=False)
    monkeypatch.chdir(tmp_path)
    empty = tmp_path / "none"
    empty.mkdir()
    library = Library(empty)
    rows = {found.row: found.data for found in subjects(library, quick=False)}
    assert rows["MLP"] == rows["ResNet18"] == "FashionMNIST subset (5000 + 1000)"
    missing = "; ".join(Paper(tmp_path, library).missing())
    for text in ("full FashionMNIST", "CIFAR-10", "photographs"):
        assert text in missing
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    assert "RNN" not in {found.row for found in subjects(library, quick=False)}
    assert "ale-py" in "; ".join(Paper(tmp_path, library).missing())


def test_every_measurement_has_a_name_of_its_own(tmp_path):
    for quick in (True, False):
        paper = Paper(tmp_path, Library(full=False), quick=quick)
        for part in ("table1", "table2", "table3", "training", "beyond"):
            keys = [cell.key for cell in paper.cells(part)]
            assert len(set(keys)) == len(keys) > 0
    both = [{c.key for c in paper.cells(part)} for part in ("table1", "table3")]
    assert both[0] & both[1]  # shared, and measured once
