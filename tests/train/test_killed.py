"""Runs that are killed, interrupted, or lose one of their processes."""

import contextlib
import functools
import os
import pathlib
import random
import signal
import subprocess
import sys
import tempfile
import time

import pytest

from dendrax.train._journal import read_lines
from tests.train.cases import RULES
from tests.train.launcher import in_two, with_mpiexec

PROGRAM = [sys.executable, "-m", "tests.train.runs"]
LAUNCHED = in_two(PROGRAM)


def environment(devices=1):
    return {**os.environ, "XLA_FLAGS": f"--xla_force_host_platform_device_count={devices}"}


def start(*words, program=PROGRAM, devices=1):
    command = [*program, *map(str, words)]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    return subprocess.Popen(command, env=environment(devices), **pipes)


def result(process, timeout=300):
    """What a run printed at its end."""
    out, err = process.communicate(timeout=timeout)
    lines = [line for line in out.splitlines() if line.startswith("RESULT")]
    assert lines, err
    return lines[0].split(maxsplit=3)[1:]


def last_step(folder):
    """After how many updates the last whole line was written; 0 if there is none."""
    return max((line["step"] for line in read_lines(folder / "metrics.jsonl")), default=0)


def wait_until_later(process, folder, step=0, timeout=120):
    """Until it has learned beyond an update; it must not end or stand still before."""
    end = time.monotonic() + timeout
    while last_step(folder) <= step:
        if process.poll() is not None:
            pytest.fail(f"it ended with {process.returncode}: {process.communicate()[1]}")
        if time.monotonic() > end:
            process.kill()
            pytest.fail(f"no update after {step}: {process.communicate()[1]}")
        time.sleep(0.005)


def processes_of(folder):
    """The processes that a launcher started for a run."""
    found = []
    for path in pathlib.Path("/proc").glob("[0-9]*/cmdline"):
        with contextlib.suppress(OSError):  # it has ended meanwhile
            words = path.read_text().split("\0")
            if words[0] == sys.executable and str(folder) in words:
                found.append(int(path.parent.name))
    return sorted(found)


def kill(process):
    """Whether that was what ended it."""
    process.kill()
    process.communicate()
    return process.returncode == -signal.SIGKILL


def kill_often(name, folder, times):
    """Kill a run while it learns, so often, and in between anywhere; then let it end."""
    moments, kills = random.Random(name), 0
    while kills < times:
        before = last_step(folder)
        process = start(name, folder, "", 0.05)
        wait_until_later(process, folder, before)
        time.sleep(moments.uniform(0.0, 0.12))
        kills += kill(process)
        if kills % 3 == 2:  # while it starts, reads its checkpoint or compiles, as it happens
            process = start(name, folder, "", 1.0)  # slow, so that it cannot come to its end
            time.sleep(moments.uniform(0.0, 5.0))
            kill(process)
    return result(start(name, folder))


@functools.cache
def undisturbed(name):
    """What a run that nobody disturbs prints at its end."""
    with tempfile.TemporaryDirectory() as folder:
        return result(start(name, pathlib.Path(folder) / "whole"))


@pytest.mark.parametrize(
    ("name", "times"),
    [("ZIL", 1), *(pytest.param(name, 10, marks=pytest.mark.slow) for name in RULES)],
)
def test_killed_and_resumed_it_ends_with_the_same_bits(tmp_path, name, times):
    assert kill_often(name, tmp_path / "killed", times) == undisturbed(name)
    assert undisturbed(name)[0] == "finished"


def test_waiting_for_a_run_that_ends_or_stands_still_fails(tmp_path):
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    for program, words in (("raise SystemExit(3)", "ended with 3"), ("input()", "no update after")):
        command = [sys.executable, "-c", program]
        process = subprocess.Popen(command, stdin=subprocess.PIPE, **pipes)
        with pytest.raises(pytest.fail.Exception, match=words):
            wait_until_later(process, tmp_path, timeout=0.5)


@pytest.mark.parametrize(
    "number", [signal.SIGINT, pytest.param(signal.SIGTERM, marks=pytest.mark.slow)]
)
def test_a_signal_saves_and_leaves(tmp_path, number):
    folder = tmp_path / "run"
    process = start("ZIL", folder, "", 0.2)
    wait_until_later(process, folder)
    process.send_signal(number)
    assert result(process)[0] == "interrupted"
    assert process.returncode == 130
    lines = (folder / "metrics.jsonl").read_text().splitlines()
    assert len(lines) < 48
    assert result(start("ZIL", folder))[:2] == undisturbed("ZIL")[:2]


@with_mpiexec
@pytest.mark.slow
@pytest.mark.parametrize("name", RULES)
def test_any_number_of_devices_and_processes_gives_the_same_bits(tmp_path, name):
    """With chunks the sums have one order: 1, 2, 4, 8 devices, and two processes."""
    found = [result(start(name, "", 8, devices=count)) for count in (1, 2, 4, 8)]
    found += [
        result(start(name, tmp_path / f"two{count}", 8, program=LAUNCHED, devices=count))
        for count in (1, 4)
    ]
    assert all(one == found[0] for one in found)


@with_mpiexec
@pytest.mark.slow
@pytest.mark.parametrize("name", RULES)
def test_without_chunks_it_is_the_same_to_rounding(tmp_path, name):
    one = result(start(name, ""))
    others = [result(start(name, "", devices=count)) for count in (2, 8)]
    others.append(result(start(name, tmp_path / "two", program=LAUNCHED, devices=2)))
    for other in others:
        assert other[0] == "finished"
        assert eval(other[2].split("]")[0] + "]") == pytest.approx(
            eval(one[2].split("]")[0] + "]"), rel=1e-4
        )


def kill_one_of_two(folder, number=signal.SIGKILL):
    """Two processes, launched as one run; the launcher ends the job, and says why."""
    process = start("ZIL", folder, 8, 0.1, program=LAUNCHED)
    wait_until_later(process, folder, 3)
    both = processes_of(folder)
    assert len(both) == 2
    os.kill(both[1], number)
    out, err = process.communicate(timeout=60)
    assert process.returncode != 0
    return out + err


@with_mpiexec
def test_one_of_two_processes_that_dies_ends_the_job(tmp_path):
    said = kill_one_of_two(tmp_path / "run")
    assert "BAD TERMINATION" in said and "Killed (signal 9)" in said
    assert processes_of(tmp_path / "run") == []


@with_mpiexec
@pytest.mark.slow
def test_two_processes_are_one_run(tmp_path):
    """Killed and resumed, they end with the bits of one process."""
    kill_one_of_two(tmp_path / "run")
    again = result(start("ZIL", tmp_path / "run", 8, program=LAUNCHED))
    assert again == result(start("ZIL", tmp_path / "whole", 8))


@with_mpiexec
@pytest.mark.slow
def test_one_of_two_processes_that_is_stopped_ends_the_job(tmp_path):
    said = kill_one_of_two(tmp_path / "run", signal.SIGSTOP)
    assert "stopped sending heartbeats" in said
    again = result(start("ZIL", tmp_path / "run", 8, program=LAUNCHED))
    assert again == result(start("ZIL", tmp_path / "whole", 8))


@with_mpiexec
@pytest.mark.slow
def test_a_signal_to_the_launcher_saves_and_leaves(tmp_path):
    process = start("ZIL", tmp_path / "run", 8, 0.1, program=LAUNCHED)
    wait_until_later(process, tmp_path / "run", 3)
    process.send_signal(signal.SIGINT)
    assert result(process)[0] == "interrupted"
    assert process.returncode == 130


@with_mpiexec
@pytest.mark.slow
def test_a_damaged_checkpoint_is_set_aside_by_all_processes(tmp_path):
    """Also if only one of them reads the part that is damaged."""
    folder = tmp_path / "run"
    whole = result(start("ZIL", folder, 8, program=LAUNCHED))
    for file in (folder / "last" / "48" / "state").rglob("d/*"):
        file.write_bytes(file.read_bytes()[:20])
    again = start("ZIL", folder, 8, program=LAUNCHED)
    assert result(again) == whole
    assert (folder / "last-damaged" / "48").exists()
