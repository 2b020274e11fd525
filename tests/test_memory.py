"""What would not fit into memory is refused before it is taken."""

import math
import pathlib

import jax
import jax.numpy as jnp
import pytest

import dendrax
from dendrax import IL, ZIL
from dendrax.support import _memory
from dendrax.support._memory import available_memory, check_memory, in_words, size_of


def loss(w, x):
    return jnp.sum(jnp.tanh(x @ w) ** 2)


ARGS = jnp.ones((3, 3)), jnp.ones((2, 3))


@pytest.mark.parametrize(
    ("rule", "record"),
    [
        (IL(num_steps=2 * 10**9, batch="sum"), "epsilon"),
        (IL(num_steps=2 * 10**9, tol=1e-3, batch="sum"), ("x", "mu")),
        (IL(num_steps=2 * 10**9, batch="sum"), "energy"),
        (ZIL(num_steps=2 * 10**9), "statistics"),
        (ZIL(num_steps=2 * 10**9, gamma=0.5), ()),
    ],
)
def test_records_that_do_not_fit(rule, record, monkeypatch):
    monkeypatch.setattr(_memory, "available_memory", lambda: 1e9)
    graph = dendrax.trace(loss, *ARGS, vertices="primitive")
    with pytest.raises(MemoryError, match=r"run: a record of .* would .*[GT]B(.|\n)*fewer steps"):
        dendrax.run(graph, rule, record=record)


def test_the_bound_is_what_is_available(monkeypatch):
    graph = dendrax.trace(loss, *ARGS, vertices="primitive")
    monkeypatch.setattr(_memory, "available_memory", lambda: 1e4)
    dendrax.run(graph, IL(num_steps=9, batch="sum"), record="energy")
    with pytest.raises(MemoryError, match=r"a record of 1,001 time steps would take .*10 kB are"):
        dendrax.run(graph, IL(num_steps=1000, batch="sum"), record="energy")
    dendrax.run(graph, IL(num_steps=1000, batch="sum"))  # without a record nothing grows


on_linux = pytest.mark.skipif(not pathlib.Path("/proc/meminfo").exists(), reason="no /proc here")


@on_linux
def test_what_is_available():
    available = available_memory()
    assert 1e6 < available < 1e15
    check_memory("this", int(available // 2), remedy="")
    with pytest.raises(MemoryError, match=r"this would take .*, and .* are available\.\n  Try"):
        check_memory("this", int(2 * available), remedy="Try less.")


@on_linux
def test_a_limit_of_the_process(monkeypatch):
    resource = pytest.importorskip("resource")
    monkeypatch.setattr(resource, "getrlimit", lambda which: (5_000_000, 5_000_000))
    assert available_memory() <= 5_000_000


@on_linux
def test_a_limit_of_the_container(monkeypatch, tmp_path):
    """What is in memory of files that were read can be taken."""
    (tmp_path / "memory.max").write_text("10000000\n")
    (tmp_path / "memory.current").write_text("9000000\n")
    (tmp_path / "memory.stat").write_text("anon 1000000\ninactive_file 7000000\n")
    monkeypatch.setattr(_memory, "GROUP", tmp_path)
    assert available_memory() == 8_000_000
    (tmp_path / "memory.max").write_text("max\n")
    assert available_memory() > 8_000_000


def test_what_is_elsewhere_is_not_counted_here(monkeypatch):
    monkeypatch.setattr(jax, "default_backend", lambda: "gpu")
    check_memory("this", 10**30, remedy="")


def test_where_nothing_is_known_nothing_is_refused(monkeypatch):
    monkeypatch.setattr(_memory, "_limits", lambda: iter(()))
    assert available_memory() == math.inf
    check_memory("this", 10**30, remedy="")


def test_sizes():
    shape = jax.ShapeDtypeStruct((3, 4), jnp.float32)
    assert size_of({"a": shape, "b": [jnp.ones(2, jnp.int8)]}) == 50
    assert size_of({}) == 0


@pytest.mark.parametrize(
    ("size", "words"),
    [(0, "0 bytes"), (999, "999 bytes"), (1500, "1.5 kB"), (7.9e9, "7.9 GB"), (3.2e13, "32.0 TB")],
)
def test_words(size, words):
    assert in_words(size) == words
