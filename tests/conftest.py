"""Every test runs in float64 with strict dtype promotion, and with every graph checked."""

import gc
import os
import signal

from tests.compilation import cache_folder, compile_quickly, is_quick
from tests.skipped import skipped_line

# Before jax is imported: two devices for the sharding tests, and graphs checked after tracing.
os.environ.setdefault("XLA_FLAGS", "--xla_force_host_platform_device_count=2")
os.environ["DENDRAX_ENABLE_CHECKS"] = "1"
# Compiled programs are kept from one run to the next; JAX_COMPILATION_CACHE_DIR= does without.
os.environ.setdefault("JAX_COMPILATION_CACHE_DIR", cache_folder())
os.environ.setdefault("JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS", "0")
os.environ.setdefault("JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES", "-1")

from collections.abc import Iterator

import jax
import pytest


def pytest_configure() -> None:
    """Ctrl-C is not ignored, in the processes that the tests start either.

    It would be where the tests were started in the background (`nohup make test &`).

    And Python looks for cycles less often: there are many objects here, most of them for good.
    """
    gc.freeze()
    gc.set_threshold(50_000, 20, 100)
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """What waits for processes comes first: at the end, one worker would wait with it.

    Then what is compiled quickly, so that there is one change from one way to the other.
    """
    waits = ("test_killed.py", "test_devices.py")
    items.sort(key=lambda item: (item.path.name not in waits, not is_quick(item.path)))


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Which tests were not run, and what would enable them."""
    reports = terminalreporter.stats.get("skipped", [])
    skipped = [
        (report.nodeid.split("::")[0], report.longrepr[2])
        for report in reports
        if isinstance(report.longrepr, tuple)  # not those that are expected to fail
    ]
    markers = terminalreporter.config.option.markexpr
    if line := skipped_line(skipped, slow_left_out="not slow" in markers):
        terminalreporter.write_line(line)


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    """Before any fixture: what a fixture of the session compiles has the bits of its first test."""
    everything = "not slow" not in item.config.option.markexpr
    compile_quickly(is_quick(item.path) and not everything)


@pytest.fixture(autouse=True, scope="module")
def young_heap() -> None:
    """What was there before a module's tests is not searched for cycles again by what collects."""
    gc.freeze()


@pytest.fixture(autouse=True)
def strict_dtypes() -> Iterator[None]:
    with jax.enable_x64(True), jax.numpy_dtype_promotion("strict"):
        yield


@pytest.fixture
def no_leaks() -> Iterator[None]:
    """Any tracer that outlives its trace is an error."""
    with jax.checking_leaks():
        yield
