"""Windows over results of windows: a correction replaces what it corrects, a retraction takes it
back, whether the outer window was told already or not."""

from __future__ import annotations

import math
import pickle
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import anabranch as ab
from anabranch.runtime.keyed.aggregations import Collecting, OfResults, least, mean, tally, total
from anabranch.runtime.keyed.window_handlers import TellAll, TimeWindows, tell_result
from anabranch.runtime.keyed.windows import (
    Moved,
    Retraction,
    Session,
    Sliding,
    WindowResult,
    session,
    sliding,
    tumbling,
    window_time,
)
from tests.runtime.keyed.keyed_time import Keeper
from tests.runtime.keyed.keyed_windows import told, windows
from tests.runtime.keyed.test_session_windows import between_gaps


def value_of(result: WindowResult) -> Any:
    return result.value


def sums(kind: Sliding | Session, lateness_s: float = 0.0) -> Keeper:
    aggregation = OfResults(total(value_of))
    return Keeper(TimeWindows(kind, window_time, lateness_s, aggregation, tell_result))


def of(start: float, end: float, value: Any, revision: int = 0) -> WindowResult:
    return WindowResult("inner", start, end, value, revision)


# -- results -----------------------------------------------------------------------------------


def test_a_retraction_has_the_five_fields_of_a_result_and_says_so() -> None:
    one = Retraction("k", 0.0, 10.0, 0, 1)
    key, start, end, value, revision = one
    assert (key, start, end, value, revision) == ("k", 0.0, 10.0, 0, 1)
    assert (one.retracted, told(0, 10, 0).retracted) == (True, False)
    assert repr(one).endswith("revision=1, retracted=True)")
    assert isinstance(pickle.loads(pickle.dumps(one)), Retraction)


def test_a_result_that_moved_travels_with_the_end_that_it_had() -> None:
    one = pickle.loads(pickle.dumps(Moved.of(told(0, 20, 5, 1), 10.0)))
    assert (one, one.earlier_end, one.retracted) == (told(0, 20, 5, 1), 10.0, False)
    assert repr(one) == repr(told(0, 20, 5, 1))


@pytest.mark.parametrize(
    ("aggregation", "empty"),
    [(tally(), 0), (total(), 0), (mean(), None), (least(), None), (Collecting(len), 0)],
    ids=["tally", "total", "mean", "least", "list"],
)
def test_a_retraction_has_the_value_of_no_tuples_or_none(aggregation: Any, empty: Any) -> None:
    assert aggregation.empty() == empty


# -- sessions ----------------------------------------------------------------------------------


def test_a_session_that_begins_earlier_now_retracts_the_result_under_its_old_start() -> None:
    keeper = windows(session(gap=10), lateness_s=500.0, aggregation=tally())
    keeper.put((20.0, ""))
    keeper.advance(30.0)
    assert [(r, r.retracted) for r in keeper.put((12.0, ""))] == [
        (told(20, 30, 0, 1), True),
        (told(12, 30, 2, 1), False),
    ]


def test_a_result_is_retracted_when_its_session_goes_on_though_the_longer_one_has_not_ended() -> (
    None
):
    keeper = windows(session(gap=10), lateness_s=500.0, aggregation=tally())
    keeper.put((20.0, ""))
    keeper.advance(30.0)
    keeper.put((35.0, ""))
    assert keeper.put((28.0, "")) == []  # the same start: the next revision will correct it
    (retraction,) = keeper.put((12.0, ""))
    assert (retraction, retraction.retracted) == (told(20, 30, 0, 1), True)
    assert keeper.put((4.0, "")) == []  # nothing was told under the start that it had
    assert keeper.advance(math.inf) == [told(4, 45, 5, 1)]
    assert keeper.forgotten


def test_functions_that_get_all_tuples_are_not_called_for_a_session_that_is_no_more() -> None:
    tell = TellAll(lambda key, window, tuples: [len(tuples)])
    keeper = windows(session(gap=10), lateness_s=500.0, aggregation=Collecting(list), tell=tell)
    keeper.put((0.0, ""), (15.0, ""))
    assert keeper.advance(100.0) == [1, 1]
    assert keeper.put((7.0, "")) == [3]


# -- windows over results ----------------------------------------------------------------------


def test_a_correction_replaces_the_result_before_it() -> None:
    keeper = sums(tumbling(60))
    keeper.put(of(0, 10, 5), of(10, 20, 1), of(0, 10, 7, 1))
    assert keeper.advance(60.0) == [told(0, 60, 8)]
    assert keeper.forgotten


def test_a_retraction_takes_a_result_back() -> None:
    keeper = sums(tumbling(60))
    keeper.put(of(0, 10, 5), of(20, 30, 1), Retraction("inner", 20, 30, 0, 1))
    assert keeper.advance(60.0) == [told(0, 60, 5)]


def test_a_window_all_of_whose_results_were_taken_back_is_not_told() -> None:
    keeper = sums(tumbling(60))
    keeper.put(of(0, 10, 5), Retraction("inner", 0, 10, 0, 1))
    assert keeper.advance(60.0) == []
    assert keeper.forgotten


def test_what_comes_after_the_outer_window_was_told_corrects_it_or_takes_it_back() -> None:
    keeper = sums(tumbling(60), lateness_s=100.0)
    keeper.put(of(0, 10, 5))
    assert keeper.advance(60.0) == [told(0, 60, 5)]
    assert keeper.put(of(0, 10, 7, 1)) == [told(0, 60, 7, 1)]
    (retraction,) = keeper.put(Retraction("inner", 0, 10, 0, 2))
    assert (retraction, retraction.retracted) == (told(0, 60, 0, 2), True)
    assert keeper.put(of(0, 10, 9, 3)) == [told(0, 60, 9, 3)]
    keeper.advance(math.inf)
    assert keeper.forgotten


def test_a_correction_after_the_lateness_of_the_outer_window_is_late() -> None:
    keeper = sums(tumbling(60))
    keeper.put(of(0, 10, 5))
    keeper.advance(60.0)
    keeper.put(of(0, 10, 7, 1))
    assert [item for item, _ in keeper.time.late_ones] == [of(0, 10, 7, 1)]


@pytest.mark.parametrize("kind", [tumbling(20), sliding(40, every=20)])
def test_a_session_that_ends_in_another_outer_window_leaves_the_one_where_it_was(
    kind: Sliding,
) -> None:
    keeper, other = sums(kind, lateness_s=100.0), sums(kind, lateness_s=100.0)
    keeper.put(of(0, 15, 5), of(1, 16, 1), Moved.of(of(0, 25, 7, 1), 15.0))
    other.put(of(1, 16, 1), of(0, 25, 7))
    assert keeper.advance(math.inf) == other.advance(math.inf)


def test_the_outer_window_that_a_session_has_left_is_corrected_if_it_was_told() -> None:
    keeper = sums(tumbling(20), lateness_s=100.0)
    keeper.put(of(0, 15, 5))
    assert keeper.advance(20.0) == [told(0, 20, 5)]
    (retraction,) = keeper.put(Moved.of(of(0, 25, 7, 1), 15.0))
    assert (retraction, retraction.retracted) == (told(0, 20, 0, 1), True)
    assert keeper.advance(math.inf) == [told(20, 40, 7)]


def test_an_older_result_that_comes_behind_a_newer_one_does_not_count() -> None:
    keeper = sums(tumbling(60))
    keeper.put(of(0, 10, 7, 1), of(0, 10, 5, 0))
    assert keeper.advance(60.0) == [told(0, 60, 7)]


def test_a_result_that_cannot_be_added_is_an_error_of_that_result() -> None:
    keeper = sums(tumbling(60))
    keeper.put(of(0, 10, 5))
    with pytest.raises(TypeError):
        keeper.put(of(10, 20, "text"))
    assert keeper.advance(60.0) == [told(0, 60, 5)]


# -- in pipelines ------------------------------------------------------------------------------

Outer = Callable[[Any], object]


def run(inner: Any, outer: Outer, times: list[float]) -> list[Any]:
    pipeline = ab.Pipeline("p")
    source = pipeline.source("s", ab.items([])).event_time(lambda t: t)
    windowed = source.key_by(lambda t: "k").window(inner, lateness_s=1e6)
    outer(windowed.aggregate("inner", ab.tally()).map("same", lambda r: r).key_by(lambda r: r.key))
    return [*ab.testing.run(pipeline, {"s": times})["out"]]


def totals(keyed: Any) -> None:
    windowed = keyed.window(ab.tumbling(50), time=window_time, lateness_s=1e6)
    windowed.aggregate("outer", ab.total(value_of)).sink("out", ab.discard())


def folded(keyed: Any) -> None:
    windowed = keyed.window(ab.tumbling(50), time=window_time, lateness_s=1e6)
    windowed.fold("outer", 0, lambda sum_, r: sum_ + r.value).sink("out", ab.discard())


def reduced(keyed: Any) -> None:
    windowed = keyed.window(ab.tumbling(50), time=window_time, lateness_s=1e6)
    added = windowed.reduce("outer", lambda a, b: a._replace(value=a.value + b.value))
    added.map("value", lambda r: r._replace(value=r.value and r.value.value)).sink(
        "out", ab.discard()
    )


@given(st.lists(st.integers(0, 200).map(float), min_size=1, max_size=15))
@pytest.mark.parametrize("outer", [totals, folded, reduced])
def test_sums_over_sessions_end_up_as_if_no_tuple_had_been_late(
    outer: Outer, times: list[float]
) -> None:
    last = {r.start: r for r in run(ab.session(10), outer, times)}
    right: dict[float, int] = {}
    for own in between_gaps(times, 10):
        start = (math.ceil((own[-1] + 10) / 50) - 1) * 50.0
        right[start] = right.get(start, 0) + len(own)
    assert {start: r.value for start, r in last.items() if not r.retracted} == right


@given(st.lists(st.integers(0, 200).map(float), min_size=1, max_size=15))
def test_sums_over_tumbling_windows_count_each_tuple_once(times: list[float]) -> None:
    last = {r.start: r.value for r in run(ab.tumbling(10), totals, times)}
    assert sum(last.values()) == len(times)


def test_functions_that_get_all_tuples_of_a_window_get_each_result_once() -> None:
    def outer(keyed: Any) -> None:
        windowed = keyed.window(ab.tumbling(50), time=window_time)
        windowed.apply("outer", lambda key, window, rs: [[r.value for r in rs]]).sink(
            "out", ab.discard()
        )

    assert run(ab.tumbling(10), outer, [1, 12, 2, 3, 13]) == [[3, 2]]


def test_results_of_several_operators_are_not_taken_for_corrections_of_each_other() -> None:
    pipeline = ab.Pipeline("p")
    keyed = pipeline.source("s", ab.items([])).event_time(lambda t: t).key_by(lambda t: "k")
    first = keyed.window(ab.tumbling(10), lateness_s=100).aggregate("first", ab.tally())
    second = keyed.window(ab.tumbling(10), lateness_s=100).aggregate("second", ab.tally())
    both = first.merge(second).key_by(lambda r: r.key).window(ab.tumbling(10))
    both.aggregate("outer", ab.total(value_of)).sink("out", ab.discard())
    (result,) = ab.testing.run(pipeline, {"s": [1, 2]})["out"]
    assert result.value == 4
