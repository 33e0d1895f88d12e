"""What is kept of a run: events, samples, percentiles, and the JSON of the report."""

from __future__ import annotations

import json
import os
import stat
from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from anabranch.runtime.live.agent import recorder as recorder_module
from anabranch.runtime.live.agent.recorder import Recorder
from anabranch.runtime.measuring.latency import (
    BUCKETS_MAX,
    LatencyCounts,
    bucket_of,
    merged,
    upper_ms,
)
from anabranch.runtime.reporting.ledger import settle
from anabranch.runtime.reporting.report import (
    Event,
    OperatorReport,
    Report,
    check_writable,
    percentiles,
    rates,
    read_report,
    write_report,
)
from anabranch.runtime.reporting.status import IDLE, FinalCount, Status
from anabranch.runtime.values.kinds import EventKind

WANTED = {"pipeline", "seconds", "ledger", "operators", "events"}
LEDGER = {
    "tuples_in",
    "tuples_out",
    "lost",
    "duplicated",
    "dead_letters",
    "in_flight",
    "balanced",
}
OPERATOR = {"name", "tuples_in", "tuples_out", "instances_peak", "joins", "leaves", "messages"}
EVENT = {"t", "operator", "kind", "instances"}


def report(ended: str = "completed") -> Report:
    return Report(
        pipeline="words",
        seconds=1.5,
        ended=ended,
        failure=None,
        failure_detail="",
        started_at="2026-01-01T00:00:00+00:00",
        ledger=settle([], [], []),
        operators=[
            OperatorReport(
                name="split",
                kind="operator",
                tuples_in=1,
                tuples_out=2,
                dead=0,
                instances_peak=1,
                instances_ever=1,
                joins=0,
                leaves=0,
                messages=3,
            )
        ],
        events=[
            Event(
                t=0.5, operator="split", kind=EventKind.JOINED, instances=2, detail='a "quote" [1]'
            )
        ],
        events_dropped=0,
        latency_ms={"p50": 1.0},
        dead_reasons={},
        sample_period_s=0.25,
        seed=1,
    )


def status(name: str, t: float = 0.0, **values: object) -> Status:
    return Status(id=name, operator=name.partition(".")[0], t=t, **values)  # type: ignore[arg-type]


def final(name: str, **values: object) -> FinalCount:
    return FinalCount(id=name, operator=name.partition(".")[0], **values)  # type: ignore[arg-type]


def test_the_json_of_a_report_has_everything_that_was_promised() -> None:
    found = json.loads(report().to_json())
    assert found.keys() >= WANTED
    assert found["ledger"].keys() >= LEDGER
    assert found["operators"][0].keys() >= OPERATOR
    assert found["events"][0].keys() >= EVENT


def test_a_report_is_read_back_as_it_was_written(tmp_path: Path) -> None:
    write_report(report(), tmp_path / "r.json")
    assert read_report(tmp_path / "r.json") == report()
    assert read_report(tmp_path / "r.json").operator("split").messages == 3
    with pytest.raises(KeyError):
        report().operator("other")


def test_what_is_no_text_is_escaped_in_the_json_of_a_report() -> None:
    found = json.loads(msgspec.structs.replace(report(), failure="in caf\udce9").to_json())
    assert found["failure"] == "in caf\\udce9"


def test_a_report_that_cannot_be_written_leaves_nothing_behind(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.rename", full)
    with pytest.raises(OSError, match="No space left"):
        write_report(report(), tmp_path / "r.json")
    assert list(tmp_path.iterdir()) == []


def test_a_run_is_well_only_if_it_completed_and_balances() -> None:
    assert report().ok
    assert not report("stopped").ok


def test_totals_of_an_operator_never_go_back_when_its_instances_end() -> None:
    recorder = Recorder(["work"], 0.25)
    recorder.note_status(status("work.0", tuples_in=10, tuples_out=9, dead=1, queued=4))
    recorder.note_status(status("work.1", tuples_in=5, tuples_out=5))
    recorder.sample(0.0, {"work": 2})
    recorder.note_final(final("work.1", tuples_in=7, tuples_out=7, dead=0, dead_upstream=2))
    recorder.sample(0.25, {"work": 1})
    row = recorder.latest("work")
    assert (row.tuples_in, row.tuples_out, row.dead, row.queue) == (17, 16, 3, 4)
    assert recorder.samples("work").instances == [2, 1]


def test_rates_of_the_live_view_are_over_the_last_second() -> None:
    recorder = Recorder(["work"], 0.25)
    for n in range(40):
        recorder.note_status(status("work.0", tuples_in=1000 * min(n, 20), tuples_out=n))
        recorder.sample(0.25 * n, {"work": 1})
    rate_in, rate_out = recorder.recent_rates("work")
    assert rate_in == 0.0
    assert rate_out == pytest.approx(4.0)


def test_latencies_of_a_sample_are_those_since_the_one_before() -> None:
    recorder = Recorder(["out"], 0.25)
    recorder.note_status(status("out.0", latency={bucket_of(1.0): 10}))
    recorder.note_status(status("out.1", latency={bucket_of(100.0): 10}))
    recorder.sample(0.0, {"out": 2})
    recorder.note_status(status("out.0", latency={bucket_of(5.0): 1}))
    recorder.sample(0.25, {"out": 2})
    recorder.sample(0.5, {"out": 2})
    samples = recorder.samples("out")
    assert samples.latency_p50_ms[0] == pytest.approx(1.0, rel=0.2)
    assert samples.latency_p99_ms[0] == pytest.approx(100.0, rel=0.2)
    assert samples.latency_p50_ms[1] == pytest.approx(5.0, rel=0.2)
    assert samples.latency_p50_ms[2] is None


def test_a_long_run_keeps_fewer_samples_and_loses_no_latency(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(recorder_module, "ROWS_MAX", 16)
    recorder = Recorder(["out"], 0.25)
    for n in range(500):
        recorder.note_status(status("out.0", tuples_in=n, latency={3: 1}))
        recorder.sample(0.25 * n, {"out": 1})
    samples = recorder.samples("out")
    assert 8 <= len(samples.t) <= 16
    assert recorder.period_s > 4
    kept = sum(sum(rows["out"].latency.values()) for _, rows in recorder._ticks)
    assert kept >= 500 - recorder.period_s / 0.25
    assert all(r == pytest.approx(4.0) for r in samples.rate_in[1:])


def test_of_very_many_events_the_first_and_the_last_are_kept_and_the_others_counted(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(recorder_module, "EVENTS_FIRST", 2)
    monkeypatch.setattr(recorder_module, "EVENTS_LAST", 3)
    recorder = Recorder(["work"], 0.25)
    for n in range(9):
        recorder.note(Event(t=n, operator="work", kind=EventKind.JOINED, instances=n))
        if n == 3:
            assert [e.t for e in recorder.last_events(3)] == [1, 2, 3]
            assert recorder.events_dropped == 0
    assert [e.t for e in recorder.events] == [0, 1, 6, 7, 8]
    assert recorder.events_dropped == 4
    assert [e.t for e in recorder.last_events(2)] == [7, 8]


def test_what_one_said_that_took_no_part_is_forgotten_and_what_the_living_said_is_not() -> None:
    recorder = Recorder(["work"], 0.25)
    for number in range(3):
        recorder.note_status(status(f"work.{number}", state=IDLE))
    recorder.forget_all_but({"work.1"})
    assert [*recorder.statuses] == ["work.1"]


@given(st.lists(st.floats(0.0, 1e7), min_size=1), st.sampled_from([0.5, 0.9, 0.99, 1.0]))
def test_a_percentile_is_within_a_fifth_of_the_truth(values: list[float], share: float) -> None:
    counts = LatencyCounts()
    for value in values:
        counts.record(value)
    rank = next(i for i in range(len(values)) if i + 1 >= share * len(values))
    truth = sorted(values)[rank]
    found = counts.percentile(share)
    assert found is not None
    assert truth <= found * 1.0000001
    assert found <= max(0.01, truth * 1.19)


@given(st.lists(st.lists(st.floats(0.0, 1e9), max_size=5), max_size=5))
def test_merged_counts_are_those_of_all_values_together(parts: list[list[float]]) -> None:
    separate = []
    together = LatencyCounts()
    for part in parts:
        counts = LatencyCounts()
        for value in part:
            counts.record(value)
            together.record(value)
        separate.append(counts.take())
        assert counts.total == 0
    assert merged(separate).counts == together.counts


def test_latencies_beyond_all_sense_stay_in_the_last_bucket() -> None:
    assert bucket_of(1e300) == BUCKETS_MAX - 1
    assert bucket_of(0.0) == 0
    assert upper_ms(bucket_of(10.0)) >= 10.0


def test_percentiles_of_nothing_are_left_out() -> None:
    assert percentiles(LatencyCounts()) == {}


def test_rates_need_time_to_pass() -> None:
    assert rates([0.0, 1.0, 1.0, 3.0], [0, 5, 9, 9]) == [0.0, 5.0, 0.0, 0.0]
    assert rates([], []) == []


def test_a_report_does_not_take_the_place_of_a_device_or_pipe(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    check_writable(pipe)
    write_report(report(), pipe)
    assert stat.S_ISFIFO(pipe.stat().st_mode)
    assert json.loads(os.read(reader, 2**16))["pipeline"] == "words"
    os.close(reader)


def test_a_report_goes_where_a_link_points(tmp_path: Path) -> None:
    target, link = tmp_path / "target.json", tmp_path / "link.json"
    link.symlink_to(target)
    check_writable(link)
    write_report(report(), link)
    assert link.is_symlink()
    assert read_report(target).pipeline == "words"
    assert sorted(tmp_path.iterdir()) == [link, target]


def test_streams_are_counted_by_their_senders_those_that_ended_too() -> None:
    recorder = Recorder(["a", "b", "c"], 0.25)
    there = {"a": 1, "b": 1, "c": 1}
    recorder.note_final(final("a.0", sent={"b.0": 3, "b.1": 4, "c.0": 5}))
    recorder.sample(0.0, there)
    recorder.note_status(status("a.1", sent_to={"b": 10}, offered=40.0))
    recorder.note_status(status("a.2", sent_to={"c": 2}, offered=20.0))
    recorder.sample(1.0, there)
    assert recorder.latest("a").sent_to == {"b": 17, "c": 7}
    assert recorder.recent_rates_to("a") == {"b": 10.0, "c": 2.0}
    samples = recorder.samples("a")
    assert samples.rate_to == {"b": [0.0, 10.0], "c": [0.0, 2.0]}
    assert samples.offered == [0.0, 60.0]
    assert recorder.samples("b").offered == []
