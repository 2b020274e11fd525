"""What a process notices of the others, with a store that the tests can spoil."""

import signal
import subprocess
import sys
import threading

import jax
import pytest

from dendrax import train
from dendrax.train import _watchdog
from dendrax.train._distributed import is_of_connection
from dendrax.train._launch import _culprit
from dendrax.train._watchdog import DONE, FAILED, Watch


class Store:
    """Like JAX's: what is set can be read by all."""

    def __init__(self):
        self.words, self.answers = {}, True

    def key_value_set(self, key, value, allow_overwrite):
        assert allow_overwrite
        self.words[key] = value

    def key_value_dir_get(self, place):
        if not self.answers:
            raise RuntimeError("DEADLINE_EXCEEDED")
        return [(key, word) for key, word in self.words.items() if key.startswith(f"{place}/")]


class Clock:
    """Lets the threads of all watches beat in step, as far as a test says, on any machine."""

    def __init__(self):
        self.beats, self.expected = {}, 0  # of threads, and how many there are to be
        self.until, self.changed = 0, threading.Condition()

    def slowest(self):
        """The beat that all of them have come to."""
        return min(self.beats.values()) if len(self.beats) >= self.expected else 0

    def run_to(self, beat):
        """Let all of them come there, and no further."""
        with self.changed:
            self.until = beat
            self.changed.notify_all()
            assert self.changed.wait_for(lambda: self.slowest() >= beat, 60)

    def run(self):
        """Let them go on until one ends."""
        with self.changed:
            self.until = 10_000
            self.changed.notify_all()


class Over(threading.Event):
    """Whether a watch is over; its threads wait here between two beats."""

    def __init__(self, clock):
        super().__init__()
        self.clock = clock

    def set(self):
        with self.clock.changed:
            super().set()
            self.clock.changed.notify_all()

    def wait(self, timeout=None):
        clock, me = self.clock, threading.current_thread()
        with clock.changed:
            clock.beats[me] = clock.beats.get(me, 0) + 1
            clock.changed.notify_all()
            clock.changed.wait_for(
                lambda: self.is_set() or clock.beats[me] <= min(clock.until, clock.slowest())
            )
            if self.is_set():
                del clock.beats[me]
                clock.expected -= 1
                clock.changed.notify_all()
        return self.is_set()


class Process:
    """A watch that says what it found."""

    def __init__(self, store, clock, index):
        self.lost, self.text = threading.Event(), ""
        self.watch = Watch(store, index, 2, 0, self.found)
        self.watch._over = Over(clock)
        clock.expected += 2
        self.watch.start()

    def found(self, text):
        self.text = text
        self.lost.set()


@pytest.fixture
def store(monkeypatch):
    monkeypatch.setattr(_watchdog, "SILENT", 20)
    return Store()


@pytest.fixture
def clock():
    return Clock()


def test_processes_that_live_or_are_done_are_left_alone(store, clock):
    first, second = Process(store, clock, 0), Process(store, clock, 1)
    clock.run_to(100)
    assert not first.lost.is_set()
    second.watch.stop(DONE)
    clock.run_to(200)
    assert not first.lost.is_set()
    first.watch.stop(DONE)


def test_one_that_falls_silent_is_named(store, clock):
    first, second = Process(store, clock, 0), Process(store, clock, 1)
    clock.run_to(10)
    second.watch._over.set()  # no word any more
    clock.run_to(25)
    assert not first.lost.is_set()
    clock.run()
    assert first.lost.wait(60)
    assert "process 0 of 2 has lost process 1: it shows no sign of life" in first.text
    assert "again with resume" in first.text


def test_one_that_never_said_a_word_is_missed_later(store, clock, monkeypatch):
    monkeypatch.setattr(_watchdog, "UNHEARD", 60)
    first = Process(store, clock, 0)
    clock.run_to(50)  # more than twice as long as for one that falls silent
    assert not first.lost.is_set()
    clock.run()
    assert first.lost.wait(60)
    assert "process 0 of 2 has lost process 1: it shows no sign of life" in first.text


ABORTED = """
import os
from dendrax.train import _watchdog
_watchdog.explain_aborts()
{before}
os.abort()
"""


def test_an_abort_is_explained_as_what_it_may_be():
    found = run(ABORTED.format(before=""))
    assert found.returncode == 1
    assert "has been aborted, perhaps because process 0" in found.stderr
    found = run(ABORTED.format(before="_watchdog._usual_aborts()"))
    assert found.returncode == -signal.SIGABRT and "process 0" not in found.stderr


def run(program):
    return subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)


@pytest.mark.parametrize(
    ("problem", "is_one"),
    [
        (RuntimeError("UNAVAILABLE: Connection reset by peer"), True),
        (ValueError("UNKNOWN: Gloo all-reduce failed: Connection closed by peer"), True),
        (jax.errors.JaxRuntimeError("INTERNAL: gloo: Socket closed"), True),
        (jax.errors.JaxRuntimeError("RESOURCE_EXHAUSTED: Out of memory"), False),
        (RuntimeError("no connection to the database"), False),
        (ValueError("the deadline of the barrier was missed"), False),
        (KeyError("UNAVAILABLE: connection"), False),
    ],
)
def test_an_error_of_the_connection_is_one_of_xlas(monkeypatch, problem, is_one):
    monkeypatch.setattr(jax, "process_count", lambda: 2)
    assert is_of_connection(problem) == is_one


def test_a_store_that_does_not_answer_is_process_0(store, clock):
    second = Process(store, clock, 1)
    clock.run_to(10)
    assert not second.lost.is_set()
    store.answers = False
    clock.run()
    assert second.lost.wait(60)
    assert "process 1 of 2 has lost process 0: it does not answer" in second.text


def test_one_that_failed_is_quoted(store, clock):
    first, second = Process(store, clock, 0), Process(store, clock, 1)
    clock.run_to(10)
    assert not first.lost.is_set()
    second.watch.stop(FAILED + "the disk is full")
    clock.run()
    assert first.lost.wait(60)
    assert "process 0 of 2 stops: process 1 has failed (the disk is full)" in first.text


@pytest.mark.parametrize(
    ("codes", "culprit"),
    [([1, None], 0), ([None, 3, 1], 1), ([1, -9, None], 1), ([0, None, -9], 2)],
)
def test_who_ended_the_run(codes, culprit):
    assert _culprit(codes) == culprit


@pytest.mark.parametrize(
    ("who", "match"),
    [
        (("localhost", 2, 0), r"coordinator='localhost' is not an address"),
        (("localhost:x", 2, 0), r"coordinator='localhost:x' is not an address"),
        (("localhost:1", None, 0), r"a coordinator needs num_processes and process_id"),
        (("localhost:1", 2, 2), r"process_id=2 must be an integer"),
        ((None, 2, 0), r"num_processes and process_id need a coordinator"),
        ((None, None, 0), r"num_processes and process_id need a coordinator"),
    ],
)
def test_who_is_who(who, match):
    with pytest.raises(ValueError, match=match):
        train.connect(*who)


def test_a_cluster_says_itself_who_is_who():
    with pytest.raises(ValueError, match=r"cluster=True finds out who is who, and 'a:1' was said"):
        train.connect("a:1", 2, 0, cluster=True)


@pytest.mark.parametrize(
    ("variables", "match"),
    [
        ({"DENDRAX_COORDINATOR": "a:1"}, r"but not DENDRAX_NUM_PROCESSES, DENDRAX_PROCESS_ID"),
        (
            {
                "DENDRAX_COORDINATOR": "a:1",
                "DENDRAX_NUM_PROCESSES": "two",
                "DENDRAX_PROCESS_ID": "0",
            },
            r"DENDRAX_NUM_PROCESSES='two' and DENDRAX_PROCESS_ID='0' .* are not both numbers",
        ),
    ],
)
def test_variables_that_say_nothing(monkeypatch, variables, match):
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    with pytest.raises(ValueError, match=match):
        train.connect()


def test_a_process_that_nobody_launched_connects_to_nothing():
    assert train.connect() is None


def test_processes_that_do_not_find_each_other(monkeypatch):
    def initialize(*who, **settings):
        raise RuntimeError("DEADLINE_EXCEEDED: barrier timed out")

    monkeypatch.setattr("jax.distributed.initialize", initialize)
    with pytest.raises(RuntimeError, match=r"did not find each other at localhost:1 \(DEADLINE"):
        train.connect("localhost:1", 1, 0)


@pytest.fixture
def two(store, monkeypatch):
    """This process as the second of two; nothing is computed."""
    monkeypatch.setattr(_watchdog, "coordination_client", lambda: store)
    monkeypatch.setattr(_watchdog, "_runs", iter(range(7, 100)))
    monkeypatch.setattr(jax, "process_count", lambda: 2)
    monkeypatch.setattr(jax, "process_index", lambda: 1)
    return store


def test_what_fails_before_a_run_is_told_to_those_who_wait_in_it(two):
    """Once, though one public function calls the other; with the number of the run to come."""
    told = pytest.raises(MemoryError, match=r"the model mlp\(.*\), with its gradient, would take")
    with pytest.MonkeyPatch.context() as patch, told:
        patch.setattr("dendrax.support._memory.available_memory", lambda: 1000.0)
        train.plan(model="mlp(hidden_sizes=[8])").fit()
    with pytest.raises(TypeError, match="which has no init and update"):
        train.fit(1.0, lambda w, x: w, ([1.0],), optimizer=None)
    assert list(two.words) == ["dendrax/run/7/1", "dendrax/run/8/1"]
    words = "failed: dendrax.train.Plan.fit: the model mlp(hidden_sizes=[8]), with its gradient,"
    assert two.words["dendrax/run/7/1"].startswith(words)


def test_one_that_failed_before_the_run_is_named(store, clock, two):
    waits = Process(store, clock, 0)
    with pytest.raises(ValueError, match="no such"), _watchdog.announcing_failure():
        raise ValueError("no such data set here\nand more")
    store.words["dendrax/run/0/1"] = store.words["dendrax/run/7/1"]  # the run of `waits`
    clock.run()
    assert waits.lost.wait(60)
    assert "process 0 of 2 stops: process 1 has failed (no such data set here)." in waits.text
