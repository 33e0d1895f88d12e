"""Logs are lists whose items keep their numbers; sessions are found by their time."""

from __future__ import annotations

import pickle
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from anabranch.runtime.keyed.panes import Starts
from anabranch.runtime.keyed.parts import PartLog
from anabranch.runtime.keyed.windows import Window

acts = st.lists(
    st.tuples(st.just("add"), st.integers(1, 5))
    | st.tuples(st.just("drop"), st.integers(0, 4))
    | st.tuples(st.just("tell"), st.just(0))
    | st.tuples(st.just("copy"), st.just(0)),
    max_size=40,
)


@given(acts)
def test_a_log_made_of_what_another_has_told_is_like_it(acts: list[Any]) -> None:
    log, other, plain, number = PartLog(), PartLog(), list[int](), 0
    for act, n in acts:
        if act == "add":
            for _ in range(n):
                log.append(number)
                plain.append(number)
                number += 1
        elif act == "drop":
            n = min(n, len(log))
            log.drop(n)
            del plain[:n]
        elif act == "tell":
            other.take_in(pickle.loads(pickle.dumps(log.news())))
            assert other == log
        else:
            log, old = log.copy(), log
            assert old == log
        assert ([*log], len(log), log.end) == (plain, len(plain), number)
        assert log.last(3) == plain[-3:]


def test_a_copy_stays_as_it_is_whichever_is_added_to_first() -> None:
    for first in 0, 1:
        both = (one := PartLog([1, 2])), one.copy()
        both[first].append(3)
        both[1 - first].append(4)
        assert [*both[first]] == [1, 2, 3]
        assert [*both[1 - first]] == [1, 2, 4]


def test_pieces_may_come_before_or_behind_what_was_added_later() -> None:
    log, other = PartLog(range(10)), PartLog()
    log.news()
    first = log.span(0, 4)
    other.take_in(first)
    log.append(10)
    other.take_in(log.news())
    assert [*other] == [0, 1, 2, 3, *[None] * 6, 10]
    other.take_in(log.span(4, 4))
    other.take_in(log.span(8, 4))
    assert other == log


@given(st.lists(st.integers(0, 3000).map(float), max_size=300, unique=True), st.data())
def test_those_that_meet_a_window_are_found_with_the_one_before_it(
    starts: list[float], data: st.DataObject
) -> None:
    index, plain = Starts((start, -start) for start in starts[::2]), {*starts[::2]}
    for start in starts[1::2]:
        index.add(start, -start)
        plain.add(start)
    for start in data.draw(st.sets(st.sampled_from(starts))) if starts else ():
        index.remove(start)
        plain.discard(start)
    window = Window(float(data.draw(st.integers(-5, 3005))), 3010.0)
    window = Window(window.start, window.start + data.draw(st.integers(1, 400)))
    before = sorted(start for start in plain if start <= window.start)[-1:]
    inside = sorted(start for start in plain if window.start < start < window.end)
    assert [*index.meeting(window)] == [(start, -start) for start in before + inside]


def test_of_thousands_of_sessions_only_those_that_meet_are_looked_at() -> None:
    index = Starts((float(n), float(n)) for n in range(5000))
    for n in range(5000, 20_000):
        index.add(float(n), float(n))
    assert len([*index.meeting(Window(700.5, 701.5))]) == 2
    assert max(map(len, index._lists)) <= 1024
