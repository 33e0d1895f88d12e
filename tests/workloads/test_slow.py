"""Operators that are as slow as on a small machine."""

from __future__ import annotations

import pytest

from anabranch.workloads.slow import AHEAD_S, Slowed


class World:
    """A clock, and sleep that takes `late_s` longer than asked."""

    def __init__(self, late_s: float = 0.0) -> None:
        self.now, self.late_s, self.naps = 50.0, late_s, 0

    def clock(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        assert seconds > 0
        self.now += seconds + self.late_s
        self.naps += 1


def slowed(world: World, work_s: float, calls_per_s: float) -> Slowed[[int], int]:
    def double(n: int) -> int:
        world.now += work_s
        return 2 * n

    return Slowed(double, calls_per_s, clock=world.clock, sleep=world.sleep)


@pytest.mark.parametrize("late_s", [0.0, 0.0004])
def test_calls_take_the_given_time_and_give_what_they_gave(late_s: float) -> None:
    world = World(late_s)
    fn = slowed(world, work_s=0.0001, calls_per_s=2000)
    assert [fn(n) for n in range(1000)] == [2 * n for n in range(1000)]
    assert world.now - 50 == pytest.approx(0.5, abs=0.002)
    assert world.naps <= 500


def test_work_that_is_slow_itself_is_not_slowed_further() -> None:
    world = World()
    fn = slowed(world, work_s=0.01, calls_per_s=1000)
    for n in range(10):
        fn(n)
    assert world.naps == 0


def test_a_very_late_sleep_is_made_up_for_within_bounds() -> None:
    world = World(late_s=1.0)
    fn = slowed(world, work_s=0, calls_per_s=1000)
    fn(1)
    assert world.naps == 1
    world.late_s = 0
    before = world.now
    for n in range(1000):
        fn(n)
    assert world.now - before >= 1 - AHEAD_S - 0.002


def test_an_exception_costs_time_too() -> None:
    world = World()

    def fail() -> None:
        raise RuntimeError("broken")

    fn = Slowed(fail, 100, clock=world.clock, sleep=world.sleep)
    with pytest.raises(RuntimeError, match="broken"):
        fn()
    assert world.now - 50 == pytest.approx(0.01)


def test_a_rate_of_nothing_is_refused() -> None:
    with pytest.raises(ValueError, match="above 0"):
        Slowed(len, 0)
