"""Pipelines under test: in one process, in virtual time, step by step."""

from __future__ import annotations

import asyncio
import math
import threading
import time as real_time
from collections.abc import Iterable
from typing import Any

import pytest

import anabranch as ab
from anabranch import testing
from anabranch.runtime.graph import PipelineError, Stream
from anabranch.runtime.keyed.handler import KeyTime, Timer
from anabranch.virtual_time import Deadlock

Timed = tuple[str, float]


class Anything:
    """Not a file, not a place: nothing of it may be touched."""

    source = ab.files("/nowhere/*.txt")
    sink = ab.jsonl("/nowhere/out.jsonl")


def words(groups: int = 256) -> tuple[ab.Pipeline, Stream]:
    pipeline = ab.Pipeline("words", groups=groups)
    lines = pipeline.source("lines", Anything.source)
    return pipeline, lines.flat_map("split", str.split)


def counting(groups: int = 256) -> ab.Pipeline:
    pipeline, stream = words(groups)
    stream.key_by(str).fold("count", 0, lambda n, _: n + 1).sink("out", Anything.sink)
    return pipeline


def timed(handler: Any, **options: Any) -> ab.Pipeline:
    """(key, time) by key, with event time from the source on."""
    pipeline = ab.Pipeline("timed")
    events = pipeline.source("events", Anything.source)
    events = events.event_time(lambda e: e[1], **options)
    keyed = events.key_by(lambda e: e[0])
    keyed.process("watch", handler, state=list).sink("out", Anything.sink)
    return pipeline


def with_watermark(key: str, state: list[Any], event: Timed, time: KeyTime) -> list[Any]:
    return [(key, event[1], time.watermark)]


class Alarm:
    """Tells of a key 10 s after its last tuple; `processing`: by the clock."""

    processing = False

    def on_tuple(self, key: str, state: list[Any], event: Timed, time: KeyTime) -> None:
        state.append(event[1])
        base = time.now if self.processing else event[1]
        time.set_timer(base + 10, "quiet", processing=self.processing)

    def on_timer(
        self, key: str, state: list[Any], timer: Timer, time: KeyTime
    ) -> Iterable[tuple[Any, ...]]:
        yield (key, timer.at, list(state))


class ClockAlarm(Alarm):
    processing = True


class Ticking:
    """From its first tuple on, tells the time each 10 s."""

    def on_tuple(self, key: str, state: list[Any], event: Timed, time: KeyTime) -> None:
        time.set_timer(time.now + 10, processing=True)

    def on_timer(self, key: str, state: list[Any], timer: Timer, time: KeyTime) -> list[float]:
        time.set_timer(timer.at + 10, processing=True)
        return [time.now]


def too_late(key: str, state: list[Any], event: Timed, time: KeyTime) -> list[Timed]:
    if event[1] < time.watermark:
        time.late(event, time.watermark - event[1])
        return []
    return [event]


class Unreadable:
    """Can be pickled, but not read again."""

    def __init__(self, word: str) -> None:
        self.word = word

    def __reduce__(self) -> Any:
        return int, (self.word,)


# -- in one go -------------------------------------------------------------------------------


def test_a_pipeline_is_run_on_tuples_and_what_reaches_its_sinks_is_told() -> None:
    outcome = testing.run(counting(), {"lines": ["a b", "a"]})
    assert outcome["out"] == [("a", 1), ("b", 1), ("a", 2)]
    assert outcome.late == {}
    assert outcome.dead == {}


def test_the_same_pipeline_can_be_run_again_from_nothing() -> None:
    pipeline = counting()
    testing.run(pipeline, {"lines": ["a"]})
    assert testing.run(pipeline, {"lines": ["a"]})["out"] == [("a", 1)]


def test_the_number_of_instances_changes_nothing() -> None:
    lines = [f"w{n * n % 37} w{n % 11}" for n in range(300)]
    one = testing.run(counting(), {"lines": lines})["out"]
    three = testing.run(counting(), {"lines": lines}, instances={"count": 3})["out"]
    assert len(one) == 600
    assert three == one


def test_every_branch_and_every_sink_gets_every_tuple() -> None:
    pipeline = ab.Pipeline("branches")
    numbers = pipeline.source("numbers", Anything.source)
    numbers.sink("raw", Anything.sink)
    double = numbers.map("double", lambda n: 2 * n)
    odd = numbers.filter("odd", lambda n: n % 2)
    pipeline.merge(double, odd).sink("both", Anything.sink)
    outcome = testing.run(pipeline, {"numbers": [1, 2, 3]})
    assert outcome["raw"] == [1, 2, 3]
    assert outcome["both"] == [2, 4, 6, 1, 3]


def test_sources_send_one_after_the_other_as_they_are_given() -> None:
    pipeline = ab.Pipeline("two")
    a, b = (pipeline.source(name, Anything.source) for name in ("a", "b"))
    pipeline.merge(a, b).sink("out", Anything.sink)
    assert testing.run(pipeline, {"b": [1, 2], "a": [3]})["out"] == [1, 2, 3]


def test_names_that_are_not_there_are_told_with_what_was_meant() -> None:
    pipeline = counting()
    with pytest.raises(PipelineError, match="no source 'line'; did you mean 'lines'"):
        testing.run(pipeline, {"line": []})
    outcome = testing.run(pipeline, {"lines": []})
    with pytest.raises(PipelineError, match="no sink 'results'; known: out"):
        outcome["results"]
    with pytest.raises(PipelineError, match="no operator 'counts'; did you mean 'count'"):
        outcome.watermark("counts")
    with pytest.raises(PipelineError, match=r"'split' is no keyed operator .*: count"):
        testing.run(pipeline, {}, instances={"split": 2})
    with pytest.raises(PipelineError, match="'count' needs 1 or more, got 0"):
        testing.run(pipeline, {}, instances={"count": 0})


def test_a_pipeline_that_cannot_run_is_refused() -> None:
    pipeline, _ = words()
    with pytest.raises(PipelineError, match="'split' of pipeline 'words' leads nowhere"):
        testing.run(pipeline, {"lines": []})


def test_results_are_told_apart_by_key() -> None:
    results = [("a", 1), ("b", 1), ("a", 2)]
    assert testing.by_key(results) == {"a": [("a", 1), ("a", 2)], "b": [("b", 1)]}


# -- what fails ------------------------------------------------------------------------------


def test_what_fails_is_a_dead_letter_of_its_operator_and_the_rest_goes_on() -> None:
    pipeline = ab.Pipeline("parse")
    numbers = pipeline.source("lines", Anything.source).map("number", int)
    numbers.key_by(lambda n: n % 2).fold("sum", 0, lambda s, n: s + 60 // n).sink(
        "out", Anything.sink
    )
    outcome = testing.run(pipeline, {"lines": ["2", "x", "0", "3"]})
    assert outcome["out"] == [(0, 30), (1, 20)]
    assert [letter.tuple for letter in outcome.dead["number"]] == ["x"]
    assert [letter.reason for letter in outcome.dead["sum"]] == [
        "ZeroDivisionError: integer division or modulo by zero"
    ]
    assert outcome.late == {}


def test_a_tuple_that_cannot_travel_is_found_as_in_a_run() -> None:
    pipeline = ab.Pipeline("travel")
    numbers = pipeline.source("numbers", Anything.source)
    made = numbers.map("make", lambda n: (lambda: n) if n == 2 else n)
    made.sink("out", Anything.sink)
    outcome = testing.run(pipeline, {"numbers": [1, 2, 3]})
    assert outcome["out"] == [1, 3]
    (letter,) = outcome.dead["make"]
    assert letter.reason.startswith("cannot be sent to another process")


def test_branches_do_not_share_their_tuples() -> None:
    pipeline = ab.Pipeline("shared")
    lists = pipeline.source("lists", Anything.source)
    lists.map("pop", lambda x: x.pop()).sink("popped", Anything.sink)
    lists.sink("out", Anything.sink)
    outcome = testing.run(pipeline, {"lists": [[1, 2]]})
    assert outcome["popped"] == [2]
    assert outcome["out"] == [[1, 2]]


def test_a_tuple_without_a_key_is_a_dead_letter_of_its_sender() -> None:
    pipeline, stream = words()
    stream.key_by(lambda w: [w] if w == "b" else w).fold("count", 0, lambda n, _: n + 1).sink(
        "out", Anything.sink
    )
    outcome = testing.run(pipeline, {"lines": ["a b a"]})
    assert outcome["out"] == [("a", 1), ("a", 2)]
    (letter,) = outcome.dead["split"]
    assert letter.tuple == "b"
    assert "no key for operator 'count'" in letter.reason


def test_keyed_tuples_that_cannot_travel_are_found_on_both_sides() -> None:
    pipeline = ab.Pipeline("travel")
    words = pipeline.source("words", Anything.source)
    made = words.map("make", lambda w: {"f": lambda: w, "u": Unreadable(w)}.get(w, w))
    made.key_by(lambda _: 0).fold("last", "", lambda _, w: w).sink("out", Anything.sink)
    outcome = testing.run(pipeline, {"words": ["a", "f", "u", "b"]})
    assert outcome["out"] == [(0, "a"), (0, "b")]
    (unsent,) = outcome.dead["make"]
    assert callable(unsent.tuple)
    (unread,) = outcome.dead["last"]
    assert "cannot be read here: ValueError" in unread.reason


def test_a_sink_by_key_gets_its_tuples() -> None:
    pipeline, stream = words()
    stream.key_by(str).sink("out", Anything.sink)
    outcome = testing.run(pipeline, {"lines": ["b a", "b"]}, instances={"out": 2})
    assert outcome["out"] == ["b", "a", "b"]


# -- functions that wait ---------------------------------------------------------------------


def test_asynchronous_functions_wait_in_virtual_time_and_keep_the_order() -> None:
    async def slowly(seconds: float) -> float:
        await asyncio.sleep(seconds)
        return seconds

    pipeline = ab.Pipeline("slow")
    pipeline.source("s", Anything.source).map("wait", slowly).sink("out", Anything.sink)
    began = real_time.monotonic()
    with testing.harness(pipeline, start=1000.0) as h:
        h.send("s", 3600.0, 60.0, 7200.0)
        assert h.results("out") == [3600.0, 60.0, 7200.0]
        assert h.now == pytest.approx(1000.0 + 7200.0)
    assert real_time.monotonic() - began < 60


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
        assert h.now == pytest.approx(600 + 1200 + 2400)


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


def test_a_function_that_waits_for_nobody_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("anabranch.virtual_time.PATIENCE_S", 0.01)

    async def forever(n: int) -> None:
        await asyncio.Event().wait()

    pipeline = ab.Pipeline("forever")
    pipeline.source("s", Anything.source).map("wait", forever).sink("out", Anything.sink)
    with pytest.raises(Deadlock, match="waits for something that nobody is going to do"):
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
    assert [letter.tuple for letter in outcome.dead["watch"]] == [("a", "x")]


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


# -- owners ----------------------------------------------------------------------------------


def test_state_goes_with_its_key_to_the_new_owner() -> None:
    with testing.harness(counting(), instances={"count": 3}) as h:
        h.send("lines", "a b a")
        old = h.owner("count", "a")
        new = (old + 1) % 3
        h.move("count", [h.group("a")], to=new)
        assert h.owner("count", "a") == new
        assert h.state("count", "a") == 2
        h.send("lines", "a b")
        assert h.results("out")[-2:] == [("a", 3), ("b", 2)]
        h.move("count", range(256), to=old)
        h.send("lines", "a b")
        assert h.results("out")[-2:] == [("a", 4), ("b", 3)]
        with pytest.raises(KeyError):
            h.state("count", "c")


def test_tuples_of_groups_on_the_move_wait_and_keep_their_order() -> None:
    with testing.harness(counting(), instances={"count": 2}) as h:
        h.send("lines", "a")
        h.news("out")
        to = 1 - h.owner("count", "a")
        still = next(w for w in "bcdefgh" if h.owner("count", w) == to)
        with h.moving("count", [h.group("a")], to=to):
            h.send("lines", f"a {still} a")
            assert h.news("out") == [(still, 1)]
        assert h.news("out") == [("a", 2), ("a", 3)]


def test_timers_go_with_their_key() -> None:
    with testing.harness(timed(Alarm), instances={"watch": 2}) as h:
        h.send("events", ("a", 1.0))
        h.move("watch", [h.group("a")], to=1 - h.owner("watch", "a"))
        h.send("events", ("b", 11.0))
        assert h.results("out") == [("a", 11.0, [1.0])]


def test_timers_by_the_clock_that_are_on_the_move_do_not_hold_up_time() -> None:
    with testing.harness(timed(ClockAlarm), instances={"watch": 2}) as h:
        h.send("events", ("a", 1.0))
        with h.moving("watch", [h.group("a")], to=1 - h.owner("watch", "a")):
            h.advance(20.0)
            assert h.results("out") == []
        h.advance(0.0)
        assert h.results("out") == [("a", 10.0, [1.0])]


def test_state_that_cannot_be_pickled_is_found_by_moving_it() -> None:
    pipeline, stream = words()
    stream.key_by(str).process(
        "keep", lambda key, state, word: state.append(lambda: word), state=list
    ).sink("out", Anything.sink)
    with testing.harness(pipeline, instances={"keep": 2}) as h:
        h.send("lines", "a")
        with pytest.raises(Exception, match="pickle"):
            h.move("keep", [h.group("a")], to=1 - h.owner("keep", "a"))


def test_a_wrong_move_is_refused() -> None:
    with testing.harness(counting(groups=16), instances={"count": 2}) as h:
        with pytest.raises(PipelineError, match=r"no instance 2: expected 0 to 1.*'count': 3"):
            h.move("count", [0], to=2)
        with pytest.raises(PipelineError, match="no such key group: 16; expected 0 to 15"):
            h.move("count", [16], to=1)
        with pytest.raises(PipelineError, match="no keyed operator 'split'; known: count"):
            h.move("split", [0], to=1)


# -- the end ---------------------------------------------------------------------------------


def test_a_closed_harness_still_tells_what_came_and_takes_nothing() -> None:
    h = testing.harness(counting())
    h.send("lines", "a")
    h.close()
    h.close()
    assert h.results("out") == [("a", 1)]
    with pytest.raises(RuntimeError, match="the harness is closed"):
        h.send("lines", "b")


def test_the_objects_of_operators_are_closed() -> None:
    closed = []

    class Double:
        def __call__(self, n: int) -> int:
            return 2 * n

        def close(self) -> None:
            closed.append("double")

    class Keep:
        def on_tuple(self, key: int, state: list[int], n: int, time: KeyTime) -> list[int]:
            return [n]

        def close(self) -> None:
            closed.append("keep")

    pipeline = ab.Pipeline("close")
    numbers = pipeline.source("n", Anything.source).map("double", Double)
    numbers.key_by(lambda n: n).process("keep", Keep, state=list).sink("out", Anything.sink)
    assert testing.run(pipeline, {"n": [1]})["out"] == [2]
    assert closed == ["double", "keep"]


def test_the_error_of_a_test_is_not_hidden_by_the_end_of_the_stream(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def failing() -> None:
        with testing.harness(counting()) as h:
            h.send("lines", "a")
            monkeypatch.setattr(h.flow, "close", None)
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        failing()
