"""Timers come up once, in the order of their times, however often they were moved."""

from __future__ import annotations

import math
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from anabranch.runtime.keyed.schedule import SWEEP_ABOVE
from anabranch.runtime.keyed.timers import Timers


def due(timers: Timers, until: float = math.inf) -> list[tuple[Any, str, float]]:
    return list(timers.due(until, lambda key: True))


def test_timers_come_up_by_time_and_then_by_key() -> None:
    timers = Timers()
    for key, at in [("c", 1.0), ("a", 2.0), ("b", 1.0), ("a", 1.0)]:
        timers.set(key, f"t{at:g}", at)
    assert due(timers) == [("a", "t1", 1), ("b", "t1", 1), ("c", "t1", 1), ("a", "t2", 2)]
    assert due(timers) == []


def test_keys_of_different_types_have_an_order_too() -> None:
    timers, again = Timers(), Timers()
    keys = [None, 1, "a", b"a", (1, "a"), 2.5]
    for key in keys:
        timers.set(key, "", 1.0)
    for key in reversed(keys):
        again.set(key, "", 1.0)
    assert due(timers) == due(again)


def test_a_timer_that_is_set_again_moves() -> None:
    timers = Timers()
    timers.set("k", "", 5.0)
    timers.set("k", "", 9.0)
    assert due(timers, 8.0) == []
    timers.set("k", "", 3.0)
    assert timers.next_at() == 3.0
    assert due(timers) == [("k", "", 3.0)]
    assert len(timers) == 0


def test_a_cancelled_timer_does_not_come_up() -> None:
    timers = Timers()
    timers.set("k", "one", 1.0)
    timers.set("k", "two", 2.0)
    timers.cancel("k", "one")
    timers.cancel("k", "never set")
    assert due(timers) == [("k", "two", 2.0)]
    assert not timers.has("k")


def test_a_timer_set_while_others_come_up_comes_up_in_its_turn() -> None:
    timers, seen = Timers(), []
    timers.set("k", "first", 1.0)
    timers.set("k", "third", 3.0)
    for key, name, _ in timers.due(10.0, lambda key: True):
        seen.append(name)
        if name == "first":
            timers.set(key, "second", 2.0)
            timers.set(key, "not yet", 11.0)
    assert seen == ["first", "second", "third"]
    assert timers.next_at() == 11.0


def test_timers_of_keys_that_may_not_fire_sleep_until_they_are_woken() -> None:
    timers = Timers()
    timers.set("here", "", 1.0)
    timers.set("away", "", 1.0)
    assert list(timers.due(2.0, lambda key: key == "here")) == [("here", "", 1.0)]
    assert timers.next_at() == math.inf
    assert timers.has("away")
    timers.wake(["away"])
    assert due(timers) == [("away", "", 1.0)]


def test_what_is_taken_can_be_put_elsewhere() -> None:
    timers, other = Timers(), Timers()
    timers.set("k", "a", 1.0)
    timers.set("k", "b", 2.0)
    other.put("k", timers.take(["k"])[0])
    assert (len(timers), len(other)) == (0, 2)
    assert due(timers) == due(other) == []
    other.wake(["k"])
    assert due(other) == [("k", "a", 1.0), ("k", "b", 2.0)]


def test_a_timer_that_moves_for_ever_takes_no_more_room() -> None:
    timers = Timers()
    for at in range(10_000):
        timers.set("k", "", float(at))
    assert len(timers.heap) <= 4 + SWEEP_ABOVE
    assert timers._entries <= 4 + SWEEP_ABOVE
    assert due(timers) == [("k", "", 9999.0)]


def test_a_timer_that_moves_to_and_fro_for_ever_takes_no_more_room() -> None:
    timers = Timers()
    for n in range(10_000):
        timers.set("k", "", float(n % 2))
    assert sum(map(len, timers._entries_at.values())) <= 4 + SWEEP_ABOVE
    assert due(timers) == [("k", "", 1.0)]


changes = st.lists(
    st.tuples(
        st.sampled_from("abc"),
        st.sampled_from(["x", "y"]),
        st.none() | st.integers(0, 9).map(float),
    ),
    max_size=40,
)


@given(changes, changes, st.integers(0, 9))
def test_what_comes_up_is_what_was_set_last(first: Any, second: Any, until: int) -> None:
    timers = Timers()
    model: dict[tuple[str, str], float] = {}
    for batch, limit in ((first, float(until)), (second, math.inf)):
        for key, name, at in batch:
            if at is None:
                timers.cancel(key, name)
                model.pop((key, name), None)
            else:
                timers.set(key, name, at)
                model[key, name] = at
        expected = sorted((at, key, name) for (key, name), at in model.items() if at <= limit)
        assert due(timers, limit) == [(key, name, at) for at, key, name in expected]
        model = {k: at for k, at in model.items() if at > limit}
        assert len(timers) == len(model)
