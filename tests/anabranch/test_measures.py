"""What a run says of its work: every figure from a real run, where the right values are known."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

import anabranch as ab
from anabranch.runtime.reporting.report import read_report
from tests.runtime.agent_runs import until

COUNT, WORK_S = 150, 0.01


def test_a_report_has_streams_times_and_what_was_offered(tmp_path: Path) -> None:
    def work(n: int) -> list[int]:
        time.sleep(WORK_S)
        return [n, n]

    pipeline = ab.Pipeline("measured")
    numbers = pipeline.source("numbers", ab.generate(int, rate=50))
    twice = numbers.flat_map("work", work)
    twice.sink("all", ab.discard())
    twice.filter("none", lambda n: n < 0).sink("out", ab.discard())
    with ab.start(pipeline, warm=0, report=tmp_path / "report.json") as run:
        until(lambda: run.snapshot().operator("numbers").offered == 50.0)
        until(lambda: run.snapshot().operator("none").tuples_in >= 2 * COUNT)
        run.end_input()
        assert run.wait().ok
    report = read_report(tmp_path / "report.json")
    source, worker = report.operator("numbers"), report.operator("work")
    count = source.processed
    assert source.sent_to == {"work": count}
    assert worker.sent_to == {"all": 2 * count, "none": 2 * count}
    assert report.operator("none").sent_to == {}
    assert set(worker.samples.rate_to) == {"all", "none"}
    assert max(source.samples.offered) == pytest.approx(50)
    assert worker.samples.offered == []
    assert worker.processed == count >= COUNT
    assert worker.busy_s >= count * WORK_S
    assert worker.stay_ms is not None
    assert worker.stay_ms >= 1000 * WORK_S
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
