"""Tuples made by a function of their number, as fast as they are taken or along a rate curve.

Along a curve, a split is a slice of time: the numbers that are due in it, given by the integral of
the rate. Slices are handed out in order of time and a reader waits for its own, so the total rate
is that of the curve however many instances read. A reader that is late emits at once what is due.
Time counts from the beginning of the run.
"""

from __future__ import annotations

import asyncio
import math
import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from itertools import count as count_up
from typing import Any, Protocol, runtime_checkable

from anabranch.runtime.plan.ends import (
    Chunk,
    DeadLetter,
    Offered,
    Reader,
    RunContext,
    Source,
    Split,
)
from anabranch.runtime.ports.clock import monotonic
from anabranch.runtime.processing.own import OwnWatch
from anabranch.runtime.processing.plain_calls import NoLoop
from anabranch.runtime.processing.stages import call_each
from anabranch.runtime.values.foreign import describe
from anabranch.runtime.values.raised import where_raised

Rate = float | Callable[[float], float]

SLICE_S = 0.1
SPLIT_TUPLES = 4096
_SLICES_PER_PULL_MAX = 20
_STEP_S = 0.01
_WAIT_S_MIN = 0.002
_WORK_S_MAX = 0.005


class RateError(ValueError):
    """A rate that is a function fails, or gives what is none. The message says for which time."""


@runtime_checkable
class Integral(Protocol):
    """A curve that gives how many tuples are due by a time, as those of the workloads do."""

    def due(self, t_s: float, /) -> float: ...


@dataclass(frozen=True)
class Generate(Source):
    fn: Callable[..., Any]
    rate: Rate | None = None
    count: int | None = None
    duration_s: float | None = None
    seed: int | None = None
    clock: Callable[[], float] = monotonic
    bounded: bool = field(init=False)
    watch: OwnWatch = field(init=False, repr=False, compare=False, default_factory=OwnWatch)
    """Of what the function has returned in this process, whichever split it was for."""

    def __post_init__(self) -> None:
        if self.duration_s is None and self.rate is not None:
            object.__setattr__(self, "duration_s", getattr(self.rate, "ends_s", None))
        ends = self.count is not None or self.duration_s is not None
        object.__setattr__(self, "bounded", ends)

    def splits(self) -> Iterator[Split]:
        return self._numbers() if self.rate is None else self._slices(due_by(self.rate))

    def open(self, split: Split, context: RunContext) -> Reader:
        return GenerateReader(split, self, context.started_s)

    def size(self) -> float | None:
        """Tuples; None if endless, or if only the time decides."""
        sizes = [] if self.count is None else [self.count]
        if self.duration_s is not None and self.rate is not None:
            due = due_by(self.rate)
            sizes.append(int(due(self.duration_s) + 1e-9))
        return float(min(sizes)) if sizes else None

    def _numbers(self) -> Iterator[Split]:
        began = self.clock()
        for first in count_up(0, SPLIT_TUPLES):
            left = SPLIT_TUPLES if self.count is None else min(SPLIT_TUPLES, self.count - first)
            late = self.duration_s is not None and self.clock() - began >= self.duration_s
            if left <= 0 or late:
                return
            yield {"first": first, "next": first, "count": left}

    def _slices(self, due: Callable[[float], float]) -> Iterator[Split]:
        """Slices in which something is due; at most so many empty ones are looked at at once."""
        first, from_s, empty = 0, 0.0, 0
        for number in count_up(1):
            to_s = number * SLICE_S
            if self.duration_s is not None:
                to_s = min(to_s, self.duration_s)
            total = int(due(to_s) + 1e-9)
            if self.count is not None:
                total = min(total, self.count)
            empty = empty + 1 if total <= first else 0
            if not empty or empty >= _SLICES_PER_PULL_MAX:
                count = total - first
                times = {"from_s": from_s, "to_s": to_s}
                yield {"first": first, "next": first, "count": count, **times}
                empty = 0
            if total == self.count or to_s == self.duration_s:
                return
            first, from_s = total, to_s


def generate(
    fn: Callable[..., Any],
    *,
    rate: Rate | None = None,
    count: int | None = None,
    duration_s: float | None = None,
    seed: int | None = None,
) -> Generate:
    """`fn(0)`, `fn(1)`, … : `count` tuples, or for `duration_s` seconds, or without an end.

    `rate`: tuples per second, a number or a function of the seconds since the beginning; None
    gives them as fast as they are taken. A rate that fails, or gives less than 0 or no number, ends
    the run, or does not let it begin. A number for which `fn` fails is a dead letter. `seed`: if
    given, `fn(i, rng)` is called with a `random.Random` that depends on `seed` and `i` only, so
    that every run makes the same tuples.
    Raises `ValueError` for settings that make no sense.
    """
    if not callable(fn):
        raise ValueError(f"generate: expected a function of a number, got {fn!r}")
    if rate is not None and not isinstance(rate, (int, float, Integral)) and not callable(rate):
        raise ValueError(f"generate: rate must be a number or a function, got {rate!r}")
    if isinstance(rate, (int, float)) and not 0 < rate < math.inf:
        raise ValueError(f"generate: rate must be above 0, and finite, got {rate}")
    if count is not None and not (isinstance(count, int) and count >= 0):
        raise ValueError(f"generate: count must be a whole number, 0 or more, got {count!r}")
    if duration_s is not None and not duration_s > 0:
        raise ValueError(f"generate: duration_s must be above 0, got {duration_s}")
    return Generate(fn, rate, count, duration_s, seed)


def due_by(rate: Rate) -> Callable[[float], float]:
    """How many tuples are due by a time; to be asked for times that do not go back. Raises
    `RateError` if the rate fails, or is no rate."""
    if isinstance(rate, Integral):
        return lambda t_s: _sound("rate.due", rate.due, t_s)
    if isinstance(rate, (int, float)):
        return lambda t_s: rate * t_s
    at, total = 0.0, 0.0

    def due(t_s: float) -> float:
        nonlocal at, total
        while at < t_s - 1e-12:
            step = min(_STEP_S, t_s - at)
            total += step * _sound("rate", rate, at + step / 2)
            at += step
        return total

    return due


def _sound(what: str, fn: Callable[[float], float], t_s: float) -> float:
    """What a function of the user's returns for a time, if that is a number, 0 or more."""
    try:
        with NoLoop():
            value = float(fn(t_s))
    except Exception as error:
        where = where_raised(error)
        raise RateError(
            f"generate: {what}({t_s:g}) raised {describe(error)}{f' ({where})' if where else ''}"
        ) from None
    if not 0 <= value < math.inf:
        raise RateError(
            f"generate: {what}({t_s:g}) gave {value:g}; expected tuples per second, 0 or more"
        )
    return value


def _rate_at(rate: Rate | None, t_s: float, unknown: float) -> float:
    if isinstance(rate, (int, float)):
        return float(rate)
    return _sound("rate", rate, t_s) if callable(rate) else unknown


def _due_at(rate: Rate | None, t_s: float, unknown: float) -> float:
    return _sound("rate.due", rate.due, t_s) if isinstance(rate, Integral) else unknown


class GenerateReader(Reader):
    def __init__(self, split: Split, source: Generate, started_s: float) -> None:
        self._split = split
        self._source = source
        self._fn = source.fn if source.seed is None else _seeded(source.fn, source.seed)
        self._clock = source.clock
        self._started_s = started_s
        self._first: int = split["first"]
        self._end: int = self._first + split["count"]
        self._next: int = split["next"]
        self._slice: tuple[float, float] | None = None
        if "to_s" in split:
            self._slice = (split["from_s"], split["to_s"])
        self._at_once = 64

    async def read(self, tuples_max: int, bytes_max: int) -> Chunk | None:
        asked_s = began = monotonic()
        while (ready := self._due() - self._next) <= 0:
            wait_s = self._wait_s()
            if wait_s <= 0:
                return None
            await asyncio.sleep(wait_s)
            began = monotonic()
        numbers = range(self._next, self._next + min(ready, tuples_max, self._at_once))
        with NoLoop():
            tuples, errors = self._call(numbers)
        self._next = numbers.stop
        self._adapt(len(numbers), monotonic() - began)
        dead = [
            DeadLetter(describe(e), numbers[i], where_raised(e) or f"tuple {numbers[i]}")
            for i, e in errors.items()
        ]
        return Chunk(tuples, dead, float(len(numbers)), began - asked_s)

    def _call(self, numbers: range) -> tuple[list[Any], dict[int, BaseException]]:
        watch = self._source.watch
        if not watch.on:
            return call_each(self._fn, numbers)
        done = call_each(lambda number: watch.taken(self._fn(number)), numbers)
        watch.look()
        return done

    def remainder(self) -> Split | None:
        if self._next == self._end and self._wait_s() <= 0:
            return None
        return {**self._split, "next": self._next}

    def offered(self) -> Offered | None:
        """By the rate now; where that has no integral, what is due beyond this slice is taken as
        if the rate had changed evenly since. One that fails ends the run where slices are made."""
        if self._slice is None:
            return None
        from_s, to_s = self._slice
        passed_s = self._clock() - self._started_s
        per_s = (self._end - self._first) / (to_s - from_s)
        ends_s, size = self._source.duration_s, self._source.size()
        upto_s = passed_s if ends_s is None else min(passed_s, ends_s)
        late_s = max(0.0, upto_s - to_s)
        try:
            present = _rate_at(self._source.rate, passed_s, per_s)
            due = _due_at(self._source.rate, upto_s, self._end + late_s * (per_s + present) / 2)
        except RateError:
            return None
        if late_s <= 0:
            due = float(self._due())
        if size is not None and due >= size:
            due, present = size, 0.0
        over = ends_s is not None and passed_s >= ends_s
        return Offered(0.0 if over else present, max(0.0, due - self._next))

    def _due(self) -> int:
        """The number behind the last one that is due."""
        if self._slice is None:
            return self._end
        from_s, to_s = self._slice
        passed = self._clock() - self._started_s
        if passed >= to_s:
            return self._end
        share = max(0.0, passed - from_s) / (to_s - from_s)
        return min(self._end, self._first + int(share * (self._end - self._first) + 0.5))

    def _wait_s(self) -> float:
        """Until the next number is due, or, behind the last, the slice is over."""
        if self._slice is None:
            return 0.0
        from_s, to_s = self._slice
        is_read = self._next == self._end
        due_s = to_s if is_read else self._next_due_s(from_s, to_s)
        left_s = due_s - (self._clock() - self._started_s)
        if not is_read:
            return max(left_s, _WAIT_S_MIN)
        return left_s if self._first == self._end else 0.0

    def _next_due_s(self, from_s: float, to_s: float) -> float:
        """When the next number is due, in a slice between these times."""
        share = (self._next - self._first + 0.5) / (self._end - self._first)
        return from_s + share * (to_s - from_s)

    def _adapt(self, taken: int, busy_s: float) -> None:
        fitting = int(taken * _WORK_S_MAX / busy_s) if busy_s > 0 else 2 * taken
        self._at_once = max(1, min(fitting, 2 * max(taken, self._at_once)))


def _seeded(fn: Callable[..., Any], seed: int) -> Callable[[int], Any]:
    rng = random.Random(seed)

    def call(number: int) -> Any:
        rng.seed(seed * 2**64 + number)
        return fn(number, rng)

    return call
