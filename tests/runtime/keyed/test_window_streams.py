"""Windows and joins as they are written: what comes out, and what is wrong is said at once."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from typing import Any

import pytest

import anabranch as ab
from anabranch import testing
from anabranch.runtime.keyed.windows import Window
from anabranch.runtime.pipeline.graph import KeyedStream
from anabranch.runtime.values.checks import PipelineError

Event = tuple[str, float, int]
Write = Callable[[KeyedStream], object]


def key_of(event: Event) -> str:
    return event[0]


def time_of(event: Event) -> float:
    return event[1]


def value_of(event: Event) -> int:
    return event[2]


def time_in_ms(event: Event) -> float:
    return event[1] / 1000


def describe(key: str, window: Window, events: list[Event]) -> list[Any]:
    return [(key, window.start, window.end, [event[2] for event in events])]


def nothing(key: str, window: Window, events: list[Event]) -> None:
    return None


def add(total: int, event: Event) -> int:
    return total + event[2]


def appended(values: list[int], event: Event) -> list[int]:
    values.append(event[2])
    return values


def later_one(first: Event, second: Event) -> Event:
    return max(first, second, key=time_of)


def both(key: str, left: Event, right: Any) -> tuple[Any, ...]:
    return key, left[2], None if right is None else right[2]


async def waiting(*args: Any) -> Any: ...


def events(name: str = "events", pipeline: ab.Pipeline | None = None) -> KeyedStream:
    pipeline = pipeline or ab.Pipeline("p")
    return pipeline.source(name, ab.items([])).event_time(time_of).key_by(key_of)


def untimed() -> KeyedStream:
    return ab.Pipeline("p").source("events", ab.items([])).key_by(key_of)


def results(stream: ab.Stream, *sent: Event, **options: Any) -> list[Any]:
    stream.sink("out", ab.discard())
    return testing.run(stream.pipeline, {"events": sent}, **options)["out"]


EVENTS = (("a", 1.0, 1), ("b", 5.0, 2), ("a", 8.0, 3), ("a", 12.0, 4), ("b", 31.0, 5))


# -- what comes out --------------------------------------------------------------------------


def test_an_aggregate_is_told_for_each_key_and_window() -> None:
    windows = events().window(ab.tumbling(10.0)).aggregate("sum", ab.total(value_of))
    assert results(windows, *EVENTS) == [
        ab.WindowResult("a", 0, 10, 4),
        ab.WindowResult("b", 0, 10, 2),
        ab.WindowResult("a", 10, 20, 4),
        ab.WindowResult("b", 30, 40, 5),
    ]


def test_functions_get_all_tuples_of_a_window() -> None:
    windows = events().window(ab.tumbling(10.0)).apply("all", describe)
    assert results(windows, *EVENTS)[:2] == [("a", 0, 10, [1, 3]), ("b", 0, 10, [2])]


def test_functions_may_have_nothing_to_say_of_a_window() -> None:
    assert results(events().window(ab.tumbling(10.0)).apply("none", nothing), *EVENTS) == []


@pytest.mark.parametrize("window", [ab.tumbling(10.0), ab.session(gap=10.0), ab.count(2)])
def test_a_fold_begins_anew_in_each_window(window: Any) -> None:
    folded = events().window(window).fold("list", list, appended)
    apart = events().window(window).apply("all", describe)
    assert [r.value for r in results(folded, *EVENTS)] == [r[3] for r in results(apart, *EVENTS)]


@pytest.mark.parametrize("window", [ab.tumbling(10.0), ab.session(gap=10.0), ab.count(2)])
def test_an_initial_value_that_is_changed_is_a_copy_in_each_window(window: Any) -> None:
    initial: list[int] = []
    folded = events().window(window).fold("list", initial, appended)
    assert max(len(r.value) for r in results(folded, *EVENTS)) <= 3
    assert initial == []


@pytest.mark.parametrize("window", [ab.tumbling(100.0), ab.session(gap=100.0), ab.count(3)])
def test_reducing_begins_with_the_first_tuple_of_a_window(window: Any) -> None:
    latest = events().window(window).reduce("latest", later_one)
    assert [(r.key, r.value) for r in sorted(results(latest, *EVENTS))] == [
        ("a", ("a", 12.0, 4)),
        ("b", ("b", 31.0, 5)),
    ]


@pytest.mark.parametrize("fold", ["fold", "reduce"])
def test_values_of_sessions_that_grow_together_are_of_all_their_tuples(fold: str) -> None:
    stream = ab.Pipeline("p").source("events", ab.items([])).event_time(time_of, disorder_s=99.0)
    sessions = stream.key_by(key_of).window(ab.session(gap=10.0))
    made = sessions.fold("w", 0, add) if fold == "fold" else sessions.reduce("w", later_one)
    (result,) = results(made, ("a", 1.0, 1), ("a", 18.0, 2), ("a", 9.0, 4))
    assert (result.start, result.end) == (1.0, 28.0)
    assert result.value == (7 if fold == "fold" else ("a", 18.0, 2))


def test_a_late_tuple_that_is_allowed_gives_a_revision() -> None:
    windows = events().window(ab.tumbling(10.0), lateness_s=50.0)
    summed = windows.fold("list", list, appended)
    sent = [("a", 1.0, 1), ("b", 30.0, 2), ("a", 2.0, 3)]
    assert results(summed, *sent)[:2] == [
        ab.WindowResult("a", 0, 10, [1], 0),
        ab.WindowResult("a", 0, 10, [1, 3], 1),
    ]


def test_windows_of_windows_need_no_time() -> None:
    small = events().window(ab.tumbling(10.0)).aggregate("small", ab.total(value_of))
    large = small.key_by(lambda r: r.key).window(ab.tumbling(20.0))
    summed = large.aggregate("large", ab.total(lambda r: r.value))
    assert results(summed, *EVENTS) == [
        ab.WindowResult("a", 0, 20, 8),
        ab.WindowResult("b", 0, 20, 2),
        ab.WindowResult("b", 20, 40, 5),
    ]


def test_what_a_user_says_of_event_time_counts_more_than_what_is_known_of_windows() -> None:
    small = events().window(ab.tumbling(10.0)).aggregate("small", ab.total(value_of))
    start = small.event_time(lambda r: r.start + 100).key_by(lambda r: r.key)
    moved = start.window(ab.tumbling(10.0)).aggregate("moved", ab.tally())
    assert {r.start for r in results(moved, *EVENTS)} == {100.0, 110.0, 130.0}


def test_a_time_that_is_given_counts_more_than_that_of_the_stream() -> None:
    windows = events().window(ab.tumbling(10.0), time=time_in_ms)
    assert [r.start for r in results(windows.aggregate("n", ab.tally()), *EVENTS)] == [0.0, 0.0]


def test_merged_streams_have_the_time_of_both_if_it_is_one() -> None:
    pipeline = ab.Pipeline("p")
    one, two = (pipeline.source(n, ab.items([])).event_time(time_of) for n in ("events", "more"))
    merged = one.merge(two).key_by(key_of).window(ab.tumbling(10.0)).aggregate("n", ab.tally())
    merged.sink("out", ab.discard())
    outcome = testing.run(pipeline, {"events": [("a", 1.0, 1)], "more": [("a", 2.0, 2)]})
    assert outcome["out"] == [ab.WindowResult("a", 0, 10, 2)]


def test_counted_windows_need_no_time() -> None:
    pairs = untimed().window(ab.count(2)).apply("pairs", describe)
    assert results(pairs, *EVENTS[:4]) == [("a", 0, 2, [1, 3]), ("a", 2, 3, [4]), ("b", 0, 1, [2])]


def test_a_join_pairs_what_is_in_one_window() -> None:
    pipeline = ab.Pipeline("p")
    left, right = events("events", pipeline), events("more", pipeline)
    left.join(right, ab.tumbling(10.0)).apply("both", both).sink("out", ab.discard())
    more = [("a", 2.0, 20), ("a", 15.0, 30), ("c", 1.0, 40)]
    outcome = testing.run(pipeline, {"events": EVENTS, "more": more}, instances={"both": 2})
    assert sorted(outcome["out"]) == [("a", 1, 20), ("a", 3, 20), ("a", 4, 30)]


def test_the_sides_of_a_join_may_tell_time_in_two_ways() -> None:
    pipeline = ab.Pipeline("p")
    left, right = events("events", pipeline), events("more", pipeline)
    joined = left.join(right, ab.tumbling(10.0), time=(time_of, time_in_ms))
    joined.apply("both", both).sink("out", ab.discard())
    sent = {"events": [("a", 2.0, 1), ("a", 22.0, 2)], "more": [("a", 23000.0, 3)]}
    assert testing.run(pipeline, sent)["out"] == [("a", 2, 3)]


def test_tuples_are_enriched_by_the_latest_of_the_side_before_them() -> None:
    pipeline = ab.Pipeline("p")
    left, side = events("events", pipeline), events("side", pipeline)
    left.enrich(side).apply("both", both).sink("out", ab.discard())
    with testing.harness(pipeline) as h:
        h.send("events", ("a", 1.0, 1))
        h.send("side", ("a", 0.0, 10), ("b", 0.0, 20), ("a", 0.0, 11))
        h.send("events", ("a", 1.0, 2), ("c", 1.0, 3))
        assert h.results("out") == [("a", 1, None), ("a", 2, 11), ("c", 3, None)]


# -- how it is described ---------------------------------------------------------------------


@pytest.mark.parametrize(
    ("write", "what"),
    [
        (lambda k: k.window(ab.tumbling(60)).aggregate("w", ab.tally()), "aggregate tumbling(60)"),
        (lambda k: k.window(ab.session(30)).apply("w", describe), "apply session(gap=30)"),
        (lambda k: k.window(ab.count(9)).fold("w", 0, add), "fold count(9, every=9)"),
        (
            lambda k: k.window(ab.sliding(60, every=10)).reduce("w", later_one),
            "reduce sliding(60, every=10)",
        ),
    ],
)
def test_an_operator_says_what_it_does_and_travels(write: Write, what: str) -> None:
    stream = events()
    write(stream)
    operator = pickle.loads(pickle.dumps(stream.stream.pipeline.operators["w"]))  # type: ignore[index]
    assert operator.keyed.what == what
    operator.keyed.make()


# -- mistakes --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("write", "message"),
    [
        (lambda k: k.window(60), r"window: expected ab\.tumbling.*, got 60"),
        (lambda k: k.window(ab.tumbling(9), time=5), "window: time: expected a function, got 5"),
        (lambda k: k.window(ab.tumbling(9), time=waiting), "window: time: expected a plain"),
        (lambda k: k.window(ab.tumbling(9), lateness_s=-1), "lateness_s must be 0 or more .* -1"),
        (lambda k: k.window(ab.tumbling(9), lateness_s="1"), "lateness_s must be .* got '1'"),
        (lambda k: k.window(ab.tumbling(9), lateness_s=float("inf")), "lateness_s must .* got inf"),
        (lambda k: k.window(ab.tumbling(9), late="keep"), "one of bury, emit, drop, got 'keep'"),
        (lambda k: k.window(ab.count(9), lateness_s=5), r"count\(9, every=9\) counts tuples"),
        (lambda k: k.window(ab.count(9), time=time_of), "lateness_s mean nothing; leave them out"),
        (lambda k: k.window(ab.tumbling(9)).aggregate("w", ab.mean), r"'w': expected an aggre.*ab"),
        (lambda k: k.window(ab.tumbling(9)).apply("w", None), "apply 'w': expected a function"),
        (lambda k: k.window(ab.tumbling(9)).apply("w", waiting), "apply 'w': expected a plain"),
        (lambda k: k.window(ab.tumbling(9)).fold("w", 0, 0), "fold 'w': expected a function"),
        (lambda k: k.window(ab.tumbling(9)).reduce("w", 0), "reduce 'w': expected a function"),
        (lambda k: k.join(k, ab.session(9)), r"join: expected ab\.tumbling.*got Session"),
        (lambda k: k.join(k.stream, ab.tumbling(9)), r"join: expected a stream with keys, \.key"),
        (lambda k: k.join(k, ab.tumbling(9), time=(time_of,)), r"join: time must be .*two of them"),
        (lambda k: k.join(k, ab.tumbling(9), time=(time_of, None)), "join: time must be a func"),
        (lambda k: k.join(k, ab.tumbling(9), time=(time_of, 5)), "join: time: expected a function"),
        (
            lambda k: k.join(k, ab.tumbling(9), time=(time_of, time_of), lateness_s=-1),
            "join: lateness_s must be 0 or more",
        ),
        (
            lambda k: k.join(k, ab.tumbling(9), time=(time_of, time_of), late="keep"),
            "join: late must be one of",
        ),
        (lambda k: k.join(k, ab.tumbling(9)).apply("w", 5), "join 'w': expected a function"),
        (lambda k: k.enrich(k.stream), "enrich: expected a stream with keys"),
        (lambda k: k.enrich(k).apply("w", 5), "enrich 'w': expected a function"),
    ],
)
def test_mistakes_are_named(write: Write, message: str) -> None:
    with pytest.raises(PipelineError, match=message):
        write(events())


def test_a_stream_whose_time_is_not_known_needs_one() -> None:
    with pytest.raises(PipelineError, match=r"'n': which event time have its tuples\? Call"):
        untimed().window(ab.tumbling(9)).aggregate("n", ab.tally())
    untimed().window(ab.tumbling(9), time=time_of).aggregate("n", ab.tally())


def test_an_operator_in_between_may_have_changed_the_time() -> None:
    mapped = events().stream.map("same", lambda event: event).key_by(key_of)
    with pytest.raises(PipelineError, match="on the stream just before"):
        mapped.window(ab.tumbling(9)).aggregate("n", ab.tally())


def test_merged_streams_of_different_times_need_one() -> None:
    pipeline = ab.Pipeline("p")
    one = pipeline.source("one", ab.items([])).event_time(time_of)
    two = pipeline.source("two", ab.items([])).event_time(time_in_ms)
    three = pipeline.source("three", ab.items([]))
    for other in (two, three):
        with pytest.raises(PipelineError, match="which event time"):
            one.merge(other).key_by(key_of).window(ab.tumbling(9)).aggregate("n", ab.tally())


def windows_of_windows(late: Any) -> ab.Stream:
    small = events().window(ab.tumbling(10.0), late=late).aggregate("small", ab.tally())
    large = small.key_by(lambda r: r.key).window(ab.tumbling(20.0))
    return large.aggregate("large", ab.tally())


def test_late_tuples_among_results_have_no_time_of_a_window() -> None:
    with pytest.raises(PipelineError, match="'large': which event time"):
        windows_of_windows("emit")


@pytest.mark.parametrize("late", ["bury", "drop"])
def test_late_tuples_that_are_not_among_results_do_not_matter(late: str) -> None:
    assert [r.value for r in results(windows_of_windows(late), *EVENTS)] == [2, 1, 1]
