"""The clock of a program is the system's, or that of a simulated world."""

from __future__ import annotations

import pickle
import random
import time
from datetime import UTC, datetime

import pytest

from anabranch.runtime.ports import clock

HOUR = 3600.0


class Made:
    """A clock that tells what it was told to."""

    chance = random.Random(7)

    def __init__(self) -> None:
        self.paused: list[float] = []

    def monotonic(self) -> float:
        return 1.0

    def wall(self) -> float:
        return HOUR

    def process_s(self) -> float:
        return 3.0

    def thread_s(self) -> float:
        return 4.0

    def cpu_wait_s(self) -> float | None:
        return 5.0

    def host_cpu_s(self) -> float | None:
        return None

    def pause(self, seconds: float) -> None:
        self.paused.append(seconds)

    def secret(self, count: int) -> bytes:
        return bytes(count)


def told() -> tuple[float, float, float, float, bytes]:
    return clock.monotonic(), clock.wall(), clock.process_s(), clock.thread_s(), clock.secret(2)


def test_the_clock_is_the_system_s() -> None:
    before = time.monotonic(), time.time(), time.process_time(), time.thread_time()
    *asked, secret = told()
    after = time.monotonic(), time.time(), time.process_time(), time.thread_time()
    assert all(b <= a <= c for b, a, c in zip(before, asked, after, strict=True))
    assert len(secret) == 2
    assert clock.secret(16) != clock.secret(16)
    assert clock.wall_here().tzinfo is not None


def test_a_world_has_its_own_also_for_a_function_that_was_bound_before() -> None:
    now, made = clock.monotonic, Made()
    with clock.using(made):
        assert told() == (1.0, HOUR, 3.0, 4.0, b"\0\0")
        assert now() == 1.0
        assert clock.chance() is made.chance
        assert (clock.cpu_wait_s(), clock.host_cpu_s()) == (5.0, None)
        assert clock.wall_utc() == datetime(1970, 1, 1, 1, tzinfo=UTC)
        clock.pause(5.0)
    assert made.paused == [5.0]
    assert now() > 1.0
    assert isinstance(clock.chance(), random.SystemRandom)


def test_the_clock_is_the_former_one_again_after_an_error() -> None:
    with pytest.raises(KeyError), clock.using(Made()):
        raise KeyError
    assert clock.process_s() == pytest.approx(time.process_time(), abs=1.0)


def test_what_holds_a_clock_can_be_sent_to_another_process() -> None:
    assert pickle.loads(pickle.dumps(clock.monotonic)) is clock.monotonic
