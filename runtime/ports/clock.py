"""Time and chance. No other module of the runtime asks the system for either.

A program has one clock: the system's, except within `using(another)`, where a simulated world
runs whose time is its own. So functions may be bound once (`now = clock.monotonic`): they ask the
present clock. They are functions and not methods of an object that everything is given,
since the time is asked for where a batch is processed, and pickled where a source holds one.

Timers and pauses of asynchronous code are those of its event loop (`asyncio.sleep`,
`loop.call_later`, `loop.time`): a simulated world brings a loop of its own. A task that repeats
something at intervals, and for which nothing waits, is created in a `periodic` context: some worlds
leave such tasks out.
"""

from __future__ import annotations

import os
import random
import time
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import Context, ContextVar, copy_context
from datetime import UTC, datetime
from pathlib import Path
from typing import Protocol

_SCHEDSTAT = Path("/proc/self/schedstat")
_STAT = Path("/proc/stat")


class Clock(Protocol):
    """Seconds, all of them."""

    @property
    def chance(self) -> random.Random:
        """What is drawn from it need not be the same in each run."""
        ...

    def monotonic(self) -> float:
        """Never goes back; its zero has no meaning."""
        ...

    def wall(self) -> float:
        """Since 1970; may jump."""
        ...

    def process_s(self) -> float:
        """Processor time of this process."""
        ...

    def thread_s(self) -> float:
        """Processor time of this thread."""
        ...

    def cpu_wait_s(self) -> float | None:
        """How long this process was ready to run and did not, since it began; None if not measured.
        A function that sleeps or waits for input does not count, unlike in a comparison of
        processor time with wall time."""
        ...

    def host_cpu_s(self) -> float | None:
        """How long the host's processors have been in use since it began, those of all together;
        None if not measured."""
        ...

    def pause(self, seconds: float) -> None:
        """Let the time pass. Nothing else happens in this thread meanwhile."""
        ...

    def secret(self, count: int) -> bytes:
        """`count` bytes that no other program can guess."""
        ...


class SystemClock:
    chance = random.SystemRandom()  # which a fork does not copy

    monotonic = staticmethod(time.monotonic)
    wall = staticmethod(time.time)
    process_s = staticmethod(time.process_time)
    thread_s = staticmethod(time.thread_time)
    pause = staticmethod(time.sleep)
    secret = staticmethod(os.urandom)

    def cpu_wait_s(self) -> float | None:
        """Linux only: nanoseconds on the run queue."""
        try:
            return int(_SCHEDSTAT.read_text().split()[1]) / 1e9
        except (OSError, IndexError, ValueError):
            return None

    def host_cpu_s(self) -> float | None:
        """Linux only."""
        try:
            with _STAT.open("rb") as stat:
                fields = list(map(int, stat.readline().split()[1:9]))
            idle = fields[3] + fields[4]
            return (sum(fields) - idle) / os.sysconf("SC_CLK_TCK")
        except (OSError, IndexError, ValueError):
            return None


class ShiftedClock(SystemClock):
    """The system's, whose `monotonic` is that of another host."""

    def __init__(self, ahead_s: float) -> None:
        self._ahead_s = ahead_s

    def monotonic(self) -> float:
        return time.monotonic() - self._ahead_s


# A function of its own for each, because a look into an object costs as much as the answer.
_clock: Clock = SystemClock()
_monotonic, _wall, _thread_s = _clock.monotonic, _clock.wall, _clock.thread_s


def monotonic() -> float:
    return _monotonic()


def wall() -> float:
    return _wall()


def process_s() -> float:
    return _clock.process_s()


def thread_s() -> float:
    return _thread_s()


def cpu_wait_s() -> float | None:
    return _clock.cpu_wait_s()


def host_cpu_s() -> float | None:
    return _clock.host_cpu_s()


def pause(seconds: float) -> None:
    _clock.pause(seconds)


def secret(count: int) -> bytes:
    return _clock.secret(count)


def chance() -> random.Random:
    """Not to be kept: after a fork, and in another world, it is another one."""
    return _clock.chance


_periodic: ContextVar[bool] = ContextVar("periodic", default=False)


def periodic() -> Context:
    """The context for a periodic task."""
    context = copy_context()
    context.run(_periodic.set, True)
    return context


def is_periodic() -> bool:
    """Whether the caller is a periodic task."""
    return _periodic.get()


def wall_utc() -> datetime:
    return datetime.fromtimestamp(wall(), UTC)


def wall_here() -> datetime:
    """With the time zone of this host."""
    return wall_utc().astimezone()


def tell_time_of(ahead_s: float) -> None:
    """From now on, `monotonic` of this process is that of a host compared with which the clock of
    this one is ahead."""
    if ahead_s:
        _take(ShiftedClock(ahead_s))


@contextmanager
def using(clock: Clock) -> Iterator[None]:
    """Take time and chance from `clock` meanwhile, in all threads."""
    before = _clock
    _take(clock)
    try:
        yield
    finally:
        _take(before)


def _take(clock: Clock) -> None:
    global _clock, _monotonic, _wall, _thread_s
    _clock = clock
    _monotonic, _wall, _thread_s = clock.monotonic, clock.wall, clock.thread_s
