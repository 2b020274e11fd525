"""Ctrl-C: it stops the run wherever it arrives, and the handler before it comes back."""

import contextlib
import gc
import signal
import threading

import pytest
from rich.console import Console

from dendrax.paper._run import _Interrupts, finished, run_cells
from dendrax.paper._store import Cell, Store

QUIET = Console(quiet=True)


def press():
    """Ctrl-C."""
    signal.raise_signal(signal.SIGINT)


def swallow():
    """Ctrl-C in code that loses what is raised."""
    with contextlib.suppress(KeyboardInterrupt):
        press()


def cell(name, action=lambda work: None):
    def measure(work):
        action(work)
        return {"value": name}

    return Cell("test", name, {}, measure)


@pytest.fixture(autouse=True)
def handler():
    """One of the caller's own, that must be there afterwards."""

    def own(*_):
        raise AssertionError("Ctrl-C came to the wrong handler")

    before = signal.signal(signal.SIGINT, own)
    yield own
    assert signal.getsignal(signal.SIGINT) is own
    signal.signal(signal.SIGINT, before)


def run(tmp_path, *cells):
    return run_cells(cells, Store(tmp_path), QUIET)


def names(tmp_path, *cells):
    return [found.name for found in finished(cells, Store(tmp_path))]


def test_the_handler_before_comes_back_after_a_run(tmp_path):
    assert len(run(tmp_path, cell("a"), cell("b"))) == 2  # the fixture looks at the handler


def test_the_handler_before_comes_back_after_an_error(tmp_path):
    def fail(work):
        raise ValueError("no data")

    with pytest.raises(ValueError, match="no data"):
        run(tmp_path, cell("a", fail))


def test_an_interrupt_stops_at_once(tmp_path):
    after = []
    cells = cell("a"), cell("b", lambda work: (press(), after.append("b"))), cell("c")
    with pytest.raises(KeyboardInterrupt):
        run(tmp_path, *cells)
    assert names(tmp_path, *cells) == ["a"] and not after


def test_a_swallowed_interrupt_stops_before_the_next_measurement(tmp_path):
    """The measurement that lost it is whole, and kept."""
    cells = cell("a", lambda work: swallow()), cell("b"), cell("c")
    with pytest.raises(KeyboardInterrupt):
        run(tmp_path, *cells)
    assert names(tmp_path, *cells) == ["a"]
    assert [found.name for found in run(tmp_path, cell("a"), *cells[1:])] == ["a", "b", "c"]


def test_a_swallowed_interrupt_stops_a_long_measurement_where_it_reports(tmp_path):
    heard = []

    def long(work):
        for i in range(4):
            work.on_progress(i / 4, f"step {i}")
            heard.append(i)
            if i == 1:
                swallow()

    with pytest.raises(KeyboardInterrupt):
        run(tmp_path, cell("a", long))
    assert heard == [0, 1] and names(tmp_path, cell("a")) == []


def test_an_interrupt_that_is_lost_when_garbage_is_collected(tmp_path):
    """As in JAX: what is raised in a finalizer goes nowhere."""

    class Garbage:
        def __del__(self):
            swallow()

    def leave(work):
        garbage = Garbage()
        garbage.itself = garbage
        del garbage
        gc.collect()

    with pytest.raises(KeyboardInterrupt):
        run(tmp_path, cell("a", leave), cell("b"))


def test_a_second_interrupt_is_one_too(tmp_path):
    """Also while the first one is cleaned up after."""
    cleaned = []

    def stubborn(work):
        try:
            press()
        finally:
            cleaned.append("once")
            press()
            cleaned.append("never")

    with pytest.raises(KeyboardInterrupt):
        run(tmp_path, cell("a", stubborn), cell("b"))
    assert cleaned == ["once"] and names(tmp_path, cell("a"), cell("b")) == []


def test_an_interrupt_of_an_earlier_run_is_forgotten(tmp_path):
    with pytest.raises(KeyboardInterrupt):
        run(tmp_path, cell("a", lambda work: press()))
    assert len(run(tmp_path, cell("a"), cell("b"))) == 2


def test_check_raises_what_was_lost():
    with _Interrupts() as interrupts:
        interrupts.check()
        swallow()
        for _ in range(2):
            with pytest.raises(KeyboardInterrupt):
                interrupts.check()


def test_who_ignores_interrupts_goes_on_ignoring_them(tmp_path, handler):
    """So does what a shell script starts in the background."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        found = run(tmp_path, cell("a", lambda work: press()), cell("b"))
        assert len(found) == 2 and signal.getsignal(signal.SIGINT) is signal.SIG_IGN
    except KeyboardInterrupt:  # which would end all tests
        pytest.fail("an ignored Ctrl-C was heard")
    finally:
        signal.signal(signal.SIGINT, handler)


def test_another_thread_can_measure_too(tmp_path):
    """Only the main thread may ask for signals."""
    found = []
    thread = threading.Thread(target=lambda: found.extend(run(tmp_path, cell("a"))))
    thread.start()
    thread.join()
    assert [one.name for one in found] == ["a"]
