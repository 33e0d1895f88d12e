"""Timers of `process` are called between the same tuples of their key, and meet the same time, in
however many instances, whenever watermarks are said, and while groups move."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from anabranch.runtime.keyed.handler import KeyTime, Timer
from anabranch.runtime.keyed.holdings import Holdings
from anabranch.runtime.keyed.moving import Kept
from anabranch.runtime.keyed.processor import KeyedProcessor
from anabranch.runtime.keyed.watermarks import Stamper
from anabranch.runtime.pipeline.graph import KeyedStream
from anabranch.runtime.plan.spec import EventTime
from tests.runtime.keyed.bench import Bench

NAMES = ("a", "b", "c")


class Wish(NamedTuple):
    """What a tuple or a timer does: set a timer so far from its own time, or cancel it."""

    name: str
    after_s: int | None


class One(NamedTuple):
    key: int
    at: float
    wishes: tuple[Wish, ...]
    later: tuple[Wish, ...]
    """What the timers do that are called next."""


class Following:
    """Tells all that happens to a key, with the time that it meets."""

    def on_tuple(self, key: int, state: dict[str, Any], one: One, time: KeyTime) -> list[Any]:
        state["later"] = [*one.later]
        heed(one.wishes, one.at, time)
        return [(key, "", one.at, time.watermark)]

    def on_timer(self, key: int, state: dict[str, Any], timer: Timer, time: KeyTime) -> list[Any]:
        later = state["later"]
        if later and time.watermark < math.inf:
            heed([later.pop()], timer.at, time)
        return [(key, timer.name, timer.at, time.watermark)]


def heed(wishes: Iterable[Wish], at: float, time: KeyTime) -> None:
    for name, after_s in wishes:
        if after_s is None:
            time.cancel_timer(name)
        else:
            time.set_timer(at + after_s, name)


def following(keyed: KeyedStream) -> object:
    return keyed.process("work", Following, state=dict)


wishes = st.builds(Wish, st.sampled_from(NAMES), st.none() | st.integers(-6, 12))
streams = st.lists(
    st.builds(
        One,
        st.integers(0, 5),
        st.integers(-4, 4).map(float),
        st.lists(wishes, max_size=3).map(tuple),
        st.lists(wishes, max_size=3).map(tuple),
    ),
    max_size=40,
).map(lambda ones: [one._replace(at=one.at + 2 * n) for n, one in enumerate(ones)])


class Marked(NamedTuple):
    one: One
    mark: float
    after: float
    """The watermark behind it."""


def marked(stream: list[One]) -> list[Marked]:
    stamper, found = Stamper(EventTime(lambda one: one.at, 3.0)), []
    for one in stream:
        (mark,) = stamper.note([one], 0.0, 0.0).marks
        found.append(Marked(one, mark, stamper.watermark(0.0)))
    return found


def told(benches: Iterable[Bench]) -> dict[int, list[Any]]:
    """By key, what has happened to it, and the marks of that."""
    found: defaultdict[int, list[Any]] = defaultdict(list)
    for bench in benches:
        for part in bench.parts:
            assert part.letters == []
            assert part.marks is not None
            for result, mark in zip(part.results, part.marks, strict=True):
                found[result[0]].append((*result[1:], mark))
    return dict(found)


def bench_of(instances: int) -> Bench:
    bench = Bench(following, groups=4, instances=instances)
    for processor in bench.all:
        processor.marks_results = True
        processor.marking.limit = lambda _tag: math.inf
    return bench


async def tuple_by_tuple(stream: list[Marked]) -> dict[int, list[Any]]:
    """As `ab.testing`: event time goes on behind the very tuple that moves it."""
    bench = bench_of(1)
    for one, mark, after in stream:
        await bench.one.run([one.key], [one], 0, None, marks=[mark])
        await bench.one.advance(after)
    await bench.one.end()
    return told([bench])


class Owner:
    """An instance that is at a place of the stream of its own. `said`: how far it was told."""

    def __init__(self, processor: KeyedProcessor, stream: list[Marked]) -> None:
        self.processor = processor
        self.stream = stream
        self.at = 0

    async def go_on(self, to: int, mine: set[int], bench: Bench) -> None:
        """To another place: its tuples in one batch."""
        ones = [m for m in self.stream[self.at : to] if bench.group(m.one.key) in mine]
        self.at = max(self.at, to)
        if ones:
            keys, tuples = [m.one.key for m in ones], [m.one for m in ones]
            marks = [m.mark for m in ones]
            await self.processor.run(keys, tuples, 0, None, marks=marks, by_key=True)

    async def hear(self) -> None:
        if self.at:
            await self.processor.advance(self.stream[self.at - 1].after)


async def by_several(stream: list[Marked], steps: Iterator[int]) -> dict[int, list[Any]]:
    """At two owners, between which groups move; `steps`: what happens next."""
    bench = bench_of(2)
    owners = [Owner(processor, stream) for processor in bench.all]
    route = dict.fromkeys(range(4), 0)

    def mine(number: int) -> set[int]:
        return {group for group, owner in route.items() if owner == number}

    for step in steps:
        number, what = step % 2, step // 2 % 4
        one, other = owners[number], owners[1 - number]
        if what < 2:
            await one.go_on(min(len(stream), one.at + 1 + step // 8), mine(number), bench)
        elif what == 2:
            await one.hear()
        elif groups := {g for g in mine(number) if step >> 3 + g & 1}:
            place = max(
                one.at, other.at
            )  # the giver is as far as the new owner, which waits for it
            await one.go_on(place, mine(number), bench)
            await one.hear()
            one.processor.freeze(groups)
            await other.go_on(place, mine(1 - number), bench)
            await one.go_on(min(len(stream), place + step // 8), mine(number), bench)
            for group in groups:
                route[group] = 1 - number
            for chunk in one.processor.export(groups, 4096):
                await other.processor.install(chunk)
            await other.go_on(one.at, mine(1 - number) - groups, bench)
    for number, owner in enumerate(owners):
        await owner.go_on(len(stream), mine(number), bench)
        await owner.hear()
        await owner.processor.end()
    return told([bench])


@settings(deadline=None)
@given(streams, st.lists(st.integers(0, 127), max_size=30))
async def test_whatever_instances_and_clocks_do(stream: list[One], steps: list[int]) -> None:
    stamped = marked(stream)
    assert await by_several(stamped, iter(steps)) == await tuple_by_tuple(stamped)


async def test_a_timer_is_called_before_the_first_tuple_whose_mark_has_come_to_it() -> None:
    bench = bench_of(1)
    ones = [One(1, 0.0, (Wish("a", 5),), ()), One(2, 9.0, (), ()), One(1, 9.0, (), ())]
    await bench.one.run([1, 2, 1], ones, 0, None, marks=[0.0, 4.0, 5.0], by_key=True)
    assert [r[:2] for r in bench.results] == [(1, ""), (2, ""), (1, "a"), (1, "")]


async def test_a_timer_for_a_time_that_has_come_is_called_right_behind_its_tuple() -> None:
    bench = bench_of(1)
    ones = [One(1, 7.0, (Wish("b", -1), Wish("a", -1), Wish("c", 0)), ()), One(1, 8.0, (), ())]
    await bench.one.run([1, 1], ones, 0, None, marks=[7.0, 7.0])
    assert [r[1:] for r in bench.results] == [
        ("", 7.0, 7.0),
        ("a", 6.0, 7.0),
        ("b", 6.0, 7.0),
        ("c", 7.0, 7.0),
        ("", 8.0, 7.0),
    ]


class Stubborn(Following):
    def on_timer(self, key: int, state: Any, timer: Timer, time: KeyTime) -> list[Any]:
        time.set_timer(timer.at, timer.name)
        return [timer.at]


async def test_a_timer_that_sets_itself_again_for_the_same_time_is_a_dead_letter() -> None:
    bench = Bench(lambda keyed: keyed.process("work", Stubborn, state=dict))
    one = One(1, 7.0, (Wish("a", -1),), ())
    await bench.one.run([1, 1], [one, one._replace(wishes=())], 0, None, marks=[7.0, 8.0])
    (letter,) = bench.letters
    assert "set them for a time after time.watermark" in letter.reason
    assert (letter.where, bench.taken) == ("key 1, timer 'a' at 6", 2)


class Ticking(Following):
    def on_timer(self, key: int, state: Any, timer: Timer, time: KeyTime) -> list[Any]:
        if time.watermark < math.inf:
            time.set_timer(timer.at + 1, timer.name)
        return [timer.at]


@pytest.mark.parametrize("by_key", [False, True])
async def test_others_have_their_turn_while_thousands_of_timers_precede_a_tuple(
    by_key: bool,
) -> None:
    bench = Bench(lambda keyed: keyed.process("work", Ticking, state=dict), tick_s=0.001)
    bench.one.marking.limit = lambda _tag: math.inf
    first, second = One(1, 0.0, (Wish("a", 1),), ()), One(1, 5000.0, (), ())
    await bench.one.run([1], [first], 0, None, marks=[0.0], by_key=by_key)
    if not by_key:
        await bench.one.advance(5000.0)
    await bench.one.run([1], [second], 0, None, marks=[5000.0], by_key=by_key)
    times = [r for r in bench.results if type(r) is float]
    assert times == [*map(float, range(1, 5001))]
    assert bench.results[-1] == (1, "", 5000.0, 5000.0)
    assert bench.commits >= 3


def test_event_time_of_a_key_waits_for_all_that_was_kept_for_it() -> None:
    holdings = Holdings("work", 4)
    for key, met, mark in ((1, 20.0, 20.0), (2, 30.0, 30.0), (1, 5.0, 8.0), (1, 25.0, 25.0)):
        holdings.keep(3, Kept(key, mark, 0, met, mark))
    holdings.hold_time_back(3)
    assert [(one.key, one.watermark) for one in holdings.kept[3]] == [
        (1, 8.0), (2, 30.0), (1, 5.0), (1, 25.0),
    ]  # fmt: skip
    assert [one.mark for one in holdings.kept[3]] == [20.0, 30.0, 8.0, 25.0]
