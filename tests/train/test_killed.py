"""Runs that are killed, interrupted, or lose one of their processes."""

import functools
import os
import pathlib
import random
import re
import signal
import subprocess
import sys
import tempfile
import time

import pytest

from dendrax.train._journal import read_lines
from dendrax.train._launch import _free_port
from tests.train.cases import RULES

PROGRAM = [sys.executable, "-m", "tests.train.runs"]
LAUNCHED = [sys.executable, "-m", "dendrax.cli", "launch", "-n", "2", *PROGRAM]


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


def children_of(process):
    """The processes of a launcher, in their order."""
    found = subprocess.run(
        ["pgrep", "-P", str(process.pid)], capture_output=True, text=True, check=True
    )
    return [int(word) for word in found.stdout.split()]


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


def kill_one_of_two(folder):
    """Two processes, launched as one run; the other must end, and say why."""
    process = start("ZIL", folder, 8, 0.1, program=LAUNCHED)
    wait_until_later(process, folder, 3)
    os.kill(children_of(process)[1], signal.SIGKILL)
    _, err = process.communicate(timeout=60)
    assert process.returncode == 128 + signal.SIGKILL
    assert "process 1 of 2 was killed by SIGKILL" in err and "--resume" in err


def test_one_of_two_processes_that_dies_stops_the_other(tmp_path):
    kill_one_of_two(tmp_path / "run")


@pytest.mark.slow
def test_two_processes_are_one_run(tmp_path):
    """Killed and resumed, they end with the bits of one process."""
    kill_one_of_two(tmp_path / "run")
    again = result(start("ZIL", tmp_path / "run", 8, program=LAUNCHED))
    assert again == result(start("ZIL", tmp_path / "whole", 8))


@pytest.mark.slow
@pytest.mark.parametrize("victim", [0, 1])
@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGSTOP])
def test_without_the_launcher_the_other_finds_out_by_itself(tmp_path, number, victim):
    """Process 0 is the one by which they found each other."""
    folder = tmp_path / "run"
    who = {"DENDRAX_COORDINATOR": f"localhost:{_free_port()}", "DENDRAX_NUM_PROCESSES": "2"}
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    both = [
        subprocess.Popen(
            [*PROGRAM, "ZIL", str(folder), "8", "0.3"],
            env={**environment(), **who, "DENDRAX_PROCESS_ID": str(index)},
            **pipes,
        )
        for index in range(2)
    ]
    wait_until_later(both[0], folder, 3)
    both[victim].send_signal(number)
    _, err = both[1 - victim].communicate(timeout=60)
    assert both[1 - victim].returncode == 1
    assert (
        re.search(r"has lost (another one|process)|perhaps because process 0", err)
        and "again with resume" in err
    )
    both[victim].kill()
    both[victim].communicate()
    again = result(start("ZIL", folder, 8, program=LAUNCHED))
    assert again == result(start("ZIL", tmp_path / "whole", 8))


@pytest.mark.slow
@pytest.mark.parametrize("victim", [0, 1])
def test_one_that_hangs_stops_the_other_under_the_launcher(tmp_path, victim):
    folder = tmp_path / "run"
    process = start("ZIL", folder, 8, 0.3, program=LAUNCHED)
    wait_until_later(process, folder, 3)
    os.kill(children_of(process)[victim], signal.SIGSTOP)
    _, err = process.communicate(timeout=60)
    assert process.returncode == 1
    assert f"process {1 - victim} of 2 has lost process {victim}" in err
    assert f"process {1 - victim} of 2 failed with exit code 1. Stopped the others" in err


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
