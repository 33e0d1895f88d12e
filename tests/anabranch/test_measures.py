"""What a run says of its work: every figure from a real run, where the right values are known."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

import pytest

import anabranch as ab
from anabranch.runtime.reporting.report import read_report
from tests.anabranch.files import write
from tests.runtime.agent_runs import until
from tests.runtime.processes import PATIENCE_S

COUNT, WORK_S = 150, 0.01
PROGRAM = f"""
    import time

    import anabranch as ab


    def work(n):
        time.sleep({WORK_S})
        return [n, n]


    pipeline = ab.Pipeline("measured")
    numbers = pipeline.source("numbers", ab.generate(lambda i: i, count={COUNT}, rate=50))
    twice = numbers.flat_map("work", work)
    twice.sink("all", ab.discard())
    twice.filter("none", lambda n: n < 0).sink("out", ab.discard())

    if __name__ == "__main__":
        ab.run(pipeline, warm=0, report="report.json")
"""


def test_a_report_has_streams_times_and_what_was_offered(tmp_path: Path) -> None:
    program = write(tmp_path, PROGRAM, "program.py")
    subprocess.run(
        [sys.executable, program], cwd=tmp_path, check=True, capture_output=True, timeout=PATIENCE_S
    )
    report = read_report(tmp_path / "report.json")
    source, work = report.operator("numbers"), report.operator("work")
    assert source.sent_to == {"work": COUNT}
    assert work.sent_to == {"all": 2 * COUNT, "none": 2 * COUNT}
    assert report.operator("none").sent_to == {}
    assert set(work.samples.rate_to) == {"all", "none"}
    assert max(source.samples.offered) == pytest.approx(50)
    assert work.samples.offered == []
    assert work.processed == COUNT
    assert work.busy_s >= COUNT * WORK_S
    assert work.stay_ms is not None
    assert work.stay_ms >= 1000 * WORK_S
    assert source.stay_ms is None
    assert source.busy_s < report.seconds / 2  # not the seconds in which it waited for what was due
    assert all(0 < o.cpu_s < report.seconds for o in report.operators)
    (host,) = report.hosts
    assert host.processors >= 1
    assert set(report.latency_ms) == {"p50", "p90", "p95", "p99", "p100"}


def test_nothing_is_offered_once_a_paced_source_has_read_all(tmp_path: Path) -> None:
    goes_on = tmp_path / "goes on"

    def work(n: int) -> int:
        while not goes_on.exists():
            time.sleep(0.01)
        return n

    pipeline = ab.Pipeline("ended")
    numbers = pipeline.source("numbers", ab.generate(int, count=60, rate=50))
    numbers.map("work", work).sink("out", ab.discard())
    with ab.start(pipeline, warm=0) as run:
        until(lambda: run.snapshot().operator("numbers").offered == 0.0)
        goes_on.touch()
        assert run.wait().ok
