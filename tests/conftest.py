"""What every test needs around it."""

from __future__ import annotations

import gc
import os
import signal
import threading
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import hypothesis
import pytest

from anabranch.cli import GC_THRESHOLD
from anabranch.runtime.live.agent.launch import Run
from tests.large_pages import take_large_pages
from tests.parallel import pytest_collection_modifyitems, pytest_xdist_make_scheduler
from tests.runtime.processes import LINUX

__all__ = ["pytest_collection_modifyitems", "pytest_xdist_make_scheduler"]

DEEP = os.environ.get("ANABRANCH_HYPOTHESIS", "fast") == "deep"

hypothesis.settings.register_profile(
    "any machine",
    deadline=None,  # how long an example takes says how busy the host is
    suppress_health_check=[hypothesis.HealthCheck.too_slow],
    # The same commit gets the same verdict; `deep` draws other examples each time, and more.
    derandomize=not DEEP,
    max_examples=200 if DEEP else 30,
    database=None,
)
hypothesis.settings.load_profile("any machine")

# Every JVM of these tests ends within a minute or two: too soon for what its second compiler costs,
# and what it costs to verify the classes of Spark.
_FAST = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
_UNVERIFIED = "-XX:+UnlockDiagnosticVMOptions -XX:-BytecodeVerificationRemote"
os.environ.setdefault("SPARK_SUBMIT_OPTS", f"{_FAST} {_UNVERIFIED}")

# In the background of a script, in some CI and under `nohup`, signals are ignored, and would be so
# in the processes that tests start and interrupt.
signal.signal(signal.SIGINT, signal.default_int_handler)
for _number in (signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT):
    signal.signal(_number, signal.SIG_DFL)


# Tests begin with many imports, too, and worlds are gone as a whole.
gc.set_threshold(GC_THRESHOLD)


def pytest_collection_finish() -> None:
    """All tests and modules stay until the end. A run's template process, which is forked from this
    one, collects garbage before anything else: for longer than a small run lasts, if that meant to
    look at all of them, and to copy their memory."""
    gc.collect()
    gc.freeze()
    take_large_pages()


@pytest.fixture(scope="module", autouse=True)
def frozen_again() -> None:
    """The same for what the modules before have left: a process that runs the whole suite would
    otherwise take three times the processor time for a run with processes."""
    gc.collect()
    gc.freeze()


@pytest.fixture
def unfrozen() -> Iterator[None]:
    """For tests of what a template process finds by the garbage collector."""
    gc.unfreeze()
    yield
    gc.freeze()


@pytest.fixture(autouse=True)
def files_of_the_dead(request: pytest.FixtureRequest) -> Iterator[None]:
    """Who dies within the process of a test closes nothing; it is closed here, after the test."""
    folder = request.getfixturevalue("tmp_path") if "tmp_path" in request.fixturenames else None
    yield
    if folder is None or not LINUX:
        return
    for number in os.listdir("/proc/self/fd"):
        with suppress(FileNotFoundError):
            if Path(os.readlink(f"/proc/self/fd/{number}")).is_relative_to(folder):
                os.close(int(number))


@pytest.fixture(autouse=True)
def runs_of_failed_tests() -> Iterator[None]:
    """A run that a failed test has left behind is ended here: its thread would be in the way of
    the tests to come."""
    yield
    if threading.active_count() > 1:
        for run in [one for one in gc.get_objects() if type(one) is Run]:
            if not run._ended.is_set():  # one that has failed would tell it again
                run.stop()
