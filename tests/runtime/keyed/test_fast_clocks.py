"""One device whose clock is fast makes nobody else late."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import anabranch as ab
from anabranch import testing
from anabranch.testing import Outcome

NOW = 1000.0
AHEAD_S = 5.0
FAST = "fast"
RIGHT = "abc"

Event = tuple[str, float]

right_ones = st.tuples(st.sampled_from(RIGHT), st.integers(940, 1005).map(float))
fast_ones = st.tuples(st.just(FAST), st.sampled_from([1006.0, 1100.0, 4600.0, 1e9, 1e300]))
events = st.lists(right_ones | right_ones | fast_ones, max_size=30)


def time_of(event: Event) -> float:
    return event[1]


def device_of(event: Event) -> str:
    return event[0]


def outcome(sent: list[Event], **timing: Any) -> Outcome:
    pipeline = ab.Pipeline("clocks")
    source = pipeline.source("events", ab.files("/nowhere/*.txt"))
    keyed = source.event_time(time_of, **timing).key_by(device_of)
    windows = keyed.window(ab.tumbling(10.0), late="emit", lateness_s=3.0)
    windows.aggregate("count", ab.tally()).sink("out", ab.jsonl("/nowhere/out.jsonl"))
    return testing.run(pipeline, {"events": sent}, start=NOW)


def of_right_ones(made: Outcome) -> tuple[list[Any], list[Any]]:
    """What was told of devices whose clocks are right, in its order; their late tuples."""
    late = made.late.get("count", [])
    return [r for r in made["out"] if r.key != FAST], [e for e in late if e[0] != FAST]


@pytest.mark.parametrize("device", [None, device_of])
@given(sent=events)
def test_times_too_far_ahead_make_nobody_late(device: Any, sent: list[Event]) -> None:
    made = outcome(sent, ahead_s=AHEAD_S, device=device)
    without = outcome([e for e in sent if e[0] != FAST], ahead_s=AHEAD_S, device=device)
    assert of_right_ones(made) == of_right_ones(without)
    assert made.watermark("count") == without.watermark("count") <= NOW + AHEAD_S


@given(sent=events)
def test_a_fast_device_beside_others_that_are_heard_makes_nobody_late(sent: list[Event]) -> None:
    """Even if no bound is given: the slowest device counts."""
    heard = [(device, 940.0) for device in RIGHT]
    made = outcome([*heard, *sent], device=device_of)
    without = outcome([*heard, *[e for e in sent if e[0] != FAST]], device=device_of)
    assert of_right_ones(made) == of_right_ones(without)
    assert made.watermark("count") == without.watermark("count")


def test_without_a_bound_and_without_devices_one_tuple_makes_the_others_late() -> None:
    """So the two above can fail."""
    made = outcome([("a", 960.0), (FAST, 4600.0), ("a", 961.0)])
    assert of_right_ones(made)[1] == [("a", 961.0)]


def test_tuples_ahead_of_time_are_not_lost() -> None:
    made = outcome([("a", 960.0), (FAST, 4600.0), (FAST, 4601.0)], ahead_s=AHEAD_S)
    assert [r[:4] for r in made["out"]] == [("a", 960, 970, 1), (FAST, 4600, 4610, 2)]
    assert made.dead == {}
    assert made.late == {}


def test_a_device_whose_clock_breaks_holds_the_others_up_no_longer_than_one_that_is_silent() -> (
    None
):
    pipeline = ab.Pipeline("clocks")
    source = pipeline.source("events", ab.files("/nowhere/*.txt"))
    timed = source.event_time(time_of, ahead_s=AHEAD_S, device=device_of, idle_s=60.0)
    windows = timed.key_by(device_of).window(ab.tumbling(10.0))
    windows.aggregate("count", ab.tally()).sink("out", ab.jsonl("/nowhere/out.jsonl"))
    with testing.harness(pipeline, start=NOW) as h:
        h.send("events", ("a", 1000.0), (FAST, 1000.0))
        for second in range(1, 61):
            assert h.watermark("count") == 1000.0
            h.advance(1.0)
            h.send("events", ("a", 1000.0 + second), (FAST, 9e9))
        assert h.watermark("count") == 1060.0
        assert [r.end for r in h.results("out") if r.key == "a"] == [
            1010,
            1020,
            1030,
            1040,
            1050,
            1060,
        ]
