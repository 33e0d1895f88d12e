"""Time in pipelines under test: it jumps where functions wait, and else stands still."""

from __future__ import annotations

import asyncio
import math
import threading
import time as real_time

import pytest

import anabranch as ab
from anabranch import testing
from anabranch.runtime.values.checks import PipelineError
from anabranch.runtime.world.timeline import Deadlock
from tests.anabranch.tested_pipelines import (
    Alarm,
    Anything,
    ClockAlarm,
    Ticking,
    Timed,
    counting,
    timed,
    too_late,
    with_watermark,
)

# -- functions that wait ---------------------------------------------------------------------


def test_asynchronous_functions_wait_in_virtual_time_and_keep_the_order() -> None:
    async def slowly(seconds: float) -> float:
        await asyncio.sleep(seconds)
        return seconds

    pipeline = ab.Pipeline("slow")
    pipeline.source("s", Anything.source).map("wait", slowly).sink("out", Anything.sink)
    began = real_time.process_time()
    with testing.harness(pipeline, start=1000.0) as h:
        h.send("s", 3600.0, 60.0, 7200.0)
        assert h.results("out") == [3600.0, 60.0, 7200.0]
        assert h.now == pytest.approx(1000.0 + 7200.0)
    assert real_time.process_time() - began < 60


def test_pauses_of_retries_take_no_real_time() -> None:
    failures = [OSError("not yet")] * 3

    def at_last(n: int) -> int:
        if failures:
            raise failures.pop()
        return n

    pipeline = ab.Pipeline("again")
    retry = ab.Retry(attempts=3, backoff_s=600)
    pipeline.source("s", Anything.source).map("at_last", at_last, retry=retry).sink(
        "out", Anything.sink
    )
    with testing.harness(pipeline) as h:
        h.send("s", 1)
        assert h.results("out") == [1]
        assert h.now == pytest.approx(3 * 600)


def test_a_thread_is_waited_for_in_real_time() -> None:
    def in_thread() -> str:
        return "done"

    async def call(n: int) -> str:
        async with asyncio.timeout(30):
            return await asyncio.to_thread(in_thread)

    pipeline = ab.Pipeline("thread")
    pipeline.source("s", Anything.source).map("call", call).sink("out", Anything.sink)
    with testing.harness(pipeline) as h:
        h.send("s", 1, 2)
        assert h.results("out") == ["done", "done"]
        assert h.now < 30


def test_a_function_that_waits_for_ever_is_found() -> None:
    async def forever(n: int) -> None:
        await asyncio.Event().wait()

    pipeline = ab.Pipeline("forever")
    pipeline.source("s", Anything.source).map("wait", forever).sink("out", Anything.sink)
    with pytest.raises(Deadlock, match=r"nothing is left that could happen; waiting: .*wait call"):
        testing.run(pipeline, {"s": [1]})


async def test_inside_an_event_loop_the_message_says_what_to_do() -> None:
    with pytest.raises(RuntimeError, match="call this from a plain function"):
        testing.run(counting(), {"lines": []})


def test_after_a_thread_time_jumps_again() -> None:
    async def call(n: int) -> int:
        await asyncio.to_thread(str)
        await asyncio.sleep(3600)
        return n

    pipeline = ab.Pipeline("thread")
    pipeline.source("s", Anything.source).map("call", call).sink("out", Anything.sink)
    with testing.harness(pipeline) as h:
        h.send("s", 1)
        assert h.results("out") == [1]
    assert not [t for t in threading.enumerate() if t.name.startswith("asyncio")]


def test_a_limit_on_the_time_of_a_thread_means_real_time() -> None:
    never = threading.Event()

    async def call(n: int) -> None:
        try:
            async with asyncio.timeout(0.05):
                await asyncio.to_thread(never.wait)
        finally:
            never.set()

    pipeline = ab.Pipeline("thread")
    pipeline.source("s", Anything.source).map("call", call).sink("out", Anything.sink)
    (letter,) = testing.run(pipeline, {"s": [1]}).dead["call"]
    assert letter.reason == "TimeoutError"


# -- event time ------------------------------------------------------------------------------


def test_event_time_goes_on_behind_each_tuple_that_moves_it() -> None:
    pipeline = timed(with_watermark, disorder_s=2.0)
    events = [("a", 5.0), ("b", 4.0), ("a", 9.0), ("a", 9.0)]
    outcome = testing.run(pipeline, {"events": events})
    assert outcome["out"] == [
        ("a", 5.0, -math.inf),
        ("b", 4.0, 3.0),
        ("a", 9.0, 3.0),
        ("a", 9.0, 7.0),
    ]
    assert outcome.watermark("watch") == 7.0
    assert outcome.watermark("out") == 7.0


def test_timers_in_event_time_fire_as_it_passes_and_at_the_end() -> None:
    with testing.harness(timed(Alarm)) as h:
        h.send("events", ("a", 1.0), ("b", 5.0), ("a", 10.9), ("c", 15.0))
        assert h.news("out") == [("b", 15.0, [5.0])]
        assert h.watermark("watch") == 15.0
    assert h.news("out") == [("a", 20.9, [1.0, 10.9]), ("c", 25.0, [15.0])]
    assert h.watermark("watch") == math.inf


def test_a_merged_stream_is_as_far_as_the_slowest_source_until_that_ends() -> None:
    pipeline = ab.Pipeline("two")
    left, right = (
        pipeline.source(name, Anything.source).event_time(lambda e: e[1])
        for name in ("left", "right")
    )
    keyed = pipeline.merge(left, right).key_by(lambda e: e[0])
    keyed.process("watch", Alarm, state=list).sink("out", Anything.sink)
    with testing.harness(pipeline) as h:
        h.send("left", ("a", 1.0), ("a", 100.0))
        assert h.watermark("watch") == -math.inf
        h.send("right", ("b", 2.0), ("b", 30.0))
        assert h.watermark("watch") == 30.0
        assert h.news("out") == []
        h.end("right")
        assert h.watermark("watch") == 100.0
        assert h.news("out") == [("b", 40.0, [2.0, 30.0])]
        with pytest.raises(PipelineError, match="'right' has ended"):
            h.send("right", ("b", 2.0))


def test_a_silent_device_is_not_waited_for_once_it_is_idle() -> None:
    pipeline = timed(with_watermark, device=lambda e: e[0], idle_s=60.0)
    with testing.harness(pipeline) as h:
        h.send("events", ("a", 1.0), ("b", 50.0))
        assert h.watermark("watch") == 1.0
        h.advance(59.0)
        h.send("events", ("b", 70.0))
        assert h.watermark("watch") == 1.0
        h.advance(1.0)
        assert h.watermark("watch") == 70.0


def test_an_idle_source_is_not_waited_for_by_those_far_behind_it() -> None:
    pipeline = ab.Pipeline("two")
    left, right = (
        pipeline.source(name, Anything.source).event_time(lambda e: e[1], idle_s=idle_s)
        for name, idle_s in (("left", 60.0), ("right", None))
    )
    both = pipeline.merge(left.map("same", lambda e: e), right)
    both.key_by(lambda e: e[0]).process("watch", Alarm, state=list).sink("out", Anything.sink)
    with testing.harness(pipeline) as h:
        h.send("left", ("a", 1.0))
        h.send("right", ("b", 50.0))
        assert h.watermark("out") == 1.0
        h.advance(60.0)
        assert h.watermark("out") == 50.0
        h.send("left", ("a", 60.0))
        h.send("right", ("b", 70.0))
        assert h.watermark("out") == 60.0


def test_late_tuples_are_told_apart_from_dead_ones() -> None:
    events = [("a", 5.0), ("a", 4.0), ("a", "x"), ("b", 5.0), ("b", 1.0)]
    outcome = testing.run(timed(too_late), {"events": events})
    assert outcome["out"] == [("a", 5.0), ("b", 5.0)]
    assert outcome.late == {"watch": [("a", 4.0), ("b", 1.0)]}
    assert [letter.tuple for letter in outcome.dead["events"]] == [("a", "x")]


@pytest.mark.parametrize("late", ["bury", "emit", "drop"])
def test_tuples_too_late_for_their_window_are_told_whatever_becomes_of_them(late: str) -> None:
    pipeline = ab.Pipeline("windows")
    events = pipeline.source("events", Anything.source).event_time(lambda e: e[1])
    windows = events.key_by(lambda e: e[0]).window(ab.tumbling(10.0), late=late)
    windows.aggregate("tally", ab.tally()).sink("out", Anything.sink)
    events_sent = [("a", 5.0), ("b", 12.0), ("a", 6.0), ("a", 13.0)]
    outcome = testing.run(pipeline, {"events": events_sent}, instances={"tally": 2})
    assert outcome.late == {"tally": [("a", 6.0)]}
    assert outcome.dead == {}
    told = [ab.Late("a", ("a", 6.0), 2.0)] if late == "emit" else []
    assert [one for one in outcome["out"] if isinstance(one, ab.Late)] == told
    means = [one for one in outcome["out"] if isinstance(one, ab.WindowResult)]
    assert sorted(means) == [("a", 0, 10, 1, 0), ("a", 10, 20, 1, 0), ("b", 10, 20, 1, 0)]


def test_two_streams_meet_in_a_window_that_both_have_passed() -> None:
    pipeline = ab.Pipeline("join")
    left, right = (
        pipeline.source(name, Anything.source).event_time(lambda e: e[1]).key_by(lambda e: e[0])
        for name in ("left", "right")
    )
    pairs = left.join(right, window=ab.tumbling(10.0))
    pairs.apply("pair", lambda key, a, b: (key, a[1], b[1])).sink("out", Anything.sink)
    with testing.harness(pipeline, instances={"pair": 3}) as h:
        h.send("left", ("a", 1.0), ("a", 2.0), ("b", 3.0), ("a", 20.0))
        h.send("right", ("a", 9.0), ("c", 9.0))
        assert h.news("out") == []
        h.send("right", ("b", 11.0))
        assert h.news("out") == [("a", 1.0, 9.0), ("a", 2.0, 9.0)]


def test_times_ahead_of_the_clock_given_do_not_count() -> None:
    pipeline = timed(with_watermark, ahead_s=5.0)
    events = {"events": [("a", 1000.0), ("a", 1006.0), ("a", 9999.0)]}
    assert testing.run(pipeline, events, start=1001.0).watermark("watch") == 1006.0
    assert testing.run(pipeline, events, start=9000.0).watermark("watch") == 1006.0
    assert testing.run(pipeline, events, start=9994.0).watermark("watch") == 9999.0


# -- processing time -------------------------------------------------------------------------


def test_timers_by_the_clock_fire_only_as_time_is_advanced() -> None:
    with testing.harness(timed(ClockAlarm), start=100.0) as h:
        h.send("events", ("a", 1.0))
        h.advance(4.0)
        h.send("events", ("b", 1.0))
        h.advance(5.9)
        assert h.results("out") == []
        h.advance(0.2)
        assert h.news("out") == [("a", 110.0, [1.0])]
        h.advance(1000.0)
        assert h.news("out") == [("b", 114.0, [1.0])]
        assert h.now == pytest.approx(1110.1)
        with pytest.raises(ValueError, match="time does not go back"):
            h.advance(-1.0)
        for wrong in ("1", None, math.inf):
            with pytest.raises(PipelineError, match="advance: seconds must be a number, got"):
                h.advance(wrong)  # type: ignore[arg-type]


def test_a_timer_that_sets_the_next_one_ticks_as_time_is_advanced() -> None:
    with testing.harness(timed(Ticking), start=100.0) as h:
        h.send("events", ("a", 1.0))
        h.advance(35.0)
        assert h.news("out") == [110.0, 120.0, 130.0]
        h.advance(5.0)
        assert h.news("out") == [140.0]


def test_timers_go_off_while_a_function_waits() -> None:
    async def slowly(event: Timed) -> Timed:
        await asyncio.sleep(event[1])
        return event

    pipeline = ab.Pipeline("slow")
    events = pipeline.source("events", Anything.source).map("slowly", slowly)
    events.key_by(lambda e: e[0]).process("watch", ClockAlarm, state=list).sink(
        "out", Anything.sink
    )
    with testing.harness(pipeline) as h:
        h.send("events", ("a", 0.0), ("b", 0.0))
        h.send("events", ("b", 9.0))
        assert h.news("out") == []
        h.send("events", ("b", 2.0))
        assert h.news("out") == [("a", 10.0, [0.0])]
