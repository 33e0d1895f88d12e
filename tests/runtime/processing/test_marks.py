"""Marks: the watermark as a part of the stream."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

import anabranch as ab
from anabranch import testing
from anabranch.protocol.limits import Limits
from anabranch.runtime.plan.operator import Operator
from anabranch.runtime.processing.marks import NO_MARK, Marked, Opened, marked_ways, opened
from anabranch.runtime.processing.operators import make_processor
from anabranch.runtime.processing.payload import Encoder, decode
from anabranch.runtime.processing.steps import Part

Event = tuple[str, float]


def time_of(event: Event) -> float:
    return event[1]


def key_of(event: Event) -> str:
    return event[0]


@given(st.lists(st.tuples(st.integers(), st.floats(allow_nan=False)), min_size=1), st.booleans())
def test_a_batch_gives_back_its_tuples_and_their_marks(
    pairs: list[tuple[int, float]], follows: bool
) -> None:
    tuples, marks = [one for one, _ in pairs], [mark for _, mark in pairs]
    encoded = Encoder(Limits()).encode_batches(Marked(tuples, marks, follows=follows))
    (batch,) = encoded.batches
    whole = opened(batch.data, batch.tuples)
    assert (decode(whole.data), whole.marks, whole.follows) == (tuples, marks, follows)


def test_a_batch_without_marks_is_as_it_was() -> None:
    data = Encoder(Limits()).encode([1, 2])
    assert opened(data, 2) == Opened(data)


def test_marks_that_are_alike_take_the_room_of_one() -> None:
    encoder = Encoder(Limits())
    alike, each = (
        encoder.encode(Marked([0] * 100, marks)) for marks in ([1.0] * 100, [*range(100)])
    )
    assert len(each) - len(alike) == 99 * 8


def test_tuples_that_cannot_travel_leave_the_marks_of_the_others() -> None:
    tuples = [1, lambda: 0, 3]
    encoded = Encoder(Limits()).encode_batches(Marked(tuples, [1.0, 2.0, 3.0]))
    (batch,) = encoded.batches
    assert opened(batch.data, batch.tuples).marks == [1.0, 3.0]
    assert len(encoded.dead) == 1


def test_marks_travel_from_where_event_time_is_read_to_where_it_is_asked_for() -> None:
    pipeline = ab.Pipeline("ways")
    events = pipeline.source("events", ab.items([])).map("same", tuple).event_time(time_of)
    passed = events.map("pass", tuple)
    passed.key_by(key_of).window(ab.tumbling(1), time=time_of).aggregate(
        "windows", ab.tally()
    ).sink("out", ab.discard())
    passed.key_by(key_of).fold("sum", 0, lambda a, _: a).sink("sums", ab.discard())
    ways = {("same", "pass"), ("pass", "windows")}
    assert marked_ways(pipeline.operators) == ways


async def marks_of(operator: Operator, tuples: list[str], marks: list[float]) -> list[float]:
    parts: list[Part] = []
    processor = make_processor(operator, slice_s=1.0, emit=parts.append)
    await processor.run(tuples, marks=marks)
    await processor.drain()
    return [mark for part in parts for mark in part.marks or []]


async def test_each_result_has_the_mark_of_the_tuple_that_it_is_made_of() -> None:
    pipeline = ab.Pipeline("chain")
    steps = ab.flat_map(str.split), ab.map(str.upper), ab.filter(lambda word: word != "B")
    pipeline.source("s", ab.items([])).fuse("chain", *steps).sink("out", ab.discard())
    operator = next(o for o in pipeline.operators.values() if o.steps)
    assert await marks_of(operator, ["a b", "", "b c c"], [1.0, 2.0, 3.0]) == [1.0, 3.0, 3.0]


async def test_results_of_many_tuples_at_once_have_the_earliest_of_their_marks() -> None:
    pipeline = ab.Pipeline("batches")
    pipeline.source("s", ab.items([])).flat_map("twice", lambda b: b + b, batch=True).sink(
        "out", ab.discard()
    )
    operator = next(o for o in pipeline.operators.values() if o.steps)
    assert await marks_of(operator, ["a", "b"], [1.0, 2.0]) == [1.0] * 4


@given(
    st.lists(st.tuples(st.sampled_from("ab"), st.integers(0, 60).map(float)), max_size=40),
    st.integers(0, 10).map(float),
    st.integers(1, 3),
)
def test_what_is_late_follows_from_the_order_of_tuples(
    events: list[Event], disorder_s: float, instances: int
) -> None:
    pipeline = ab.Pipeline("windows")
    stream = pipeline.source("events", ab.items([])).event_time(time_of, disorder_s=disorder_s)
    windows = stream.map("same", tuple).key_by(key_of).window(ab.tumbling(10), time=time_of)
    windows.aggregate("count", ab.tally()).sink("out", ab.discard())
    outcome = testing.run(pipeline, {"events": events}, instances={"count": instances})
    watermark, late = NO_MARK, []
    for event in events:
        if event[1] // 10 * 10 + 10 <= watermark:
            late.append(event)
        watermark = max(watermark, event[1] - disorder_s)
    assert sorted(outcome.late.get("count", [])) == sorted(late)
