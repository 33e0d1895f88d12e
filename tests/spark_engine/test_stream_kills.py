"""kill -9 of the driver and of Python workers while a stream runs: each tuple counts once."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from anabranch.spark_bridge.errors import SparkUnavailable
from anabranch.spark_bridge.local.java import find_java
from tests.anabranch.files import write
from tests.runtime.processes import PATIENCE_S

pytestmark = [pytest.mark.spark, pytest.mark.slow]

LINES = 24_000
KEYS = 100
DEADLINE_S = PATIENCE_S

PIPELINE = """
    import anabranch as ab

    def read(line):
        at, key = line.split()
        return float(at), key

    def at_of(one):
        return one[0]

    def key_of(one):
        return one[1]

    pipeline = ab.Pipeline("killed", dead_letters="dead.jsonl", dead_max=1.0)
    lines = pipeline.source("lines", ab.files("lines.txt", split_bytes=4 * 1024))
    read_ones = lines.map("read", read).event_time(at_of)
    keyed = read_ones.key_by(key_of)
    keyed.fold("count", 0, lambda n, _: n + 1).sink("counts", ab.jsonl("counts.jsonl"))
    windows = keyed.window(ab.tumbling(1000)).aggregate("window", ab.tally())
    columns = {"key": str, "start": "double", "end": "double", "value": int, "revision": int}
    windows.sink("windows", ab.parquet("windows", columns))
"""


class Driver:
    """A command that runs the stream, and what it has started."""

    def __init__(self, folder: Path) -> None:
        self.state = folder / "state"
        command = [sys.executable, "-m", "anabranch.cli", "run", "headlines.py"]
        there = ["--on", "spark=local[2]", "--as", "stream", "--state", "state"]
        self.process = subprocess.Popen(
            [*command, *there, "--resume-or-begin"], cwd=folder, text=True, stderr=subprocess.PIPE
        )

    def until_committed(self, batch: int) -> None:
        """Wait until this batch, or a later one, is done."""
        deadline = time.monotonic() + DEADLINE_S
        while self.last() < batch:
            assert self.process.poll() is None, self.process.communicate()[1]
            assert time.monotonic() < deadline, f"batch {batch} is not done in time"
            time.sleep(0.02)

    def last(self) -> int:
        return max((int(p.stem) for p in (self.state / "commits").glob("[0-9]*.json")), default=-1)

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()
        if self.process.stderr is not None:
            self.process.stderr.close()

    def workers(self) -> list[int]:
        """Python processes that Spark has forked."""
        parents = {}
        for entry in Path("/proc").iterdir():
            if entry.name.isdigit():
                with contextlib.suppress(OSError):
                    told = (entry / "stat").read_text().rpartition(")")[2].split()
                    parents[int(entry.name)] = int(told[1])
        ours = {self.process.pid}
        while grown := {pid for pid, parent in parents.items() if parent in ours} - ours:
            ours |= grown
        found = []
        for pid in ours:
            with contextlib.suppress(OSError):
                words = Path(f"/proc/{pid}/cmdline").read_bytes()
                parent = Path(f"/proc/{parents.get(pid, 0)}/cmdline").read_bytes()
                if b"pyspark" in words and b"daemon" in words and b"daemon" in parent:
                    found.append(pid)
        return found


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Callable[[], Driver]]:
    """Starts drivers; those that still run when the test has failed are killed, and what they
    have started ends with them."""
    with contextlib.ExitStack() as started:

        def one() -> Driver:
            driver = Driver(tmp_path)
            started.callback(driver.kill)
            return driver

        yield one


def test_killed_drivers_and_workers_leave_no_trace_in_results(
    tmp_path: Path, start: Callable[[], Driver]
) -> None:
    if not Path("/proc").is_dir():
        pytest.skip("workers are found by /proc")
    try:
        find_java()
    except SparkUnavailable as missing:
        pytest.skip(str(missing))
    write(tmp_path, PIPELINE)
    keys = [f"k{n * 7919 % KEYS}" for n in range(LINES)]
    lines = [f"{n} {key}" for n, key in enumerate(keys)]
    (tmp_path / "lines.txt").write_text("\n".join(lines) + "\nno line\n")

    first = start()
    first.until_committed(1)
    killed = first.workers()
    assert killed, "no worker was found, so this says nothing"
    for pid in killed:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    first.until_committed(first.last() + 2)
    first.kill()
    done = first.last()
    second = start()
    _, said = second.process.communicate(timeout=DEADLINE_S)
    assert second.process.returncode == 0, said
    assert second.last() > done + 1

    counted = (tmp_path / "counts.jsonl").read_text().splitlines()
    counts = [tuple(json.loads(line)) for line in counted]
    wanted = {(key, n) for key, many in Counter(keys).items() for n in range(1, many + 1)}
    assert len(counts) == LINES
    assert set(counts) == wanted
    pq = pytest.importorskip("pyarrow.parquet")
    rows = pq.read_table(tmp_path / "windows").to_pylist()
    found = Counter({(row["key"], row["start"]): row["value"] for row in rows})
    assert len(rows) == len(found)
    assert found == Counter((key, n // 1000 * 1000.0) for n, key in enumerate(keys))
    assert len((tmp_path / "dead.jsonl").read_text().splitlines()) == 1
