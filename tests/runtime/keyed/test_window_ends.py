"""Ends of windows come up at their time, and follow from what the states hold."""

from __future__ import annotations

import math
from typing import Any

import anabranch as ab
from anabranch.runtime.keyed.panes import Pane, Panes
from anabranch.runtime.keyed.schedule import SWEEP_ABOVE
from anabranch.runtime.keyed.window_ends import WindowEnds
from anabranch.runtime.keyed.windows import Window
from tests.runtime.keyed.bench import Bench
from tests.runtime.keyed.keyed_windows import windows


def opened(ends: WindowEnds, states: dict[Any, Panes], key: Any, start: float, end: float) -> Pane:
    pane = Pane(Window(start, end), 0)
    states.setdefault(key, Panes())[start] = pane
    ends.add(key, start, pane)
    return pane


def due(ends: WindowEnds, until: float = math.inf) -> list[tuple[Any, float, float]]:
    return list(ends.due(until, lambda key: True))


def test_ends_come_up_by_time_and_then_by_key() -> None:
    states: dict[Any, Panes] = {}
    ends = WindowEnds(states, 0.0)
    for key, start in [("c", 0.0), ("a", 10.0), ("b", 0.0), ("a", 0.0)]:
        opened(ends, states, key, start, start + 10)
    assert due(ends, 10.0) == [("a", 0, 10), ("b", 0, 10), ("c", 0, 10)]
    assert ends.next_at() == 20.0


def test_a_window_that_has_ended_comes_up_again_when_it_is_to_be_forgotten() -> None:
    states: dict[Any, Panes] = {}
    ends = WindowEnds(states, 5.0)
    opened(ends, states, "k", 0.0, 10.0)
    seen = []
    for key, name, at in ends.due(math.inf, lambda key: True):
        seen.append((at, states[key][name].ended))
        states[key][name].ended = True
    assert seen == [(10.0, False), (15.0, True)]


def test_what_is_no_more_or_ends_at_another_time_does_not_come_up() -> None:
    states: dict[Any, Panes] = {}
    ends = WindowEnds(states, 0.0)
    grown = opened(ends, states, "grown", 0.0, 10.0)
    grown.window = Window(0.0, 12.0)
    ends.add("grown", 0.0, grown)
    opened(ends, states, "gone", 0.0, 10.0)
    del states["gone"][0.0]
    opened(ends, states, "told", 0.0, 10.0).ended = True
    assert due(ends) == [("grown", 0.0, 12.0)]


def test_ends_of_keys_that_may_not_fire_sleep_until_they_are_woken() -> None:
    states: dict[Any, Panes] = {}
    ends = WindowEnds(states, 0.0)
    for key in ("here", "away"):
        opened(ends, states, key, 0.0, 1.0)
    assert list(ends.due(2.0, lambda key: key == "here")) == [("here", 0.0, 1.0)]
    assert ends.next_at() == math.inf
    ends.wake(["away", "unknown"])
    assert due(ends) == [("away", 0.0, 1.0)]


def test_a_session_that_grows_for_ever_takes_no_more_room() -> None:
    keeper = windows(ab.session(gap=10.0))
    ends = keeper.handler.ends
    for n in range(2_000):
        keeper.put((float(n), n))
        ends.tidy()
    assert sum(map(len, ends._entries_at.values())) <= 4 + SWEEP_ABOVE
    (result,) = keeper.advance(math.inf)
    assert (result.start, result.end, len(result.value)) == (0.0, 2_009.0, 2_000)


def test_all_windows_of_a_first_tuple_end_however_many_they_are() -> None:
    """Its state is not known to the schedule before the call has ended."""
    keeper = windows(ab.sliding(100.0, every=0.5))
    keeper.put((100.0, "x"))
    assert len(keeper.advance(math.inf)) == 200 > 2 * SWEEP_ABOVE


class Told(ab.Aggregation):
    """Tells when a tuple is added, and when a result is made."""

    def __init__(self, seen: list[Any]) -> None:
        self.seen = seen

    def new(self) -> int:
        return 0

    def add(self, accumulator: int, item: float) -> int:
        self.seen.append(item)
        return accumulator + 1

    def result(self, accumulator: int) -> str:
        self.seen.append("end")
        return "end"

    def merge(self, first: int, second: int) -> int:
        return first + second


async def test_a_window_that_begins_in_a_batch_ends_before_the_tuple_that_comes_at_its_end() -> (
    None
):
    seen: list[Any] = []
    bench = Bench(
        lambda keyed: keyed.window(ab.tumbling(10.0), time=float).aggregate("work", Told(seen))
    )
    bench.one.marking.limit = lambda tag: math.inf

    async def heard(tag: Any, mark: float) -> None:
        await bench.one.advance(mark)

    bench.one.marking.heard = heard
    times = [1.0, 2.0, 10.0, 11.0]
    await bench.one.run(["a", "b", "a", "c"], times, 0, "tag", marks=times, follows=True)
    assert seen == [1.0, 2.0, "end", "end", 10.0, 11.0]
