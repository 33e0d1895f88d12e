"""Windows: which stretches of event time, or of tuples, are looked at together.

    tumbling(60)          [0, 60) [60, 120) …            each tuple is in one
    sliding(60, every=10) [0, 60) [10, 70) [20, 80) …    each tuple is in six
    session(gap=30)       from a tuple on, until none has come for 30 s
    count(2000, every=10) the last 2,000 tuples, at every tenth

Times are seconds. A window holds the times from its start up to, and without, its end.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any, NamedTuple

from anabranch.runtime.values.sharing import RECORDS

WINDOWS_OF_A_TUPLE_MAX = 10_000
_DECIMAL_MAX = 10**9
_SIMPLE_MAX = 10_000


class Window(NamedTuple):
    """A stretch of event time, in seconds; of a count window: how many tuples of the key had come
    before its first and with its last."""

    start: float
    end: float


class WindowResult(NamedTuple):
    """What was made of a window. `revision`: 0 when it has just ended; more each time that a late
    tuple has changed it. Of the results of a key and a start, the last one is right.

    `retracted`: there is no such window any more. It was a session, and a late tuple has joined it
    with the one before it, which begins earlier; or a window over results, all of which were
    retracted. Its `value` is what the aggregation makes of no tuples at all, such as 0 of
    `ab.tally()`, or None. Not one of the five fields, so it is in files only if it is put there.
    """

    key: Any
    start: float
    end: float
    value: Any
    revision: int = 0

    @property
    def retracted(self) -> bool:
        return False

    @property
    def earlier_end(self) -> float | None:
        """The end that this session had in the result emitted before, if it was another one."""
        return None


RECORDS.add(WindowResult)


class Retraction(WindowResult):
    """The retraction of a window that has emitted a result and does not exist any more."""

    __slots__ = ()

    def __repr__(self) -> str:
        return f"{WindowResult(*self)!r}".removesuffix(")") + ", retracted=True)"

    @property
    def retracted(self) -> bool:
        return True


class Moved(WindowResult):
    """The result of a session that has another end than in the result before."""

    def __repr__(self) -> str:
        return repr(WindowResult(*self))

    @classmethod
    def of(cls, result: WindowResult, earlier_end: float) -> Moved:
        moved = cls(*result)
        moved.__dict__["earlier_end"] = earlier_end
        return moved

    @property
    def earlier_end(self) -> float | None:
        end: float = self.__dict__["earlier_end"]
        return end


def window_time(result: WindowResult) -> float:
    """The event time of a result, for windows of windows: the last moment before its end."""
    return math.nextafter(result.end, -math.inf)


@dataclass(frozen=True, slots=True)
class Sliding:
    """`size_s` long, one starting every `every_s` seconds; tumbling if these are equal.

    Lengths are what their decimals mean, and bounds the floats next to the exact ones: a tenth of a
    second is 1/10, the third window of it starts at 0.3, and so the time 0.3 is in that one.
    """

    size_s: float
    every_s: float
    _step: int = field(init=False, repr=False, compare=False)
    _span: int = field(init=False, repr=False, compare=False)
    _per_s: int = field(init=False, repr=False, compare=False)
    """`every_s` and `size_s` are `_step` and `_span` of so many parts of a second."""

    def __post_init__(self) -> None:
        every, size = said(self.every_s), said(self.size_s)
        nearest = round(size / every)
        if math.isclose(nearest * every, size, rel_tol=1e-9):  # 0.7 of an `every` of 0.7 / 3
            size = nearest * every
        per_s = math.lcm(every.denominator, size.denominator)
        object.__setattr__(self, "_step", int(every * per_s))
        object.__setattr__(self, "_span", int(size * per_s))
        object.__setattr__(self, "_per_s", per_s)

    def windows_of(self, at: float) -> list[Window]:
        """All that hold a time, earliest first; at least one. Raises `ValueError` for a time so
        large that its windows cannot be distinguished."""
        step, span, per_s = self._step, self._span, self._per_s
        if math.ulp(at) > self.every_s / 8:
            raise ValueError(
                f"event time {at:g} is too large for {self}; expected seconds, perhaps this is in "
                "milliseconds or nanoseconds"
            )
        last = math.floor(at / self.every_s) * step
        while last / per_s > at:  # the division may have rounded up, or down
            last -= step
        while (last + step) / per_s <= at:
            last += step
        windows = []
        while (end := (last + span) / per_s) > at:
            windows.append(Window(last / per_s, end))
            last -= step
        return windows[::-1]

    def __str__(self) -> str:
        if self.size_s == self.every_s:
            return f"tumbling({self.size_s:g})"
        return f"sliding({self.size_s:g}, every={self.every_s:g})"


@dataclass(frozen=True, slots=True)
class Session:
    """A tuple that comes exactly `gap_s` after the one before it is in a new session."""

    gap_s: float

    def end_of(self, at: float) -> float:
        """`gap_s` after a time; where that is no whole number, the float next to what their
        decimals sum up to: 0.3 for 0.1 after 0.2."""
        end = at + self.gap_s
        if self.gap_s % 1 == 0 or not math.isfinite(end):
            return end
        return round(end, math.floor(-math.log10(4 * math.ulp(end))))

    def __str__(self) -> str:
        return f"session(gap={self.gap_s:g})"


@dataclass(frozen=True, slots=True)
class Count:
    tuples: int
    every: int

    def __str__(self) -> str:
        return f"count({self.tuples}, every={self.every})"


AnyWindow = Sliding | Session | Count


def tumbling(size_s: float) -> Sliding:
    """Windows of `size_s` seconds, one behind the other. Raises `ValueError` unless above 0."""
    size_s = _seconds("tumbling: size_s", size_s)
    return Sliding(size_s, size_s)


def sliding(size_s: float, *, every: float) -> Sliding:
    """Windows of `size_s` seconds that start every `every` seconds (at most `size_s`, or tuples
    between them would be lost). Raises `ValueError`."""
    size_s, every = _seconds("sliding: size_s", size_s), _seconds("sliding: every", every)
    if every > size_s:
        raise ValueError(
            f"sliding: every={every:g} is longer than the windows ({size_s:g} s); "
            "tuples between two windows would be lost"
        )
    if size_s / every > WINDOWS_OF_A_TUPLE_MAX:
        raise ValueError(
            f"sliding: each tuple would be in {size_s / every:,.0f} windows, "
            f"expected {WINDOWS_OF_A_TUPLE_MAX:,} or fewer; choose a longer every"
        )
    return Sliding(size_s, every)


def session(gap: float) -> Session:
    """Windows that end when no tuple of the key has come for `gap` seconds of event time."""
    return Session(_seconds("session: gap", gap))


def count(tuples: int, *, every: int | None = None) -> Count:
    """The last `tuples` tuples of a key, at every `every`-th (default `tuples`: one behind the
    other). The first windows hold fewer; what has come since the last one makes a window at the
    end of the stream. Raises `ValueError`."""
    every = tuples if every is None else every
    for name, number in (("tuples", tuples), ("every", every)):
        if isinstance(number, bool) or not isinstance(number, int) or number < 1:
            raise ValueError(f"count: {name} must be a whole number above 0, got {number!r}")
    if every > tuples:
        raise ValueError(f"count: every={every} is more than the {tuples} tuples of a window")
    return Count(tuples, every)


def said(seconds: float) -> Fraction:
    """The number that is meant by a float: its shortest decimal, or a simple fraction such as 1/3
    where that takes many digits."""
    decimal = Fraction(repr(seconds))
    if decimal.denominator > _DECIMAL_MAX:
        simple = decimal.limit_denominator(_SIMPLE_MAX)
        if float(simple) == seconds:
            return simple
    return decimal


def _seconds(what: str, value: float) -> float:
    good = isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
    if not good or value <= 0:
        raise ValueError(f"{what} must be a number of seconds above 0, got {value!r}")
    return float(value)
